"""When two runs parted, and at which operation: pictures and a table.

What is drawn comes from `cellrepro.lab.divergence` and `cellrepro.lab.growth`. What agrees is pale,
what differs is dark and hatched, and the first difference is orange in a black frame.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.compare.operation_alignment import growth
from cellrepro.determinism.known_operations import base_name
from cellrepro.errors import BadInput
from cellrepro.show.figures import style as plots
from cellrepro.show.figures.nondeterminism import Told
from cellrepro.show.figures.style import SERIES, Picture
from cellrepro.store.ledger import BEFORE, STAGES
from cellrepro.text import amount, grouped, ppm_text, share_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.patches import Rectangle

    from cellrepro.compare.ledger_diff import Difference, LedgerComparison
    from cellrepro.compare.operation_alignment import Alignment

_NAMES = {
    # name, and what that is to somebody who trains networks but does not write them
    "environment": ("environment", "machine,\nversions"),
    "spec": ("spec", "what was\nasked for"),
    "data": ("data", "images and\ntrue masks"),
    "weights-init": ("initial weights", "before any\ntraining"),
    "rng": ("generators", "random\nnumbers"),
    "batch": ("batch", "images\nshown"),
    "forward": ("forward", "network's\nanswer"),
    "loss": ("loss", "how far\nit is off"),
    "backward": ("backward", "gradients"),
    "update": ("update", "optimizer's\nchange"),
    "weights": ("weights", "network\nafter it"),
    "flows": ("flows", "towards cell\ncentres"),
    "masks": ("masks", "outlined\ncells"),
}
_BEFORE_STEPS, _IN_STEP, _AFTER_STEPS = STAGES[:4], STAGES[4:11], STAGES[11:]

_EQUAL, _DIFFERENT, _FIRST = "#D9EEF9", SERIES[0], SERIES[1]
_HATCH = "////"
_GREY = "#555555"
_MOST_COLUMNS = 100  # steps that get a column each
_MOST_TICKS = 10
_MOST_BARS = 40  # that are hatched each
_MOST_NUMBERS = 12  # points that get their number written beside them

_JUDGED = {
    "race": "a race: asked again on equal inputs, the same process gives other bits",
    "round-off": "round-off: every operation stays within the error that is usual for its class",
    "fault": "a fault: neither round-off nor a race explains it",
    "asked for": "the two were asked for otherwise",
    "surroundings": "the surroundings differ, the results do not",
    "data": "what went in differs",
    "draws": "other random numbers were drawn",
    "unexplained": "what made them part was not found",
}
_LOOKED = {
    "stored operations": "the operations that both runs wrote down",
    "stored draws": "the random numbers that both runs wrote down",
    "repetition": "the step was repeated in one process until it gave other bits",
    "audit": "operations known to race were asked again on equal inputs",
    "two replays": "the step was gone through again, once in the surroundings of each run",
}
_ENDED = {
    "a": "in the bits of A",
    "b": "in the bits of B",
    "both": "in bits that both runs have",
    "neither": "in bits that neither run has",
}
_INPUTS = {
    "agree": "equal inputs, other outputs",
    "differ": "its inputs differ already",
    "unknown": "its inputs cannot be compared",
}


# -- all stages in one row -----------------------------------------------------------------


def chain(divergence: Any) -> Told:
    """A row of boxes, from environment to masks: which agree, which differ, where it begins.

    Parameters
    ----------
    divergence : Divergence
        From `cellrepro.diverge`.

    Returns
    -------
    Told
        ``=`` agrees, ``≠`` differs, ``?`` was not compared, or not all of it. Beneath stand the
        first difference, the operation where one was named, and the judgement.

    Raises
    ------
    BadInput
        If it is no divergence.
    """
    _need(divergence, "chain", "a Divergence, from cellrepro.diverge", "stages", "first", "notes")
    states = _states(divergence)
    story = _story(divergence)
    lines = [
        (line, style)
        for text, style in story
        for line in textwrap.wrap(
            plots.clipped(text, 300), 112 if style else 132, break_on_hyphens=False
        )
    ]
    pitch, side, left = 0.83, 0.62, 0.12
    width = 2 * left + pitch * len(STAGES)
    top, bottom = 1.62, 2.62  # of the boxes, and of the story
    figure, axes = _canvas(width, bottom + 0.2 * len(lines) + 0.62)
    _write(axes, left, 0.22, _chain_heading(divergence), fontsize=12, fontweight="bold")
    first_x = _boxes(axes, states, left, pitch, side, top)
    _braces(axes, left, pitch)
    if first_x is not None:
        axes.plot([first_x, first_x], [top + side + 0.03, bottom - 0.1], color="black", lw=1.4)
        axes.plot([left, width - left], [bottom - 0.1] * 2, color="black", lw=1.4)
    y = bottom + 0.08
    for text, style in lines:
        _write(axes, left, y, text, **{"fontsize": 9.5, **style})
        y += 0.2
    swatches = [("equal", "= agrees"), ("first", "≠ differs first"), ("different", "≠ differs too")]
    _swatches(axes, left, y + 0.2, [*swatches, ("unknown", "? not compared, or not all of it")])
    return Told(figure, _chain_caption(divergence), _chain_alt(divergence, states, story))


def _boxes(
    axes: Axes, states: Mapping[str, str], left: float, pitch: float, side: float, top: float
) -> float | None:
    """The boxes, and where the middle of the first that differs is."""
    first_x = None
    for i, stage in enumerate(STAGES):
        x = left + pitch * i + (pitch - side) / 2
        middle = x + side / 2
        name, plain = _NAMES[stage]
        state = states[stage]
        is_first = state == "first"
        _write(
            axes, middle, top - 0.36, name.replace(" ", "\n"), fontsize=8, ha="center",
            va="bottom", fontweight="bold" if is_first else "normal",
        )  # fmt: skip
        _write(axes, middle, top - 0.33, plain, fontsize=7, color=_GREY, ha="center", va="top")
        if i:
            _arrow(axes, x - (pitch - side) + 0.01, x - 0.01, top + side / 2)
        _field(axes, x, top, side, side, state)
        sign = {"equal": "=", "unknown": "?"}.get(state, "≠")
        word = {"first": "first", "different": "later"}.get(state, "")
        y = top + side / 2 - (0.08 if word else 0)
        _sign(axes, middle, y, sign, state, fontsize=17)
        _sign(axes, middle, top + side - 0.14, word, state, fontsize=8)
        if is_first:
            first_x = middle
    return first_x


def _braces(axes: Axes, left: float, pitch: float) -> None:
    for stages, text in (
        (_BEFORE_STEPS, "before training"),
        (_IN_STEP, "in every training step"),
        (_AFTER_STEPS, "after training"),
    ):
        start = left + pitch * STAGES.index(stages[0]) + 0.06
        stop = left + pitch * (STAGES.index(stages[-1]) + 1) - 0.06
        _write(axes, (start + stop) / 2, 0.62, text, fontsize=9, ha="center", color="#444444")
        axes.plot([start, start, stop, stop], [0.84, 0.76, 0.76, 0.84], color="#444444", lw=1)


def _states(divergence: Any) -> dict[str, str]:
    """``equal``, ``different``, ``first`` or ``unknown``, by stage."""
    unknown = _not_compared(divergence)
    states = {
        stage: "different"
        if stage in divergence.stages
        else "unknown"
        if stage in unknown
        else "equal"
        for stage in STAGES
    }
    if divergence.first is not None:
        states[_stage(divergence.first.stage)] = "first"
    return states


def _not_compared(divergence: Any) -> set[str]:
    """Stages of which nothing, or not everything, was there to be compared."""
    if not divergence.n_compared:
        return set(STAGES)
    found: set[str] = set()
    said = " ".join(divergence.notes)
    if "kept no ledger" in said:
        found |= {*_IN_STEP, "flows"} - {"weights"}  # of the weights there are the files
    if "which say nothing about each other" in said:
        found |= {*_IN_STEP, "weights-init", "flows"}
    comparison = divergence.comparison
    if comparison.weights is None and not {*_IN_STEP} & {*divergence.stages}:
        found |= {*_IN_STEP}  # nothing was trained
    if not comparison.masks:
        found |= {*_AFTER_STEPS}
    return found


def _chain_heading(divergence: Any) -> str:
    first = divergence.first
    if first is None:
        n = divergence.n_compared
        return f"No difference in {grouped(n)} {'entry' if n == 1 else 'entries'}"
    name = _NAMES[_stage(first.stage)][0]
    if first.step is None or first.stage in _BEFORE_STEPS:
        when = "before training" if first.stage not in (*_AFTER_STEPS, "weights") else "at the end"
        return f"The two runs part {when}: {name}"
    return f"The two runs part at step {first.step}: {name}"


def _story(divergence: Any) -> list[tuple[str, dict[str, Any]]]:
    """What stands beneath the boxes: lines, and how they are written."""
    first, computed = divergence.first, divergence.computed
    if first is None and not divergence.n_compared:
        return [("Nothing was there to be compared.", {})]
    if first is None:
        return [("Everything that was compared has the same bits.", {})]
    strong = {"fontweight": "bold"}
    lines: list[tuple[str, dict[str, Any]]] = [(f"First: {_differs(first)}", strong)]
    if computed is not None and computed != first:
        lines.append((f"It first shows at step {computed.step} in: {_differs(computed)}", {}))
    named = next((one for one in (computed, first) if one is not None and one.op), None)
    if named is not None:
        early = named.stage in _BEFORE_STEPS and named.step is not None
        at = f" at step {grouped(named.step)}" if early else ""
        lines.append((f"Operation{at}: {_operation(named)}", strong))
        how = ", ".join(filter(None, (_INPUTS.get(named.inputs or ""), _size(named))))
        if how:
            lines.append((_sentence(how), {}))
        if named.source:
            lines.append((f"Line: {named.source}", {}))
    if divergence.judgement is not None:
        lines.append((f"Judgement: {_judged(divergence.judgement)}", {}))
    return lines


def _judged(judgement: str, evidence: Any = None) -> str:
    text = _JUDGED.get(judgement, judgement)
    if evidence is None or evidence.elimination is None:
        return text
    return f"{text}; a fault cannot be told, {evidence.elimination}"


def _apart(place: Any) -> str:
    number = None if place.max_abs is None else f"{place.max_abs:.2g}"
    return " ".join(filter(None, (number, place.apart)))


def _differs(place: Any) -> str:
    """Stage and what differs there."""
    name = _NAMES[_stage(place.stage)][0]
    return f"{name}; {_said(place.said)}"


def _said(text: str) -> str:
    """What each side holds, without digests, which tell a reader nothing.

    Examples
    --------
    >>> _said("encoder.neck.0: 408a8a4b in A, 0c4952cb in B"), _said("seed: 0 in A, 1 in B")
    ('encoder.neck.0 has other bits', 'seed: 0 in A, 1 in B')
    """
    found = re.fullmatch(r"(.*): [0-9a-f]{8} in A, [0-9a-f]{8} in B", text)
    return text if found is None else f"{found[1]} has other bits"


def _operation(place: Any) -> str:
    where = f" in {place.module}" if place.module else ""
    phase = f", {place.phase}" if place.phase else ""
    return f"{_short(place.op)}{where}{phase}"


def _short(op: str) -> str:
    """An operation's own name; what is none of PyTorch's stays as it is.

    Examples
    --------
    >>> _short("aten.index_put.default"), _short("np.random.shuffle")
    ('index_put', 'np.random.shuffle')
    """
    return base_name(op) if op.startswith("aten.") else op


def _size(place: Any) -> str:
    if place.apart is not None or place.max_abs is None:
        return f"largest difference {_apart(place)}" if place.max_abs else place.apart or ""
    text = f"largest difference {place.max_abs:.2g}"
    if place.n_elements:
        text += f" over {_many(place.n_elements, 'number')} that differ"
        if place.n_elements == 1:
            text += "s"
    return text


def _chain_caption(divergence: Any) -> str:
    caption = (
        f"A is {divergence.a}, B is {divergence.b}. A run passes the boxes from left to right, "
        "those in the middle once in every training step; “later” is what differs after the first "
        "difference, in the same step or in later ones. Steps are counted from 0."
    )
    return " ".join([caption, *(f"{_sentence(note)}." for note in divergence.notes)])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _chain_alt(divergence: Any, states: Mapping[str, str], story: Sequence[Any]) -> str:
    words = {
        "first": "differs first",
        "different": "differs",
        "equal": "agrees",
        "unknown": "not compared",
    }
    boxes = ", ".join(f"{_NAMES[stage][0]} {words[state]}" for stage, state in states.items())
    told = " ".join(f"{text}." for text, _ in story)
    return f"A row of boxes. {_chain_heading(divergence)}. {boxes}. {told}"


# -- stages by steps -----------------------------------------------------------------------


def step_map(comparison: LedgerComparison, *, first: Any = None) -> Told:
    """A map of stages by training steps: where two ledgers agree, and where they do not.

    Parameters
    ----------
    comparison : LedgerComparison
        From `cellrepro.compare.ledger_diff.compare_ledgers`.
    first : Place, optional
        The field to ring and to name, as a Divergence holds it; by default the first difference.

    Returns
    -------
    Told
        Where there are more than 100 steps, a field stands for several, and differs if any does.

    Raises
    ------
    BadInput
        If it is no comparison of ledgers, or nothing differs at the place to ring.
    """
    _need(comparison, "step_map", "a LedgerComparison", "differences", "n_steps")
    n_steps = min(comparison.n_steps)
    fields = _fields(comparison.differences)
    ringed = _ringed(first, comparison.first, fields)
    size = _bin_size(n_steps)
    n_columns = -(-n_steps // size) if n_steps else 0
    figure, axes = _canvas(plots.WIDTH, 4.72)
    row, top, narrow = 0.38, 1.0, 1.12
    bottom = top + row * len(_IN_STEP)
    grid_left, grid_right = 0.1 + narrow + 1.3, plots.WIDTH - 0.1 - narrow - 0.22
    column = (grid_right - grid_left) / max(1, n_columns)

    right = grid_right + 0.22
    early = [(stage, "before") for stage in (*_BEFORE_STEPS, "rng")]
    late = [(stage, "after") for stage in (*(("weights",) if n_steps else ()), *_AFTER_STEPS)]
    binned = {(stage, at // size if isinstance(at, int) else at) for stage, at in fields}
    ring: _Field | None = None
    if ringed is not None:
        ring = (ringed[0], ringed[1] // size if isinstance(ringed[1], int) else ringed[1])

    def state(key: _Field) -> str:
        return "first" if key == ring else "different" if key in binned else "equal"

    places = _beside(axes, early, state, (0.1, top, narrow, bottom - top))
    places |= _beside(axes, late, state, (right, top, narrow, bottom - top))
    for i, stage in enumerate(_IN_STEP if n_steps else ()):
        _row_name(axes, grid_left - 0.1, top + i * row, stage)
        for at in range(n_columns):
            place = places[stage, at] = (grid_left + at * column, top + i * row, column, row)
            _field(axes, *place, state((stage, at)), edge="white", dense=column < 0.12)
    middle = (grid_left + grid_right) / 2
    if not n_steps:
        said = "no training step that both made"
        _write(axes, middle, (top + bottom) / 2, said, fontsize=9, ha="center")
    _step_ticks(axes, n_steps, size, grid_left, column, bottom)
    each = "" if size == 1 else f" (each field: {size} steps)"
    for x, text in (
        (0.1 + narrow / 2, "before training"),
        (middle, f"training step{each}" if n_steps else ""),
        (right + narrow / 2, "after training"),
    ):
        _write(axes, x, bottom + 0.42, text, fontsize=9, ha="center", color="#444444")
    if ring is not None:
        gutter = {"before": 0.1 + narrow + 0.12, "after": grid_right + 0.11}.get(str(ring[1]))
        _ring(axes, places[ring], _ring_text(ringed, first or comparison.first), gutter)
    heading = _map_heading(comparison, ringed)
    _write(axes, 0.1, 0.22, heading, fontsize=12, fontweight="bold")
    swatches = [("equal", "no difference"), ("different", "differs"), ("first", "first")]
    _swatches(axes, 0.1, bottom + 0.8, swatches[: 3 if ring is not None else 2])
    caption, alt = _map_words(comparison, fields, size, heading)
    return Told(figure, caption, alt)


_Field = tuple[str, int | str]
"""A stage, and a step (or a number of steps), ``before`` or ``after``."""
_Box = tuple[float, float, float, float]  # left, top, width, height


def _beside(
    axes: Axes, keys: Sequence[_Field], state: Callable[[_Field], str], box: _Box
) -> dict[_Field, _Box]:
    """A column of named fields, for what comes before the steps or after them."""
    x, top, width, height = box
    places: dict[_Field, _Box] = {}
    for i, key in enumerate(keys):
        stage, when = key
        place = places[key] = (x, top + i * height / len(keys), width, height / len(keys))
        _field(axes, *place, state(key))
        name = "final weights" if (stage, when) == ("weights", "after") else _NAMES[stage][0]
        text = f"{'=' if state(key) == 'equal' else '≠'} {name}"
        _sign(axes, x + width / 2, place[1] + place[3] / 2, text, state(key))
    return places


def _row_name(axes: Axes, x: float, y: float, stage: str) -> None:
    name, plain = _NAMES[stage]
    _write(axes, x, y + 0.13, name, fontsize=9, ha="right")
    plain = plain.replace("\n", " ")
    _write(axes, x, y + 0.28, plain, fontsize=7, ha="right", color=_GREY)


def _fields(differences: Iterable[Difference]) -> dict[_Field, Difference]:
    """The first difference of each field: stage, and a step, ``before`` or ``after``."""
    found: dict[_Field, Difference] = {}
    for one in differences:
        found.setdefault((_stage(one.stage), _when(one)), one)
    return found


def _when(place: Any) -> int | str:
    """The step; ``before`` the first or ``after`` the last."""
    if place.stage in _BEFORE_STEPS:
        return "before"
    if place.stage in _AFTER_STEPS:
        return "after"
    if place.step is not None:
        return place.step
    entry = getattr(place, "a", None) or getattr(place, "b", None)
    if entry is not None:
        return "before" if entry.step == BEFORE else "after"
    return "after" if place.stage == "weights" else "before"


def _ringed(first: Any, fallback: Difference | None, fields: Mapping[_Field, Any]) -> _Field | None:
    chosen = first or fallback
    if chosen is None:
        return None
    _need(chosen, "step_map", "a Place of a Divergence as `first`", "step", "stage", "said")
    key = _stage(chosen.stage), _when(chosen)
    if key not in fields:
        raise BadInput(
            f"nothing differs at {chosen.stage} of step {chosen.step} in this comparison; give "
            "`first` of the divergence of the same two runs"
        )
    return key


def _bin_size(n: int) -> int:
    """How many steps a column stands for: 1, 2, 5, 10, 20 …"""
    return _round_up(n / _MOST_COLUMNS)


def _round_up(number: float) -> int:
    """The next of 1, 2, 5, 10, 20 …

    Examples
    --------
    >>> [_round_up(number) for number in (0, 1, 1.2, 3, 62.5)]
    [1, 1, 2, 5, 100]
    """
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= number:
                return factor * power
        power *= 10


def _step_ticks(
    axes: Axes, n_steps: int, size: int, left: float, column: float, bottom: float
) -> None:
    every = max(size, _round_up(n_steps / _MOST_TICKS))
    for step in range(0, n_steps, every):
        # A step of its own is numbered in the middle; several are numbered where they begin.
        x = left + column * (step / size + (0.5 if size == 1 else 0))
        axes.plot([x, x], [bottom, bottom + 0.06], color=_GREY, lw=0.8)
        _write(axes, x, bottom + 0.17, grouped(step), fontsize=8, ha="center")


def _ring_text(ringed: Any, place: Any) -> str:
    said = plots.clipped(_said(place.said() if callable(place.said) else place.said), 64)
    name = _NAMES[ringed[0]][0]
    where = f"step {grouped(ringed[1])}, {name}" if isinstance(ringed[1], int) else name
    return f"first: {where}\n{said}"


def _ring(axes: Axes, box: _Box, text: str, gutter: float | None) -> None:
    """A black frame, and words above that point at it, through the gutter beside a column."""
    from matplotlib.patches import Rectangle

    x, y, width, height = box
    grown = max(0.03, (0.12 - width) / 2)
    axes.add_patch(
        Rectangle(
            (x - grown, y - 0.03), width + 2 * grown, height + 0.06, fill=False,
            edgecolor="black", linewidth=2.2, zorder=5, gid="ring",
        )
    )  # fmt: skip
    start = x + width / 2 if gutter is None else gutter
    half = 0.036 * max(len(line) for line in text.splitlines()) + 0.05
    at = min(max(start, 0.05 + half), plots.WIDTH - 0.05 - half)
    _write(axes, at, 0.58, text, fontsize=9, ha="center", zorder=6, linespacing=1.15)
    middle = y + height / 2
    end = (start, y - 0.04)
    if gutter is not None:
        axes.plot([gutter, gutter], [0.76, middle], color="black", lw=1.3, zorder=6)
        end = (x + width + grown if gutter > x else x - grown, middle)
    style = {"arrowstyle": "-|>", "color": "black", "lw": 1.3, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, (start, 0.76 if gutter is None else middle), arrowprops=style, zorder=6)


def _map_heading(comparison: LedgerComparison, ringed: Any) -> str:
    if ringed is None:
        return "The two ledgers agree in everything"
    name = _NAMES[ringed[0]][0]
    if isinstance(ringed[1], int):
        return f"The two runs part at step {grouped(ringed[1])}: {name}"
    return f"The two runs part {ringed[1]} training: {name}"


def _map_words(
    comparison: LedgerComparison, fields: Mapping[_Field, Any], size: int, heading: str
) -> tuple[str, str]:
    n_steps = min(comparison.n_steps)
    parts = [
        f"Rows are the stages of a training step in the order in which a run passes them, columns "
        f"are the steps, counted from 0: {_many(n_steps, 'step')}, "
        f"{grouped(comparison.n_compared)} entries compared. "
        "Pale is where no difference was recorded."
    ]
    if size > 1:
        parts.append(f"A field stands for {size} steps and is dark if any of them differs.")
    if comparison.n_steps[0] != comparison.n_steps[1]:
        a, b = comparison.n_steps
        parts.append(f"A made {_many(a, 'step')} and B {grouped(b)}; what both made is shown.")
    if comparison.n_not_comparable:
        parts.append(
            f"{grouped(comparison.n_not_comparable)} entries could not be compared, since one "
            "digest is of a processor and one of a GPU; they are drawn as no difference."
        )
    counts = []
    for stage in _IN_STEP:
        steps = [at for of, at in fields if of == stage and isinstance(at, int)]
        if steps:
            counts.append(f"{_NAMES[stage][0]} in {len(steps)} from step {min(steps)} on")
    outside = [
        f"{_NAMES[stage][0]} {at} training" for stage, at in fields if not isinstance(at, int)
    ]
    told = "; ".join([*counts, *outside]) or "nothing"
    alt = f"Map of stages by {_many(n_steps, 'training step')}. {heading}. What differs: {told}."
    return " ".join(parts), alt


# -- operations of one step ----------------------------------------------------------------

_PHASES = {"forward": "#F4F4F4", "backward": "#E4E4E4", "update": "#FBF3D9"}


def operations_map(alignment: Alignment, *, parting: Any = None) -> Told:
    """Every operation of one training step: how far its outputs differ between two runs.

    Parameters
    ----------
    alignment : Alignment
        From `cellrepro.compare.operation_alignment.align`.
    parting : Place, optional
        The operation to name, as a Divergence holds it.

    Returns
    -------
    Told
        Up is the difference of the norms, relative to the larger one. Outputs of equal bits stand
        on a line at the foot; other bits of equal norm, or without a norm, on the one above it.

    Raises
    ------
    BadInput
        If it is no alignment, holds nothing to draw, or does not hold the operation to name.
    """
    _need(alignment, "operations_map", "an Alignment", "pairs", "only_a", "only_b")
    grown = dict(growth(alignment))
    equal = [a.index for a, b in alignment.pairs if a.outputs and a.outputs == b.outputs]
    differing = {
        a.index: grown.get(a.index, 0.0)
        for a, b in alignment.pairs
        if a.index in grown
        or (a.outputs and len(a.outputs) == len(b.outputs) and a.outputs != b.outputs)
    }
    only = {"A": _computed_at(alignment, "a"), "B": _computed_at(alignment, "b")}
    if not (equal or differing or any(only.values())):
        raise BadInput(
            "the alignment holds no operation with outputs that can be compared; align the "
            "operations of two runs trained with --ledger ops"
        )
    named = _pair_named(alignment, parting, differing)
    scale = _Decades(differing.values())
    figure = Picture(height=4.9 if any(grown.values()) else 3.4)
    axes = figure.subplots()
    # The lines at the foot keep their distance, however many decades there are above.
    unit = (scale.high - scale.low) / 10
    same_norm, floor, alone = (scale.low - n * unit for n in (1.1, 2.2, 3.3))
    top = scale.high + 4.4 * unit
    # Over all points, or in the room that they leave where no norm differs.
    label = scale.high + (2.3 if any(grown.values()) else -1.5) * unit
    lowest = (alone if any(only.values()) else floor) - 0.7 * unit

    xs = [a.index for a, _ in alignment.pairs]
    xs += [round(x) for found in only.values() for x in found]
    edge = max(0.5, 0.015 * (max(xs) - min(xs)))
    start, stop = min(xs) - edge, max(xs) + edge
    _bands(axes, alignment, (start, stop))
    axes.axhline(floor, color="#999999", lw=0.8, zorder=1)
    axes.plot(
        equal, [floor] * len(equal), "|", color=_DIFFERENT, markersize=8, alpha=0.7, gid="equal",
        zorder=2,
    )  # fmt: skip
    heights = {
        index: scale.place(value) if value else same_norm for index, value in differing.items()
    }
    axes.plot(
        list(heights), list(heights.values()), "o", color=_DIFFERENT, markersize=5,
        markeredgecolor="white", markeredgewidth=0.5, gid="different", zorder=3,
    )  # fmt: skip
    for marker, (side, places) in zip("^v", only.items(), strict=True):
        style: dict[str, Any] = {"color": SERIES[2], "markersize": 6, "markeredgecolor": "black"}
        axes.plot(
            places, [alone] * len(places), marker, markeredgewidth=0.5, gid=f"only {side}", **style
        )
    if named is not None:
        y = heights.get(named.index, floor)
        axes.plot(
            [named.index], [y], "D", color=_FIRST, markersize=11, markeredgecolor="black",
            markeredgewidth=2, zorder=5, gid="named",
        )  # fmt: skip
        share = (named.index - start) / (stop - start)
        axes.annotate(
            f"{_short(named.op)}\n{plots.clipped(named.module or 'outside any module', 44)}",
            (named.index, y),
            (min(max(share, 0.26), 0.70), (label - lowest) / (top - lowest)),
            textcoords="axes fraction",
            fontsize=10, ha="center", va="center", parse_math=False, zorder=6,
            arrowprops={"arrowstyle": "-|>", "color": "black", "lw": 1.3, "shrinkB": 8},
            bbox={"boxstyle": "square,pad=0.2", "facecolor": "white", "edgecolor": "black"},
        )  # fmt: skip
    ticks = {floor: "equal bits"}
    if differing:
        ticks[same_norm] = "other bits, same norm"
    if any(only.values()):
        ticks[alone] = "only in one run"
    axes.set(xlim=(start, stop), ylim=(lowest, top))
    positions, labels = scale.ticks()
    axes.set_yticks([*ticks, *positions], [*ticks.values(), *labels])
    plots.label_axes(axes, x="operation of A, in the order of execution")
    axes.set_ylabel("relative difference\nof the norms (logarithmic)", fontsize=9)
    _whole_numbers(axes, xs)
    _operations_legend(figure, bool(differing), named is not None, only)
    heading, caption, alt = _operations_words(
        alignment, parting, len(equal), differing, grown, named
    )
    plots.heading(figure, heading)
    return Told(figure, caption, alt)


def _computed_at(alignment: Alignment, side: str) -> list[float]:
    """Where on A's axis the operations stand that one side ran alone, views apart."""
    if side == "a":
        return [float(row.index) for row in alignment.only_a if row.outputs]
    places = sorted((b.index, a.index) for a, b in alignment.pairs)
    before = [index for index, _ in places]
    found = []
    for row in alignment.only_b:
        if row.outputs:
            at = int(np.searchsorted(before, row.index))
            found.append(places[at - 1][1] + 0.5 if at else -0.5 if places else float(row.index))
    return found


def _pair_named(alignment: Alignment, parting: Any, differing: Mapping[int, float]) -> Any:
    """A's row of the operation to name: of several the first whose outputs differ."""
    if parting is None:
        return None
    _need(parting, "operations_map", "a Place as `parting`", "op", "module", "phase", "source")
    if parting.op is None:
        return None
    wanted = parting.op, parting.module, parting.phase
    rows = [*(a for a, _ in alignment.pairs), *alignment.only_a]
    found = [row for row in rows if (row.op, row.module, row.phase) == wanted]
    found = [row for row in found if row.source == parting.source] or found
    if not found:
        raise BadInput(
            f"no operation of the alignment is {_operation(parting)}; align the operations of the "
            "step at which the two runs part"
        )
    return min(found, key=lambda row: (row.index not in differing, row.index))


def _bands(axes: Axes, alignment: Alignment, span: tuple[float, float]) -> None:
    """Backgrounds for forward, backward and update, each named once, where it is widest."""
    rows = sorted((row for row, _ in alignment.pairs), key=lambda row: row.index)
    segments: list[tuple[str, float, float]] = []
    for row in rows:
        if segments and segments[-1][0] == row.phase:
            segments[-1] = (row.phase, segments[-1][1], row.index + 0.5)
        else:
            begin = segments[-1][2] if segments else span[0]
            segments.append((row.phase, begin, row.index + 0.5))
    if segments:
        segments[-1] = (*segments[-1][:2], span[1])
    for phase, begin, end in segments:
        axes.axvspan(begin, end, color=_PHASES.get(phase, "#FFFFFF"), lw=0, zorder=0, gid="band")
        if begin > span[0]:
            axes.axvline(begin, color="#888888", lw=0.8, ls=(0, (3, 3)), zorder=1)
    for phase in dict.fromkeys(phase for phase, _, _ in segments):
        begin, end = max(
            ((begin, end) for of, begin, end in segments if of == phase),
            key=lambda each: each[1] - each[0],
        )
        slim = (end - begin) / (span[1] - span[0]) < 0.1
        axes.text(
            (begin + end) / 2, 0.98, phase, transform=axes.get_xaxis_transform(), ha="center",
            va="top", fontsize=10, rotation=90 if slim else 0, color="#333333",
        )  # fmt: skip


def _operations_legend(
    figure: Picture, differing: bool, named: bool, only: Mapping[str, Sequence[float]]
) -> None:
    from matplotlib.lines import Line2D

    def entry(marker: str, label: str, **style: Any) -> Line2D:
        return Line2D([], [], linestyle="none", marker=marker, label=label, **style)

    handles = [entry("|", "equal bits", color=_DIFFERENT, markersize=8)]
    if differing:
        handles.append(entry("o", "other bits", color=_DIFFERENT, markersize=5))
    if named:
        black = {"markeredgecolor": "black", "markeredgewidth": 2}
        handles.append(entry("D", "where they part", color=_FIRST, markersize=9, **black))
    for marker, (side, places) in zip("^v", only.items(), strict=True):
        if places:
            handles.append(entry(marker, f"only {side} ran it", color=SERIES[2]))
    plots.legend(figure, handles)


def _operations_words(
    alignment: Alignment,
    parting: Any,
    n_equal: int,
    differing: Mapping[int, float],
    grown: Mapping[int, float],
    named: Any,
) -> tuple[str, str, str]:
    n = n_equal + len(differing)
    step = next((a.step for a, _ in alignment.pairs), None)
    at = "" if step is None else f" of step {grouped(step)}"
    if not differing:
        heading = f"All {_many(n, 'operation')}{at} that can be compared have equal outputs"
    else:
        heading = f"Other outputs in {grouped(len(differing))} of {_many(n, 'operation')}{at}"
        if named is not None:
            order = "first in" if named.index == min(differing) else "they part at"
            heading += f", {order} {_short(named.op)}"
    largest = max(grown.values(), default=0.0)
    caption = (
        f"Every operation{at} that computed something, left to right as it ran; "
        f"{alignment.sentence()}. Up is how far the lengths (norms) of the outputs lie apart; "
        "outputs of the same norm, or without one, may differ all the same and have a line of "
        "their own."
    )
    alt = f"Points over the operations of a training step. {heading}."
    if named is not None:
        alt += f" Where they part: {_operation(parting)}."
    if differing:
        size = f"The largest relative difference of norms is {largest:.1e}."
        alt += f" {size if largest else 'No norm differs.'}"
    return heading, caption, alt


# -- over the epochs -----------------------------------------------------------------------


def growth_curve(moments: Sequence[Any], *, at_operation: float | None = None) -> Told:
    """How the difference of two runs grows over the epochs: weights, pixels, cells.

    Parameters
    ----------
    moments : sequence of Moment
        From `cellrepro.lab.growth.growth`.
    at_operation : float, optional
        Largest difference at the operation where the two parted, in the units of its outputs.

    Returns
    -------
    Told
        A panel for the weights, two more where masks were made, and one where these could be
        scored. Zero has a line of its own
        under the logarithmic axes.

    Raises
    ------
    BadInput
        If there is no moment, or `at_operation` is no number of 0 or more.
    """
    if not moments:
        raise BadInput(
            "no moment was given to draw; give what `cellrepro.lab.growth.growth` returns"
        )
    for moment in moments:
        _need(moment, "growth_curve", "Moments, from cellrepro.lab.growth.growth", "relative_l2")
    moments = sorted(moments, key=lambda moment: moment.epoch)
    if at_operation is not None and not 0 <= at_operation < math.inf:
        raise BadInput(f"at_operation is {at_operation!r}; expected a number, 0 or more")
    masked = [moment for moment in moments if moment.ppm is not None]
    counted = [moment for moment in masked if moment.lost is not None]
    scored = [moment for moment in masked if moment.ap50 is not None]
    ratios = [1.5, *([1.1] if masked else []), *([0.9] if counted else [])]
    ratios += [0.9] if scored else []
    figure = Picture(height=1.2 + 1.6 * sum(ratios))
    grid = figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios, squeeze=False)
    panels = list(grid[:, 0])
    epochs = [moment.epoch for moment in moments]
    _distance_panel(panels[0], moments)
    if masked:
        _pixels_panel(panels[1], masked)
    if counted:
        _objects_panel(panels[2], counted, width=_bar_width([one.epoch for one in counted]))
    if scored:
        _scores_panel(panels[-1], scored)
    widest = _bar_width([moment.epoch for moment in counted or moments])
    edge = max(0.6 * widest, 0.03 * (epochs[-1] - epochs[0])) if len(epochs) > 1 else 2.0
    panels[-1].set_xlim(epochs[0] - edge, epochs[-1] + edge)
    _whole_numbers(panels[-1], epochs)
    panels[-1].set_xlabel("epochs trained", fontsize=9)
    heading = _growth_heading(moments, masked)
    plots.heading(figure, heading)
    return Told(figure, _growth_caption(moments, masked, at_operation), _growth_alt(moments))


def _distance_panel(panel: Axes, moments: Sequence[Any]) -> None:
    epochs = [moment.epoch for moment in moments]
    shares = [100 * one.n_differing / max(1, one.n_parameters) for one in moments]
    scale = _Decades(moment.relative_l2 for moment in moments)
    beside = panel.twinx()
    many = len(moments) > _MOST_BARS  # then bars stand edge to edge
    beside.bar(
        epochs, shares, width=_bar_width(epochs) / (0.6 if many else 1), color="#DDDDDD",
        edgecolor="#DDDDDD" if many else "#999999", hatch="" if many else "..", linewidth=0.6,
        gid="share",
    )  # fmt: skip
    beside.set_ylim(0, 104)
    plots.label_axes(beside, y="weights that differ (%)")
    beside.spines["right"].set_visible(True)
    panel.set_zorder(beside.get_zorder() + 1)
    panel.patch.set_visible(False)
    _curve(panel, epochs, [moment.relative_l2 for moment in moments], scale, marker="o")
    plots.label_axes(panel, y="distance of the weights,\nrelative to their length")
    plots.title(panel, "weights: line and points, left; bars, right", size=9)


def _pixels_panel(panel: Axes, masked: Sequence[Any]) -> None:
    values = [moment.ppm for moment in masked]
    scale = _Decades(values, decimal=True)
    epochs = [moment.epoch for moment in masked]
    _curve(panel, epochs, values, scale, marker="s", colour=SERIES[1])
    if len(masked) <= _MOST_NUMBERS:
        for epoch, value in zip(epochs, values, strict=True):
            text = "not finite" if not math.isfinite(value) else ppm_text(value)
            panel.annotate(
                text.removesuffix(" ppm"), (epoch, scale.place(value)), (0, 7), ha="center",
                textcoords="offset points", fontsize=8,
            )  # fmt: skip
    plots.label_axes(panel, y="differing pixels\nper million (ppm)")
    plots.title(panel, "masks: pixels that differ", size=9)


def _scores_panel(panel: Axes, scored: Sequence[Any]) -> None:
    epochs = [moment.epoch for moment in scored]
    for side, name in enumerate("AB"):
        panel.plot(
            epochs, [moment.ap50[side] for moment in scored], "o-" if side == 0 else "s--",
            color=SERIES[side], ms=5 if side == 0 else 4, lw=1.4, label=name, gid=f"score {name}",
        )  # fmt: skip
    panel.set_ylim(-0.04, 1.04)
    panel.legend(loc="best", fontsize=8, frameon=False, ncols=2)
    plots.label_axes(panel, y="AP@0.5")
    plots.title(panel, "against the ground truth", size=9)


def _objects_panel(panel: Axes, counted: Sequence[Any], *, width: float) -> None:
    epochs = [moment.epoch for moment in counted]
    most = max(1, *(max(moment.lost, moment.gained) for moment in counted))
    bars = (
        ("gained", [moment.gained for moment in counted], SERIES[3], "", 1),
        ("lost", [moment.lost for moment in counted], SERIES[2], "\\\\\\", -1),
    )
    for name, values, colour, hatch, sign in bars:
        panel.bar(
            epochs, [sign * value for value in values], width=width, color=colour, hatch=hatch,
            edgecolor=_GREY, linewidth=0.6, gid=name,
        )  # fmt: skip
        if len(counted) <= _MOST_NUMBERS:
            for epoch, value in zip(epochs, values, strict=True):
                panel.annotate(
                    str(value), (epoch, sign * value), (0, 3 * sign), ha="center",
                    va="bottom" if sign > 0 else "top", textcoords="offset points", fontsize=8,
                )  # fmt: skip
    panel.axhline(0, color="black", lw=0.9)
    panel.set_ylim(-1.45 * most, 1.45 * most)
    panel.set_yticks([0.75 * most, -0.75 * most], ["gained ↑\nonly B has", "lost ↓\nonly A has"])
    plots.label_axes(panel, y="cells")
    panel.tick_params(axis="y", length=0)
    plots.title(panel, "masks: cells without a counterpart", size=9)


def _curve(
    panel: Axes,
    epochs: Sequence[int],
    values: Sequence[float],
    scale: _Decades,
    *,
    marker: str,
    colour: str = SERIES[0],
) -> None:
    places = [scale.place(value) for value in values]
    panel.plot(epochs, places, color=colour, lw=1.8, zorder=3)
    for kind, filled in (("zero", False), ("value", True)):
        chosen = [i for i, value in enumerate(values) if (value == 0) != filled]
        panel.plot(
            [epochs[i] for i in chosen], [places[i] for i in chosen], marker, gid=kind,
            markersize=7 if len(values) <= _MOST_BARS else 4, markeredgecolor="black",
            markerfacecolor=colour if filled else "white", markeredgewidth=0.8, zorder=4,
        )  # fmt: skip
    panel.axhline(scale.zero, color="#999999", lw=0.8, ls=(0, (3, 3)), zorder=1)
    positions, labels = scale.ticks()
    ticks, names = [scale.zero, *positions], ["0", *labels]
    if any(not math.isfinite(value) for value in values):
        ticks, names = [*ticks, scale.endless], [*names, "not finite"]
    panel.set_yticks(ticks, names)
    panel.set_ylim(scale.zero - 0.5, max(ticks[-1], scale.high) + 0.2 * (scale.high - scale.zero))


def _whole_numbers(axes: Axes, numbers: Sequence[int]) -> None:
    if min(numbers) == max(numbers):
        axes.set_xticks([numbers[0]])
    else:
        axes.locator_params(axis="x", integer=True)


def _bar_width(epochs: Sequence[int]) -> float:
    gaps = np.diff(sorted(set(epochs)))
    return 0.6 * float(gaps.min(initial=gaps.max(initial=1.0) if len(gaps) else 1.0))


def _small(value: float) -> str:
    """A small number to read.

    Examples
    --------
    >>> _small(0.0), _small(4.4e-11), _small(float("nan"))
    ('0', '4.4e-11', 'what is no number')
    """
    if not math.isfinite(value):
        return "what is no number"
    return f"{value:.1e}" if value else "0"


def _growth_heading(moments: Sequence[Any], masked: Sequence[Any]) -> str:
    start, end = moments[0], moments[-1]
    if not any(moment.n_differing for moment in moments):
        return f"The weights stay equal, bit for bit, in {amount(len(moments), 'checkpoint')}"
    text = f"The weights drift apart: {_small(start.relative_l2)} to {_small(end.relative_l2)}"
    if len(moments) == 1:
        text = f"The weights lie {_small(end.relative_l2)} of their length apart"
    if not masked:
        return text
    return f"{text}; {ppm_text(masked[-1].ppm)} of the pixels"


def _growth_caption(
    moments: Sequence[Any], masked: Sequence[Any], at_operation: float | None
) -> str:
    parts = []
    if at_operation is not None:
        reached = (
            f"{ppm_text(masked[-1].ppm)} of the pixels"
            if masked
            else f"{_small(moments[-1].relative_l2)} of the length of the weights"
        )
        parts.append(f"From {_small(at_operation)} at one operation to {reached}.")
    parts.append(
        f"Two runs after the same epochs, {amount(len(moments), 'checkpoint')}. Axes of lines are "
        "logarithmic; 0 has a line of its own at the foot, with hollow points."
    )
    if masked:
        parts.append(
            "Masks are those that each run would have given had training ended there, made at "
            f"{amount(len(masked), 'epoch')}; lost cells are those of A without a match in B, "
            "gained those of B without one in A."
        )
        if any(one.ap50 is not None for one in masked):
            parts.append("AP@0.5 is the mean over the images that have a ground truth.")
    else:
        parts.append("No masks were made along the way.")
    return " ".join(parts)


def _growth_alt(moments: Sequence[Any]) -> str:
    told = []
    for one in moments:
        text = (
            f"epoch {one.epoch}: {share_text(one.n_differing / max(1, one.n_parameters))} of the "
            f"weights differ, distance {_small(one.relative_l2)}"
        )
        if one.ppm is not None:
            text += f", {ppm_text(one.ppm)} of the pixels"
        if one.lost is not None:
            text += f", {amount(one.lost, 'cell')} lost, {one.gained} gained"
        if one.ap50 is not None:
            text += f", AP@0.5 {one.ap50[0]:.3f} and {one.ap50[1]:.3f}"
        told.append(text)
    if len(told) > _MOST_NUMBERS:
        half = _MOST_NUMBERS // 2
        told = [*told[:half], f"{len(told) - 2 * half} more epochs", *told[-half:]]
    return f"Curves over {amount(len(moments), 'checkpoint')}. {'; '.join(told)}."


# -- what was looked at --------------------------------------------------------------------


def evidence_table(divergence: Any) -> pd.DataFrame:
    """What is known of the place where two runs part, and how it became known.

    Parameters
    ----------
    divergence : Divergence
        From `cellrepro.diverge`.

    Returns
    -------
    DataFrame
        One column; a row for each question, always the same ones. ``-`` where there is no answer.

    Raises
    ------
    BadInput
        If it is no divergence.
    """
    import pandas as pd

    needed = ("judgement", "evidence", "computed", "notes")
    _need(divergence, "evidence_table", "a Divergence, from cellrepro.diverge", *needed)
    first, seen = divergence.first, divergence.evidence
    at = divergence.computed or first
    named = next((one for one in (divergence.computed, first) if one is not None and one.op), None)
    answers = {
        "runs": f"A: {divergence.a}, B: {divergence.b}",
        "entries compared": grouped(divergence.n_compared),
        "they part at": None if first is None else _where(first),
        "judgement": None if divergence.judgement is None else _judged(divergence.judgement, seen),
        "it first shows in": None if at is None or at == first else _where(at),
        "operation": None if named is None else named.op,
        "line": None if named is None else named.source,
        "module": None if named is None else named.module,
        "pass": None if named is None else named.phase,
        "its inputs": None if named is None else _INPUTS.get(named.inputs or ""),
        "largest difference": None if named is None else _apart(named),
        "numbers that differ": None
        if named is None or named.n_elements is None
        else grouped(named.n_elements),
    }
    answers |= dict.fromkeys(_SEEN) if seen is None else _seen(seen)
    answers["not looked at"] = "; ".join(divergence.notes)
    column = [answer or "-" for answer in answers.values()]
    return pd.DataFrame({"what was found": column}, index=list(answers))


_SEEN = (
    "how it was looked at",
    "repetitions of the step",
    "operations asked again",
    "replays of it that gave other bits",
    "state before the step",
    "the repeated step ended",
    "operations that correspond",
    "where operations part",
    "round-off",
    "random numbers",
)


def _seen(evidence: Any) -> dict[str, str | None]:
    flips = None
    if evidence.flips is not None and evidence.n_asked:
        flips = f"{grouped(evidence.flips)} of {grouped(evidence.n_asked)}"
    elif evidence.flips is not None and evidence.n_replays:
        flips = f"{grouped(evidence.flips)}, it was not among those asked again"
    answers = (
        _LOOKED.get(evidence.how, evidence.how),
        grouped(evidence.n_repetitions) if evidence.n_repetitions else None,
        grouped(evidence.n_replays) if evidence.n_replays else None,
        flips,
        "; ".join(evidence.arrival),
        _ENDED.get(evidence.ends_as or "", evidence.ends_as),
        "; ".join(filter(None, (evidence.alignment, evidence.substituted))),
        evidence.parting,
        evidence.round_off,
        evidence.draws,
    )
    return dict(zip(_SEEN, answers, strict=True))


def _where(place: Any) -> str:
    step = "" if place.step is None else f"step {grouped(place.step)}, "
    return f"{step}{_differs(place)}"


# -- small parts ---------------------------------------------------------------------------


class _Decades:
    """A logarithmic axis that shows zero and what is not finite, each on a line of its own.

    Attributes
    ----------
    low, high : float
        Lowest and highest decade, as powers of ten; a decade at least.
    zero, endless : float
        Where zero stands, under the lowest decade, and what is not finite, above the highest.
    """

    def __init__(self, values: Iterable[float], *, decimal: bool = False) -> None:
        logs = [math.log10(value) for value in values if 0 < value < math.inf]
        self.low = float(math.floor(min(logs, default=-1.0)))
        self.high = float(max(math.ceil(max(logs, default=0.0)), self.low + 1))
        self._decimal, self._any = decimal, bool(logs)
        self.zero = self.low - max(0.7, 0.15 * (self.high - self.low))
        self.endless = self.high + max(0.7, 0.15 * (self.high - self.low))

    def place(self, value: float) -> float:
        """Where a number stands on the axis."""
        if not math.isfinite(value):
            return self.endless
        return math.log10(value) if value > 0 else self.zero

    def ticks(self) -> tuple[list[float], list[str]]:
        """Whole decades, six at most, and what is written beside them; none without a number."""
        if not self._any:
            return [], []
        every = -(-round(self.high - self.low) // 5)
        places = [self.low + i for i in range(0, round(self.high - self.low) + 1, every)]
        if self._decimal and self.low >= -2 and self.high <= 6:
            return places, [grouped(10 ** round(place)) for place in places]
        return places, [f"$10^{{{place:.0f}}}$" for place in places]


def _many(n: int, noun: str) -> str:
    """A number of things, its digits in threes.

    Examples
    --------
    >>> _many(1, "step"), _many(5000, "step")
    ('1 step', '5 000 steps')
    """
    return f"{grouped(n)} {noun}{'' if n == 1 else 's'}"


def _need(value: Any, function: str, expected: str, *attributes: str) -> None:
    if not all(hasattr(value, name) for name in attributes):
        raise BadInput(f"{function} got {type(value).__name__} {value!r:.60}; give it {expected}")


def _stage(stage: str) -> str:
    if stage not in _NAMES:
        raise BadInput(f"{stage!r} is no stage of a run; expected one of {', '.join(STAGES)}")
    return stage


def _canvas(width: float, height: float) -> tuple[Picture, Axes]:
    """A figure drawn in inches from its upper left corner."""
    figure = Picture(width=width, height=height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    return figure, axes


def _write(axes: Axes, x: float, y: float, text: str, **style: Any) -> None:
    axes.text(x, y, text, parse_math=False, **{"va": "center", **style})


def _field(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    state: str,
    *,
    edge: str | None = None,
    dense: bool = False,
) -> Rectangle:
    """One field of a map, or one box: its state is its colour, its hatch and its gid."""
    from matplotlib.patches import Rectangle

    styles: dict[str, dict[str, Any]] = {
        "equal": {"facecolor": _EQUAL, "edgecolor": edge or "#7FA8BF"},
        "different": {"facecolor": _DIFFERENT, "edgecolor": edge or "white", "hatch": _HATCH},
        "first": {"facecolor": _FIRST, "edgecolor": "black", "zorder": 4},
        "unknown": {"facecolor": "white", "edgecolor": "#888888", "linestyle": (0, (2, 2))},
    }
    line = 0.3 if dense else 2.2 if state == "first" else 0.8
    one = Rectangle((x, y), width, height, linewidth=line, gid=state, **styles[state])
    axes.add_patch(one)
    return one


def _sign(axes: Axes, x: float, y: float, text: str, state: str, *, fontsize: float = 9) -> None:
    """Text on a field, on a ground of its own where the field is hatched."""
    if not text:
        return
    style: dict[str, Any] = {"color": "black"}
    if state == "different":
        ground = {"boxstyle": "square,pad=0.12", "facecolor": _DIFFERENT, "edgecolor": "none"}
        style = {"color": "white", "bbox": ground}
    _write(axes, x, y, text, ha="center", fontsize=fontsize, zorder=5, **style)


def _arrow(axes: Axes, start: float, stop: float, y: float) -> None:
    axes.annotate(
        "", (stop, y), (start, y),
        arrowprops={"arrowstyle": "->", "color": _GREY, "lw": 1, "shrinkA": 0, "shrinkB": 0},
    )  # fmt: skip


def _swatches(axes: Axes, x: float, y: float, entries: Sequence[tuple[str, str]]) -> None:
    for state, text in entries:
        _field(axes, x, y - 0.09, 0.28, 0.18, state).set_gid("legend")
        _write(axes, x + 0.36, y, text, fontsize=9)
        x += 0.36 + 0.075 * len(text) + 0.3
