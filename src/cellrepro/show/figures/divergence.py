"""Figures of two runs that diverge: at which stage, at which step.

What agrees is pale, what differs is dark, and the first difference is orange in a black frame.
"""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.determinism.known_operations import base_name
from cellrepro.divergence.result import OF_STAGE, Divergence, Place
from cellrepro.errors import BadInput
from cellrepro.show.figures import style
from cellrepro.show.figures.style import GREY, SERIES, WIDTH, Picture
from cellrepro.store.ledger import SEGMENTATION_STAGES, STAGES
from cellrepro.words import amount, grouped

if TYPE_CHECKING:
    from cellrepro.same.ledger_diff import Difference
    from cellrepro.trace.operation_ledger import OperationRow

_BEFORE, _AFTER = STAGES[:4], STAGES[11:]
_GROUPS = {
    STAGES: ((4, "before training"), (7, "in every training step"), (2, "after training")),
    SEGMENTATION_STAGES: (
        *((3, "before the images"), (6, "the image, up to its tiles")),
        *((2, "the network"), (3, "from flows to cells")),
    ),
}
"""How many stages of a chain belong together, and what they are."""

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


def differs(place: Place) -> str:
    """Stage, and what each side holds there, without digests, which tell a reader nothing."""
    found = re.fullmatch(r"(.*): [0-9a-f]{8} in A, [0-9a-f]{8} in B", place.said)
    said = place.said if found is None else f"{found[1]} has other bits"
    return f"{OF_STAGE[place.stage].name}; {said}"


def operation(row: OperationRow) -> str:
    """The operation, where in the network, in which pass."""
    module = f" in {row.module}" if row.module else ""
    return f"{base_name(row.op)}{module}, {row.phase}"


def _when(place: Place | Difference) -> int | str:
    """The step at which two runs differ, or ``before`` or ``after`` the training."""
    if place.stage in _AFTER or (place.step is None and place.stage == "weights"):
        return "after"
    return "before" if place.step is None or place.stage in _BEFORE else place.step


def _headline(place: Place | None, n_compared: int, stages: tuple[str, ...] = STAGES) -> str:
    if place is None:
        return f"No difference, {grouped(n_compared)} entries compared"
    if stages != STAGES:
        return f"The two segmentations diverge: {OF_STAGE[place.stage].name}"
    at = _when(place)
    at = f"at step {grouped(at)}" if isinstance(at, int) else f"{at} training"
    return f"The two runs diverge {at}: {OF_STAGE[place.stage].name}"


def chain(divergence: Divergence) -> Picture:
    """A row of boxes, from environment to masks: which agree, which differ, where it begins.

    ``=`` agrees, ``≠`` differs, ``?`` was not compared, or not all of it. The caption names the
    first difference, the operation where it is known, and the judgement. From `cellrepro.diverge`.
    """
    states, stages = _states(divergence), divergence.chain
    figure = Picture(WIDTH + 2, 2.9)
    axes = figure.subplots()
    for i, state in enumerate(states.values()):
        sign, _, look = _BOXES[state]
        box = axes.bar(i, 1, width=0.78, gid=state, **look)
        colour = "white" if state == "different" else "black"
        behind = {"facecolor": look["fc"], "edgecolor": "none", "pad": 1}
        axes.bar_label(box, [sign], label_type="center", fontsize=11, color=colour, bbox=behind)
    begin = 0
    for n, text in _GROUPS[stages]:
        ends = begin - 0.4, begin + n - 0.6
        axes.plot(ends, [1.15, 1.15], color=GREY, lw=1)
        axes.text(sum(ends) / 2, 1.2, text, ha="center", fontsize=9, color=GREY)
        begin += n
    words = [(OF_STAGE[stage].name, f"({OF_STAGE[stage].meaning})") for stage in stages]
    names = ["\n".join(textwrap.fill(word, 12) for word in pair) for pair in words]
    axes.set_xticks(range(len(stages)), names, fontsize=8)
    axes.set(xlim=(-0.5, len(stages) - 0.5), ylim=(-0.03, 1.4), yticks=[])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    style.legend(figure, [style.patch(text, **look) for _, text, look in _BOXES.values()])
    headline = _headline(divergence.first, divergence.n_compared, stages)
    if stages != STAGES and divergence.computed not in (None, divergence.first):
        headline += f"; their images from: {OF_STAGE[divergence.computed.stage].name}"
    told = divergence.sentence()
    notes = "".join(f"\n{note}." for note in divergence.notes)
    in_training = stages == STAGES
    once = ", those in the middle once in every training step" if in_training else ""
    caption = (
        f"{told[:1].upper()}{told[1:]}.\nA is {divergence.a}, B is {divergence.b}. A run passes "
        f"the boxes from left to right{once}; “later” is what differs after the first difference. "
        f"{'Steps are counted from 0.' if in_training else ''}{notes}"
    )
    boxes = ", ".join(
        f"{OF_STAGE[stage].name} {_BOXES[state][1][2:]}" for stage, state in states.items()
    )
    return figure.described(headline, caption, f"A row of boxes. {headline}. {boxes}. {told}.")


def _states(divergence: Divergence) -> dict[str, str]:
    """``equal``, ``different``, ``first`` or ``unknown``, by stage."""
    ledgers, first = divergence.ledgers, divergence.first
    compared = set() if ledgers is None else ledgers.compared.keys() - ledgers.not_comparable.keys()
    states = {stage: "equal" if stage in compared else "unknown" for stage in divergence.chain}
    states |= dict.fromkeys(divergence.stages, "different")
    return states if first is None else states | {first.stage: "first"}


def step_map(divergence: Divergence) -> Picture:
    """A map of stages by training steps: where two ledgers agree, and where they do not.

    Where there are more than 100 steps, a field stands for several, and differs if any does. The
    first difference is framed and named. From `cellrepro.diverge`.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Rectangle

    ledgers, first = divergence.ledgers, divergence.first
    if ledgers is None or divergence.chain != STAGES:
        raise BadInput("the divergence holds no ledgers of trainings; give what `diverge` returns")
    n_steps = min(ledgers.n_steps)
    size = max(1, -(-n_steps // _MOST_COLUMNS))
    # The first column is before training, the last after it; what is in neither stays empty.
    states = np.full((len(STAGES), -(-n_steps // size) + 2), np.nan)
    states[:5, 0] = states[4:11, 1:-1] = states[10:, -1] = 0
    places: list[tuple[Place | Difference, int]] = [(one, 1) for one in ledgers.differences]
    places += [] if first is None else [(first, 2)]
    for place, state in places:
        at = _when(place)
        if isinstance(at, str) or at < n_steps:
            column = {"before": 0, "after": -1}[at] if isinstance(at, str) else 1 + at // size
            states[STAGES.index(place.stage), column] = state
    end = max(1, n_steps)
    edges = np.array([-0.15 * end, *range(0, n_steps, size), end, 1.15 * end]) - 0.5
    figure = Picture(height=4.6)
    axes = figure.subplots()
    colours = ListedColormap([_EQUAL, DIFFERENT, FIRST])
    rows = np.arange(len(STAGES) + 1) - 0.5
    look: dict[str, Any] = {"edgecolors": "white", "linewidth": 0.4, "gid": "fields"}
    axes.pcolormesh(edges, rows, states, cmap=colours, vmin=0, vmax=2, **look)
    style.rows(axes, [f"{OF_STAGE[stage].name}  ({OF_STAGE[stage].meaning})" for stage in STAGES])
    ticks = range(0, n_steps, max(1, n_steps // 6))
    middle = [edges[:2].mean(), *ticks, edges[-2:].mean()]
    axes.set_xticks(middle, ["before\ntraining", *map(grouped, ticks), "after\ntraining"])
    style.label_axes(axes, x=f"training step (each field: {amount(size, 'step')})")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if first is not None:
        y, x = np.argwhere(states == 2)[0]
        width, least = edges[x + 1] - edges[x], 0.012 * (edges[-1] - edges[0])  # is still seen
        corner = edges[x] - max(0, least - width) / 2, y - 0.5
        frame: dict[str, Any] = {"fill": False, "ec": "black", "lw": 2.2, "clip_on": False}
        axes.add_patch(Rectangle(corner, max(width, least), 1, **frame))
        step = "" if isinstance(_when(first), str) else f"step {grouped(first.step or 0)}, "
        style.title(axes, f"first: {step}{differs(first)}", size=9)
    shown = {"no difference": _EQUAL, "differs": DIFFERENT, "first": FIRST}
    style.legend(figure, [style.patch(text, fc=colour) for text, colour in shown.items()])
    a, b = ledgers.n_steps
    caption = (
        "Rows are the stages in the order in which a run passes them, columns the training steps, "
        f"counted from 0. A made {amount(a, 'step')} and B {b}; what both made is shown. "
        f"{grouped(ledgers.compared.total())} entries were compared; "
        f"{grouped(ledgers.not_comparable.total())} could not be, since one digest is of a "
        "processor and one of a GPU. Pale is where no difference was recorded. "
        f"A field stands for {amount(size, 'step')} and is dark if any of them differs."
    )
    headline = _headline(first, ledgers.compared.total())
    found = ", ".join(OF_STAGE[stage].name for stage in STAGES if stage in divergence.stages)
    alt = f"Map of stages by {amount(n_steps, 'training step')}. {headline}. Differs: "
    return figure.described(headline, caption, f"{alt}{found or 'nothing'}.")
