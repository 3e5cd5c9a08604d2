"""The five-step experiment: what a store says to each step, or what to run for an answer.

``grids/protocol.yaml`` makes the runs. Each step looks at the pairs of runs that it is about, so
any store will do: what it lacks is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cellrepro.comparison.measured_axis import Axis
from cellrepro.comparison.place_fields import place_of
from cellrepro.comparison.seed_spread import Spread
from cellrepro.comparison.within_spread import AS_MUCH_HERE, FEWEST_SEEDS, LESS_HERE, NO_SEEDS
from cellrepro.spec.lab_command import lab_command
from cellrepro.words import as_sentence, pixels_text, share_span, share_text
from samebits.words import amount, joined, verb_of

_ALL_MATCHED = "every cell has a match"
_AND_WEIGHTS = "; the weights differ"
GRID = "grids/protocol.yaml"
"""The grid file that carries out the steps, as far as one device can answer them."""


@dataclass(frozen=True)
class Step:
    """One step of the protocol, with its answer or what is missing for one."""

    number: int
    """Its place in the protocol, from 1."""
    question: str
    """The question of the step, in one sentence."""
    compared: str
    """The pairs of runs that answer it."""
    n_pairs: int
    """Pairs that were compared, but for those in which no cells were found."""
    n_runs: int
    """Runs in these pairs."""
    n_images: int
    """Images of these pairs."""
    answer: str
    """One sentence or several; where nothing was compared, why."""
    runs_needed: str
    """The runs that would give an answer; empty where there is one, and where none can."""

    @property
    def outcome(self) -> Literal["answered", "no answer yet", "does not apply"]:
        """Whether it has an answer, can get one by more runs, or asks what these runs do not do."""
        if self.runs_needed:
            return "no answer yet"
        return "answered" if self.n_pairs else "does not apply"


@dataclass(frozen=True)
class _Question:
    """The question of a step, before anything was compared."""

    number: int
    text: str
    compared: str
    runs_needed: str

    def step(self, axes: Sequence[Axis], answer: str, *, enough: bool = True) -> Step:
        """Answer it with the evidence of some axes, or say what to run."""
        pairs = [pair for axis in axes for pair in axis.pairs]
        evidence = [pair for axis in axes for pair in axis.evidence]
        runs = {repeat.name for pair in evidence for repeat in (pair.a, pair.b)}
        images = {image for pair in evidence for image in pair.images}
        runs_needed = self.runs_needed
        if pairs and not evidence:
            answer = (
                f"In {amount(len(pairs), 'pair')} one side or both found no cell, which proves "
                "nothing."
            )
            runs_needed += ", trained longer or from a network that finds cells"
        elif not evidence:
            answer = "Nothing was compared."
        return Step(
            number=self.number,
            question=self.text,
            compared=self.compared,
            n_pairs=len(evidence),
            n_runs=len(runs),
            n_images=len(images),
            answer=answer,
            runs_needed="" if evidence and enough else runs_needed,
        )

    def does_not_apply(self, reason: str) -> Step:
        """Say why runs of this kind have no answer to it."""
        return replace(self.step([], ""), answer=f"Does not apply: {reason}.", runs_needed="")


def protocol(spread: Spread) -> tuple[Step, ...]:
    """Answer the five steps from compared runs; a step without evidence says what to run."""
    repeats = spread.axis("repeats")
    is_plain = repeats is not None and any(pair.a.spec.mode == "off" for pair in repeats.pairs)
    fixed = "nothing fixed, as plain Cellpose" if is_plain else "only the seed fixed"
    return (
        _repeats_step(
            spread,
            number=1,
            text=f"Does the same spec give the same result with {fixed}?",
            mode="off" if is_plain else "fast",
        ),
        _repeats_step(
            spread,
            number=2,
            text="Does the same spec give the same result when every operation is deterministic?",
            mode="strict",
        ),
        _settings_step(
            spread,
            _Question(
                number=3,
                text="Does determinism give different cells, on the same device?",
                compared="modes on one device",
                runs_needed="one spec in modes fast and strict",
            ),
            axis_names=("mode",),
        ),
        _settings_step(
            spread,
            _Question(
                number=4,
                text="Does a different device or machine give different cells?",
                compared="devices and machines",
                runs_needed="one spec on two devices (profiles cuda, mps), or on two machines",
            ),
            axis_names=("device", "machine"),
        ),
        _seeds_step(spread),
    )


def open_questions(steps: Sequence[Step]) -> str:
    """List what has no answer yet, and what to run for one, in Markdown; empty where all have."""
    lines = [
        f"- Step {step.number}: *{step.question}* {step.answer} To answer it, run "
        f"{step.runs_needed}."
        for step in steps
        if step.runs_needed
    ]
    if not lines:
        return ""
    command = lab_command("grid", GRID, store=None)
    return "\n".join([*lines, "", f"`{command}` runs what one device can answer."])


def _repeats_step(spread: Spread, *, number: int, text: str, mode: str) -> Step:
    """Steps 1 and 2: repeats of one spec in one mode."""
    question = _Question(
        number=number,
        text=text,
        compared=f"repeats of one spec in mode {mode}",
        runs_needed=f"one spec in mode {mode}, two or more repeats",
    )
    repeats = spread.axis("repeats") or Axis("repeats", [])
    axis = Axis("repeats", [pair for pair in repeats.pairs if pair.a.spec.mode_in_words == mode])
    n_pairs = len(axis.evidence)
    n_identical = sum(pair.has_same_bits for pair in axis.evidence)
    changed = axis.distribution().mean
    share = f"{share_text(changed)} of the cells without a match" if changed else _ALL_MATCHED
    if n_identical == n_pairs:
        answer = f"Yes: {amount(n_pairs, 'pair')}, bit-identical."
    elif n_pairs == 1:
        answer = f"No: 1 pair, not bit-identical; {share}."
    else:
        on_average = " on average" if changed else ""
        pairs = amount(n_pairs, "pair")
        answer = f"No: {n_identical or 'none'} of {pairs} bit-identical; {share}{on_average}."
    return question.step([axis], f"{answer} {as_sentence(axis.note)}".rstrip())


def _settings_step(spread: Spread, question: _Question, *, axis_names: Sequence[str]) -> Step:
    """Steps 3 and 4: some axes, each with a sentence of its own."""
    axes = [axis for axis in spread.axes if axis.name in axis_names]
    sentences = [_sentence_beside_seeds(spread, axis) for axis in axes if axis.evidence]
    return question.step(axes, " ".join(sentences))


def _sentence_beside_seeds(spread: Spread, axis: Axis) -> str:
    """Say what an axis changed, and whether seeds change more."""
    changed = axis.distribution().mean
    ppm = axis.distribution("ppm").mean
    n_pairs = len(axis.evidence)
    pairs = amount(n_pairs, "pair")
    weights_differ = any(pair.weights_equal is False for pair in axis.evidence)
    if not changed and not ppm:
        effect = f"changed no cell and no pixel{_AND_WEIGHTS * weights_differ} ({pairs})"
    else:
        effect = (
            f"left {share_text(changed)} of the cells without a match and changed "
            f"{pixels_text(ppm)}"
        )
        if n_pairs > 1:
            n = len(axis.differing)
            effect += f" on average ({n} of {pairs} {verb_of(n, 'differs', 'differ')})"
        else:
            effect += f" ({pairs})"
    decision = spread.decide(axis.name)
    if axis.equal:
        beside_seeds = ""
    elif not decision.is_judged:
        beside_seeds = f"; {decision.reason}"
    elif decision.within:
        beside_seeds = "; less than seeds do"
    elif decision.exceeds_seeds:
        beside_seeds = "; more than between any two seeds"
    else:
        beside_seeds = f"; {decision.in_these_runs}"
    by_chance = _changed_by_chance(spread)
    if changed and by_chance and not decision.exceeds_seeds:
        chance = f"repeats of one spec differ by up to {share_text(by_chance)} themselves"
        return f"Perhaps: {axis.doing} {effect}, but {chance}{beside_seeds}."
    return f"{'Yes' if changed else 'No'}: {axis.doing} {effect}{beside_seeds}."


def _changed_by_chance(spread: Spread) -> float:
    """The largest share of the cells without a match between two repeats of one spec."""
    repeats = spread.axis("repeats")
    return 0.0 if repeats is None else max((pair.changed for pair in repeats.evidence), default=0.0)


def _seeds_step(spread: Spread) -> Step:
    """Step 5: seeds, and every other axis beside them."""
    question = _Question(
        number=5,
        text="How many cells does a different seed change, and do the others change fewer?",
        compared="seeds, all else equal",
        runs_needed=f"one spec with {FEWEST_SEEDS} seeds or more in mode strict",
    )
    if spread.is_segmented:
        return question.does_not_apply(NO_SEEDS)
    seeds = spread.seeds or Axis("seed", [])
    enough = spread.n_seeds >= FEWEST_SEEDS
    clauses = [
        _change_by_seeds(seeds),
        *_other_axes(spread),
        *_repeatability_of_seeds(spread, seeds),
    ]
    if not enough:
        clauses.append(f"only {amount(spread.n_seeds, 'seed')}: not enough to say")
    return question.step([seeds], " ".join(map(as_sentence, clauses)), enough=enough)


def _change_by_seeds(seeds: Axis) -> str:
    """How many cells a different seed changes, with the interval of this share."""
    distribution = seeds.distribution()
    clause = (
        f"Changing the seed leaves {share_text(distribution.mean)} of the cells without a match"
    )
    interval = distribution.interval
    if interval is None:
        return clause
    bounds = share_span(interval.low, interval.high)
    return f"{clause} ({bounds}, 95 % interval over {interval.over})"


def _other_axes(spread: Spread) -> Iterator[str]:
    """Say which axes change less than seeds do, and for which that is not shown."""
    compared = [axis for axis in spread.axes if axis.name != "seed" and axis.evidence]
    equal = [axis.title for axis in compared if axis.equal]
    if equal:
        yield f"no pixel changes between {' or between '.join(equal)}"
    differing = [axis for axis in compared if not axis.equal]
    within = [axis.title for axis in differing if spread.decide(axis.name).within]
    others = [axis for axis in differing if axis.title not in within]
    matched = [axis.title for axis in others if not axis.distribution().mean]
    axes = [axis for axis in others if axis.title not in matched]
    judged = [axis for axis in axes if spread.decide(axis.name).is_judged]
    larger = [axis.title for axis in judged if spread.decide(axis.name).exceeds_seeds]
    not_within = [axis.title for axis in judged if axis.title not in larger]
    not_judged = [axis for axis in axes if axis not in judged]
    if within:
        yield f"less changes between {joined(within)}"
    if larger:
        yield f"more changes between {joined(larger)}"
    if matched:
        yield f"pixels change between {joined(matched)}, and {_ALL_MATCHED}"
    for how_much in (LESS_HERE, AS_MUCH_HERE):
        alike = [
            axis.title
            for axis in judged
            if axis.title in not_within and spread.decide(axis.name).in_these_runs == how_much
        ]
        if alike:
            yield f"{joined(alike)} change {how_much}"
    for axis in not_judged:
        refusal = spread.decide(axis.name).refusal
        yield f"between {axis.title} it is not judged: {refusal}"


def _repeatability_of_seeds(spread: Spread, seeds: Axis) -> Iterator[str]:
    """Say for each mode whether the runs that differ by their seed repeat their own results."""
    repeats = spread.axis("repeats")
    if repeats is None:
        return
    differing = {place_of(repeat) for pair in seeds.differing for repeat in (pair.a, pair.b)}
    identical_by_mode: dict[str, dict[str, bool]] = {}
    for pair in repeats.evidence:
        place = place_of(pair.a)
        if place in differing:
            identical = identical_by_mode.setdefault(pair.a.spec.mode_in_words, {})
            identical[place] = identical.get(place, True) and pair.has_same_bits
    for mode, identical in identical_by_mode.items():
        n_identical = sum(identical.values())
        repeats_itself = verb_of(n_identical, "repeats its own result", "repeat their own results")
        yield (
            f"of those that differ in the seed, {n_identical} of {len(identical)} in mode {mode} "
            f"{repeats_itself} bit for bit"
        )
