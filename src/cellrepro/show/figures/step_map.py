"""A map of stages by training steps: where two ledgers agree, and where they do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.divergence.first_difference import FirstDifference
from cellrepro.divergence.judgements import OF_STAGE
from cellrepro.divergence.result import Divergence
from cellrepro.show.figures import style
from cellrepro.show.figures.first_difference import (
    DIFFERENT,
    EQUAL,
    FIRST,
    headline,
    when_they_differ,
)
from cellrepro.show.figures.style import Picture
from cellrepro.store.ledger import AFTER_TRAINING, BEFORE_TRAINING, IN_EVERY_STEP, STAGES
from samebits.errors import BadInput
from samebits.words import amount, grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.comparison.ledger_diff import Difference, LedgerComparison

_BEFORE = (*BEFORE_TRAINING, "rng")
_AFTER = ("weights", *AFTER_TRAINING)
"""Generators are recorded before the first step, too, and weights after the last."""
_MOST_COLUMNS = 100
"""Steps that get a column each."""
_LEAST_FRAME = 0.012
"""Share of the width of a map below which a frame would not be seen."""


def step_map(divergence: Divergence) -> Picture:
    """Draw a map of stages by training steps: where two ledgers agree, and where they do not.

    Where there are more than 100 steps, a field stands for several, and differs if any does. The
    first difference is framed and named.

    Parameters
    ----------
    divergence : Divergence
        Of two trainings, from `cellrepro.diverge`.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If it holds no ledgers of trainings.
    """
    ledgers = divergence.ledgers
    first = divergence.first
    if ledgers is None or divergence.chain != STAGES:
        raise BadInput("the divergence holds no ledgers of trainings; give what `diverge` returns")
    drawn_map = _StepMap.of(ledgers, first)
    figure = Picture(height=4.6)
    axes = figure.subplots()
    drawn_map.draw(axes)
    if first is not None:
        drawn_map.draw_frame(axes)
    handles = [
        style.patch("A and B agree", fc=EQUAL),
        style.patch("differ", fc=DIFFERENT),
        style.patch("differ first", fc=FIRST),
    ]
    style.legend(figure, handles)
    text = headline(first, ledgers.compared.total())
    differing = ", ".join(OF_STAGE[stage].name for stage in STAGES if stage in divergence.stages)
    alt = (
        f"Map of stages by {amount(drawn_map.n_steps, 'training step')}. {text}. "
        f"Differs: {differing or 'nothing'}."
    )
    return figure.described(text, _map_caption(ledgers, drawn_map.steps_a_field), alt)


@dataclass(frozen=True)
class _StepMap:
    """A map of stages by training steps."""

    n_steps: int
    """The steps that both runs made."""
    steps_a_field: int
    fields: np.ndarray
    """Stages by columns: 0 no difference, 1 differs, 2 differs first, NaN does not exist. The first
    column is before training, the last after it."""

    @classmethod
    def of(cls, ledgers: LedgerComparison, first: FirstDifference | None) -> _StepMap:
        n_steps = min(ledgers.n_steps)
        steps_a_field = max(1, -(-n_steps // _MOST_COLUMNS))
        fields = np.full((len(STAGES), -(-n_steps // steps_a_field) + 2), np.nan)
        for row, stage in enumerate(STAGES):
            if stage in _BEFORE:
                fields[row, 0] = 0
            if stage in IN_EVERY_STEP:
                fields[row, 1:-1] = 0
            if stage in _AFTER:
                fields[row, -1] = 0
        whole = cls(n_steps, steps_a_field, fields)
        for difference in ledgers.differences:
            whole.mark(difference, 1)
        if first is not None:
            whole.mark(first, 2)
        return whole

    def mark(self, difference: FirstDifference | Difference, value: int) -> None:
        """Set the field of a difference; a step that only one run made has none."""
        when = when_they_differ(difference)
        row = STAGES.index(difference.stage)
        if when == "before":
            self.fields[row, 0] = value
        elif when == "after":
            self.fields[row, -1] = value
        elif when < self.n_steps:
            self.fields[row, 1 + when // self.steps_a_field] = value

    @property
    def edges(self) -> np.ndarray:
        """The borders of the columns, in steps."""
        end = max(1, self.n_steps)
        starts = range(0, self.n_steps, self.steps_a_field)
        return np.array([-0.15 * end, *starts, end, 1.15 * end]) - 0.5

    def draw(self, axes: Axes) -> None:
        from matplotlib.colors import ListedColormap

        edges = self.edges
        axes.pcolormesh(
            edges,
            np.arange(len(STAGES) + 1) - 0.5,
            self.fields,
            cmap=ListedColormap([EQUAL, DIFFERENT, FIRST]),
            vmin=0,
            vmax=2,
            edgecolors="white",
            linewidth=0.4,
            gid="fields",
        )
        names = [f"{OF_STAGE[stage].name}  ({OF_STAGE[stage].meaning})" for stage in STAGES]
        style.rows(axes, names)
        ticks = range(0, self.n_steps, max(1, self.n_steps // 6))
        axes.set_xticks(
            [edges[:2].mean(), *ticks, edges[-2:].mean()],
            ["before\ntraining", *(grouped(tick) for tick in ticks), "after\ntraining"],
        )
        style.label_axes(
            axes, x=f"training step (each field: {amount(self.steps_a_field, 'step')})"
        )
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)

    def draw_frame(self, axes: Axes) -> None:
        """Frame the field that differs first, wide enough to be seen."""
        from matplotlib.patches import Rectangle

        edges = self.edges
        y, x = np.argwhere(self.fields == 2)[0]
        width = edges[x + 1] - edges[x]
        least = _LEAST_FRAME * (edges[-1] - edges[0])
        left = edges[x] - max(0, least - width) / 2
        frame = Rectangle(
            (left, y - 0.5),
            max(width, least),
            1,
            fill=False,
            ec="black",
            lw=2.2,
            clip_on=False,
        )
        axes.add_patch(frame)


def _map_caption(ledgers: LedgerComparison, steps_a_field: int) -> str:
    n_steps_a, n_steps_b = ledgers.n_steps
    parts = [
        "Rows are the stages in the order in which a run passes them; columns are the training "
        f"steps, counted from 0; {grouped(ledgers.compared.total())} digests and numbers of A and "
        "B were compared"
    ]
    if n_steps_a != n_steps_b:
        parts.append(
            f"A made {amount(n_steps_a, 'step')} and B {n_steps_b}; what both made is shown"
        )
    n_not_comparable = ledgers.not_comparable.total()
    if n_not_comparable:
        parts.append(
            f"{grouped(n_not_comparable)} could not be compared, since one digest is of a "
            "processor and one of a GPU"
        )
    if steps_a_field > 1:
        parts.append(f"a field stands for {steps_a_field} steps and is dark if any of them differs")
    return ". ".join(f"{part[0].upper()}{part[1:]}" for part in parts) + "."
