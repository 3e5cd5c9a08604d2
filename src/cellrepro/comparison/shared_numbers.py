"""Numbers of a label image that name several objects, and these objects apart.

A number that was cut to 8 bits, say, or the only one of a foreground map, names several objects
that do not touch. It does so if several of its pieces, each by itself, are objects of another image
of the same cells: one of them, or several that touch and are one object here.
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

_LEAST_IOU = 0.5  # of a piece and the object, or touching objects, of which it is the outline


@dataclass(frozen=True, eq=False)
class ObjectsApart:
    """A label image in which objects that shared a number have numbers of their own."""

    image: _Labels
    given: Integers
    """The number that each object had, by its new one; element 0, of the background, is 0."""
    n_shared: int
    """How many numbers named several objects."""


class _Outline(NamedTuple):
    """Pieces of one number that lie in one object of the other image; or one that does not."""

    label: int
    inside: int | None
    """The object of the other image that they lie in."""
    piece: int | None = None
    """The piece, where it lies in none, or holds several."""


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
    return ObjectsApart(result, numbering.given(), len(shared))


@dataclass(frozen=True, eq=False)
class _Held:
    """What lies by half or more in each piece: objects of the other image."""

    n_objects: Integers
    areas: Integers
    """Pixels of these objects, also outside the piece."""
    pixels: Integers
    """Pixels of these objects in the piece."""

    @classmethod
    def in_rows(cls, table: Overlap) -> _Held:
        """Find those of the rows of an `Overlap`."""
        is_held = 2 * table.pixels >= table.areas_b[table.columns]
        rows = table.rows[is_held]
        areas = np.zeros(table.n_a, np.int64)
        pixels = np.zeros(table.n_a, np.int64)
        np.add.at(areas, rows, table.areas_b[table.columns[is_held]])
        np.add.at(pixels, rows, table.pixels[is_held])
        return cls(np.bincount(rows, minlength=table.n_a), areas, pixels)


@dataclass(frozen=True, eq=False)
class _Pieces:
    """The pieces of a label image, and what they overlap in the other one."""

    image: _Labels
    """A number for each piece."""
    table: Overlap
    """Pieces as rows, objects of the other image as columns."""
    labels: _Labels
    """The number of each piece in the label image."""
    held: _Held
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
    held = _Held.in_rows(table)
    return _Pieces(pieces, table, labels, held, _outlines(table, labels, held))


def _outlines(table: Overlap, labels: _Labels, held: _Held) -> list[_Outline]:
    """Fragments belong to the outline of the largest piece with their number."""
    inside = np.full(table.n_a, -1)
    mostly = 2 * table.pixels >= table.areas_a[table.rows]
    inside[table.rows[mostly]] = table.columns[mostly]
    inside[held.n_objects > 1] = -1  # objects that touch are none of them alone
    # The size of an object, where touching ones are one piece.
    sizes = table.areas_a / np.maximum(held.n_objects, 1)
    largest: dict[int, int] = {}
    for piece in np.argsort(-sizes, kind="stable").tolist():
        largest.setdefault(int(labels[piece]), piece)
    outlines = []
    for piece, label in enumerate(labels.tolist()):
        main = largest[label]
        is_fragment = table.areas_a[piece] < LEAST_OF_LARGEST * sizes[main]
        is_object = inside[piece] >= 0 or held.n_objects[piece]
        known = piece if is_object or not is_fragment else main
        if inside[known] >= 0:
            outlines.append(_Outline(label, int(inside[known])))
        else:
            outlines.append(_Outline(label, None, piece=known))
    return outlines


def _n_known_objects(pieces: _Pieces) -> Counter[int]:
    """Count for each number the outlines of an object of the other image, or of touching ones."""
    table = pieces.table
    held = pieces.held
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
    for outline, area in areas.items():
        if outline.inside is not None:
            n = shared_pixels[outline]
            union = area + int(table.areas_b[outline.inside]) - n
            n_known[outline.label] += n >= _LEAST_IOU * union
        elif outline.piece is not None:
            n = int(held.pixels[outline.piece])
            union = area + int(held.areas[outline.piece]) - n
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
