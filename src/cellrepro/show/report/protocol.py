"""The five-step experiment: what a store says to each step, or what to run for an answer.

``grids/protocol.yaml`` makes the runs. Each step looks at the pairs of runs that it is about, so
any store will do: what it lacks is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from cellrepro.compare.axes import Pair
from cellrepro.compare.seed_spread import Axis, Spread
from cellrepro.compare.verdicts import Verdict
from cellrepro.compare.within_spread import FEWEST_SEEDS
from cellrepro.text import amount, ppm_text, share_text

GRID = "grids/protocol.yaml"
"""What carries out the steps, as far as one device can answer them."""


class Status(StrEnum):
    """Whether a step has its answer; each member equals its words."""

    ANSWERED = "answered"
    NOT_ENOUGH = "not enough runs"


@dataclass(frozen=True)
class Step:
    """One step of the protocol: what was held against what, over how much (pairs in which no cells
    were found are left out), and one sentence that answers or says why there is no answer.
    """

    number: int
    question: str
    compared: str
    n_pairs: int
    n_runs: int
    n_images: int
    answer: str
    status: Status
    todo: str = ""  # what to run for an answer


def protocol(spread: Spread) -> tuple[Step, ...]:
    """The five steps, as far as compared runs over one set of images answer them."""
    only_seeded = "Does the same spec give the same result with only the seed fixed?"
    mode = (3, "Does determinism give other cells, on the same device?", "modes on one device")
    place = (4, "Does another device or machine give other cells?", "devices and machines")
    elsewhere = "one spec on two devices (profiles cuda, mps), or on another machine"
    return (
        _repeated(spread, 1, "fast", only_seeded),
        _repeated(spread, 2, "strict", "Does it when every operation is deterministic?"),
        _beside_seeds(spread, ["mode"], mode, "one spec in modes fast and strict"),
        _beside_seeds(spread, ["device", "machine"], place, elsewhere),
        _seeds(spread),
    )


Asked = tuple[int, str, str]  # number, question, what is compared


def _repeated(spread: Spread, number: int, mode: str, question: str) -> Step:
    axis = spread.axis("repeats")
    pairs = [pair for pair in axis.pairs if pair.a.spec.held == mode] if axis else []
    told = [pair for pair in pairs if not pair.vacuous]
    same = [p for p in told if p.verdict == Verdict.IDENTICAL and p.weights_equal is not False]
    answer = f"Yes: {len(same)} of {amount(len(told), 'pair')} bit-identical."
    if len(same) < len(told):
        changed = share_text(_mean(told))
        answer = (
            f"No: {len(told) - len(same)} of {amount(len(told), 'pair')} differ in their bits; "
            f"{changed} of the cells changed on average."
        )
    asked = (number, question, f"repeats of one spec in mode {mode}")
    todo = f"one spec in mode {mode}, two or more repeats"
    return _step(asked, pairs, told, answer, todo)


def _beside_seeds(spread: Spread, names: Sequence[str], asked: Asked, todo: str) -> Step:
    """A step over some axes, each with a sentence of its own."""
    axes = [axis for name in names if (axis := spread.axis(name)) is not None]
    pairs = [pair for axis in axes for pair in axis.pairs]
    told = [pair for axis in axes for pair in axis.evidence]
    answers = [_answer(spread, axis) for axis in axes if axis.evidence]
    return _step(asked, pairs, told, " ".join(answers), todo)


def _answer(spread: Spread, axis: Axis) -> str:
    """Whether an axis gives other cells, in a sentence."""
    told, doing = axis.evidence, axis.doing
    if not axis.differing:
        return f"No: {doing} leaves the outlines the same in {amount(len(told), 'pair')}."
    decided = spread.decide(axis.name)
    beside = "less than seeds do" if decided.within else "not shown to be less than seeds do"
    if math.isnan(decided.changed_ratio):  # the rule could not be applied, and says why
        beside = decided.sentence.partition(":")[0]
    changed = _mean(told)
    return (
        f"{'Yes' if changed else 'No'}: {doing} changed {share_text(changed)} of the cells and "
        f"{ppm_text(_mean(told, 'ppm'))} of the pixels on average ({len(axis.differing)} of "
        f"{amount(len(told), 'pair')} differ); {beside}."
    )


def _seeds(spread: Spread) -> Step:
    asked = (5, "How much of that does another seed do?", "seeds, all else equal")
    todo = f"one spec with {FEWEST_SEEDS} seeds or more in mode strict"
    axis = spread.seeds
    if axis is None or not axis.evidence:
        return _step(asked, axis.pairs if axis else [], [], "", todo)
    found = axis.distribution()
    text = f"Changing the seed changes {share_text(found.mean)} of the cells"
    if found.interval is not None:
        low, high = share_text(found.interval.low), share_text(found.interval.high)
        text += f" ({low} to {high}, 95 % interval over {found.interval.over})"
    if spread.n_seeds < FEWEST_SEEDS:
        few = f"{text}; only {spread.n_seeds} seeds: not enough to say."
        return _step(asked, axis.pairs, axis.evidence, "", todo, few)
    titles: dict[str, list[str]] = {"less than that": [], "nothing": [], "not shown to be less": []}
    for one in spread.axes:
        if one.name != "seed" and one.evidence:
            within = spread.decide(one.name).within
            less = (
                "less than that" if within else "nothing" if one.equal else "not shown to be less"
            )
            titles[less].append(one.title)
    said = [f"{answer}: {', '.join(names)}" for answer, names in titles.items() if names]
    return _step(asked, axis.pairs, axis.evidence, "; ".join([text, *said]) + ".", todo)


def _step(
    asked: Asked,
    pairs: Sequence[Pair],
    told: Sequence[Pair],
    answer: str,
    todo: str,
    instead: str = "",
) -> Step:
    """A step with its answer over what is told; where there is none, what is said `instead`."""
    runs = {repeat.name for pair in told for repeat in (pair.a, pair.b)}
    images = {image for pair in told for image in pair.images}
    over = (*asked, len(told), len(runs), len(images))
    if told and answer:
        return Step(*over, answer, Status.ANSWERED)
    if pairs and not instead:
        instead = f"No cells were found in {amount(len(pairs), 'pair')}, which proves nothing."
        todo += ", trained longer or from a network that finds cells"
    todo = f"Run {todo}; `cellrepro grid {GRID}` runs what one device can answer."
    return Step(*over, instead or "Nothing was compared.", Status.NOT_ENOUGH, todo)


def _mean(pairs: Sequence[Pair], measure: str = "changed") -> float:
    return Axis(pairs[0].axis, list(pairs)).distribution(measure).mean
