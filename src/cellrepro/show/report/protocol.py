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
from cellrepro.compare.within_spread import FEWEST_SEEDS, Decision
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
    were found are left out), one sentence that answers or says why there is no answer, and what to
    run for one.
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
    """The five steps, as far as compared runs over one set of images answer them."""
    return (
        _repeated(
            spread, 1, "fast", "Does the same spec give the same result with only the seed fixed?"
        ),
        _repeated(spread, 2, "strict", "Does it when every operation is deterministic?"),
        _beside_seeds(
            spread,
            3,
            ["mode"],
            "Does determinism give other cells, on the same device?",
            compared="modes on one device",
            todo="one spec in modes fast and strict",
        ),
        _beside_seeds(
            spread,
            4,
            ["device", "machine"],
            "Does another device or machine give other cells?",
            compared="devices and machines in one mode",
            aside=["threads", "precision"],
            todo="one spec on two devices (profiles cuda, mps), or the same store continued on "
            "another machine",
        ),
        _seeds(spread),
    )


def _repeated(spread: Spread, number: int, mode: str, question: str) -> Step:
    axis = spread.axis("repeats")
    every = [pair for pair in axis.pairs if pair.a.spec.held == mode] if axis else []
    told = [pair for pair in every if not pair.vacuous]
    compared = f"repeats of one spec in mode {mode}"
    todo = f"one spec in mode {mode}, two or more repeats"
    answer = ""
    n_same = sum(p.verdict == Verdict.IDENTICAL and p.weights_equal is not False for p in told)
    if n_same and n_same == len(told):
        trained = any(pair.weights_equal is not None for pair in told)
        every_one = "the pair is" if n_same == 1 else f"all {n_same} pairs are"
        what = "weights and masks" if trained else "their masks"
        answer = f"Yes: {every_one} bit-identical in {what}."
    elif told:
        changed = _mean(told)
        cells = f"{share_text(changed)} of the cells changed on average"
        answer = (
            f"No: {len(told) - n_same} of {amount(len(told), 'pair')} differ in their bits, and "
            f"{cells if changed else 'no cell changed'}."
        )
    return _step(number, question, compared, told, answer, todo, unproven=every)


def _beside_seeds(
    spread: Spread,
    number: int,
    names: Sequence[str],
    question: str,
    *,
    compared: str,
    todo: str,
    aside: Sequence[str] = (),
) -> Step:
    """A step over some axes, each with a sentence of its own; what is `aside` is no answer to it,
    but said as well."""
    axes, others = (
        [axis for name in chosen for axis in [spread.axis(name)] if axis is not None]
        for chosen in (names, aside)
    )
    every = [pair for axis in axes for pair in axis.pairs]
    answer, said = (
        " ".join(_answer(spread, axis) for axis in chosen if axis.evidence)
        for chosen in (axes, others)
    )
    on_one_device = f"On one device: {said}" if said else ""
    told = [pair for axis in axes for pair in axis.evidence]
    if told:
        answer = f"{answer} {on_one_device}".rstrip()
        return _step(number, question, compared, told, answer, todo)
    instead = f"No other device was compared. {on_one_device}" if said and not every else ""
    return _step(number, question, compared, [], "", todo, unproven=every, instead=instead)


def _answer(spread: Spread, axis: Axis) -> str:
    """Whether an axis gives other cells, in a sentence."""
    told, doing = axis.evidence, axis.doing
    n_differ = sum(pair.verdict == Verdict.DIFFERENT for pair in told)
    over = amount(len(told), "pair")
    if not n_differ:
        return f"No: {doing} leaves the outlines the same in {over}."
    beside = _beside(spread.decide(axis.name))
    changed = _mean(told, "changed")
    if changed == 0:
        ppm = f"{ppm_text(_mean(told, 'ppm'))} on average"
        return f"No: {doing} changed no cell, but pixels in {n_differ} of {over} ({ppm}); {beside}."
    cells = f"{share_text(changed)} of the cells on average"
    return f"Yes: {doing} changed {cells} ({n_differ} of {over} differ); {beside}."


def _beside(decided: Decision) -> str:
    if decided.within:
        return "less than seeds do"
    if math.isnan(decided.changed_ratio):  # the rule could not be applied, and says why
        return decided.sentence.partition(":")[0]
    return "not shown to be less than seeds do"


def _seeds(spread: Spread) -> Step:
    axis = spread.seeds
    told = axis.evidence if axis else []
    asked = (5, "How much of that does another seed do?", "seeds, all else equal", told)
    todo = f"one spec with {FEWEST_SEEDS} seeds or more in mode strict"
    if axis is None or not told:
        return _step(*asked, "", todo, unproven=axis.pairs if axis else [])
    found = axis.distribution()
    text = f"Changing the seed changes {share_text(found.mean)} of the cells"
    if found.interval is not None:
        low, high = share_text(found.interval.low), share_text(found.interval.high)
        text += f" ({low} to {high}, 95 % interval over {found.interval.over})"
    if spread.n_seeds < FEWEST_SEEDS:
        text += f"; only {spread.n_seeds} seeds: not enough to say."
        return _step(*asked, "", todo, instead=text)
    titles: dict[str, list[str]] = {"less than that": [], "nothing": [], "not shown to be less": []}
    for one in spread.axes:
        if one.name != "seed" and one.evidence:
            within = spread.decide(one.name).within
            answers = list(titles)
            titles[answers[0 if within else 1 if one.equal else 2]].append(one.title)
    said = [f"{answer}: {', '.join(names)}" for answer, names in titles.items() if names]
    return _step(*asked, "; ".join([text, *said]) + ".", todo)


def _step(
    number: int,
    question: str,
    compared: str,
    told: Sequence[Pair],
    answer: str,
    todo: str,
    *,
    unproven: Sequence[Pair] = (),
    instead: str = "",
) -> Step:
    """A step with its answer; without one what there is `instead`, or why there is none."""
    runs = {repeat.name for pair in told for repeat in (pair.a, pair.b)}
    images = {image for pair in told for image in pair.images}
    over = (number, question, compared, len(told), len(runs), len(images))
    if answer:
        return Step(*over, answer, Status.ANSWERED)
    if not instead and unproven:
        pairs = amount(len(unproven), "pair")
        instead = f"No cells were found in {pairs}, which proves nothing."
        todo += ", trained longer or from a network that finds cells"
    todo = f"Run {todo}; `cellrepro grid {GRID}` runs what one device can answer."
    return Step(*over, instead or "Nothing was compared.", Status.NOT_ENOUGH, todo)


def _mean(pairs: Sequence[Pair], measure: str = "changed") -> float:
    return Axis(pairs[0].axis, list(pairs), 0).distribution(measure).mean
