"""Figures of two runs that diverge: at which stage, at which step.

What agrees is pale, what differs is dark, and the first difference is orange in a black frame.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.determinism.known_operations import base_name
from cellrepro.errors import BadInput
from cellrepro.lab.divergence.result import JUDGEMENTS, OF_STAGE, Divergence, Place
from cellrepro.show.figures import style
from cellrepro.show.figures.style import GREY, SERIES, WIDTH, Picture
from cellrepro.store.ledger import STAGES
from cellrepro.text import amount, grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.compare.ledger_diff import LedgerComparison
    from cellrepro.trace.operation_ledger import OperationRow

_BEFORE, _IN_STEP, _AFTER = STAGES[:4], STAGES[4:11], STAGES[11:]

_EQUAL, DIFFERENT, FIRST = "#D9EEF9", SERIES[0], SERIES[1]
_BOXES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "equal": ("=", "= agrees", {"fc": _EQUAL, "ec": "#7FA8BF", "lw": 0.8}),
    "first": ("≠\nfirst", "≠ differs first", {"fc": FIRST, "ec": "black", "lw": 2.2}),
    "different": ("≠\nlater", "≠ differs too", {"fc": DIFFERENT, "ec": "white", "hatch": "////"}),
    "unknown": (
        "?",
        "? not compared, or not all of it",
        {"fc": "white", "ec": "#888888", "lw": 0.8, "ls": (0, (2, 2))},
    ),
}
"""By state of a stage: the sign in its box, its meaning, and how the box looks."""

_MOST_COLUMNS = 100  # steps that get a column each


# -- words ---------------------------------------------------------------------------------


def differs(place: Place) -> str:
    """Stage, and what each side holds there, without digests, which tell a reader nothing."""
    found = re.fullmatch(r"(.*): [0-9a-f]{8} in A, [0-9a-f]{8} in B", place.said)
    said = place.said if found is None else f"{found[1]} has other bits"
    return f"{OF_STAGE[place.stage].name}; {said}"


def operation(place: Place | OperationRow) -> str:
    """The operation, where in the network, in which pass."""
    name = base_name(place.op or "") if str(place.op).startswith("aten.") else place.op
    module = f" in {place.module}" if place.module else ""
    return f"{name}{module}{f', {place.phase}' if place.phase else ''}"


def _when(place: Place) -> int | str:
    """The step at which two runs diverge, or ``before`` or ``after`` the training."""
    if place.stage in _AFTER or (place.step is None and place.stage == "weights"):
        return "after"
    return "before" if place.step is None or place.stage in _BEFORE else place.step


def _headline(place: Place | None, n_compared: int) -> str:
    if place is None:
        return f"No difference in {grouped(n_compared)} {'entry' if n_compared == 1 else 'entries'}"
    at = _when(place)
    at = f"at step {grouped(at)}" if isinstance(at, int) else f"{at} training"
    return f"The two runs diverge {at}: {OF_STAGE[place.stage].name}"


# -- all stages in one row -----------------------------------------------------------------


def chain(divergence: Divergence) -> Picture:
    """A row of boxes, from environment to masks: which agree, which differ, where it begins.

    ``=`` agrees, ``≠`` differs, ``?`` was not compared, or not all of it. Beneath stand the first
    difference, the operation where one was named, and the judgement. From `cellrepro.diverge`.
    """
    states, story = _states(divergence), _story(divergence)
    lines = [
        line
        for text in story
        for line in textwrap.wrap(style.clipped(text, 300), 115, break_on_hyphens=False)
    ]
    figure = Picture(WIDTH + 2, 2.9 + 0.2 * len(lines))
    axes = figure.subplots()
    axes.set(xlim=(-0.5, len(STAGES) - 0.5), ylim=(-0.02, 2.6))
    axes.set_axis_off()
    for i, (stage, state) in enumerate(states.items()):
        sign, _, look = _BOXES[state]
        axes.bar(i, 0.95, width=0.78, gid=state, **look)
        centred: dict[str, Any] = {"ha": "center", "va": "center"}
        axes.text(
            i, 0.47, sign, **centred, fontsize=11, linespacing=1.3,
            color="white" if state == "different" else "black",
            bbox={"facecolor": look["fc"], "edgecolor": "none", "pad": 1},
        )  # fmt: skip
        meaning = textwrap.fill(OF_STAGE[stage].meaning, 12)
        axes.text(i, 1.32, meaning, **centred, fontsize=7, color=GREY)
        axes.text(
            i, 1.62, OF_STAGE[stage].name.replace(" ", "\n"), ha="center", va="bottom", fontsize=8,
            fontweight="bold" if state == "first" else "normal",
        )  # fmt: skip
    for stages, text in (
        (_BEFORE, "before training"),
        (_IN_STEP, "in every training step"),
        (_AFTER, "after training"),
    ):
        ends = STAGES.index(stages[0]) - 0.4, STAGES.index(stages[-1]) + 0.4
        axes.plot(ends, [2.3, 2.3], color=GREY, lw=1)
        axes.text(sum(ends) / 2, 2.38, text, ha="center", fontsize=9, color=GREY)
    for i, line in enumerate(lines):
        axes.annotate(
            line, (0, 0), (0, -14 * (i + 1)), xycoords="axes fraction", va="center", fontsize=9.5,
            textcoords="offset points", parse_math=False,
            fontweight="bold" if line.startswith(("First:", "Operation:")) else "normal",
        )  # fmt: skip
    style.legend(figure, [style.patch(text, **look) for _, text, look in _BOXES.values()])
    headline = _headline(divergence.first, divergence.n_compared)
    caption = (
        f"A is {divergence.a}, B is {divergence.b}. A run passes the boxes from left to right, "
        "those in the middle once in every training step; “later” is what differs after the first "
        "difference, in the same step or in later ones. Steps are counted from 0."
    )
    notes = (f"{note[:1].upper()}{note[1:]}." for note in divergence.notes)
    boxes = ", ".join(
        f"{OF_STAGE[stage].name} {_BOXES[state][1][2:]}" for stage, state in states.items()
    )
    alt = f"A row of boxes. {headline}. {boxes}. {' '.join(f'{text}.' for text in story)}"
    return figure.described(headline, " ".join([caption, *notes]), alt)


def _states(divergence: Divergence) -> dict[str, str]:
    """``equal``, ``different``, ``first`` or ``unknown``, by stage."""
    ledgers, first = divergence.ledgers, divergence.first
    compared = set() if ledgers is None else ledgers.compared.keys() - ledgers.not_comparable.keys()
    states = {stage: "equal" if stage in compared else "unknown" for stage in STAGES}
    states |= dict.fromkeys(divergence.stages, "different")
    return states if first is None else states | {first.stage: "first"}


def _story(divergence: Divergence) -> list[str]:
    """What stands beneath the boxes."""
    first, computed = divergence.first, divergence.computed
    if first is None and not divergence.n_compared:
        return ["Nothing was there to be compared."]
    if first is None:
        return ["Everything that was compared has the same bits."]
    lines = [f"First: {differs(first)}"]
    if computed is not None and computed != first:
        lines.append(f"It first shows at step {computed.step} in: {differs(computed)}")
    named = next((place for place in (computed, first) if place is not None and place.op), None)
    if named is not None:
        lines.append(f"Operation: {operation(named)}")
        inputs = {"agree": "equal inputs, other outputs", "differ": "its inputs differ already"}
        apart = None if named.max_abs is None else f"largest difference {named.max_abs:.2g}"
        found = (inputs.get(named.inputs or ""), apart, named.apart)
        how = ", ".join(filter(None, found))
        lines += [how[:1].upper() + how[1:]] if how else []
        lines += [f"Line: {named.source}"] if named.source else []
    if divergence.judgement is not None:
        judged = JUDGEMENTS.get(divergence.judgement, divergence.judgement)
        lines.append(f"Judgement: {judged}")
    return lines


# -- stages by steps -----------------------------------------------------------------------


def step_map(divergence: Divergence) -> Picture:
    """A map of stages by training steps: where two ledgers agree, and where they do not.

    Where there are more than 100 steps, a field stands for several, and differs if any does. The
    first difference is framed and named. From `cellrepro.diverge`.
    """
    ledgers, first = divergence.ledgers, divergence.first
    if ledgers is None:
        raise BadInput("the divergence holds no ledgers to draw; give what `diverge` returns")
    n_steps = min(ledgers.n_steps)
    sizes = (factor * 10**power for power in range(10) for factor in (1, 2, 5))
    size = next(n for n in sizes if n_steps <= n * _MOST_COLUMNS)
    final = ("weights",) if ledgers.compared["weights"] or "weights" in divergence.stages else ()
    stages = {"before": (*_BEFORE, "rng"), "step": _IN_STEP, "after": (*final, *_AFTER)}
    states = {side: np.zeros((len(named), 1), int) for side, named in stages.items()}
    states["step"] = np.zeros((len(_IN_STEP), max(1, -(-n_steps // size))), int)
    places = [(one.stage, one.step, 1) for one in ledgers.differences]
    if first is not None:
        at = _when(first)
        places.append((first.stage, at if isinstance(at, int) else None, 2))
    for stage, step, state in places:
        side = "after" if stage in (*_AFTER, "weights") else "before"
        if step is None:
            states[side][stages[side].index(stage), 0] = state
        elif step < n_steps:
            states["step"][_IN_STEP.index(stage), step // size] = state

    figure = Picture(height=4.6)
    panels = dict(zip(stages, figure.subplots(1, 3, width_ratios=(1.5, 5, 1.5)), strict=True))
    for side in ("before", "after"):
        axes = panels[side]
        _fields(axes, states[side], [-0.5, 0.5])
        axes.set_axis_off()
        for y, (stage, state) in enumerate(zip(stages[side], states[side][:, 0], strict=True)):
            name = "final weights" if stage == "weights" else OF_STAGE[stage].name
            axes.text(
                0, y, f"{'≠' if state else '='} {name}", ha="center", va="center", fontsize=9,
                color="white" if state == 1 else "black",
            )  # fmt: skip
        axes.set_title(f"{side} training", fontsize=9, y=-0.1, color=GREY)
    middle = panels["step"]
    if n_steps:
        _fields(middle, states["step"], np.arange(states["step"].shape[1] + 1) * size - 0.5)
        names = [f"{OF_STAGE[stage].name}  ({OF_STAGE[stage].meaning})" for stage in _IN_STEP]
        middle.set_yticks(range(len(_IN_STEP)), names, fontsize=8.5)
        middle.tick_params(axis="y", length=0)
        middle.locator_params(axis="x", integer=True)
        each = "" if size == 1 else f" (each field: {size} steps)"
        middle.set_xlabel(f"training step{each}", fontsize=9, color=GREY)
    else:
        middle.set_axis_off()
        middle.text(0.5, 0.5, "no training step that both made", ha="center", va="center")
    if first is not None:
        side = at if isinstance(at, str) else "step"
        x = (-0.5, 1) if isinstance(at, str) else (at // size * size - 0.5, size)
        _frame(panels[side], first, side, stages[side].index(first.stage), *x)
    shown = {"no difference": _EQUAL, "differs": DIFFERENT, "first": FIRST}
    style.legend(figure, [style.patch(text, fc=colour) for text, colour in shown.items()])
    headline = _headline(first, ledgers.compared.total())
    found = ", ".join(OF_STAGE[stage].name for stage in STAGES if stage in divergence.stages)
    alt = f"Map of stages by {amount(n_steps, 'training step')}. {headline}. Differs: "
    return figure.described(headline, _caption(ledgers, size), f"{alt}{found or 'nothing'}.")


def _caption(ledgers: LedgerComparison, size: int) -> str:
    a, b = ledgers.n_steps
    caption = (
        "Rows are the stages of a training step in the order in which a run passes them, columns "
        f"are the steps, counted from 0. A made {amount(a, 'step')} and B {b}; what both made is "
        f"shown. {grouped(ledgers.compared.total())} entries were compared. Pale is where no "
        "difference was recorded."
    )
    if size > 1:
        caption += f" A field stands for {size} steps and is dark if any of them differs."
    if ledgers.not_comparable:
        caption += (
            f" {grouped(ledgers.not_comparable.total())} entries could not be compared, since one "
            "digest is of a processor and one of a GPU; they are drawn as no difference."
        )
    return caption


def _fields(axes: Axes, states: np.ndarray, edges: Sequence[float] | np.ndarray) -> None:
    from matplotlib.colors import ListedColormap

    y = np.arange(len(states) + 1) - 0.5
    axes.pcolormesh(
        edges, y, states, cmap=ListedColormap([_EQUAL, DIFFERENT, FIRST]), vmin=0, vmax=2,
        edgecolors="white", linewidth=0.4 if len(edges) < 50 else 0, gid="fields",
    )  # fmt: skip
    axes.set_ylim(len(states) - 0.5, -0.5)
    axes.spines[:].set_visible(False)


def _frame(axes: Axes, first: Place, side: str, row: int, x: float, width: float) -> None:
    """Frame the first difference, and name it above."""
    from matplotlib.patches import Rectangle

    low, high = axes.get_xlim()
    wide = max(width, 0.012 * (high - low))  # a field of many is still seen
    middle = x + width / 2
    corner = middle - wide / 2, row - 0.5
    axes.add_patch(Rectangle(corner, wide, 1, fill=False, ec="black", lw=2.2, clip_on=False))
    step = f"step {grouped(first.step or 0)}, " if side == "step" else ""
    share = min(max((middle - low) / (high - low), 0.3), 0.7)
    axes.annotate(
        f"first: {step}{style.clipped(differs(first), 64)}", (middle, row - 0.5),
        ({"before": 0.0, "after": 1.0}.get(side, share), 1.08), textcoords="axes fraction",
        ha={"before": "left", "after": "right"}.get(side, "center"), va="bottom", fontsize=9,
        arrowprops={"arrowstyle": "-|>"} if side == "step" else None, parse_math=False,
    )  # fmt: skip
