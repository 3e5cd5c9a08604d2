"""Two label images read as they are compared: which pixels of each are one object.

One number is one object, with two exceptions that the numbers themselves show: where they begin
anew in each plane, every plane counts by itself; and where one number names several objects that do
not touch, since it was cut to 8 bits, say, each of these counts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cellrepro.comparison.object_matching import Integers, Overlap, overlap
from cellrepro.comparison.planes import Numbering, numbered_by_plane, numbering
from cellrepro.images.label_image import pieces_that_touch

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAST_IOU = 0.5  # of a piece and the object of the other side whose outline it is
_LEAST_INSIDE = 0.5  # of an object in the number of the other side that may name it and others
_LEAST_OF_LARGEST = 0.25  # of a piece that is no fragment, of the largest with its number


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
        """The numbers that some objects have in the file."""
        return numbers if self.given is None else self.given[numbers]

    def by_plane(self) -> ReadSide:
        """With a number for each object of each plane."""
        numbered = numbered_by_plane(self.image)
        return replace(self, image=numbered.image, given=numbered.given)


@dataclass(frozen=True, eq=False)
class ReadPair:
    """Two label images read alike, and which of their objects overlap."""

    a: ReadSide
    b: ReadSide
    table: Overlap
    """With the labels of the files."""

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
    apart_a = _told_apart(side_a, side_b, table.labels_a[_repeated(table.rows[inside_a])])
    apart_b = _told_apart(side_b, side_a, table.labels_b[_repeated(table.columns[inside_b])])
    if apart_a.n_shared or apart_b.n_shared:
        table = overlap(apart_a.image, apart_b.image)
    table = replace(
        table,
        labels_a=apart_a.labels(table.labels_a),
        labels_b=apart_b.labels(table.labels_b),
        equal_labels=bool(np.array_equal(a, b)),
    )
    return ReadPair(apart_a, apart_b, table)


# -- numbers that name several objects ---------------------------------------------------------


def _repeated(objects: Integers) -> Integers:
    distinct, n = np.unique(objects, return_counts=True)
    return distinct[n > 1]


def _told_apart(side: ReadSide, other: ReadSide, suspects: Integers) -> ReadSide:
    """The side with a number for each object, where numbers name several that do not touch.

    A number does so if several of its pieces, each by itself, are objects of the other side.
    """
    if not len(suspects):
        return side
    pieces = pieces_that_touch(np.where(np.isin(side.image, suspects), side.image, 0))
    n_pieces_of_suspects = int(pieces.max(initial=0))
    if n_pieces_of_suspects == len(suspects):
        return side
    return _with_pieces_as_objects(side, other)


class _Outline(NamedTuple):
    """Pieces of one number that lie in one object of the other side, or one piece that does not."""

    label: int
    """Their number."""
    inside: int
    """The object that they lie in; -1 - piece for a piece that lies in none."""


def _with_pieces_as_objects(side: ReadSide, other: ReadSide) -> ReadSide:
    pieces = pieces_that_touch(side.image)
    table = overlap(pieces, other.image)
    labels = side.image.ravel()[table.first_a]
    outlines = _outlines(table, labels)
    areas: Counter[_Outline] = Counter()
    shared_pixels: Counter[_Outline] = Counter()
    for outline, area in zip(outlines, table.areas_a.tolist(), strict=True):
        areas[outline] += area
    for piece, column, n in zip(
        table.rows.tolist(), table.columns.tolist(), table.pixels.tolist(), strict=True
    ):
        if outlines[piece].inside == column:
            shared_pixels[outlines[piece]] += n
    n_known: Counter[int] = Counter()
    for outline, n in shared_pixels.items():
        union = areas[outline] + int(table.areas_b[outline.inside]) - n
        n_known[outline.label] += n >= _LEAST_IOU * union
    shared = {label for label, n in n_known.items() if n > 1}
    if not shared:
        return side
    # Where several numbers are shared, what else has the number of an object is none of its parts.
    divides_all = len(shared) > 1
    numbers: dict[_Outline, int] = {}
    number_of_piece = np.zeros(len(outlines) + 1, np.int64)
    for piece, outline in enumerate(outlines):
        is_divided = divides_all or outline.label in shared
        key = outline if is_divided else _Outline(outline.label, 0)
        number_of_piece[table.labels_a[piece]] = numbers.setdefault(key, 1 + len(numbers))
    image = number_of_piece[pieces]
    filled = _filled_pieces(table)
    if len(np.unique(table.rows[filled])) <= sum(n_known[label] for label in shared):
        number_of_object = np.zeros(table.n_b, np.int64)
        for pair in np.flatnonzero(filled):
            label = int(labels[table.rows[pair]])
            column = int(table.columns[pair])
            shared.add(label)
            outline = _Outline(label, column)
            number_of_object[column] = numbers.setdefault(outline, 1 + len(numbers))
        is_filled = np.isin(pieces, table.labels_a[table.rows[filled]])
        by_label = np.argsort(table.labels_b)
        order = np.searchsorted(table.labels_b[by_label], other.image[is_filled])
        image[is_filled] = number_of_object[by_label[order]]
    by_number = np.array([0, *(outline.label for outline in numbers)], np.int64)
    return replace(side, image=image, given=side.labels(by_number), n_shared=len(shared))


def _filled_pieces(table: Overlap) -> NDArray[np.bool_]:
    """Which pairs are of a piece that several objects of the other side fill, all wholly inside.

    Among other numbers that are shared these are shared, too, by objects that happen to touch.
    """
    is_inside = table.pixels == table.areas_b[table.columns]
    n_inside = np.bincount(table.rows[is_inside], minlength=table.n_a)
    n_filled = np.bincount(table.rows[is_inside], table.pixels[is_inside], table.n_a)
    return is_inside & ((n_inside > 1) & (n_filled == table.areas_a))[table.rows]


def _outlines(table: Overlap, labels: NDArray[np.integer]) -> list[_Outline]:
    """For each piece of a side the outline that it belongs to."""
    inside = np.full(table.n_a, -1)
    mostly = 2 * table.pixels >= table.areas_a[table.rows]
    inside[table.rows[mostly]] = table.columns[mostly]
    largest: dict[int, int] = {}
    for piece in np.argsort(-table.areas_a, kind="stable").tolist():
        largest.setdefault(int(labels[piece]), piece)
    outlines = []
    for piece, label in enumerate(labels.tolist()):
        main = largest[label]
        is_fragment = table.areas_a[piece] < _LEAST_OF_LARGEST * table.areas_a[main]
        known = piece if inside[piece] >= 0 or not is_fragment else main
        outlines.append(_Outline(label, int(inside[known]) if inside[known] >= 0 else -1 - known))
    return outlines
