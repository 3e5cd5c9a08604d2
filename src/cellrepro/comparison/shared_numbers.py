"""Numbers of a label image that name several objects, and these objects apart.

A number that was cut to 8 bits, say, names several objects that do not touch. It does so if several
of its pieces, each by itself, are objects of another image of the same cells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.object_matching import Integers, Overlap, overlap
from cellrepro.images.label_pieces import LEAST_OF_LARGEST, pieces_that_touch, touching_pieces

_Labels = NDArray[np.integer]

_LEAST_IOU = 0.5  # of a piece and the object of the other image whose outline it is


@dataclass(frozen=True, eq=False)
class ObjectsApart:
    """A label image in which objects that shared a number have numbers of their own."""

    image: _Labels
    given: Integers
    """The number that each object had, by its new one; element 0, of the background, is 0."""
    n_shared: int
    """How many numbers named several objects."""


class _Outline(NamedTuple):
    """Pieces of one number that lie in one object of the other image; or one that lies in none."""

    label: int
    inside: int | None
    """The object of the other image that they lie in."""
    piece: int | None = None
    """The piece, where it lies in none."""


class _Undivided(NamedTuple):
    """All pieces of a number that names one object."""

    label: int


def told_apart(image: _Labels, other: _Labels, suspects: Integers) -> ObjectsApart | None:
    """Tell objects apart that share one of the suspected numbers; None where none do."""
    if not len(suspects):
        return None
    if len(touching_pieces(image, suspects).values) == len(suspects):
        return None
    pieces = _pieces_in(image, other)
    n_known = _n_known_objects(pieces)
    shared = {label for label, n in n_known.items() if n > 1}
    if not shared:
        return None
    numbering = _Numbering()
    result = _numbered_pieces(pieces, shared, numbering)
    n_objects = sum(n_known[label] for label in shared)
    filled = _filled_pieces(pieces.table)
    if len(np.unique(pieces.table.rows[filled])) <= n_objects:
        shared |= _divide_filled(result, pieces, other, filled, numbering)
    return ObjectsApart(result, numbering.given(), len(shared))


@dataclass(frozen=True, eq=False)
class _Pieces:
    """The pieces of a label image, and what they overlap in the other one."""

    image: _Labels
    """A number for each piece."""
    table: Overlap
    """Pieces as rows, objects of the other image as columns."""
    labels: _Labels
    """The number of each piece in the label image."""
    outlines: Sequence[_Outline]
    """The outline that each piece belongs to."""


class _Numbering:
    """New numbers of objects, counted from 1 as they come."""

    def __init__(self) -> None:
        self._numbers: dict[_Outline | _Undivided, int] = {}

    def number_of(self, pieces: _Outline | _Undivided) -> int:
        return self._numbers.setdefault(pieces, 1 + len(self._numbers))

    def given(self) -> Integers:
        """The former number of each object, by its new one."""
        return np.array([0, *(pieces.label for pieces in self._numbers)], np.int64)


def _pieces_in(image: _Labels, other: _Labels) -> _Pieces:
    pieces = pieces_that_touch(image)
    table = overlap(pieces, other)
    labels = image.ravel()[table.first_a]
    return _Pieces(pieces, table, labels, _outlines(table, labels))


def _outlines(table: Overlap, labels: _Labels) -> list[_Outline]:
    """Fragments belong to the outline of the largest piece with their number."""
    inside = np.full(table.n_a, -1)
    mostly = 2 * table.pixels >= table.areas_a[table.rows]
    inside[table.rows[mostly]] = table.columns[mostly]
    largest: dict[int, int] = {}
    for piece in np.argsort(-table.areas_a, kind="stable").tolist():
        largest.setdefault(int(labels[piece]), piece)
    outlines = []
    for piece, label in enumerate(labels.tolist()):
        main = largest[label]
        is_fragment = table.areas_a[piece] < LEAST_OF_LARGEST * table.areas_a[main]
        known = piece if inside[piece] >= 0 or not is_fragment else main
        if inside[known] >= 0:
            outlines.append(_Outline(label, int(inside[known])))
        else:
            outlines.append(_Outline(label, None, piece=known))
    return outlines


def _n_known_objects(pieces: _Pieces) -> Counter[int]:
    """Count for each number the outlines that are outlines of objects of the other image."""
    table = pieces.table
    areas: Counter[_Outline] = Counter()
    for outline, area in zip(pieces.outlines, table.areas_a.tolist(), strict=True):
        areas[outline] += area
    shared_pixels: Counter[_Outline] = Counter()
    for piece, column, n in zip(
        table.rows.tolist(), table.columns.tolist(), table.pixels.tolist(), strict=True
    ):
        if pieces.outlines[piece].inside == column:
            shared_pixels[pieces.outlines[piece]] += n
    n_known: Counter[int] = Counter()
    for outline, n in shared_pixels.items():
        assert outline.inside is not None  # it shares pixels with that object
        union = areas[outline] + int(table.areas_b[outline.inside]) - n
        n_known[outline.label] += n >= _LEAST_IOU * union
    return n_known


def _numbered_pieces(pieces: _Pieces, shared: set[int], numbering: _Numbering) -> _Labels:
    """Give every outline of a shared number a number of its own."""
    # Where several numbers are shared, what else has the number of an object is none of its parts.
    divides_all = len(shared) > 1
    number_of_piece = np.zeros(len(pieces.outlines) + 1, np.int64)
    for piece, outline in enumerate(pieces.outlines):
        is_divided = divides_all or outline.label in shared
        named = outline if is_divided else _Undivided(outline.label)
        number_of_piece[pieces.table.labels_a[piece]] = numbering.number_of(named)
    return number_of_piece[pieces.image]


def _filled_pieces(table: Overlap) -> NDArray[np.bool_]:
    """Which pairs are of a piece that several objects of the other image fill, all wholly inside.

    Among other numbers that are shared these are shared, too, by objects that happen to touch.
    """
    is_inside = table.pixels == table.areas_b[table.columns]
    n_inside = np.bincount(table.rows[is_inside], minlength=table.n_a)
    n_filled = np.bincount(table.rows[is_inside], table.pixels[is_inside], table.n_a)
    return is_inside & ((n_inside > 1) & (n_filled == table.areas_a))[table.rows]


def _divide_filled(
    image: _Labels,
    pieces: _Pieces,
    other: _Labels,
    filled: NDArray[np.bool_],
    numbering: _Numbering,
) -> set[int]:
    """Divide, in place, every filled piece as the other image does; get the numbers of these."""
    table = pieces.table
    divided: set[int] = set()
    number_of_object = np.zeros(table.n_b, np.int64)
    for pair in np.flatnonzero(filled):
        label = int(pieces.labels[table.rows[pair]])
        column = int(table.columns[pair])
        divided.add(label)
        number_of_object[column] = numbering.number_of(_Outline(label, column))
    is_filled = np.isin(pieces.image, table.labels_a[table.rows[filled]])
    by_label = np.argsort(table.labels_b)
    order = np.searchsorted(table.labels_b[by_label], other[is_filled])
    image[is_filled] = number_of_object[by_label[order]]
    return divided
