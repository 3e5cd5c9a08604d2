"""How the difference of two runs grows over the epochs: weights, pixels, cells, scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from cellrepro.errors import BadInput
from cellrepro.show.figures import style
from cellrepro.show.figures.style import PALE, SERIES, Picture
from cellrepro.words import amount, ppm_text, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.divergence.growth import Moment

_BAR: dict[str, Any] = {"edgecolor": "#555555", "linewidth": 0.6}


def growth_curve(moments: Sequence[Moment], *, at_operation: float | None = None) -> Picture:
    """How the difference of two runs grows over the epochs: weights, pixels, cells, scores.

    Zero has a place of its own under the logarithmic axes. From `cellrepro.growth`;
    ``at_operation``: largest difference at the operation where the two diverged, in the units of
    its outputs.
    """
    if not moments:
        raise BadInput("no moment was given to draw; give what `cellrepro.growth` returns")
    masked = [moment for moment in moments if moment.ppm is not None]
    scored = [moment for moment in moments if moment.ap50 is not None]
    parts = [(_weights, moments), (_pixels, masked), (_cells, masked), (_scores, scored)]
    drawn = [(draw, chosen) for draw, chosen in parts if chosen]
    figure = Picture(height=1.2 + 1.75 * len(drawn))
    grid = figure.subplots(len(drawn), 1, sharex=True, squeeze=False)[:, 0]
    between = [later.epoch - earlier.epoch for earlier, later in pairwise(moments)]
    for panel, (draw, chosen) in zip(grid, drawn, strict=True):
        draw(panel, chosen, [moment.epoch for moment in chosen], 0.6 * min(between, default=1))
    grid[-1].set_xlabel("epochs trained", fontsize=9)
    grid[-1].locator_params(axis="x", integer=True)
    n = amount(len(moments), "checkpoint")
    apart = span(f"{moments[0].relative_l2:.2g}", f"{moments[-1].relative_l2:.2g}")
    text = f"The weights {'drift' if len(moments) > 1 else 'are'} apart: {apart}"
    if masked:
        text += f"; {ppm_text(masked[-1].ppm or 0.0)} of the pixels"
    if not any(moment.n_differing for moment in moments):
        text = f"The weights stay equal, bit for bit, in {n}"
    at = "" if at_operation is None else f"At the operation, they differed by {at_operation:.2g}. "
    caption = (
        f"Two runs after the same epochs, {n}. Axes of lines are logarithmic; 0 has a place of its "
        f"own at the foot. {at}Masks, where there are any, are those that each run would have "
        "given had training ended there; lost cells are those of A without a match in B, gained "
        "those of B without one in A."
    )
    return figure.described(text, caption, f"Curves over {n}. {text}.")


def _weights(panel: Axes, moments: Sequence[Moment], epochs: list[int], width: float) -> None:
    shares = [100 * one.n_differing / max(1, one.n_parameters) for one in moments]
    beside = panel.twinx()
    beside.bar(epochs, shares, width=width, color=PALE, hatch="..", **_BAR)
    beside.set_ylim(0, 104)
    style.label_axes(beside, y="weights that differ (%)")
    beside.spines["right"].set_visible(True)
    panel.set_zorder(beside.get_zorder() + 1)
    panel.patch.set_visible(False)
    values = [moment.relative_l2 for moment in moments]
    style.with_zero(panel, "y", values)
    panel.plot(epochs, values, "o-", color=SERIES[0], mec="black")
    for epoch, value in zip(epochs, values, strict=True):
        if not math.isfinite(value):
            above = panel.get_xaxis_transform()
            panel.text(epoch, 0.97, "not\nfinite", transform=above, ha="center", va="top")
    style.label_axes(panel, y="distance of the weights,\nrelative to their length")
    style.title(panel, "weights: line and points, left; bars, right", size=9)


def _pixels(panel: Axes, masked: Sequence[Moment], epochs: list[int], width: float) -> None:
    values = [moment.ppm or 0.0 for moment in masked]
    style.with_zero(panel, "y", values)
    panel.plot(epochs, values, "s-", color=SERIES[1], mec="black")
    style.label_axes(panel, y="differing pixels\nper million (ppm)")
    style.title(panel, "masks: pixels that differ", size=9)


def _cells(panel: Axes, masked: Sequence[Moment], epochs: list[int], width: float) -> None:
    bars = (
        ("gained", [moment.gained or 0 for moment in masked], SERIES[3], ""),
        ("lost", [-(moment.lost or 0) for moment in masked], SERIES[2], "\\\\\\"),
    )
    for name, values, colour, hatch in bars:
        look = {"color": colour, "hatch": hatch, "label": name, **_BAR}
        drawn = panel.bar(epochs, values, width=width, **look)
        texts = [str(abs(value)) if value else "" for value in values]
        panel.bar_label(drawn, texts, padding=2, fontsize=8)
    panel.axhline(0, color="black", lw=0.9)
    panel.margins(y=0.3)
    panel.legend(loc="upper left", fontsize=8, frameon=False, ncols=2)
    style.label_axes(panel, y="cells")
    style.title(panel, "masks: cells without a counterpart (gained: only B has them)", size=9)


def _scores(panel: Axes, scored: Sequence[Moment], epochs: list[int], width: float) -> None:
    scores = zip(*(moment.ap50 for moment in scored if moment.ap50 is not None), strict=True)
    for i, values in enumerate(scores):
        panel.plot(epochs, values, ("o-", "s--")[i], color=SERIES[i], ms=5, label="AB"[i])
    panel.set_ylim(-0.04, 1.04)
    panel.legend(loc="best", fontsize=8, frameon=False, ncols=2)
    style.label_axes(panel, y="mean AP@0.5")
    style.title(panel, "against the ground truth", size=9)
