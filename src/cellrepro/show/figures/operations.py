"""The operations of the step at which two runs diverge, in the order in which they ran."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.show.figures.divergence import DIFFERENT, FIRST, operation
from cellrepro.show.figures.style import SERIES, Picture, clipped, heading, label_axes, logarithmic
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
    lines: dict[str, list[float]] = {
        "other bits, same norm": [index for index, value in differing.items() if not value],
        "equal bits": [a.index for a, b in both if a.outputs == b.outputs],
        "only in A": [a.index for a in alignment.only_a if a.outputs],
        "only in B": _where_of_b(alignment),
    }
    lines = {name: found for name, found in lines.items() if found or name == "equal bits"}
    above = {index: value for index, value in differing.items() if value}
    if not (above or any(lines.values())):
        raise BadInput("no operation of the diverging step has outputs that can be compared")
    named = _named(alignment, divergence.computed, differing)

    heights = ([3.0] if above else []) + [0.3 + 0.28 * len(lines)]
    figure = Picture(height=1.5 + sum(heights))
    panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)
    panels = panels.ravel()
    foot = panels[-1]
    _lines(foot, lines)
    if above:
        top = panels[0]
        top.plot(list(above), list(above.values()), "o", color=DIFFERENT, ms=5, gid="different")
        top.set_ylim(min(above.values()) / 3, max(above.values()) * 30)
        logarithmic(top, "y")
        label_axes(top, y="relative difference\nof the norms (logarithmic)")
    for i, panel in enumerate(panels):
        _bands(panel, alignment, with_names=i == 0)
    if named is not None:
        _point_at(named, panels[0] if named.index in above else foot, above, lines)
    n, step = len(lines["equal bits"]) + len(differing), next((a.step for a, _ in both), None)
    at = "" if step is None else f" of step {grouped(step)}"
    text = f"Other outputs in {grouped(len(differing))} of {amount(n, 'operation')}{at}"
    if not differing:
        text = f"All {amount(n, 'operation')}{at} that can be compared have equal outputs"
    elif named is not None:
        order = "first in" if named.index == min(differing) else "they diverge at"
        text += f", {order} {operation(named).partition(' in ')[0]}"
    heading(figure, text)
    caption = (
        f"Every operation{at} that computed something, left to right as it ran; "
        f"{alignment.sentence()}. Up is how far the lengths (norms) of the outputs lie apart; "
        "outputs of the same norm, or without one, may differ all the same and have a line below."
    )
    alt = f"Points over the operations of a training step. {text}."
    alt += f" Where they diverge: {operation(named)}." if named is not None else ""
    return figure.described(caption, alt)


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


def _lines(foot: Axes, lines: dict[str, list[float]]) -> None:
    """A line of marks for each kind of operation whose norms say nothing."""
    for y, (name, found) in enumerate(lines.items()):
        marker = {"equal bits": "|", "other bits, same norm": "o"}.get(name, "D")
        colour = SERIES[2] if name.startswith("only") else DIFFERENT
        foot.plot(found, [y] * len(found), marker, color=colour, markersize=6, alpha=0.8, gid=name)
    foot.set_yticks(range(len(lines)), list(lines))
    foot.set_ylim(len(lines) - 0.4, -0.6)
    label_axes(foot, x="operation of A, in the order of execution")


def _where_of_b(alignment: Alignment) -> list[float]:
    """Where on A's axis the operations stand that B ran alone, views apart."""
    places = sorted((b.index, a.index) for a, b in alignment.pairs)
    before = [index for index, _ in places]
    found = []
    for row in alignment.only_b:
        at = int(np.searchsorted(before, row.index))
        if row.outputs:
            found.append(places[at - 1][1] + 0.5 if at else -0.5)
    return found


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


def _bands(axes: Axes, alignment: Alignment, *, with_names: bool) -> None:
    """Backgrounds for forward, backward and update, named where each is first."""
    rows = sorted((a for a, _ in alignment.pairs), key=lambda row: row.index)
    if not rows:
        return
    starts = [i for i, row in enumerate(rows) if not i or rows[i - 1].phase != row.phase]
    ends = [*(rows[i].index for i in starts[1:]), rows[-1].index + 1]
    span = rows[-1].index - rows[0].index + 1
    axes.set_xlim(rows[0].index - 0.02 * span - 0.5, rows[-1].index + 0.02 * span + 0.5)
    seen = set()
    for i, end in zip(starts, ends, strict=True):
        begin, phase = rows[i].index, rows[i].phase
        axes.axvspan(begin - 0.5, end - 0.5, color=_PHASES.get(phase, "white"), lw=0, zorder=0)
        if with_names and phase not in seen and end - begin > 0.03 * span:
            seen.add(phase)
            axes.text(
                (begin + end) / 2, 0.98, phase, transform=axes.get_xaxis_transform(), ha="center",
                va="top", fontsize=9, rotation=90 if end - begin < 0.12 * span else 0,
            )  # fmt: skip


def _point_at(
    named: OperationRow, axes: Axes, above: dict[int, float], lines: dict[str, list[float]]
) -> None:
    y = above.get(
        named.index, next((i for i, one in enumerate(lines.values()) if named.index in one), 0)
    )
    style: dict[str, Any] = {"ms": 11, "mec": "black", "mew": 2, "zorder": 5, "gid": "named"}
    axes.plot(named.index, y, "D", color=FIRST, **style)
    low, high = axes.get_xlim()
    share = min(max((named.index - low) / (high - low), 0.26), 0.7)
    module = clipped(named.module or "outside any module", 44)
    axes.annotate(
        f"{operation(named).partition(' in ')[0]}\n{module}",
        (named.index, y), (share, 0.8 if above else 0.3), textcoords="axes fraction", fontsize=10,
        ha="center", va="center", parse_math=False, zorder=6,
        arrowprops={"arrowstyle": "-|>", "color": "black", "shrinkB": 8},
        bbox={"boxstyle": "square,pad=0.2", "facecolor": "white", "edgecolor": "black"},
    )  # fmt: skip
