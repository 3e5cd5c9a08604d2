"""The operations of the step at which two runs diverge, in the order in which they ran."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.show.figures import style
from cellrepro.show.figures.divergence import DIFFERENT, FIRST, operation
from cellrepro.show.figures.style import SERIES, Picture
from cellrepro.text import amount, grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.compare.operation_alignment import Alignment
    from cellrepro.lab.divergence.result import Divergence, Place
    from cellrepro.trace.operation_ledger import OperationRow

_PHASES = {"forward": "#F4F4F4", "backward": "#E4E4E4", "update": "#FBF3D9"}


def operations_map(divergence: Divergence) -> Picture:
    """Every operation of the diverging step: how far its outputs differ between the two runs.

    Up is the difference of the norms, relative to the larger one. Below stand the operations whose
    norms say nothing: other bits of equal norm, equal bits, and those of one run only. From
    `cellrepro.diverge`, with its `operations`.
    """
    alignment = divergence.operations
    if alignment is None:
        raise BadInput(
            "the operations of the diverging step were not seen; train with --ledger ops, or let "
            "`diverge` replay the step"
        )
    both = [(a, b) for a, b in alignment.pairs if a.outputs]
    differing = {a.index: _norms_apart(a, b) for a, b in both if _differ(a, b)}
    above = {index: value for index, value in differing.items() if value}
    lines: dict[str, list[float]] = {
        "other bits, same norm": [index for index, value in differing.items() if not value],
        "equal bits": [a.index for a, b in both if a.outputs == b.outputs],
        "only in A": [a.index for a in alignment.only_a if a.outputs],
        "only in B": _where_of_b(alignment),
    }
    lines = {name: found for name, found in lines.items() if found or name == "equal bits"}
    if not (above or any(lines.values())):
        raise BadInput("no operation of the diverging step has outputs that can be compared")

    heights = ([3.0] if above else []) + [0.3 + 0.28 * len(lines)]
    figure = Picture(height=1.5 + sum(heights))
    panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)
    top, foot = panels[0, 0], panels[-1, 0]
    for y, (name, found) in enumerate(lines.items()):
        marker = {"equal bits": "|", "other bits, same norm": "o"}.get(name, "D")
        colour = SERIES[2] if name.startswith("only") else DIFFERENT
        foot.plot(found, [y] * len(found), marker, color=colour, ms=6, alpha=0.8, gid=name)
    style.rows(foot, lines, size=9)
    style.label_axes(foot, x="operation of A, in the order of execution")
    if above:
        top.plot(list(above), list(above.values()), "o", color=DIFFERENT, ms=5, gid="different")
        top.set_ylim(min(above.values()) / 3, max(above.values()) * 30)
        style.logarithmic(top, "y")
        style.label_axes(top, y="relative difference\nof the norms (logarithmic)")
    _bands(panels[:, 0], alignment)
    named = _named(alignment, divergence.computed, differing)
    if named is not None and named.index in above:
        _point_at(named, top, above[named.index], 0.8)
    elif named is not None:
        y = next((y for y, found in enumerate(lines.values()) if named.index in found), 0)
        _point_at(named, foot, y, 0.75 if y >= len(lines) / 2 else 0.25)
    n = len(lines["equal bits"]) + len(differing)
    text = f"Other outputs in {grouped(len(differing))} of {amount(n, 'operation')}"
    text += f" of step {grouped(both[0][0].step)}" if both else ""
    if named is not None and differing:
        order = "first in" if named.index == min(differing) else "they diverge at"
        text += f", {order} {operation(named)}"
    caption = (
        "Every operation of the step that computed something, left to right as it ran; "
        f"{alignment.sentence()}. Up is how far the lengths (norms) of the outputs lie apart; "
        "outputs of the same norm, or without one, may differ all the same and have a line below."
    )
    alt = f"Points over the operations of a training step. {text}."
    return figure.described(text, caption, alt)


def _norms_apart(a: OperationRow, b: OperationRow) -> float:
    """Relative to the larger one: no more than the outputs are apart; 0 where one is not known."""
    if a.norm is None or b.norm is None or not math.isfinite(a.norm + b.norm):
        return 0.0
    return abs(a.norm - b.norm) / (max(a.norm, b.norm) or 1.0)


def _differ(a: OperationRow, b: OperationRow) -> bool:
    """By their digests, or by their norms where these are of two algorithms."""
    if len(a.outputs) == len(b.outputs):
        return a.outputs != b.outputs
    return _norms_apart(a, b) > 0


def _where_of_b(alignment: Alignment) -> list[float]:
    """Where on A's axis the operations stand that B ran alone, views apart."""
    places = sorted((b.index, a.index) for a, b in alignment.pairs)
    before = [index for index, _ in places]
    computed = (row.index for row in alignment.only_b if row.outputs)
    ranks = [int(np.searchsorted(before, index)) for index in computed]
    return [places[rank - 1][1] + 0.5 if rank else -0.5 for rank in ranks]


def _named(
    alignment: Alignment, place: Place | None, differing: dict[int, float]
) -> OperationRow | None:
    """A's row of the operation at which they diverge: of several the first with other outputs."""
    if place is None or place.op is None:
        return None
    rows = [*(a for a, _ in alignment.pairs), *alignment.only_a]
    wanted = place.op, place.module, place.phase
    found = [row for row in rows if (row.op, row.module, row.phase) == wanted]
    found = [row for row in found if row.source == place.source] or found
    return min(found, key=lambda row: (row.index not in differing, row.index), default=None)


def _bands(panels: np.ndarray, alignment: Alignment) -> None:
    """Backgrounds for forward, backward and update, named at the top where each is wide."""
    rows = sorted((a for a, _ in alignment.pairs), key=lambda row: row.index)
    if not rows:
        return
    span = rows[-1].index - rows[0].index + 1
    panels[0].set_xlim(rows[0].index - 0.02 * span - 0.5, rows[-1].index + 0.02 * span + 0.5)
    for phase, of_phase in groupby(rows, key=lambda row: row.phase):
        found = [row.index for row in of_phase]
        begin, end = found[0] - 0.5, found[-1] + 0.5
        for panel in panels:
            panel.axvspan(begin, end, color=_PHASES.get(phase, "white"), lw=0, zorder=0)
        if end - begin > 0.03 * span:
            panels[0].text(
                (begin + end) / 2, 0.98, phase, transform=panels[0].get_xaxis_transform(),
                ha="center", va="top", fontsize=9, rotation=90 if end - begin < 0.12 * span else 0,
            )  # fmt: skip


def _point_at(named: OperationRow, axes: Axes, y: float, height: float) -> None:
    """A diamond, and an arrow from a label beside it, at that share of the height of the axes."""
    mark: dict[str, Any] = {"ms": 11, "mec": "black", "mew": 2, "zorder": 5, "gid": "named"}
    axes.plot(named.index, y, "D", color=FIRST, **mark)
    low, high = axes.get_xlim()
    share = (named.index - low) / (high - low)
    share += 0.3 if share < 0.5 else -0.3
    module = style.clipped(named.module or "outside any module", 44)
    axes.annotate(
        f"{operation(named).partition(' in ')[0]}\n{module}",
        (named.index, y), (share, height), textcoords="axes fraction", fontsize=10,
        ha="center", va="center", parse_math=False, zorder=6,
        arrowprops={"arrowstyle": "-|>", "color": "black", "shrinkB": 8},
        bbox={"boxstyle": "square,pad=0.2", "facecolor": "white", "edgecolor": "black"},
    )  # fmt: skip
