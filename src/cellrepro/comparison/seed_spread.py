"""How far results lie apart, by what made them differ, and when that is less than seeds do."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from cellrepro.comparison.image_differences import MaskPairs
from cellrepro.comparison.measured_axis import Axis
from cellrepro.comparison.pair_choice import choose
from cellrepro.comparison.place_fields import place_of
from cellrepro.comparison.repeat_facts import Sample
from cellrepro.comparison.repeat_pairs import Pair, units_of
from cellrepro.comparison.run_names import Names
from cellrepro.comparison.spread_axes import AXES, HOW_COMPUTED, OBSERVING
from cellrepro.comparison.verdicts import Verdict
from cellrepro.comparison.within_spread import (
    AS_MUCH_HERE,
    FEWEST_SEEDS,
    LESS_HERE,
    NO_SEEDS,
    NOTHING_BESIDE,
    SAME_OUTLINES,
    Decision,
    decide,
)
from cellrepro.errors import Damaged
from cellrepro.progress import note_once
from cellrepro.spec.spec import PARAMETERS, Spec
from cellrepro.store.stored_run import undamaged
from cellrepro.words import share_span, share_text
from samebits.errors import BadInput
from samebits.results import Result, Row
from samebits.words import amount, joined

if TYPE_CHECKING:
    from cellrepro.comparison.mask_comparison import MaskComparison
    from cellrepro.store.stored_run import Repeat, Run


MOST_PAIRS = 150
"""Pairs of runs that are compared along one axis."""
MOST_PIXELS = 2e8
"""Pixels that are compared along one axis: some 20 seconds."""


def _grouped(pairs: Iterable[Pair], key: Callable[[Pair], Hashable]) -> list[list[Pair]]:
    groups: dict[Hashable, list[Pair]] = defaultdict(list)
    for pair in pairs:
        groups[key(pair)].append(pair)
    return list(groups.values())


def measure_spread(
    runs: Iterable[Run],
    *,
    axes: Sequence[str] = AXES,
    names: Names | None = None,
) -> Spread:
    """Compare stored runs along every axis; where there are many pairs, some of them.

    Every surrounding and every run in it then has its turn equally often; where there are too many
    surroundings for that, some of them are drawn, the same along every axis as far as can be. Which
    are taken follows from what was asked for, not from what came of it.

    Parameters
    ----------
    runs : iterable of Run
        Of one task over the same images, from one store or several. Those with a loosened
        operation, which are made to show its effect, count only where all have one or ``axes``
        names ``loose``.
    axes : sequence of str
        Some of `AXES`, or other fields of a spec.
    names : Names, optional
        Under which the runs are shown; by default of these alone.

    Returns
    -------
    Spread
        Axes along which no two runs are a pair are left out.

    Raises
    ------
    BadInput
        If the runs have several tasks or data sets, or an axis is none.
    """
    samples = [Sample(repeat) for run in _to_compare(runs, axes) for repeat in run.repeats]
    specs = [sample.repeat.spec for sample in samples]
    kinds = {(spec.task, spec.data_digest) for spec in specs}
    if len(kinds) > 1:
        raise BadInput(
            f"the runs are of {len(kinds)} kinds, as they have another task or different images; "
            "expected one task and one data set, whose masks can be compared"
        )
    fields = set(PARAMETERS) - {OBSERVING}
    unknown = sorted(set(axes) - set(AXES) - fields)
    if unknown:
        raise BadInput(f"{', '.join(unknown)} is no axis; expected some of {', '.join(AXES)}")
    names = names or Names(sample.repeat for sample in samples)
    masks = MaskPairs()
    measured = []
    for name in axes:
        chosen, n_pairs = choose(samples, name, MOST_PAIRS, names)
        pairs = compared(masks, chosen)
        if pairs:
            measured.append(Axis(name, pairs, n_pairs - len(pairs)))
    return Spread(measured, is_segmented=_are_segmented(specs))


def _to_compare(runs: Iterable[Run], axes: Sequence[str]) -> list[Run]:
    """Leave out runs with a loosened operation beside others."""
    given = list(runs)
    if "loose" in axes:
        return given
    return [run for run in given if run.spec.loose is None] or given


def compared(masks: MaskPairs, chosen: Sequence[Pair]) -> list[Pair]:
    """Compare the masks of as many of the chosen pairs as there is time for."""
    enough = masks.n_compared + MOST_PIXELS
    result = []
    for pair in chosen:
        if masks.n_compared >= enough:  # equal ones come free, but they alone would be a choice
            break
        try:
            images = masks.differences(pair.a, pair.b)
        except Damaged as error:  # of one pair; the others still say something
            note_once(f"left out: {error}")
            continue
        result.append(replace(pair, images=images))
    return result


class Spread(Result):
    """How far results lie apart along every axis; axes without a pair are left out."""

    def __init__(self, axes: Sequence[Axis], *, is_segmented: bool = False):
        self.axes = tuple(axes)
        self.is_segmented = is_segmented
        """Whether all runs only segmented, which no seed changes."""
        self.seeds = self.axis("seed")
        pairs = self.seeds.evidence if self.seeds else []
        self._seed_groups = _grouped(pairs, lambda pair: pair.surroundings)
        self.n_seeds = max((len(units_of(group)) for group in self._seed_groups), default=0)
        """The most that were compared in one surrounding and found something."""

    def axis(self, name: str) -> Axis | None:
        """One axis, or none if nothing was compared along it."""
        return next((axis for axis in self.axes if axis.name == name), None)

    def decide(self, name: str) -> Decision:
        """Decide whether what an axis does is less than what seeds do, by its worst contrast."""
        if name not in self._decisions:
            raise BadInput(
                f"{name!r} is no axis to be compared with seeds; expected one of "
                f"{', '.join(self._decisions) or 'none'}"
            )
        return self._decisions[name]

    @cached_property
    def _decisions(self) -> dict[str, Decision]:
        return {axis.name: self._decided(axis) for axis in self.axes if axis.name != "seed"}

    def _decided(self, axis: Axis) -> Decision:
        pairs = axis.evidence
        contrasts = _grouped(pairs, lambda pair: pair.contrast)
        differing = [c for c in contrasts if any(p.verdict == Verdict.DIFFERENT for p in c)]
        if not differing:
            return self.beside_seeds(pairs, pairs)
        decided = [
            replace(self.beside_seeds(group, pairs), contrast=_contrast(group[0], contrasts))
            for group in differing
        ]
        worst = max(decided, key=_objection)
        contrast = f"{worst.contrast}: " if worst.contrast else ""
        return replace(worst, reason=contrast + worst.reason)

    def beside_seeds(self, pairs: Sequence[Pair], axis: Sequence[Pair]) -> Decision:
        """Decide on pairs that differ in draws only, beside the least favourable baseline.

        Beside the seeds of either side; where neither has enough, of all runs on the axis; where
        these have none, of runs on the same machine that differ in mode or profile alone.
        """
        if _are_segmented([pair.a.spec for pair in pairs]):
            return Decision(False, NO_SEEDS, refusal=NO_SEEDS)
        of_axis = self._seeds_of(axis)
        groups = _with_enough_seeds(self._seeds_of(pairs)) or _with_enough_seeds(of_axis)
        elsewhere = [] if groups else _with_enough_seeds(self._seeds_elsewhere(pairs))
        groups = groups or elsewhere or of_axis[:1]
        baselines = _grouped(itertools.chain.from_iterable(groups), lambda pair: pair.settings)
        decisions = [decide(pairs, seeds) for seeds in baselines or [[]]]
        worst = max(decisions, key=_objection)
        if elsewhere and worst.is_judged and worst.reason != SAME_OUTLINES:
            return replace(
                worst, reason=f"{worst.reason}; the seeds are of {_places_of(elsewhere)}"
            )
        return worst

    def _seeds_elsewhere(self, pairs: Sequence[Pair]) -> list[list[Pair]]:
        """The pairs of seeds of runs that differ from either side in mode or profile alone."""
        asked_for = {_asked_for(side) for pair in pairs for side in (pair.a, pair.b)}
        return [group for group in self._seed_groups if _asked_for(group[0].a) in asked_for]

    def _seeds_of(self, pairs: Sequence[Pair]) -> list[list[Pair]]:
        """The pairs of seeds in the surroundings of which some pairs have a side."""
        return [group for group in self._seed_groups if _places(group) & _places(pairs)]

    def rows(self) -> Sequence[Row]:
        """A row for every axis."""
        return [
            {
                "between": axis.title,
                "pairs": len(axis.evidence),
                "pairs whose masks differ": len(axis.differing),
                "images": axis.n_images,
                "cells without a match, mean of pairs": share_text(axis.distribution().mean),
                "compared with other seeds": self._beside_seeds(axis),
                "further pairs, without cells or training": len(axis.pairs) - len(axis.evidence),
            }
            for axis in self.axes
        ]

    @property
    def json_record(self) -> Mapping[str, object]:
        """What JSON says of it: each axis in numbers, with the decision beside seeds."""
        return {"n_seeds": self.n_seeds, "axes": [self._record_of(axis) for axis in self.axes]}

    def _record_of(self, axis: Axis) -> Mapping[str, object]:
        changed = axis.distribution()
        return {
            "axis": axis.name,
            "n_pairs": len(axis.pairs),
            "n_differing": len(axis.differing),
            "n_images": axis.n_images,
            "changed": changed.mean,
            "interval": changed.interval and changed.interval._asdict(),
            "beside_seeds": None if axis.name == "seed" else self.decide(axis.name),
        }

    def _beside_seeds(self, axis: Axis) -> str:
        """Whether an axis matters less than the seed, and why that can be said or not."""
        if axis.name == "seed":
            return "the baseline"
        decision = self.decide(axis.name)
        share = share_text(decision.changed[0])
        of_contrast = f"{decision.contrast}, {share}: " if decision.contrast else ""
        return f"{of_contrast}{decision.in_short}" if decision.in_short else decision.reason

    def sentence(self) -> str:
        """Say what each axis does to the cells, beside what seeds do."""
        clauses = [
            _clause(axis, self.decide(axis.name)) for axis in self.axes if axis.name != "seed"
        ]
        text = "; ".join([*clauses, self.of_seeds()])
        return text[:1].upper() + text[1:] + "."

    def of_scores(self) -> str:
        """Say how far AP@0.5 against the ground truth lies apart at most, along each axis."""
        apart = []
        for axis in self.axes:
            scores = [(pair.a.manifest.ap50, pair.b.manifest.ap50) for pair in axis.evidence]
            known = [abs(a - b) for a, b in scores if a is not None and b is not None]
            if known:
                apart.append(f"{max(known):.3f} between {axis.title}")
        if not apart:
            return "no two runs have a score against a ground truth"
        return f"AP@0.5 on the images that were segmented differs by at most {joined(apart)}"

    def of_seeds(self) -> str:
        """Say what another seed does to the cells, or that this is not known."""
        seeds = self.seeds
        if seeds is None or not seeds.evidence:
            if self.is_segmented:
                return NOTHING_BESIDE
            return "what seeds do is not known, as no two of them were compared or found cells"
        text = (
            f"{seeds.doing} left {share_text(seeds.distribution().mean)} of the cells without "
            f"a match ({amount(len(seeds.evidence), 'pair')} of {seeds.n_values} seeds, "
            f"{amount(seeds.n_images, 'image')})"
        )
        if self.n_seeds < FEWEST_SEEDS:
            few = amount(self.n_seeds, "seed")
            text += f"; only {few}: not enough to say what is less than that"
        return text

    def beside_two(self, share: float, *, pair: tuple[Repeat, Repeat] | None = None) -> str:
        """Say whether this share of changed cells matters: whether any two seeds change as much.

        The most that any two seeds changed decides; `decide` asks whether less is *shown*. Of a
        ``pair`` that differs in the seed alone this cannot be asked.
        """
        if not share:
            return f"no, every cell of A and B has a match; {self.of_seeds()}"
        unmatched = f"{share_text(share)} of the cells of A and B have no match"
        if pair is not None and _differ_in_seed_alone(*pair):
            beside = self.of_seeds()
            if self.seeds is not None and self.seeds.evidence:
                shares = self.seeds.distribution().values
                between = share_span(min(shares), max(shares))
                beside = f"between any two seeds of the store it is {between}"
            return f"as much as a seed does, as nothing else differs: {unmatched}; {beside}"
        if self.seeds is None or self.n_seeds < FEWEST_SEEDS:
            return f"yes, {unmatched}; {self.of_seeds()}"
        of_seeds = self.seeds.distribution()
        most = float(of_seeds.values.max())
        counts = f"{amount(self.seeds.n_values, 'seed')}, {amount(self.seeds.n_images, 'image')}"
        beside = (
            f"{unmatched}, with another seed {share_text(of_seeds.mean)} on average and at most "
            f"{share_text(most)} ({counts})"
        )
        if share > most:
            return f"yes, more than any two seeds did: {beside}"
        least = float(of_seeds.values.min())
        return f"{LESS_HERE if share < least else AS_MUCH_HERE}: {beside}"


def _asked_for(repeat: Repeat) -> tuple:
    """What a repeat was asked for, and where, but for its seed, mode and profile."""
    return Sample(repeat).facts_without("seed", *HOW_COMPUTED)


def _places_of(groups: Sequence[Sequence[Pair]]) -> str:
    """Name how pairs of seeds were computed."""
    specs = [group[0].a.spec for group in groups]
    return " and ".join(
        dict.fromkeys(f"profile {spec.profile}, mode {spec.mode_in_words}" for spec in specs)
    )


def _differ_in_seed_alone(a: Repeat, b: Repeat) -> bool:
    alike = Sample(a).facts_without("seed") == Sample(b).facts_without("seed")
    return alike and a.spec.seed != b.spec.seed


def _with_enough_seeds(groups: Sequence[list[Pair]]) -> list[list[Pair]]:
    return [group for group in groups if len(units_of(group)) >= FEWEST_SEEDS]


def _places(pairs: Sequence[Pair]) -> set[str]:
    return {place_of(repeat) for pair in pairs for repeat in (pair.a, pair.b)}


def _objection(decision: Decision) -> tuple[bool, bool, bool, float]:
    """How much a decision speaks against within-spread; a ratio says more than no answer."""
    largest = max(decision.changed_ratio, decision.ppm_ratio)
    known = not math.isnan(largest)
    size = largest if known else decision.changed[0]
    size = 0.0 if math.isnan(size) else size
    return (not decision.within, known, decision.exceeds_seeds, size)


def _contrast(pair: Pair, contrasts: Sequence[Sequence[Pair]]) -> str:
    """Tell a pair's contrast from the others, as in "between cpu and cuda, for strict"."""
    if len(contrasts) == 1:
        return ""
    values = {group[0].contrast[1] for group in contrasts}
    words = []
    if len(values) > 1:
        words.append(f"between {pair.name_a} and {pair.name_b}")
    if pair.setting:
        words.append(f"for {pair.setting}")
    return ", ".join(words)


def _are_segmented(specs: Sequence[Spec]) -> bool:
    """Whether there are specs, of segmentations alone, which no seed changes."""
    return bool(specs) and all(spec.task == "segment" for spec in specs)


def _clause(axis: Axis, decision: Decision) -> str:
    if not axis.evidence:
        return f"{axis.doing} cannot be judged, as nothing was trained or no cells were found"
    over = f"{amount(len(axis.evidence), 'pair')}, {amount(axis.n_images, 'image')}"
    mean = share_text(axis.distribution().mean)
    if decision.contrast and not math.isnan(decision.changed[0]) and axis.differing:
        of_contrast = share_text(decision.changed[0])
        over += f"; {of_contrast} {decision.contrast}" if of_contrast != mean else ""
    less = ", less than seeds do" if decision.within else ""
    return f"{axis.doing} left {mean} of the cells without a match ({over}){less}"


def decide_between(
    a: Repeat,
    b: Repeat,
    runs: Iterable[Run],
    *,
    results: Mapping[str, MaskComparison] | None = None,
) -> Decision:
    """Decide whether two stored repeats differ by less than seeds do.

    Never within, if a and b differ in the seed.
    """
    masks = MaskPairs()
    pair = Pair(
        axis="",
        context="",
        name_a="a",
        name_b="b",
        a=a,
        b=b,
        units=("", ""),
        images=masks.differences(a, b, results),
    )
    runs = list(runs)
    seeds = _seeds_beside(a, b, runs, masks)
    if a.spec.seed == b.spec.seed:
        if Spread([seeds]).n_seeds < FEWEST_SEEDS:
            seeds = _seeds_beside(a, b, runs, masks, besides=HOW_COMPUTED)
        return Spread([seeds]).beside_seeds([pair], [pair])
    decision = decide([pair], seeds.evidence)
    if not seeds.evidence or pair.vacuous:
        return replace(decision, within=False)
    shares = [of_seeds.changed for of_seeds in seeds.evidence]
    text = (
        f"{share_text(pair.changed)} of the cells have no match between these two seeds, and "
        f"{share_span(min(shares), max(shares))} in the "
        f"{amount(len(shares), 'pair')} of all {seeds.n_values} seeds of the store"
    )
    return Decision(False, text, changed=decision.changed)


def _seeds_beside(
    a: Repeat, b: Repeat, runs: Sequence[Run], masks: MaskPairs, *, besides: Sequence[str] = ()
) -> Axis:
    """The pairs of seeds among runs that are like a or b but for the seed and some other facts."""
    may_differ = ("seed", *besides)
    fields = {*may_differ, "profile_settings"} if besides else {"seed"}
    nothing = dict.fromkeys(fields & Spec.model_fields.keys())
    specs = [side.spec.model_copy(update=nothing) for side in (a, b)]
    alike = {Sample(side).facts_without(*may_differ) for side in (a, b)}
    repeats = (
        repeat
        for run in runs
        if run.spec.model_copy(update=nothing) in specs  # before any manifest is read
        for repeat in run.repeats
        if Sample(repeat).facts_without(*may_differ) in alike
    )
    family = [*map(Sample, undamaged(repeats))]
    chosen, _ = choose(family, "seed", MOST_PAIRS, Names(sample.repeat for sample in family))
    return Axis("seed", compared(masks, chosen))
