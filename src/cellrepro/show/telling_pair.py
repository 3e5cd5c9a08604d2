"""The two stored runs that tell most when they are compared, for a reader who names none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from cellrepro.comparison.place_fields import place_of
from cellrepro.comparison.run_names import Names
from cellrepro.images.folder import folder_digest
from cellrepro.show.which_runs import with_objects
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from samebits.errors import BadInput
from samebits.words import joined


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
    runs = store.readable_runs(data_digest=digest)
    repeats = with_objects(run for run in runs if run.spec.loose is None)
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
    candidates = (results if len(results) > 1 else list(repeats))[:_MOST_CANDIDATES]
    described = [_Candidate.of(names, repeat) for repeat in candidates]
    pairs = [_Pair.of(a, b) for a, b in combinations(described, 2)]
    all_equal = all(pair.masks_are_equal for pair in pairs)
    best = min((pair for pair in pairs if all_equal or not pair.masks_are_equal), key=_rank)
    alone = {pair.kinds[0] for pair in pairs if len(pair.kinds) == 1}
    return TellingPair(best.a, best.b, _reason(best, alone, all_equal=all_equal))


_MOST_CANDIDATES = 400
"""Each is paired with each, which takes a second; whoever has more can name two."""


def _reason(best: _Pair, alone: Collection[Differs], *, all_equal: bool) -> str:
    """Say how two differ, whether their masks do, and which differences change no mask."""
    reason = joined([kind.words for kind in best.kinds])
    if all_equal:
        reason += " whose masks are equal, as all are"
    else:
        reason += " whose masks differ"
        agreeing = [kind.words for kind in Differs if kind < best.kinds[-1] and kind in alone]
        if agreeing:
            reason += f"; the masks of {joined(agreeing)} agree"
    order = ", ".join(kind.words for kind in Differs)
    return f"{reason}. Looked for in this order: {order}"


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

_KIND_OF_FIELD = {
    "machine": Differs.MACHINE,
    "version": Differs.MACHINE,
    "place": Differs.MACHINE,
    "profile": Differs.PROFILE,
    "mode": Differs.MODE,
    "seed": Differs.SEED,
    "data_seed": Differs.SEED,
}
"""The kind of each fact in a repeat's name; every other fact is a setting."""


class _Candidate(NamedTuple):
    """A repeat that may be chosen."""

    repeat: Repeat
    facts: Mapping[str, object]
    """What its name can say: spec and machine, field by field."""
    masks: Sequence[str]
    """Canonical digests, which do not depend on the numbers of objects."""

    @classmethod
    def of(cls, names: Names, repeat: Repeat) -> _Candidate:
        masks = [record.canonical_digest for record in repeat.manifest.masks.values()]
        return cls(repeat, names.values[place_of(repeat)], masks)


class _Pair(NamedTuple):
    """Two repeats, and how they differ."""

    a: Repeat
    b: Repeat
    n_fields: int
    """How many facts in their names differ."""
    kinds: Sequence[Differs]
    """The kinds of these, the most telling first."""
    masks_are_equal: bool

    @classmethod
    def of(cls, a: _Candidate, b: _Candidate) -> _Pair:
        fields = [field for field in a.facts if a.facts[field] != b.facts[field]]
        kinds = sorted({_KIND_OF_FIELD.get(field, Differs.OTHER) for field in fields})
        return cls(a.repeat, b.repeat, len(fields), kinds or [Differs.REPEAT], a.masks == b.masks)


def _rank(pair: _Pair) -> tuple[Differs, int, Sequence[Differs]]:
    """The least telling difference of a pair decides, then how many there are."""
    return pair.kinds[-1], pair.n_fields, pair.kinds
