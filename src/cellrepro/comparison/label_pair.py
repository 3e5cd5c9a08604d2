"""Two label images read as they are compared: which pixels of each are one object.

One number is one object, with two exceptions that the numbers themselves show: where they begin
anew in each plane, every plane counts by itself; and where one number names several objects that do
not touch, since it was cut to 8 bits, say, each of these counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.comparison.label_numbers import Numbering, numbered_by_plane, numbering
from cellrepro.comparison.object_matching import Integers, Overlap, equal_images, overlap
from cellrepro.comparison.shared_numbers import told_apart

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAST_INSIDE = 0.5  # of an object in the number of the other side that may name it and others


@dataclass(frozen=True, eq=False)
class ReadSide:
    """One of two label images, as it is compared."""

    image: NDArray[np.integer]
    """A number for each object; 0 is background."""
    given: Integers | None
    """The number that each object has in the file, by its number here; None where it is the
    same."""
    numbering: Numbering
    """How numbers run through planes, in the file."""
    n_shared: int = 0
    """Numbers of the file that name several objects which do not touch."""

    def labels(self, numbers: Integers) -> Integers:
        """Give the numbers that some objects have in the file."""
        return numbers if self.given is None else self.given[numbers]

    def by_plane(self) -> ReadSide:
        """Number each object of each plane by itself."""
        numbered = numbered_by_plane(self.image)
        return replace(self, image=numbered.image, given=numbered.given)


@dataclass(frozen=True, eq=False)
class ReadPair:
    """Two label images read alike, and which of their objects overlap."""

    a: ReadSide
    b: ReadSide
    table: Overlap
    """Its labels are those of the files."""

    @property
    def by_plane(self) -> bool:
        """Whether every plane counts by itself, since numbers of a side begin anew in each."""
        return "anew" in (self.a.numbering, self.b.numbering)

    @property
    def numbers_mean_the_same(self) -> bool:
        """Whether an object of one side that is a number of its own is that on the other, too."""
        if self.table.equal_labels:
            return True
        one_joins_planes = self.by_plane and "through" in (self.a.numbering, self.b.numbering)
        return not (one_joins_planes or self.a.n_shared or self.b.n_shared)


def read_pair(a: NDArray[np.integer], b: NDArray[np.integer]) -> ReadPair:
    """Read two label images in one way.

    Both plane by plane where the numbers of one begin anew in each plane, since there is nothing
    else in which they could be equal.
    """
    side_a = ReadSide(a, None, numbering(a))
    side_b = ReadSide(b, None, numbering(b))
    if "anew" in (side_a.numbering, side_b.numbering):
        side_a = side_a.by_plane()
        side_b = side_b.by_plane()
    table = overlap(side_a.image, side_b.image)
    inside_a = table.pixels >= _LEAST_INSIDE * table.areas_b[table.columns]
    inside_b = table.pixels >= _LEAST_INSIDE * table.areas_a[table.rows]
    apart_a = _with_objects_apart(side_a, side_b, table.labels_a[_repeated(table.rows[inside_a])])
    apart_b = _with_objects_apart(
        side_b, side_a, table.labels_b[_repeated(table.columns[inside_b])]
    )
    if apart_a.n_shared or apart_b.n_shared:
        table = overlap(apart_a.image, apart_b.image)
    table = replace(
        table,
        labels_a=apart_a.labels(table.labels_a),
        labels_b=apart_b.labels(table.labels_b),
        equal_labels=equal_images(a, b),
    )
    return ReadPair(apart_a, apart_b, table)


def _repeated(objects: Integers) -> Integers:
    distinct, n = np.unique(objects, return_counts=True)
    return distinct[n > 1]


def _with_objects_apart(side: ReadSide, other: ReadSide, suspects: Integers) -> ReadSide:
    """The side with a number for each object, where numbers name several that do not touch."""
    apart = told_apart(side.image, other.image, suspects)
    if apart is None:
        return side
    return replace(side, image=apart.image, given=side.labels(apart.given), n_shared=apart.n_shared)
