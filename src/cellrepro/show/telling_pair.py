"""The two stored runs that tell most when they are compared, for a reader who names none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.comparison.run_names import Names, place_of
from cellrepro.errors import BadInput
from cellrepro.images.folder import folder_digest
from cellrepro.show.pair_search import (
    Candidate,
    Differs,
    differ_in_this_alone,
    differences_of,
    most_telling,
)
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
