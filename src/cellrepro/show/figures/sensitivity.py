"""Figures of what each setting of a segmentation does to the cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cellrepro.explanation.sensitivity import Sensitivity
from cellrepro.show.figures import style
from cellrepro.show.figures.masks import difference
from cellrepro.show.figures.style import SERIES, WIDTH, Picture
from cellrepro.words import as_sentence, share_text
from samebits.words import amount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from cellrepro.explanation.variations import Example, Variant

_MOST_BARS = 14


def setting_bars(sensitivity: Sensitivity) -> Picture:
    """Draw the share of cells that each setting changes by itself.

    A bar for each value, the largest first, with its 95 % interval as a thin line. What changes no
    pixel is named in the caption.

    Parameters
    ----------
    sensitivity : Sensitivity
        From `cellrepro.sensitivity`.

    Returns
    -------
    Picture
    """
    cells = f"{amount(sensitivity.objects, 'cell')} in {amount(sensitivity.images, 'image')}"
    caption = _caption(sensitivity, cells)
    with_effect = [variant for variant in sensitivity.settings if variant.changed]
    shown = with_effect[:_MOST_BARS]
    if len(shown) < len(with_effect):
        caption += (
            f" Drawn are the first {len(shown)} of the {len(with_effect)} values that leave a cell "
            "without a match."
        )
    if not shown:
        return style.note(f"no setting leaves one of {cells} without a match").described(
            "", caption
        )
    figure = Picture(WIDTH, 1.2 + 0.34 * len(shown))
    _draw_bars(figure.subplots(), shown, sensitivity.ap50)
    first = shown[0]
    heading = (
        f"{first.setting} changes most: {first.n_changed} of the "
        f"{amount(first.n_cells, 'cell')} of both results have no match"
    )
    bars = "; ".join(f"{variant.setting}: {share_text(variant.changed)}" for variant in shown)
    return figure.described(heading, caption, f"Bar chart of cells: {bars}.")


def _draw_bars(axes: Axes, variants: Sequence[Variant], usual_ap50: float | None) -> None:
    shares = np.array([100 * variant.changed for variant in variants])
    intervals = [variant.telling_interval or 2 * (variant.changed,) for variant in variants]
    lows, highs = 100 * np.array(intervals).T
    bars = axes.barh(
        range(len(variants)),
        shares,
        xerr=np.abs([lows - shares, highs - shares]),
        error_kw={"elinewidth": 0.8, "ecolor": "#444444"},
        hatch="..",
        linewidth=0.6,
        height=0.62,
        color=SERIES[3],
        edgecolor="black",
    )
    style.rows(axes, [variant.setting for variant in variants], size=9)
    texts = [_beside(variant, usual_ap50) for variant in variants]
    style.texts_beside(axes, bars, texts, highs)
    style.label_axes(axes, x="cells without a match, % of the cells of both results")


def _caption(sensitivity: Sensitivity, cells: str) -> str:
    of_lines = as_sentence(sensitivity.intervals_text)
    if any(variant.telling_interval for variant in sensitivity.settings):
        of_lines = f"Thin lines: {of_lines}"
    caption = (
        f"The usual settings find {cells}. Beside each bar: cells without a match, of all "
        "cells of the two results together, the usual one and the one with this value. A "
        "match overlaps the cell by half or more (IoU of 0.5). "
        f"{of_lines}"
    )
    if sensitivity.ap50 is not None:
        caption += (
            " AP@0.5 is the agreement with the true masks, from 0 to 1; with the usual settings "
            f"it is {sensitivity.ap50:.2f}."
        )
    return caption


def _beside(variant: Variant, usual_ap50: float | None) -> str:
    """The text beside a bar: cells without a match, of how many, and a score if it is known."""
    parts = [f"{variant.n_changed} of {amount(variant.n_cells, 'cell')}"]
    if usual_ap50 is not None and variant.ap50 is not None:
        parts.append(f"AP@0.5 {variant.ap50:.2f}")
    return ", ".join(parts)


def setting_picture(example: Example) -> Picture:
    """Draw what one setting does to the image that it changes most."""
    picture = difference(
        example.pixels, example.usual, example.masks, name_a="usual", name_b=example.setting
    )
    share = share_text(example.share)
    return picture.described(
        f"{example.image} with {example.setting}: {share} of the cells of both have no match"
    )
