"""Two repeats of one spec that found other cells, of which a reader hears first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from itertools import combinations, islice
from typing import NamedTuple

from cellrepro.comparison.image_differences import MaskPairs
from cellrepro.comparison.mask_totals import image_weight
from cellrepro.comparison.place_fields import place_of
from cellrepro.store.stored_run import Repeat
from samebits.errors import BadInput

_MOST_COMPARED = 4
"""Pairs whose masks are read."""


class PairOnImage(NamedTuple):
    """Two repeats, and the image on which to look at them first."""

    a: Repeat
    b: Repeat
    image: str


def repeats_with_other_cells(repeats: Sequence[Repeat]) -> PairOnImage | None:
    """The first two of one spec and machine of which one has a cell without a match in the other.

    Numbers of cells may be equal where cells are not, so the masks themselves are compared.
    """
    by_place: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in repeats:
        by_place[place_of(repeat)].append(repeat)
    of_one_place = (pair for alike in by_place.values() for pair in combinations(alike, 2))
    with_other_masks = ((a, b) for a, b in of_one_place if _outlines(a) != _outlines(b))
    masks = MaskPairs()
    for a, b in islice(with_other_masks, _MOST_COMPARED):
        with suppress(BadInput):  # damaged masks tell nothing
            differences = masks.differences(a, b)
            if any(image.n_unmatched for image in differences.values()):
                most = max(differences, key=lambda name: image_weight(differences[name]))
                return PairOnImage(a, b, most)
    return None


def _outlines(repeat: Repeat) -> list[str]:
    return [record.canonical_digest for record in repeat.manifest.masks.values()]
