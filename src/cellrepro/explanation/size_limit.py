"""Cells that one side lacks because of their size, as where small ones are removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cellrepro.comparison.object_changes import ObjectKind
from samebits.words import grouped

if TYPE_CHECKING:
    from cellrepro.comparison.mask_comparison import MaskComparison

_FEWEST_MISSING = 3  # cells; fewer can be the smallest by chance

SideName = Literal["A", "B"]


@dataclass(frozen=True)
class SizeLimit:
    """One side lacks the smallest cells of the other, and no other cell."""

    side: SideName
    """The side that lacks them."""
    n_missing: int
    """Cells that it lacks."""
    largest: int
    """Pixels of the largest of these."""
    smallest: int
    """Pixels of the smallest cell that it has."""

    @property
    def is_telling(self) -> bool:
        """Whether they are too many to be the smallest by chance."""
        return self.n_missing >= _FEWEST_MISSING

    @property
    def text(self) -> str:
        """Say which cells are missing, and which are not."""
        other = "A" if self.side == "B" else "B"
        return (
            f"{self.side} lacks the {grouped(self.n_missing)} smallest cells of {other}, up to "
            f"{self.largest} pixels, and no other; the smallest cell of {self.side} has "
            f"{self.smallest} pixels"
        )


def size_limit(result: MaskComparison) -> SizeLimit | None:
    """Find the size up to which one side lacks the cells of the other; None where there is none."""
    missing = [change for change in result.objects if change.kind != ObjectKind.KEPT]
    kinds = {change.kind for change in missing}
    if kinds not in ({ObjectKind.LOST}, {ObjectKind.GAINED}):
        return None
    largest = max(change.area_a + change.area_b for change in missing)
    smallest = smallest_cells(result)
    # A kept cell below that size on either side was not removed for its size.
    of_kept = [
        min(change.area_a, change.area_b)
        for change in result.objects
        if change.kind == ObjectKind.KEPT
    ]
    if largest >= min(of_kept, default=0):
        return None
    side: SideName = "B" if kinds == {ObjectKind.LOST} else "A"
    return SizeLimit(side, len(missing), largest, smallest[side])


def over_images(
    limits: Sequence[SizeLimit], smallest: Iterable[Mapping[SideName, int]]
) -> SizeLimit | None:
    """Give the one limit of several images, all of one side; None where an image contradicts it.

    ``smallest`` is of every image: the side that lacks cells here keeps none as small elsewhere.
    """
    side = limits[0].side
    limit = SizeLimit(
        side,
        n_missing=sum(each.n_missing for each in limits),
        largest=max(each.largest for each in limits),
        smallest=min(cells[side] for cells in smallest if side in cells),
    )
    return limit if limit.is_telling and limit.largest < limit.smallest else None


def smallest_cells(result: MaskComparison) -> dict[SideName, int]:
    """Give the pixels of the smallest cell of each side; a side without a cell is left out."""
    areas: dict[SideName, list[int]] = {
        "A": [change.area_a for change in result.objects if change.labels_a],
        "B": [change.area_b for change in result.objects if change.labels_b],
    }
    return {side: min(each) for side, each in areas.items() if each}
