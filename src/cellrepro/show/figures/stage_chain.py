"""A figure of the stages of two runs that diverge: which agree, which differ, where it begins.

What agrees is pale, what differs is dark, and the first difference is orange in a black frame.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

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
from cellrepro.show.figures.style import GREY, WIDTH, Picture
from cellrepro.store.ledger import (
    AFTER_TRAINING,
    BEFORE_TRAINING,
    IN_EVERY_STEP,
    SEGMENTATION_STAGES,
    STAGES,
)
from samebits.words import grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_GROUPS = {
    STAGES: (
        (len(BEFORE_TRAINING), "before training"),
        (len(IN_EVERY_STEP), "in every training step"),
        (len(AFTER_TRAINING), "after training"),
    ),
    SEGMENTATION_STAGES: (
        (3, "before the images"),
        (6, "the image, up to its tiles"),
        (2, "the network"),
        (3, "from flows to cells"),
    ),
}
"""How many stages of a chain belong together, and what they are."""


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
    "equal": _Box("=", "agrees", fill=EQUAL, edge="#7FA8BF", line_width=0.8),
    "first": _Box("≠\nfirst", "differs first", fill=FIRST, edge="black", line_width=2.2),
    "different": _Box(
        "≠\nlater",
        "differs as a consequence",
        fill=DIFFERENT,
        edge="white",
        text="white",
        hatch="////",
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


def chain(divergence: Divergence) -> Picture:
    """Draw a row of boxes, from environment to masks: which agree, which differ, where it begins.

    ``=`` agrees, ``≠`` differs, of a training with the step from which it does, ``?`` was not
    compared, or not all of it.

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
    first_steps = _first_steps(divergence)
    begin = None if divergence.first is None else first_steps.get(divergence.first.stage)
    for i, (stage, state) in enumerate(states.items()):
        _draw_box(axes, i, state, first_steps.get(stage), begin)
    _draw_groups(axes, stages)
    axes.set_xticks(range(len(stages)), [_stage_label(stage) for stage in stages], fontsize=8)
    axes.set(xlim=(-0.5, len(stages) - 0.5), ylim=(-0.03, 1.4), yticks=[])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    handles = [
        style.patch(f"{box.sign[0]} {box.meaning}", **box.options) for box in _BOXES.values()
    ]
    style.legend(figure, handles)
    text = headline(divergence.first, divergence.compared, stages)
    if stages != STAGES and divergence.computed not in (None, divergence.first):
        stage = OF_STAGE[divergence.computed.stage].name
        text += f"; the first stage that comes out different: {stage}"
    boxes = ", ".join(
        f"{OF_STAGE[stage].name} {_BOXES[state].meaning}" for stage, state in states.items()
    )
    alt = f"A row of boxes. {text}. {boxes}. {divergence.sentence()}."
    return figure.described(text, _chain_caption(divergence), alt)


def _draw_box(axes: Axes, i: int, state: State, first_step: int | None, begin: int | None) -> None:
    """Draw a stage; ``begin`` is the step of the first difference, in which others may agree."""
    box = _BOXES[state]
    sign = box.sign
    size = 11.0
    if first_step is not None and state in ("first", "different"):
        begins = "first" if state == "first" else "from"
        sign = f"{box.sign[0]} {begins}\nstep {grouped(first_step)}"
        size = 9.5
        if begin is not None and first_step > begin:
            sign = f"= in\nstep {grouped(begin)}\n{sign}"
    bar = axes.bar(i, 1, width=0.78, gid=state, **box.options)
    axes.bar_label(
        bar,
        [sign],
        label_type="center",
        fontsize=size,
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
    notes = "".join(f"\n{note}." for note in divergence.notes)
    text = (
        f"A is {divergence.a}, B is {divergence.b}. A run passes the boxes from left to right; "
        "“later” differs as a consequence."
    )
    if divergence.chain == STAGES:
        text = (
            f"A is {divergence.a}, B is {divergence.b}. A run passes the boxes from left to right, "
            "those in the middle once in every training step. Each of them says the first step in "
            "which the two differ there, counted from 0; what is = in the step of the first "
            "difference, and differs later, does so as a consequence."
        )
    return text + notes


def _first_steps(divergence: Divergence) -> dict[str, int]:
    """The first training step in which each stage differs."""
    differences = [] if divergence.ledgers is None else list(divergence.ledgers.differences)
    if divergence.chain != STAGES:
        return {}
    first_steps: dict[str, int] = {}
    for difference in differences:
        when = when_they_differ(difference)
        if isinstance(when, int):
            first_steps[difference.stage] = min(when, first_steps.get(difference.stage, when))
    return first_steps


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
