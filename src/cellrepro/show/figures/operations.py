"""Every operation of the step at which two runs diverge, in the order in which they ran."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.show.figures import style
from cellrepro.show.figures.divergence import DIFFERENT, FIRST, operation
from cellrepro.show.figures.style import SERIES, Picture
from cellrepro.words import amount, grouped

if TYPE_CHECKING:
    from cellrepro.divergence.result import Divergence, Place
    from cellrepro.same.operation_alignment import Alignment
    from cellrepro.trace.operation_ledger import OperationRow

_PHASES = {"forward": "#F4F4F4", "backward": "#E4E4E4", "update": "#FBF3D9"}


def operations_map(divergence: Divergence) -> Picture:
    """Every operation of the diverging step: how far its outputs differ between the two runs.

    Up is the difference of the norms, relative to the larger one. Below stand the operations with
    other bits, with equal bits, and those of one run only; a line marks where they diverge. From
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
        "other bits": list(differing),
        "equal bits": [a.index for a, b in both if a.index not in differing],
        "only in A": [row.index for row in alignment.only_a if row.outputs],
        "only in B": _where_of_b(alignment),
    }
    figure = Picture(height=6)
    top, foot = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for y, (name, found) in enumerate(lines.items()):
        colour = DIFFERENT if y < 2 else SERIES[2]
        foot.plot(found, [y] * len(found), "|" if y == 1 else "o", color=colour, ms=6, gid=name)
    style.rows(foot, lines, size=9)
    style.label_axes(foot, x="operation of A, in the order of execution")
    style.with_zero(top, "y", differing.values())
    top.plot(list(differing), list(differing.values()), "o", color=DIFFERENT, ms=5, gid="norms")
    style.label_axes(top, y="relative difference\nof the norms (logarithmic)")
    handles = [style.patch(phase, fc=colour, lw=0.5) for phase, colour in _PHASES.items()]
    rows = sorted((a for a, _ in alignment.pairs), key=lambda row: row.index)
    for phase, of_phase in groupby(rows, key=lambda row: row.phase):
        found = [row.index for row in of_phase]
        for panel in (top, foot):
            colour = _PHASES.get(phase, "white")
            panel.axvspan(found[0] - 0.5, found[-1] + 0.5, color=colour, lw=0, zorder=0)
    named = _named(alignment, divergence.computed, differing)
    n = grouped(len(lines["equal bits"]) + len(differing))
    text = f"Other outputs in {grouped(len(differing))} of {n} operations"
    if not differing:
        text = f"Equal outputs in {amount(len(lines['equal bits']), 'operation')}"
    if named is not None:
        for panel in (top, foot):
            panel.axvline(named.index, color=FIRST, lw=2, zorder=1, gid="named")
        handles.append(style.line("where they diverge", color=FIRST, lw=2))
        text += f"; they diverge at {operation(named)}"
    style.legend(figure, handles)
    caption = (
        "Every operation of the step that computed something, left to right as it ran; "
        f"{alignment.sentence()}. Up is how far the lengths (norms) of the outputs lie apart; "
        "outputs of the same norm, or without one, may differ all the same: they stand at 0."
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
    alone = [row.index for row in alignment.only_b if row.outputs]
    places = sorted((b.index, a.index) for a, b in alignment.pairs) or [(0, 0)]
    found = np.interp(alone, [b for b, _ in places], [a for _, a in places])
    return found.tolist()


def _named(
    alignment: Alignment, place: Place | None, differing: dict[int, float]
) -> OperationRow | None:
    """A's row of the operation at which they diverge: of several the first with other outputs."""
    if place is None or place.op is None:
        return None
    rows = [*(a for a, _ in alignment.pairs), *alignment.only_a]
    wanted = place.op, place.module, place.phase
    found = [row for row in rows if (row.op, row.module, row.phase) == wanted]
    return min(found, key=lambda row: (row.index not in differing, row.index), default=None)
