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
from cellrepro.show.repeats_apart import repeats_with_other_cells
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

    Repeats of one spec that found other cells come first, then pairs whose numbers of cells
    differ, then those whose masks do; then by the kind of difference, in the order of `Differs`.
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
    apart = repeats_with_other_cells(candidates)
    if apart is not None:
        return TellingPair(apart.a, apart.b, "two repeats of one spec that found other cells")
    described = [_Candidate.of(names, repeat) for repeat in candidates]
    pairs = [_Pair.of(a, b) for a, b in combinations(described, 2)]
    best = min(pairs, key=_rank)
    alone = {pair.kinds[0] for pair in pairs if len(pair.kinds) == 1}
    return TellingPair(best.a, best.b, _reason(best, alone))


_MOST_CANDIDATES = 400
"""Each is paired with each, which takes a second; whoever has more can name two."""


def _reason(best: _Pair, alone: Collection[Differs]) -> str:
    """Say how two differ, whether their cells do, and which differences change less."""
    reason = joined([kind.words for kind in best.kinds])
    less = joined([kind.words for kind in Differs if kind < best.kinds[-1] and kind in alone])
    if best.sameness is Sameness.MASKS:
        reason += " whose masks are equal, as all are"
    elif best.sameness is Sameness.COUNTS:
        reason += " whose masks differ"
        reason += f"; the masks of {less} agree" if less else ""
    else:
        reason += " whose numbers of cells differ"
        reason += f"; {less} have as many cells as each other" if less else ""
    return reason


class Sameness(IntEnum):
    """In what two results are the same; the smaller, the more telling."""

    NOTHING = 0
    COUNTS = 1
    MASKS = 2


class Differs(IntEnum):
    """A kind of difference; the smaller, the more telling."""

    REPEAT = 0
    MACHINE = 1
    PROFILE = 2
    MODE = 3
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
    counts: Sequence[int]
    """Objects in each image."""

    @classmethod
    def of(cls, names: Names, repeat: Repeat) -> _Candidate:
        records = repeat.manifest.masks.values()
        return cls(
            repeat,
            names.values[place_of(repeat)],
            masks=[record.canonical_digest for record in records],
            counts=[record.n_objects for record in records],
        )

    def sameness(self, other: _Candidate) -> Sameness:
        if self.masks == other.masks:
            return Sameness.MASKS
        return Sameness.COUNTS if self.counts == other.counts else Sameness.NOTHING


class _Pair(NamedTuple):
    """Two repeats, and how they differ."""

    a: Repeat
    b: Repeat
    n_fields: int
    """How many facts in their names differ."""
    kinds: Sequence[Differs]
    """The kinds of these, the most telling first."""
    sameness: Sameness

    @classmethod
    def of(cls, a: _Candidate, b: _Candidate) -> _Pair:
        fields = [field for field in a.facts if a.facts[field] != b.facts[field]]
        kinds = sorted({_KIND_OF_FIELD.get(field, Differs.OTHER) for field in fields})
        return cls(a.repeat, b.repeat, len(fields), kinds or [Differs.REPEAT], a.sameness(b))


def _rank(pair: _Pair) -> tuple[Sameness, Differs, int, Sequence[Differs]]:
    """First what came of it, then the least telling difference, then how many there are."""
    return pair.sameness, pair.kinds[-1], pair.n_fields, pair.kinds
