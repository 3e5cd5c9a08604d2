"""Which stored repeats are a pair along an axis, and which pairs are compared where not all can be.

The axes are those of docs/spread.md. Two profiles that differ in several of device, threads and
precision are a pair along ``profile`` only, where no third profile lies between them.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cellrepro.comparison.place_fields import changed_versions, place_of, sort_key, value_in_words
from cellrepro.comparison.repeat_facts import Sample
from cellrepro.comparison.repeat_pairs import Pair
from cellrepro.comparison.run_names import Names
from cellrepro.comparison.spread_axes import (
    AXES,
    DRAWN,
    OF_PROFILE,
    rule_of,
)
from samebits.digests import value_digest

_DEPTH = 5
"""Pairs in one surrounding that show five values of an axis, each twice."""


# -- choosing pairs ----------------------------------------------------------------------------

_SamplePairs = list[tuple[Sample, Sample]]


@dataclass(frozen=True, eq=False)
class _Surrounding:
    """Repeats that are alike in all but what an axis may change, and their pairs along it."""

    members: list[Sample]
    pairs: _SamplePairs


class ChosenPairs(NamedTuple):
    """The pairs along an axis that are to be compared."""

    pairs: list[Pair]
    """The chosen pairs; none is compared yet."""
    n_pairs: int
    """How many there are along the axis."""


def choose(samples: Sequence[Sample], axis: str, most: int, names: Names) -> ChosenPairs:
    """Choose pairs along an axis, taking from all surroundings in turn; none is compared yet.

    Repeats of a network from which others were trained count only where no others were repeated.
    """
    if axis == "repeats":
        members = [each for each in samples if not names.is_start(place_of(each.repeat))]
        surroundings = _surroundings(members, axis, names)
        if not any(surrounding.pairs for surrounding in surroundings):
            surroundings = _surroundings(samples, axis, names)
    else:
        members = _first_of_equal(samples, axis)
        surroundings = _surroundings(members, axis, names)
    n_pairs = sum(len(surrounding.pairs) for surrounding in surroundings)
    afforded = _afforded(surroundings, axis, most)
    rounds = itertools.zip_longest(*(surrounding.pairs for surrounding in afforded))
    in_turn = [pair for one_of_each in rounds for pair in one_of_each if pair is not None]
    n_results = Counter(place_of(member.repeat) for member in members)
    return ChosenPairs([_pair(axis, names, n_results, a, b) for a, b in in_turn[:most]], n_pairs)


def _first_of_equal(samples: Sequence[Sample], axis: str) -> list[Sample]:
    """Take one of several that differ in nothing; more would count twice.

    Repeats that came out differently count each, or a mode would seem to change no pixel that
    one of them changes; but a value that is drawn has one result, its first.
    """
    different: dict[tuple, Sample] = {}
    for sample in reversed(samples):
        result = "" if axis in DRAWN else sample.repeat.manifest.masks_digest
        different[(*sample.facts_without(), result)] = sample
    return list(different.values())[::-1]


def _surroundings(samples: Sequence[Sample], axis: str, names: Names) -> list[_Surrounding]:
    groups: dict[tuple, list[Sample]] = defaultdict(list)
    for sample in samples:
        alike = sample.facts_without(axis, *rule_of(axis).may_differ)
        groups[(place_of(sample.repeat),) if axis == "repeats" else alike].append(sample)
    surroundings = []
    for group in groups.values():
        members = sorted(group, key=lambda sample: _order(axis, sample, names))
        surroundings.append(_Surrounding(members, _pairs_among(members, axis)))
    return surroundings


def _order(axis: str, sample: Sample, names: Names) -> tuple:
    if axis == "repeats":
        return (sample.repeat.index,)
    named_by = rule_of(axis).named_by
    value = names.values[place_of(sample.repeat)].get(named_by, "")
    return sort_key(named_by, value), str(sample.facts[axis]), sample.repeat.name


def _afforded(surroundings: Sequence[_Surrounding], axis: str, most: int) -> list[_Surrounding]:
    """All surroundings; or, where one pair of each were all there is time for, fewer of them, each
    with several values of the axis: three seeds of one setting say what two of many never do.

    They are drawn by a digest of their settings, so that other axes take the same settings.
    """
    with_pairs = [surrounding for surrounding in surroundings if surrounding.pairs]
    depths = (min(_DEPTH, len(each.members), len(each.pairs)) for each in with_pairs)
    deepest = max(depths, default=1)
    if len(with_pairs) * deepest <= most:
        return with_pairs
    may_differ = (axis, *rule_of(axis).may_differ)

    def drawn(surrounding: _Surrounding) -> tuple[str, str]:
        sample = surrounding.members[0]
        settings = sample.facts_without(*AXES, *may_differ, "class")
        all_else = sample.facts_without(*may_differ)
        return value_digest(str(settings)), value_digest(str(all_else))

    return sorted(with_pairs, key=drawn)[: max(1, most // deepest)]


# -- what is a pair ----------------------------------------------------------------------------


def _pairs_among(members: Sequence[Sample], axis: str) -> _SamplePairs:
    """The pairs in one surrounding, ordered so that any first part shows members equally often."""
    rule = rule_of(axis)
    pairs = _nearest_first(members)
    if rule.may_differ:
        pairs = [(a, b) for a, b in pairs if _is_pair(axis, a, b)]
    elif axis != "repeats":
        pairs = [(a, b) for a, b in pairs if a.facts[axis] != b.facts[axis]]
    if axis == "profile":
        pairs = [(a, b) for a, b in pairs if not any(_is_between(a, b, c) for c in members)]
    return _in_one_computer(pairs) if rule.prefers_one_computer else pairs


def _nearest_first(members: Sequence[Sample]) -> _SamplePairs:
    """All pairs on a circle: of direct neighbours first, then of every second member, and so on."""
    n = len(members)
    pairs = []
    for distance in range(1, n // 2 + 1):
        # Half-way around, every pair would come twice.
        n_starts = n // 2 if 2 * distance == n else n
        for start in range(n_starts):
            i, j = sorted([start, (start + distance) % n])
            pairs.append((members[i], members[j]))
    return pairs


def _is_pair(axis: str, a: Sample, b: Sample) -> bool:
    """Whether two that are alike in all but what an axis frees differ along it, and only there."""
    differing = a.differing_facts(b)
    set_by_profile = differing & {*OF_PROFILE}
    libraries_alike = a.repeat.manifest.machine.versions == b.repeat.manifest.machine.versions
    if axis == "machine":  # its driver and CUDA go with it, its libraries do not
        by_class = "class" in differing and "version" not in differing
        return libraries_alike and (axis in differing or by_class)
    if axis in ("version", "cellpose"):
        return axis in differing
    if "device" in differing:  # each device has a driver of its own, or none
        comparable = libraries_alike
    else:
        comparable = not differing & {"machine", "version"}
    if axis == "profile":
        return comparable and len(set_by_profile) > 1
    return comparable and set_by_profile == {axis}


def _is_between(a: Sample, b: Sample, third: Sample) -> bool:
    """Whether a third differs from each of two in one of what a profile sets."""
    return all(len(third.differing_facts(side) & {*OF_PROFILE}) == 1 for side in (a, b))


def _in_one_computer(pairs: _SamplePairs) -> _SamplePairs:
    """Keep the pairs inside one computer; those across two only where no computer has both."""
    by_profiles: dict[tuple, _SamplePairs] = defaultdict(list)
    for a, b in pairs:
        by_profiles[a.facts["profile"], b.facts["profile"]].append((a, b))
    chosen = []
    for of_profiles in by_profiles.values():
        inside = [(a, b) for a, b in of_profiles if a.in_one_computer(b)]
        chosen += inside or of_profiles
    return chosen


# -- what a pair is called ---------------------------------------------------------------------


def _pair(axis: str, names: Names, n_results: Mapping[str, int], a: Sample, b: Sample) -> Pair:
    """Pair two; ``n_results`` says how many results of each place are members."""
    differing = {axis, "class", *a.differing_facts(b)}
    if differing & {*OF_PROFILE, "profile"}:
        differing |= {*OF_PROFILE, "profile"}
    name_a, name_b = _sides(axis, a, b, names)
    place = place_of(a.repeat)
    if axis == "repeats":
        context = names.of_spec(place)
    else:
        which = [
            f"repeat {side.repeat.index} of {name}"
            for side, name in ((a, name_a), (b, name_b))
            if n_results[place_of(side.repeat)] > 1
        ]
        context = ", ".join(filter(None, [names.without(place, differing), *which]))
    return Pair(
        axis=axis,
        context=context,
        name_a=name_a,
        name_b=name_b,
        a=a.repeat,
        b=b.repeat,
        units=(_unit(axis, a), _unit(axis, b)),
        surroundings=str(a.facts_without(*differing)),
        settings=str(a.facts_without(*differing, *DRAWN)),
        setting=", ".join(names.parts(place, {*differing, *DRAWN})),
    )


def _unit(axis: str, sample: Sample) -> str:
    if axis == "repeats":
        return sample.repeat.name
    return str([sample.facts[name] for name in rule_of(axis).unit])


def _sides(axis: str, a: Sample, b: Sample, names: Names) -> list[str]:
    """The names of two sides, by the axis alone."""
    if axis == "repeats":
        return [f"repeat {side.repeat.index}" for side in (a, b)]
    if axis == "version":
        return changed_versions([side.repeat.manifest.machine for side in (a, b)])
    named_by = rule_of(axis).named_by
    shown = [names.values[place_of(side.repeat)] for side in (a, b)]
    sides = [value_in_words(named_by, facts[named_by]) for facts in shown]
    if named_by == "profile" and not a.in_one_computer(b):
        return [f"{name} on {facts['machine']}" for name, facts in zip(sides, shown, strict=True)]
    return sides
