"""A figure of every operation of the step at which two runs diverge, in the order of execution."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.show.figures import style
from cellrepro.show.figures.colours import COLOURS
from cellrepro.show.figures.first_difference import DIFFERENT, FIRST, operation
from cellrepro.show.figures.style import Picture
from samebits.errors import BadInput
from samebits.words import amount, grouped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from cellrepro.divergence.first_difference import FirstDifference
    from cellrepro.divergence.result import Divergence
    from samebits import Alignment, OperationRow

_PHASES = {"forward": "#F4F4F4", "backward": "#E4E4E4", "update": "#FBF3D9"}
"""Backgrounds by pass."""


def operations_map(divergence: Divergence) -> Picture:
    """Draw every operation of the diverging step: how far its outputs differ between the runs.

    Up is the difference of the norms, relative to the larger one, where any norm differs. Below
    stand the operations with different bits, with equal bits, and those of one run only; a line
    marks where they diverge.

    Parameters
    ----------
    divergence : Divergence
        From `cellrepro.diverge`, with its ``operations``.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If the operations of the step were not seen.
    """
    alignment = divergence.operations
    if alignment is None:
        raise BadInput(
            "the operations of the diverging step were not seen; train with --ledger ops, or let "
            "`diverge` replay the step"
        )
    computing = [(a, b) for a, b in alignment.pairs if a.outputs]
    norms_apart = {a.index: _norms_apart(a, b) for a, b in computing if _differ(a, b)}
    equal = [a.index for a, b in computing if a.index not in norms_apart]
    with_norms = any(norms_apart.values())
    figure = Picture(height=5 if with_norms else 2.6)
    panels = list(figure.subplots(1 + with_norms, 1, sharex=True, squeeze=False)[:, 0])
    _draw_kinds(panels[-1], alignment, list(norms_apart), equal)
    if with_norms:
        _draw_norms(panels[0], norms_apart)
    handles: list[Artist] = [
        style.patch(phase, fc=colour, lw=0.5) for phase, colour in _PHASES.items()
    ]
    _shade_phases(panels, alignment)
    named = _named(alignment, divergence.computed, norms_apart)
    if norms_apart:
        n_computing = grouped(len(equal) + len(norms_apart))
        n_apart = grouped(len(norms_apart))
        text = f"Different outputs in {n_apart} of {n_computing} operations that compute"
    else:
        text = f"Equal outputs in {amount(len(equal), 'operation')}"
    if named is not None:
        for axes in panels:
            axes.axvline(named.index, color=FIRST, lw=2, zorder=1, gid="named")
        handles.append(style.line("where they diverge", color=FIRST, lw=2))
        text += f"; the first: {operation(named)}"
    style.legend(figure, handles)
    caption = (
        "Every operation of the step that computed something, left to right as it ran; "
        f"{alignment.sentence()}, those counted that only read or reshape."
    )
    if with_norms:
        caption += (
            " The upper panel shows how far the norms of the two outputs lie apart, relative to "
            "the larger one. Outputs may have different bits and the same norm: they stand at 0."
        )
    elif norms_apart:
        caption += " Where bits differ, the norms of the two outputs agree."
    alt = f"Points over the operations of a training step. {text}."
    return figure.described(text, caption, alt)


def _draw_norms(axes: Axes, norms_apart: Mapping[int, float]) -> None:
    style.with_zero(axes, "y", norms_apart.values())
    axes.plot(
        list(norms_apart), list(norms_apart.values()), "o", color=DIFFERENT, ms=5, gid="norms"
    )
    style.label_axes(axes, y="difference of norms\n(relative, logarithmic)")


def _draw_kinds(
    axes: Axes, alignment: Alignment, differing: Sequence[int], equal: Sequence[int]
) -> None:
    """A row for each kind of operation, by what its outputs are in the two runs."""
    only_a = [row.index for row in alignment.only_a if row.outputs]
    rows = [
        ("different bits", differing, "o", DIFFERENT),
        ("equal bits", equal, "|", DIFFERENT),
        ("only in A", only_a, "o", COLOURS["only_a"]),
        ("only in B", _positions_of_b(alignment), "o", COLOURS["only_b"]),
    ]
    rows = [row for row in rows if row[1]]
    for y, (name, positions, marker, colour) in enumerate(rows):
        axes.plot(positions, [y] * len(positions), marker, color=colour, ms=6, gid=name)
    style.rows(axes, [name for name, *_ in rows], size=9)
    style.label_axes(axes, x="number of the operation in the step, in the order of execution")


def _shade_phases(panels: Sequence[Axes], alignment: Alignment) -> None:
    rows = sorted((a for a, _ in alignment.pairs), key=lambda row: row.index)
    for phase, of_phase in groupby(rows, key=lambda row: row.phase):
        indices = [row.index for row in of_phase]
        colour = _PHASES.get(phase, "white")
        for axes in panels:
            axes.axvspan(indices[0] - 0.5, indices[-1] + 0.5, color=colour, lw=0, zorder=0)


def _norms_apart(a: OperationRow, b: OperationRow) -> float:
    """Difference of the norms relative to the larger one; 0 where one is not known.

    By the triangle inequality it is a lower bound of the relative distance of the outputs.
    """
    if a.norm is None or b.norm is None or not math.isfinite(a.norm + b.norm):
        return 0.0
    return abs(a.norm - b.norm) / (max(a.norm, b.norm) or 1.0)


def _differ(a: OperationRow, b: OperationRow) -> bool:
    """Compare digests, or norms where the digests are of two algorithms."""
    if len(a.outputs) == len(b.outputs):
        return a.outputs != b.outputs
    return _norms_apart(a, b) > 0


def _positions_of_b(alignment: Alignment) -> list[float]:
    """Interpolate on A's axis the positions of operations that only B ran; views are left out."""
    alone = [row.index for row in alignment.only_b if row.outputs]
    pairs = sorted((b.index, a.index) for a, b in alignment.pairs) or [(0, 0)]
    positions = np.interp(alone, [b for b, _ in pairs], [a for _, a in pairs])
    return positions.tolist()


def _named(
    alignment: Alignment, difference: FirstDifference | None, differing: Mapping[int, float]
) -> OperationRow | None:
    """Find A's row of the operation at which they diverge: of several the first that differs."""
    if difference is None or difference.op is None:
        return None
    rows = [*(a for a, _ in alignment.pairs), *alignment.only_a]
    matching = [row for row in rows if difference.is_made_by(row)]
    return min(matching, key=lambda row: (row.index not in differing, row.index), default=None)
