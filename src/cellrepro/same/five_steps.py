"""The five-step experiment: what a store says to each step, or what to run for an answer.

``grids/protocol.yaml`` makes the runs. Each step looks at the pairs of runs that it is about, so
any store will do: what it lacks is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from cellrepro.same.names import place_of
from cellrepro.same.seed_spread import Axis, Spread
from cellrepro.same.verdicts import Verdict
from cellrepro.same.within_spread import FEWEST_SEEDS
from cellrepro.words import amount, ppm_text, share_text, span

GRID = "grids/protocol.yaml"
"""What carries out the steps, as far as one device can answer them."""


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
    todo: str  # what to run for an answer; empty where there is one

    @property
    def answered(self) -> bool:
        """Whether nothing more has to be run."""
        return not self.todo


def protocol(spread: Spread) -> tuple[Step, ...]:
    """The five steps, as far as compared runs over one set of images answer them."""
    repeats = spread.axis("repeats")
    plain = any(pair.a.spec.mode == "off" for pair in repeats.pairs) if repeats else False
    free = "nothing fixed, as plain Cellpose" if plain else "only the seed fixed"
    free = f"Does the same spec give the same result with {free}?"
    mode = (3, "Does determinism give other cells, on the same device?", "modes on one device")
    place = (4, "Does another device or machine give other cells?", "devices and machines")
    elsewhere = "one spec on two devices (profiles cuda, mps), or on another machine"
    return (
        _repeated(spread, 1, "off" if plain else "fast", free),
        _repeated(spread, 2, "strict", "Does it when every operation is deterministic?"),
        _beside_seeds(spread, ["mode"], mode, "one spec in modes fast and strict"),
        _beside_seeds(spread, ["device", "machine"], place, elsewhere),
        _seeds(spread),
    )


Asked = tuple[int, str, str]  # number, question, what is compared


def _repeated(spread: Spread, number: int, mode: str, question: str) -> Step:
    every = spread.axis("repeats") or Axis("repeats", [])
    axis = Axis("repeats", [pair for pair in every.pairs if pair.a.spec.mode_in_words == mode])
    told, changed = axis.evidence, axis.distribution().mean
    same = [p for p in told if p.verdict == Verdict.IDENTICAL and p.weights_equal is not False]
    if len(same) == len(told):
        answer = f"Yes: {amount(len(told), 'pair')}, bit-identical."
    else:
        answer = (
            f"No: {len(same) or 'none'} of {amount(len(told), 'pair')} bit-identical; "
            f"{share_text(changed)} of the cells changed on average."
        )
        if len(told) == 1:
            answer = f"No: 1 pair, not bit-identical; {share_text(changed)} of the cells changed."
    asked = (number, question, f"repeats of one spec in mode {mode}")
    return _step(asked, [axis], answer, f"one spec in mode {mode}, two or more repeats")


def _beside_seeds(spread: Spread, names: Sequence[str], asked: Asked, todo: str) -> Step:
    """A step over some axes, each with a sentence of its own."""
    axes, answers = [axis for axis in spread.axes if axis.name in names], []
    for axis in (axis for axis in axes if axis.evidence):
        changed, ppm = axis.distribution().mean, axis.distribution("ppm").mean
        within = spread.decide(axis.name).within
        pairs = amount(len(axis.evidence), "pair")
        average = f" on average ({len(axis.differing)} of {pairs} differ)"
        what = f"{share_text(changed)} of the cells and {ppm_text(ppm)} of the pixels"
        what += average if len(axis.evidence) > 1 else f" ({pairs})"
        if not changed and not ppm:
            what = f"nothing ({pairs})"
        answers.append(
            f"{'Yes' if changed else 'No'}: {axis.doing} changed {what}; "
            f"{'less than seeds do' if within else 'not shown to be less than seeds do'}."
        )
    return _step(asked, axes, " ".join(answers), todo)


def _seeds(spread: Spread) -> Step:
    asked = (5, "How much of that does another seed do?", "seeds, all else equal")
    axis = spread.seeds or Axis("seed", [])
    found = axis.distribution()
    text = f"Changing the seed changes {share_text(found.mean)} of the cells"
    if found.interval is not None:
        low, high = share_text(found.interval.low), share_text(found.interval.high)
        text += f" ({span(low, high)}, 95 % interval over {found.interval.over})"
    others = [one for one in spread.axes if one.name != "seed" and one.evidence]
    for within, said in ((True, "less than that"), (False, "not shown to be less")):
        titles = [one.title for one in others if spread.decide(one.name).within == within]
        text += f"; {said}: {', '.join(titles) or 'nothing'}"
    text += _again(spread, axis)
    todo = f"one spec with {FEWEST_SEEDS} seeds or more in mode strict"
    if few := spread.n_seeds < FEWEST_SEEDS:
        text += f"; only {spread.n_seeds} seeds: not enough to say"
    return _step(asked, [axis], f"{text}.", todo, enough=not few)


def _again(spread: Spread, seeds: Axis) -> str:
    """Both halves as one result: other seeds differ, and each gives its own result again."""
    differing = {place_of(one) for pair in seeds.differing for one in (pair.a, pair.b)}
    repeats = spread.axis("repeats")
    equal: dict[str, dict[str, bool]] = defaultdict(dict)  # by mode and place
    for pair in repeats.evidence if repeats else ():
        if (place := place_of(pair.a)) in differing:
            same = pair.verdict == Verdict.IDENTICAL and pair.weights_equal is not False
            of_mode = equal[pair.a.spec.mode_in_words]
            of_mode[place] = of_mode.get(place, True) and same
    said = [
        f"{'different but' if all(found.values()) else 'different and not'} reproducible in mode "
        f"{mode} ({sum(found.values())} of {amount(len(found), 'run')} bit-identical when repeated)"
        for mode, found in equal.items()
    ]
    return "".join(f"; {words}" for words in said)


def _step(
    asked: Asked, axes: Sequence[Axis], answer: str, todo: str, *, enough: bool = True
) -> Step:
    """A step with its answer over the evidence, or what to run where that is not enough."""
    pairs = [pair for axis in axes for pair in axis.pairs]
    told = [pair for axis in axes for pair in axis.evidence]
    runs = {repeat.name for pair in told for repeat in (pair.a, pair.b)}
    images = {image for pair in told for image in pair.images}
    if not told:
        answer = "Nothing was compared."
        if pairs:
            answer = f"No cells were found in {amount(len(pairs), 'pair')}, which proves nothing."
            todo += ", trained longer or from a network that finds cells"
    todo = f"Run {todo}; `cellrepro grid {GRID}` runs what one device can answer."
    open_ = "" if told and enough else todo
    return Step(*asked, len(told), len(runs), len(images), answer, open_)
