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
from cellrepro.compare.seed_spread import FEWEST_SEEDS, Axis, Decision, Spread
from cellrepro.compare.verdicts import Verdict
from cellrepro.text import amount, ppm_text, share_text

GRID = "grids/protocol.yaml"
"""What carries out the steps, as far as one device can answer them."""


class Status(StrEnum):
    """Whether a step has its answer; each member equals its words."""

    ANSWERED = "answered"
    NOT_ENOUGH = "not enough runs"


@dataclass(frozen=True)
class Step:
    """One step of the protocol.

    Attributes
    ----------
    number : int
        From 1 to 5.
    question : str
    compared : str
        What was held against what.
    n_pairs, n_runs, n_images : int
        Over what; pairs in which no cells were found are left out.
    answer : str
        One sentence with its numbers; why there is none, where there is none.
    status : Status
    todo : str
        What to run for an answer; empty where there is one.
    """

    number: int
    question: str
    compared: str
    n_pairs: int
    n_runs: int
    n_images: int
    answer: str
    status: Status
    todo: str = ""


def protocol(spread: Spread) -> tuple[Step, ...]:
    """The five steps, as far as the compared runs answer them.

    Parameters
    ----------
    spread : Spread
        Of the runs over one set of images: from `cellrepro.compare.seed_spread.measure`, or of a
        chapter of the findings.

    Returns
    -------
    tuple of Step
        Always five.
    """
    return (
        _repeated(
            spread,
            number=1,
            mode="fast",
            question="Does the same spec give the same result when nothing but the seed is fixed?",
        ),
        _repeated(
            spread,
            number=2,
            mode="strict",
            question="Does it when every operation is deterministic?",
        ),
        _beside_seeds(
            spread,
            number=3,
            names=("mode",),
            question="Does determinism give other cells, on the same device?",
            compared="modes on one device",
            todo="one spec in modes fast and strict",
        ),
        _beside_seeds(
            spread,
            number=4,
            names=("device", "machine"),
            apart=("threads", "precision"),
            question="Does another device or machine give other cells?",
            compared="devices and machines in one mode",
            todo="one spec on two devices (profiles cuda, mps), or the same store continued on "
            "another machine",
        ),
        _seeds(spread),
    )


def _repeated(spread: Spread, *, number: int, mode: str, question: str) -> Step:
    axis = spread.axis("repeats")
    every = [pair for pair in axis.pairs if pair.spec_a.held == mode] if axis else []
    told = [pair for pair in every if not pair.vacuous]
    step = _Step(number, question, f"repeats of one spec in mode {mode}", told)
    if not told:
        return step.open(every, f"one spec in mode {mode}, two or more repeats")
    n_same = sum(_bit_identical(pair) for pair in told)
    if n_same == len(told):
        every_one = "the pair is" if n_same == 1 else f"all {n_same} pairs are"
        return step.answered(f"Yes: {every_one} bit-identical in {_what(told)}.")
    changed = _mean(told)
    cells = (
        "and no cell changed"
        if changed == 0
        else f"and {share_text(changed)} of the cells changed on average"
    )
    return step.answered(
        f"No: {len(told) - n_same} of {amount(len(told), 'pair')} differ in their bits, {cells}."
    )


def _beside_seeds(
    spread: Spread,
    *,
    number: int,
    names: Sequence[str],
    question: str,
    compared: str,
    todo: str,
    apart: Sequence[str] = (),
) -> Step:
    """A step over some axes, each with a sentence of its own; what is `apart` is no answer to it,
    but told as well."""
    axes = [axis for name in names for axis in [spread.axis(name)] if axis is not None]
    every = [pair for axis in axes for pair in axis.pairs]
    told = [pair for axis in axes for pair in axis.evidence]
    step = _Step(number, question, compared, told)
    others = [axis for name in apart for axis in [spread.axis(name)] if axis is not None]
    answer = " ".join(_answer(spread, axis) for axis in axes if axis.evidence)
    aside = " ".join(_answer(spread, axis) for axis in others if axis.evidence)
    if told:
        return step.answered(f"{answer} On one device: {aside}" if aside else answer)
    if aside and not every:
        return step.open(every, todo, f"No other device was compared. On one device: {aside}")
    return step.open(every, todo)


def _answer(spread: Spread, axis: Axis) -> str:
    """Whether an axis gives other cells, in a sentence."""
    told, doing = axis.evidence, axis.doing
    n_differ = sum(pair.verdict == Verdict.DIFFERENT for pair in told)
    of_all = f"{n_differ} of {amount(len(told), 'pair')}"
    if not n_differ:
        return f"No: {doing} leaves the outlines the same in {amount(len(told), 'pair')}."
    beside = _beside(spread.decide(axis.name))
    changed = _mean(told, "changed")
    if changed == 0:
        ppm = ppm_text(_mean(told, "ppm"))
        return f"No: {doing} changed no cell, but pixels in {of_all} ({ppm} on average); {beside}."
    return (
        f"Yes: {doing} moved {share_text(changed)} of the cells on average ({of_all} differ); "
        f"{beside}."
    )


def _beside(decided: Decision) -> str:
    if decided.within:
        return "less than seeds do"
    if math.isnan(decided.changed_ratio):  # the rule could not be applied, and says why
        return decided.sentence.partition(":")[0]
    return "not shown to be less than seeds do"


def _seeds(spread: Spread) -> Step:
    axis = spread.seeds
    told = axis.evidence if axis else []
    step = _Step(5, "How much of that does another seed do?", "seeds, all else equal", told)
    todo = f"one spec with {FEWEST_SEEDS} seeds or more in mode strict"
    if axis is None or not told:
        return step.open(axis.pairs if axis else [], todo)
    found = axis.distribution()
    text = f"Changing the seed moves {share_text(found.mean)} of the cells"
    if found.interval is not None:
        low, high = share_text(found.interval.low), share_text(found.interval.high)
        text += f" ({low} to {high}, 95 % interval over {found.interval.over})"
    if spread.n_seeds < FEWEST_SEEDS:
        return step.open(told, todo, f"{text}; only {spread.n_seeds} seeds: not enough to say.")
    others = [one for one in spread.axes if one.name != "seed" and one.evidence]
    answers = ("less than that", "nothing", "not shown to be less")
    told_of: dict[str, list[str]] = {answer: [] for answer in answers}
    for one in others:
        within = spread.decide(one.name).within
        told_of[answers[0 if within else 1 if one.equal else 2]].append(one.title)
    said = [f"{answer}: {', '.join(titles)}" for answer, titles in told_of.items() if titles]
    return step.answered("; ".join([text, *said]) + ".")


@dataclass(frozen=True)
class _Step:
    """A step whose answer is still to be written."""

    number: int
    question: str
    compared: str
    told: Sequence[Pair]

    def answered(self, answer: str) -> Step:
        return self._step(answer, Status.ANSWERED, "")

    def open(self, compared: Sequence[Pair], todo: str, answer: str = "") -> Step:
        """Without an answer: nothing was compared, or what was compared proves nothing."""
        if not answer and compared:
            answer = (
                f"No cells were found in {amount(len(compared), 'pair')}, which proves nothing."
            )
            todo = f"{todo}, trained longer or from a network that finds cells"
        return self._step(
            answer or "Nothing was compared.",
            Status.NOT_ENOUGH,
            f"Run {todo}; `cellrepro grid {GRID}` runs what one device can answer.",
        )

    def _step(self, answer: str, status: Status, todo: str) -> Step:
        runs = {repeat.name for pair in self.told for repeat in (pair.a, pair.b)}
        images = {image for pair in self.told for image in pair.found.images}
        return Step(
            number=self.number,
            question=self.question,
            compared=self.compared,
            n_pairs=len(self.told),
            n_runs=len(runs),
            n_images=len(images),
            answer=answer,
            status=status,
            todo=todo,
        )


def _bit_identical(pair: Pair) -> bool:
    return pair.verdict == Verdict.IDENTICAL and pair.weights_equal is not False


def _what(pairs: Sequence[Pair]) -> str:
    trained = any(pair.weights_equal is not None for pair in pairs)
    return "weights and masks" if trained else "their masks"


def _mean(pairs: Sequence[Pair], measure: str = "changed") -> float:
    return Axis(pairs[0].axis, list(pairs), 0).distribution(measure).mean
