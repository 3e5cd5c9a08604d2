"""Figures of two runs that diverge: at which stage, at which step.

What agrees is pale, what differs is dark, and the first difference is orange in a black frame.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cellrepro.determinism.known_operations import base_name
from cellrepro.divergence.first_difference import FirstDifference
from cellrepro.divergence.judgements import OF_STAGE
from cellrepro.divergence.result import Divergence
from cellrepro.errors import BadInput
from cellrepro.show.figures import style
from cellrepro.show.figures.style import GREY, SERIES, WIDTH, Picture
from cellrepro.store.ledger import SEGMENTATION_STAGES, STAGES
from cellrepro.words import amount, grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.comparison.ledger_diff import Difference, LedgerComparison
    from cellrepro.trace.operation_ledger import OperationRow

_BEFORE = STAGES[:4]
_AFTER = STAGES[11:]
_GROUPS = {
    STAGES: (
        (4, "before training"),
        (7, "in every training step"),
        (2, "after training"),
    ),
    SEGMENTATION_STAGES: (
        (3, "before the images"),
        (6, "the image, up to its tiles"),
        (2, "the network"),
        (3, "from flows to cells"),
    ),
}
"""How many stages of a chain belong together, and what they are."""

_EQUAL = "#D9EEF9"
DIFFERENT = SERIES[0]
FIRST = SERIES[1]

State = Literal["equal", "first", "different", "unknown"]


@dataclass(frozen=True)
class _Box:
    """How a stage is drawn, by its state."""

    sign: str
    meaning: str
    """For the legend."""
    fill: str
    edge: str
    text: str = "black"
    line_width: float | None = None
    line_style: Any = None
    hatch: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of `matplotlib.patches.Patch`."""
        options = {
            "fc": self.fill,
            "ec": self.edge,
            "lw": self.line_width,
            "ls": self.line_style,
            "hatch": self.hatch,
        }
        return {name: value for name, value in options.items() if value is not None}


_BOXES: dict[State, _Box] = {
    "equal": _Box("=", "agrees", fill=_EQUAL, edge="#7FA8BF", line_width=0.8),
    "first": _Box("≠\nfirst", "differs first", fill=FIRST, edge="black", line_width=2.2),
    "different": _Box(
        "≠\nlater", "differs too", fill=DIFFERENT, edge="white", text="white", hatch="////"
    ),
    "unknown": _Box(
        "?",
        "not compared, or not all of it",
        fill="white",
        edge="#888888",
        line_width=0.8,
        line_style=(0, (2, 2)),
    ),
}

_MOST_COLUMNS = 100
"""Steps that get a column each."""
_LEAST_FRAME = 0.012
"""Share of the width of a map below which a frame would not be seen."""


def differs(difference: FirstDifference) -> str:
    """Name the stage and what each side holds there, without digests, which tell nothing."""
    digests = re.fullmatch(r"(.*): [0-9a-f]{8} in A, [0-9a-f]{8} in B", difference.said)
    holds = difference.said if digests is None else f"{digests[1]} has different bits"
    return f"{OF_STAGE[difference.stage].name}; {holds}"


def operation(row: OperationRow) -> str:
    """Name the operation, where in the network it is, and in which pass."""
    module = f" in {row.module}" if row.module else ""
    return f"{base_name(row.op)}{module}, {row.phase}"


def _when(difference: FirstDifference | Difference) -> int | Literal["before", "after"]:
    """The step at which two runs differ, or that it is before or after the training."""
    if difference.stage in _AFTER or (difference.step is None and difference.stage == "weights"):
        return "after"
    if difference.step is None or difference.stage in _BEFORE:
        return "before"
    return difference.step


def _headline(
    difference: FirstDifference | None, n_compared: int, stages: tuple[str, ...] = STAGES
) -> str:
    if difference is None:
        return f"No difference, {grouped(n_compared)} entries compared"
    stage = OF_STAGE[difference.stage].name
    if stages != STAGES:
        return f"The two segmentations diverge: {stage}"
    when = _when(difference)
    moment = f"at step {grouped(when)}" if isinstance(when, int) else f"{when} training"
    return f"The two runs diverge {moment}: {stage}"


def chain(divergence: Divergence) -> Picture:
    """Draw a row of boxes, from environment to masks: which agree, which differ, where it begins.

    ``=`` agrees, ``≠`` differs, ``?`` was not compared, or not all of it. The caption names the
    first difference, the operation where it is known, and the judgement.

    Parameters
    ----------
    divergence : Divergence
        From `cellrepro.diverge`.

    Returns
    -------
    Picture
    """
    states = _states(divergence)
    stages = divergence.chain
    figure = Picture(WIDTH + 2, 2.9)
    axes = figure.subplots()
    for i, state in enumerate(states.values()):
        _draw_box(axes, i, state)
    _draw_groups(axes, stages)
    axes.set_xticks(range(len(stages)), [_stage_label(stage) for stage in stages], fontsize=8)
    axes.set(xlim=(-0.5, len(stages) - 0.5), ylim=(-0.03, 1.4), yticks=[])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    handles = [
        style.patch(f"{box.sign[0]} {box.meaning}", **box.options) for box in _BOXES.values()
    ]
    style.legend(figure, handles)
    headline = _headline(divergence.first, divergence.compared, stages)
    if stages != STAGES and divergence.computed not in (None, divergence.first):
        headline += f"; their images from: {OF_STAGE[divergence.computed.stage].name}"
    boxes = ", ".join(
        f"{OF_STAGE[stage].name} {_BOXES[state].meaning}" for stage, state in states.items()
    )
    alt = f"A row of boxes. {headline}. {boxes}. {divergence.sentence()}."
    return figure.described(headline, _chain_caption(divergence), alt)


def _draw_box(axes: Axes, i: int, state: State) -> None:
    box = _BOXES[state]
    bar = axes.bar(i, 1, width=0.78, gid=state, **box.options)
    axes.bar_label(
        bar,
        [box.sign],
        label_type="center",
        fontsize=11,
        color=box.text,
        bbox={"facecolor": box.fill, "edgecolor": "none", "pad": 1},
    )


def _draw_groups(axes: Axes, stages: tuple[str, ...]) -> None:
    """Name each group of stages, above a line over them."""
    begin = 0
    for n_stages, name in _GROUPS[stages]:
        left = begin - 0.4
        right = begin + n_stages - 0.6
        axes.plot([left, right], [1.15, 1.15], color=GREY, lw=1)
        axes.text((left + right) / 2, 1.2, name, ha="center", fontsize=9, color=GREY)
        begin += n_stages


def _stage_label(stage: str) -> str:
    name = textwrap.fill(OF_STAGE[stage].name, 12)
    meaning = textwrap.fill(f"({OF_STAGE[stage].meaning})", 12)
    return f"{name}\n{meaning}"


def _chain_caption(divergence: Divergence) -> str:
    sentence = divergence.sentence()
    notes = "".join(f"\n{note}." for note in divergence.notes)
    once = ""
    counted = ""
    if divergence.chain == STAGES:
        once = ", those in the middle once in every training step"
        counted = "Steps are counted from 0."
    return (
        f"{sentence[:1].upper()}{sentence[1:]}.\nA is {divergence.a}, B is {divergence.b}. A run "
        f"passes the boxes from left to right{once}; “later” is what differs after the first "
        f"difference. {counted}{notes}"
    )


def _states(divergence: Divergence) -> dict[str, State]:
    """Whether each stage agrees, differs, or was not compared."""
    ledgers = divergence.ledgers
    compared = set() if ledgers is None else ledgers.compared.keys() - ledgers.not_comparable.keys()
    states: dict[str, State] = {}
    for stage in divergence.chain:
        states[stage] = "equal" if stage in compared else "unknown"
    for stage in divergence.stages:
        states[stage] = "different"
    if divergence.first is not None:
        states[divergence.first.stage] = "first"
    return states


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
    step_map = _StepMap.of(ledgers, first)
    figure = Picture(height=4.6)
    axes = figure.subplots()
    step_map.draw(axes)
    if first is not None:
        step_map.draw_frame(axes)
        when = _when(first)
        step = "" if isinstance(when, str) else f"step {grouped(when)}, "
        style.title(axes, f"first: {step}{differs(first)}", size=9)
    handles = [
        style.patch("no difference", fc=_EQUAL),
        style.patch("differs", fc=DIFFERENT),
        style.patch("first", fc=FIRST),
    ]
    style.legend(figure, handles)
    headline = _headline(first, ledgers.compared.total())
    differing = ", ".join(OF_STAGE[stage].name for stage in STAGES if stage in divergence.stages)
    alt = (
        f"Map of stages by {amount(step_map.n_steps, 'training step')}. {headline}. "
        f"Differs: {differing or 'nothing'}."
    )
    return figure.described(headline, _map_caption(ledgers, step_map.steps_a_field), alt)


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
        fields[:5, 0] = 0
        fields[4:11, 1:-1] = 0
        fields[10:, -1] = 0
        step_map = cls(n_steps, steps_a_field, fields)
        for difference in ledgers.differences:
            step_map.mark(difference, 1)
        if first is not None:
            step_map.mark(first, 2)
        return step_map

    def mark(self, difference: FirstDifference | Difference, value: int) -> None:
        """Set the field of a difference; a step that only one run made has none."""
        when = _when(difference)
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
            cmap=ListedColormap([_EQUAL, DIFFERENT, FIRST]),
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
    return (
        "Rows are the stages in the order in which a run passes them, columns the training steps, "
        f"counted from 0. A made {amount(n_steps_a, 'step')} and B {n_steps_b}; what both made is "
        f"shown. {grouped(ledgers.compared.total())} entries were compared; "
        f"{grouped(ledgers.not_comparable.total())} could not be, since one digest is of a "
        "processor and one of a GPU. Pale is where no difference was recorded. "
        f"A field stands for {amount(steps_a_field, 'step')} and is dark if any of them differs."
    )
