"""The two stored runs that tell most when they are compared, for a reader who names none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations
from pathlib import Path

from cellrepro.comparison.run_names import Names, place_of
from cellrepro.errors import BadInput
from cellrepro.images.folder import folder_digest
from cellrepro.show.which_runs import with_objects
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.words import joined


@dataclass(frozen=True)
class TellingPair:
    """Two repeats to compare, and why these were chosen."""

    a: Repeat
    b: Repeat
    reason: str


def telling_pair(store: Store, data: str | Path) -> TellingPair:
    """Choose two repeats over a folder to compare.

    Pairs whose masks differ come first; then by the kind of difference, in the order of `Differs`.
    """
    digest = folder_digest(data, to_train=False)
    repeats = with_objects(store.readable_runs(data_digest=digest))
    if len(repeats) < 2:
        raise BadInput(
            f"the store {store.root} holds fewer than two runs over {data} that found objects; "
            "run 01_seeded_training with two profiles or seeds, or `make demo`"
        )
    return telling_pair_of(repeats)


def telling_pair_of(repeats: Sequence[Repeat]) -> TellingPair:
    """Choose among two or more repeats with objects in the same images, as `telling_pair` does."""
    names = Names(repeats)
    results = [repeat for repeat in repeats if not names.is_start(place_of(repeat))]
    chosen_from = results if len(results) > 1 else repeats
    candidates = [Candidate.of(names, repeat) for repeat in chosen_from]
    all_equal = len({candidate.masks for candidate in candidates}) == 1
    a, b = most_telling(candidates, all_equal=all_equal)
    return TellingPair(a.repeat, b.repeat, _reason(a, b, candidates, all_equal=all_equal))


def _reason(a: Candidate, b: Candidate, candidates: Sequence[Candidate], *, all_equal: bool) -> str:
    """Say how two differ, whether their masks do, and which differences change no mask."""
    differences = differences_of(a, b)
    reason = joined([difference.words for difference in differences])
    if all_equal:
        reason += " whose masks are equal, as all are"
    else:
        reason += " whose masks differ"
        agreeing = [
            difference
            for difference in Differs
            if difference < differences[-1] and differ_in_this_alone(candidates, difference)
        ]
        if agreeing:
            reason += f"; the masks of {joined([each.words for each in agreeing])} agree"
    order = ", ".join(difference.words for difference in Differs)
    return f"{reason}. Looked for in this order: {order}"


# -- the search for it ----------------------------------------------------------------------


class Differs(IntEnum):
    """A kind of difference; the smaller, the more telling."""

    MACHINE = 0
    PROFILE = 1
    MODE = 2
    REPEAT = 3
    OTHER = 4
    SEED = 5

    @property
    def words(self) -> str:
        """What two runs that differ so are."""
        return _WORDS[self]


_WORDS = {
    Differs.MACHINE: "two machines",
    Differs.PROFILE: "two profiles",
    Differs.MODE: "two modes",
    Differs.REPEAT: "two repeats of one spec",
    Differs.OTHER: "different settings",
    Differs.SEED: "two seeds",
}

_DIFFERS_OF_FIELD = {
    "machine": Differs.MACHINE,
    "version": Differs.MACHINE,
    "place": Differs.MACHINE,
    "profile": Differs.PROFILE,
    "mode": Differs.MODE,
    "seed": Differs.SEED,
    "data_seed": Differs.SEED,
}
"""The kind of each fact in a repeat's name; every other fact is a setting."""


def difference_of(field: str) -> Differs:
    """Tell the kind of difference that a fact in a repeat's name makes."""
    return _DIFFERS_OF_FIELD.get(field, Differs.OTHER)


_MOST_FIELDS = 3
"""Up to how many differing fields fewer are preferred; more are not told apart."""
_Fields = tuple[str, ...]


@dataclass(frozen=True)
class Candidate:
    """A repeat that may be chosen."""

    repeat: Repeat
    facts: Mapping[str, object]
    """What its name can say: spec and machine, field by field."""
    masks: tuple[str, ...]
    """Canonical digests, which do not depend on the numbers of objects."""

    @classmethod
    def of(cls, names: Names, repeat: Repeat) -> Candidate:
        """Take a repeat with what its name can say among those of others."""
        records = repeat.manifest.masks.values()
        masks = tuple(record.canonical_digest for record in records)
        return cls(repeat, names.values[place_of(repeat)], masks)

    def values(self, fields: Iterable[str]) -> tuple[object, ...]:
        """Give its values of some fields."""
        return tuple(self.facts[field] for field in fields)


_Pair = tuple[Candidate, Candidate]


def differences_of(a: Candidate, b: Candidate) -> list[Differs]:
    """Get the kinds in which two differ, the most telling first."""
    differences = {difference_of(field) for field in a.facts if a.facts[field] != b.facts[field]}
    return sorted(differences) or [Differs.REPEAT]


def _varying(candidates: Sequence[Candidate]) -> list[str]:
    """Get the fields that are not equal in all candidates."""
    return [
        field
        for field in candidates[0].facts
        if len({candidate.facts[field] for candidate in candidates}) > 1
    ]


def most_telling(candidates: Sequence[Candidate], *, all_equal: bool) -> _Pair:
    """Choose two with different masks; where all masks are equal, any two.

    By the most telling kind of difference, then the fewest differing fields, then the earliest.
    The fields that may differ are chosen before the pair, and candidates that share all others
    form a group: pairing each with each would take an hour over ten thousand.
    """
    varying = _varying(candidates)
    positions = {id(candidate): position for position, candidate in enumerate(candidates)}

    def position(pair: _Pair) -> tuple[int, int]:
        a, b = pair
        return positions[id(a)], positions[id(b)]

    for equally_telling in _allowed_differences(varying):
        pairs = []
        for fields in equally_telling:
            shared = [field for field in varying if field not in fields]
            for group in _grouped(candidates, shared):
                pair = _first_apart(group, fields, all_equal=all_equal)
                if pair is not None:
                    pairs.append(pair)
        if pairs:
            return min(pairs, key=position)
    raise AssertionError("at last any two may differ in all fields")


def _allowed_differences(varying: Sequence[str]) -> Iterator[list[_Fields]]:
    """Yield the sets of fields in which two may differ, equally telling sets together.

    Kind by kind: all sets of up to `_MOST_FIELDS` fields, then all fields up to that kind.
    """
    for last in Differs:
        if last == Differs.REPEAT:
            yield [()]
        up_to = [field for field in varying if difference_of(field) <= last]
        for n_fields in range(1, min(len(up_to), _MOST_FIELDS) + 1):
            by_differences: dict[tuple[Differs, ...], list[_Fields]] = defaultdict(list)
            for fields in combinations(up_to, n_fields):
                differences = tuple(sorted({difference_of(field) for field in fields}))
                if differences[-1] == last:
                    by_differences[differences].append(fields)
            for differences in sorted(by_differences):
                yield by_differences[differences]
        if len(up_to) > _MOST_FIELDS:
            yield [tuple(up_to)]


def _grouped(candidates: Iterable[Candidate], fields: Sequence[str]) -> Collection[list[Candidate]]:
    """Group those that have the same values of some fields."""
    groups: dict[tuple[object, ...], list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        groups[candidate.values(fields)].append(candidate)
    return groups.values()


def _first_apart(
    group: Sequence[Candidate], fields: Sequence[str], *, all_equal: bool
) -> _Pair | None:
    """Find the first two of a group that differ in some of the fields and in their masks.

    Where the masks of all candidates are equal, the fields are enough.
    """

    def apart(a: Candidate, b: Candidate) -> bool:
        fields_differ = not fields or a.values(fields) != b.values(fields)
        return a is not b and fields_differ and (all_equal or a.masks != b.masks)

    first, *later = group
    for candidate in later:
        if apart(first, candidate):
            return first, candidate
    # Each later one shares either the fields' values or the masks with the first: one of either
    # sort is enough.
    values = first.values(fields)
    with_other_masks = [
        candidate
        for candidate in later
        if candidate.values(fields) == values and candidate.masks != first.masks
    ]
    with_other_values = [candidate for candidate in later if candidate.values(fields) != values]
    if not with_other_masks or not with_other_values:
        return None
    a, b = sorted((with_other_masks[0], with_other_values[0]), key=group.index)
    return (a, b) if apart(a, b) else None


def differ_in_this_alone(candidates: Sequence[Candidate], difference: Differs) -> bool:
    """Whether two candidates differ in this kind and in no other."""
    varying = _varying(candidates)
    fields = [field for field in varying if difference_of(field) == difference]
    shared = [field for field in varying if field not in fields]
    groups = _grouped(candidates, shared)
    if difference == Differs.REPEAT:
        return any(len(group) > 1 for group in groups)
    return any(len({candidate.values(fields) for candidate in group}) > 1 for group in groups)
