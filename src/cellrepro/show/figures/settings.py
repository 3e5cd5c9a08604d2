"""What each setting of a segmentation does to the cells: all on one scale, and on an image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.show.figures import style
from cellrepro.show.figures.masks import difference
from cellrepro.show.figures.style import SERIES, WIDTH, Picture
from cellrepro.words import amount, setting_in_words, share_text, some

if TYPE_CHECKING:
    from cellrepro.changes.sensitivity import Example, Sensitivity, Variant

_MOST = 14  # bars


def setting_bars(found: Sensitivity) -> Picture:
    """The share of cells that each setting changes, by itself; from `cellrepro.sensitivity`.

    A bar for each value, the largest first, with its 95 % interval as a black line.
    What changes no pixel is named in the caption.
    """
    shown = [one for one in found.variants if one.changed][:_MOST]
    idle = [_words(one) for one in found.variants if not one.ppm]
    of = f"{amount(found.n_objects, 'cell')} in {amount(found.n_images, 'image')}"
    caption = (
        "A cell is changed if the other masks have none that overlaps it by half (IoU 0.5), among "
        f"the cells of both, the usual and the other; {of} with the usual settings. Black lines: "
        f"95 % intervals {_over(found)}. Lost, gained, moved, split and merged are counted as "
        "`compare` does: a moved cell has its counterpart a pixel or more away, and is changed "
        "only where the two overlap by less than half."
    )
    if found.ap50 is not None:
        caption += f" AP@0.5 with the usual settings is {found.ap50:.2f}."
    if idle:
        caption += f" No pixel changes with {some(idle, len(idle))}."
    if not shown:
        return style.note(f"no setting changes any of {of}").described("", caption)
    figure = Picture(WIDTH, 1.2 + 0.34 * len(shown))
    axes = figure.subplots()
    shares = np.array([100 * one.changed for one in shown])
    ends = [[100 * end for end in one.interval or (one.changed,) * 2] for one in shown]
    reach = np.abs(np.array(ends).T - shares)
    bar: dict[str, Any] = {"height": 0.62, "color": SERIES[3], "edgecolor": "black"}
    bars = axes.barh(range(len(shown)), shares, xerr=reach, hatch="..", linewidth=0.6, **bar)
    axes.bar_label(bars, [_beside(one, found.ap50) for one in shown], padding=6, fontsize=9)
    style.rows(axes, [_words(one) for one in shown], size=9)
    end = max(high for _, high in ends)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= max(end, 1)])
    axes.set_xlim(0, 2.2 * end)
    style.label_axes(axes, x="cells that change, %")
    first = shown[0]
    heading = f"{_words(first)} changes most: {first.n_changed} of {first.n_cells} cells"
    alt = "; ".join(f"{_words(one)}: {share_text(one.changed)}" for one in shown)
    return figure.described(heading, caption, f"Bar chart of cells: {alt}.")


def _over(found: Sensitivity) -> str:
    if any(one.interval_over == "images" for one in found.variants):
        return "over images (bootstrap)"
    return "over cells (binomial, since images are fewer than three)"


def _words(one: Variant | Example) -> str:
    return setting_in_words(f"settings.{one.name}", one.value)


def _beside(one: Variant, usual: float | None) -> str:
    """Cells changed and of how many, what became of them, and the score where there is a truth."""
    kinds = {kind: n for kind, n in one.kinds.items() if n and kind != "kept"}
    told = [f"{one.n_changed} of {one.n_cells}", *(f"{n} {kind}" for kind, n in kinds.items())]
    if usual is not None and one.ap50 is not None:
        told.append(f"AP@0.5 {one.ap50:.2f}")
    return ", ".join(told)


def setting_picture(one: Example) -> Picture:
    """What one setting does to the image that it changes most."""
    picture = difference(one.pixels, one.usual, one.masks, name_a="usual", name_b=_words(one))
    share = share_text(one.share)
    return picture.described(f"{one.image} with {_words(one)}: {share} of its cells change")


def setting_figures(found: Sensitivity, folder: Path) -> dict[str, Path]:
    """Of each setting that changes cells the image that it changes most, as PNG, by setting."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, one in found.examples.items():
        files[name] = folder / f"{name}.png"
        setting_picture(one).savefig(files[name], dpi=150)
    return files
