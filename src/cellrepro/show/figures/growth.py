"""How the difference of two runs grows over the epochs: weights, pixels, cells, scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.show.figures import style
from cellrepro.show.figures.style import PALE, SERIES, Picture
from cellrepro.text import amount, ppm_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.lab.growth import Moment

_MOST_NUMBERS = 12  # points that get their number written beside them
_BAR: dict[str, Any] = {"edgecolor": "#555555", "linewidth": 0.6}


def growth_curve(moments: Sequence[Moment], *, at_operation: float | None = None) -> Picture:
    """How the difference of two runs grows over the epochs: weights, pixels, cells, scores.

    Zero has a place of its own under the logarithmic axes.

    Parameters
    ----------
    moments : sequence of Moment
        From `cellrepro.growth`, in the order of their epochs.
    at_operation : float, optional
        Largest difference at the operation where the two diverged, in the units of its outputs.
    """
    if not moments:
        raise BadInput("no moment was given to draw; give what `cellrepro.growth` returns")
    masked = [moment for moment in moments if moment.ppm is not None]
    counted = [moment for moment in masked if moment.lost is not None]
    scored = [moment for moment in masked if moment.ap50 is not None]
    parts = [(1.5, _weights, moments), (1.1, _pixels, masked), (0.9, _cells, counted)]
    drawn = [part for part in (*parts, (0.9, _scores, scored)) if part[2]]
    ratios = [ratio for ratio, _, _ in drawn]
    figure = Picture(height=1.2 + 1.6 * sum(ratios))
    grid = figure.subplots(len(drawn), 1, sharex=True, height_ratios=ratios, squeeze=False)
    for panel, (_, draw, chosen) in zip(grid[:, 0], drawn, strict=True):
        draw(panel, chosen)
    grid[-1, 0].set_xlabel("epochs trained", fontsize=9)
    grid[-1, 0].locator_params(axis="x", integer=True)
    n = amount(len(moments), "checkpoint")
    pixels = f"; {ppm_text(masked[-1].ppm or 0.0)} of the pixels" if masked else ""
    text = f"The weights drift apart: {moments[0].relative_l2:.2g} to "
    text += f"{moments[-1].relative_l2:.2g}{pixels}"
    if not any(moment.n_differing for moment in moments):
        text = f"The weights stay equal, bit for bit, in {n}"
    caption = (
        f"Two runs after the same epochs, {n}. Axes of lines are logarithmic; 0 has a place of its "
        "own at the foot, with hollow points. "
    )
    if at_operation is not None:
        caption += f"At the operation where they diverged they differed by {at_operation:.2g}. "
    caption += (
        "Masks are those that each run would have given had training ended there; lost cells are "
        "those of A without a match in B, gained those of B without one in A."
        if masked
        else "No masks were made along the way."
    )
    return figure.described(text, caption, f"Curves over {n}. {text}.")


def _weights(panel: Axes, moments: Sequence[Moment]) -> None:
    epochs = [moment.epoch for moment in moments]
    shares = [100 * one.n_differing / max(1, one.n_parameters) for one in moments]
    beside = panel.twinx()
    beside.bar(epochs, shares, width=_width(epochs), color=PALE, hatch="..", **_BAR)
    beside.set_ylim(0, 104)
    style.label_axes(beside, y="weights that differ (%)")
    beside.spines["right"].set_visible(True)
    panel.set_zorder(beside.get_zorder() + 1)
    panel.patch.set_visible(False)
    _curve(panel, epochs, [moment.relative_l2 for moment in moments], "o", SERIES[0])
    style.label_axes(panel, y="distance of the weights,\nrelative to their length")
    style.title(panel, "weights: line and points, left; bars, right", size=9)


def _pixels(panel: Axes, masked: Sequence[Moment]) -> None:
    values = [moment.ppm or 0.0 for moment in masked]
    epochs = [moment.epoch for moment in masked]
    _curve(panel, epochs, values, "s", SERIES[1])
    for epoch, value in zip(epochs, values, strict=True):
        if len(masked) <= _MOST_NUMBERS:
            panel.annotate(
                ppm_text(value).removesuffix(" ppm"), (epoch, value), (0, 7), ha="center",
                textcoords="offset points", fontsize=8,
            )  # fmt: skip
    style.label_axes(panel, y="differing pixels\nper million (ppm)")
    style.title(panel, "masks: pixels that differ", size=9)


def _cells(panel: Axes, counted: Sequence[Moment]) -> None:
    epochs = [moment.epoch for moment in counted]
    bars = (
        ("gained", [moment.gained or 0 for moment in counted], SERIES[3], ""),
        ("lost", [-(moment.lost or 0) for moment in counted], SERIES[2], "\\\\\\"),
    )
    look = {"width": _width(epochs), **_BAR}
    for name, values, colour, hatch in bars:
        drawn = panel.bar(epochs, values, color=colour, hatch=hatch, label=name, **look)
        if len(counted) <= _MOST_NUMBERS:
            texts = [str(abs(value)) if value else "" for value in values]
            panel.bar_label(drawn, texts, padding=2, fontsize=8)
    panel.axhline(0, color="black", lw=0.9)
    most = max(1, *(abs(value) for _, values, *_ in bars for value in values))
    panel.set_ylim(-1.45 * most, 1.45 * most)
    panel.set_yticks([0.75 * most, -0.75 * most], ["gained ↑\nonly B has", "lost ↓\nonly A has"])
    style.label_axes(panel, y="cells")
    panel.tick_params(axis="y", length=0)
    style.title(panel, "masks: cells without a counterpart", size=9)


def _scores(panel: Axes, scored: Sequence[Moment]) -> None:
    epochs = [moment.epoch for moment in scored]
    scores = zip(*(moment.ap50 for moment in scored if moment.ap50 is not None), strict=True)
    for i, values in enumerate(scores):
        panel.plot(epochs, values, ("o-", "s--")[i], color=SERIES[i], ms=5, label="AB"[i])
    panel.set_ylim(-0.04, 1.04)
    panel.legend(loc="best", fontsize=8, frameon=False, ncols=2)
    style.label_axes(panel, y="mean AP@0.5")
    style.title(panel, "against the ground truth", size=9)


def _curve(
    panel: Axes, epochs: Sequence[int], values: Sequence[float], marker: str, colour: str
) -> None:
    """A line with filled points, hollow ones at 0, and words for what is not finite."""
    style.with_zero(panel, "y", values)
    finite = [value if math.isfinite(value) else math.nan for value in values]
    panel.plot(epochs, finite, color=colour, lw=1.8, marker=marker, ms=7, mec="black", mew=0.8)
    above = panel.get_xaxis_transform()
    for epoch, value in zip(epochs, values, strict=True):
        if value == 0:
            panel.plot(epoch, 0, marker, zorder=3, mfc="white", mec="black")
        elif not math.isfinite(value):
            panel.text(epoch, 0.97, "not\nfinite", transform=above, ha="center", va="top")
    panel.axhline(0, color="#999999", lw=0.8, ls=(0, (3, 3)), zorder=1)


def _width(epochs: Sequence[int]) -> float:
    return 0.6 * float(np.diff(sorted(set(epochs))).min(initial=10))
