"""Figures of two runs that diverge: at which stage, step and operation, and how it grows.

What agrees is pale, what differs is dark, and the first difference is orange in a black frame.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.determinism.known_operations import base_name
from cellrepro.errors import BadInput
from cellrepro.lab.divergence.result import JUDGEMENTS, OF_STAGE, Divergence, Place
from cellrepro.show.figures.style import (
    GREY,
    SERIES,
    WIDTH,
    Picture,
    clipped,
    heading,
    legend,
    patch,
)
from cellrepro.store.ledger import STAGES
from cellrepro.text import amount, grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.trace.operation_ledger import OperationRow

_BEFORE, _IN_STEP, _AFTER = STAGES[:4], STAGES[4:11], STAGES[11:]

_EQUAL, DIFFERENT, FIRST, _UNKNOWN = "#D9EEF9", SERIES[0], SERIES[1], "#FFFFFF"
_STYLES: dict[str, dict[str, Any]] = {
    "equal": {"facecolor": _EQUAL, "edgecolor": "#7FA8BF"},
    "first": {"facecolor": FIRST, "edgecolor": "black", "linewidth": 2.2},
    "different": {"facecolor": DIFFERENT, "edgecolor": "white", "hatch": "////"},
    "unknown": {"facecolor": _UNKNOWN, "edgecolor": "#888888", "linestyle": (0, (2, 2))},
}
_MOST_COLUMNS = 100  # steps that get a column each


# -- words ---------------------------------------------------------------------------------


def when(place: Place) -> int | str:
    """The step at which two runs diverge, or ``before`` or ``after`` the training."""
    if place.stage in _BEFORE:
        return "before"
    if place.stage in _AFTER or (place.step is None and place.stage == "weights"):
        return "after"
    return "before" if place.step is None else place.step


def differs(place: Place) -> str:
    """Stage, and what each side holds there, without digests, which tell a reader nothing."""
    found = re.fullmatch(r"(.*): [0-9a-f]{8} in A, [0-9a-f]{8} in B", place.said)
    said = place.said if found is None else f"{found[1]} has other bits"
    return f"{OF_STAGE[place.stage].name}; {said}"


def size(place: Place) -> str:
    """How much the outputs of an operation differ."""
    number = None if place.max_abs is None else f"largest difference {place.max_abs:.2g}"
    if place.n_elements and place.apart is None:
        plural = "number that differs" if place.n_elements == 1 else "numbers that differ"
        number = f"{number} over {grouped(place.n_elements)} {plural}"
    return " ".join(filter(None, (number, place.apart)))


def operation(place: Place | OperationRow) -> str:
    """The operation, where in the network, in which pass."""
    name = base_name(place.op or "") if str(place.op).startswith("aten.") else place.op
    module = f" in {place.module}" if place.module else ""
    return f"{name}{module}{f', {place.phase}' if place.phase else ''}"


def _headline(place: Place | None, n_compared: int) -> str:
    if place is None:
        return f"No difference in {grouped(n_compared)} {'entry' if n_compared == 1 else 'entries'}"
    at = when(place)
    at = f"at step {grouped(at)}" if isinstance(at, int) else f"{at} training"
    return f"The two runs diverge {at}: {OF_STAGE[place.stage].name}"


# -- all stages in one row -----------------------------------------------------------------


def chain(divergence: Divergence) -> Picture:
    """A row of boxes, from environment to masks: which agree, which differ, where it begins.

    ``=`` agrees, ``≠`` differs, ``?`` was not compared, or not all of it. Beneath stand the first
    difference, the operation where one was named, and the judgement. From `cellrepro.diverge`.
    """
    states = _states(divergence)
    story = _story(divergence)
    lines = [
        (line, bold)
        for text, bold in story
        for line in textwrap.wrap(clipped(text, 300), 115, break_on_hyphens=False)
    ]
    figure = Picture(WIDTH + 2, 2.9 + 0.2 * len(lines))
    axes = figure.subplots()
    axes.set(xlim=(-0.5, len(STAGES) - 0.5), ylim=(-0.02, 2.6))
    axes.set_axis_off()
    words = {"equal": "=", "first": "≠\nfirst", "different": "≠\nlater", "unknown": "?"}
    for i, (stage, state) in enumerate(states.items()):
        name, meaning = OF_STAGE[stage].name, textwrap.fill(OF_STAGE[stage].meaning, 12)
        axes.bar(i, 0.95, width=0.78, gid=state, **{"linewidth": 0.8, **_STYLES[state]})
        ground = {"facecolor": _STYLES[state]["facecolor"], "edgecolor": "none", "pad": 1}
        axes.text(
            i, 0.47, words[state], ha="center", va="center", fontsize=11, linespacing=1.3,
            color="white" if state == "different" else "black", bbox=ground,
        )  # fmt: skip
        axes.text(i, 1.32, meaning, ha="center", va="center", fontsize=7, color=GREY)
        axes.text(
            i, 1.62, name.replace(" ", "\n"), ha="center", va="bottom", fontsize=8,
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
    for i, (text, bold) in enumerate(lines):
        axes.annotate(
            text, (0, 0), (0, -14 * (i + 1)), xycoords="axes fraction", va="center", fontsize=9.5,
            textcoords="offset points", fontweight="bold" if bold else "normal", parse_math=False,
        )  # fmt: skip
    texts = ("= agrees", "≠ differs first", "≠ differs too", "? not compared, or not all of it")
    legend(figure, _patches(zip(_STYLES, texts, strict=True)))
    heading(figure, _headline(divergence.first, divergence.n_compared))
    caption = (
        f"A is {divergence.a}, B is {divergence.b}. A run passes the boxes from left to right, "
        "those in the middle once in every training step; “later” is what differs after the first "
        "difference, in the same step or in later ones. Steps are counted from 0."
    )
    notes = (f"{note[:1].upper()}{note[1:]}." for note in divergence.notes)
    said = {"equal": "agrees", "unknown": "not compared", "different": "differs"}
    said["first"] = "differs first"
    boxes = ", ".join(f"{OF_STAGE[stage].name} {said[state]}" for stage, state in states.items())
    told = " ".join(f"{text}." for text, _ in story)
    alt = f"A row of boxes. {_headline(divergence.first, divergence.n_compared)}. {boxes}. {told}"
    return figure.described(" ".join([caption, *notes]), alt)


def _states(divergence: Divergence) -> dict[str, str]:
    """``equal``, ``different``, ``first`` or ``unknown``, by stage."""
    ledgers = divergence.ledgers
    compared = set() if ledgers is None else ledgers.compared.keys() - ledgers.not_comparable.keys()
    states = {}
    for stage in STAGES:
        known = "equal" if stage in compared else "unknown"
        states[stage] = "different" if stage in divergence.stages else known
    if divergence.first is not None:
        states[divergence.first.stage] = "first"
    return states


def _story(divergence: Divergence) -> list[tuple[str, bool]]:
    """What stands beneath the boxes: lines, and whether they are bold."""
    first, computed = divergence.first, divergence.computed
    if first is None:
        nothing = "Nothing was there to be compared."
        same = "Everything that was compared has the same bits."
        return [(same if divergence.n_compared else nothing, False)]
    lines = [(f"First: {differs(first)}", True)]
    if computed is not None and computed != first:
        lines.append((f"It first shows at step {computed.step} in: {differs(computed)}", False))
    named = next((place for place in (computed, first) if place is not None and place.op), None)
    if named is not None:
        lines.append((f"Operation: {operation(named)}", True))
        inputs = {"agree": "equal inputs, other outputs", "differ": "its inputs differ already"}
        how = ", ".join(filter(None, (inputs.get(named.inputs or ""), size(named))))
        lines += [(f"{how[:1].upper()}{how[1:]}", False)] if how else []
        lines += [(f"Line: {named.source}", False)] if named.source else []
    if divergence.judgement is not None:
        judged = JUDGEMENTS.get(divergence.judgement, divergence.judgement)
        lines.append((f"Judgement: {judged}", False))
    return lines


def _patches(entries: Iterable[tuple[str, str]]) -> list[Any]:
    found = []
    for state, text in entries:
        found.append(patch(text, "white"))
        found[-1].set(**{"linewidth": 0.8, **_STYLES[state]})
    return found


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
    steps = np.zeros((len(_IN_STEP), max(1, -(-n_steps // size))), int)
    final = ("weights",) if ledgers.compared["weights"] or "weights" in divergence.stages else ()
    beside = {
        "before": dict.fromkeys((*_BEFORE, "rng"), 0),
        "after": dict.fromkeys((*final, *_AFTER), 0),
    }
    for one in ledgers.differences:
        late = one.stage in (*_AFTER, "weights")
        if one.step is None:
            beside["after" if late else "before"][one.stage] = 1
        elif one.step < n_steps:
            steps[_IN_STEP.index(one.stage), one.step // size] = 1
    at = None if first is None else when(first)
    if first is not None and isinstance(at, int):
        steps[_IN_STEP.index(first.stage), at // size] = 2
    elif first is not None:
        beside[str(at)][first.stage] = 2

    figure = Picture(height=4.6)
    before, middle, after = figure.subplots(1, 3, width_ratios=(1.5, 5, 1.5))
    for axes, (side, found) in zip((before, after), beside.items(), strict=True):
        _fields(axes, np.array(list(found.values()))[:, None], [-0.5, 0.5])
        axes.set_axis_off()
        for y, (stage, state) in enumerate(found.items()):
            name = (
                "final weights" if (side, stage) == ("after", "weights") else OF_STAGE[stage].name
            )
            colour = "white" if state == 1 else "black"
            text = f"{'≠' if state else '='} {name}"
            axes.text(0, y, text, ha="center", va="center", fontsize=9, color=colour)
        axes.set_title(f"{side} training", fontsize=9, y=-0.1, color=GREY)
    if n_steps:
        _fields(middle, steps, np.arange(steps.shape[1] + 1) * size - 0.5)
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
        _frame({"before": before, "after": after}.get(str(at), middle), first, size, beside)
    shown = [("equal", "no difference"), ("different", "differs"), ("first", "first")]
    legend(figure, [patch(text, _STYLES[state]["facecolor"]) for state, text in shown])
    heading(figure, _headline(first, ledgers.compared.total()))
    return figure.described(*_map_words(divergence, size))


def _fields(axes: Axes, states: np.ndarray, edges: Sequence[float] | np.ndarray) -> None:
    from matplotlib.colors import ListedColormap

    y = np.arange(len(states) + 1) - 0.5
    axes.pcolormesh(
        edges, y, states, cmap=ListedColormap([_EQUAL, DIFFERENT, FIRST]), vmin=0, vmax=2,
        edgecolors="white", linewidth=0.4 if len(edges) < 50 else 0, gid="fields",
    )  # fmt: skip
    axes.set_ylim(len(states) - 0.5, -0.5)
    axes.spines[:].set_visible(False)


def _frame(axes: Axes, first: Place, size: int, beside: dict[str, dict[str, int]]) -> None:
    """Frame the first difference, and name it above."""
    from matplotlib.patches import Rectangle

    at = when(first)
    in_step = isinstance(at, int)
    low, high = axes.get_xlim()
    if isinstance(at, int):
        y, x, width = _IN_STEP.index(first.stage), at // size * size - 0.5, float(size)
    else:
        y, x, width = list(beside[at]).index(first.stage), low, high - low
    wide = max(width, 0.012 * (high - low))  # a field of many is still seen
    corner = x - (wide - width) / 2, y - 0.5
    axes.add_patch(Rectangle(corner, wide, 1, fill=False, ec="black", lw=2.2, clip_on=False))
    step = f"step {grouped(at)}, " if isinstance(at, int) else ""
    text = f"first: {step}{clipped(differs(first), 64)}"
    share = min(max((x + width / 2 - low) / (high - low), 0.3), 0.7)
    place = (share, 1.08) if in_step else (0.0 if at == "before" else 1.0, 1.08)
    axes.annotate(
        text, (x + width / 2, y - 0.5 if in_step else -0.5), place, textcoords="axes fraction",
        ha="center" if in_step else "left" if at == "before" else "right", va="bottom", fontsize=9,
        arrowprops={"arrowstyle": "-|>", "color": "black"} if in_step else None, parse_math=False,
    )  # fmt: skip


def _map_words(divergence: Divergence, size: int) -> tuple[str, str]:
    ledgers = divergence.ledgers
    assert ledgers is not None
    n_steps = min(ledgers.n_steps)
    caption = (
        "Rows are the stages of a training step in the order in which a run passes them, columns "
        f"are the steps, counted from 0: {amount(n_steps, 'step')}, "
        f"{grouped(ledgers.compared.total())} entries compared. Pale is where no difference "
        "was recorded."
    )
    if size > 1:
        caption += f" A field stands for {size} steps and is dark if any of them differs."
    if ledgers.n_steps[0] != ledgers.n_steps[1]:
        a, b = ledgers.n_steps
        caption += f" A made {amount(a, 'step')} and B {b}; what both made is shown."
    if ledgers.not_comparable.total():
        caption += (
            f" {grouped(ledgers.not_comparable.total())} entries could not be compared, since one "
            "digest is of a processor and one of a GPU; they are drawn as no difference."
        )
    stages = ", ".join(OF_STAGE[stage].name for stage in STAGES if stage in divergence.stages)
    headline = _headline(divergence.first, ledgers.compared.total())
    alt = f"Map of stages by {amount(n_steps, 'training step')}. {headline}."
    return caption, f"{alt} Differs: {stages or 'nothing'}."
