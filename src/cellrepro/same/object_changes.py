"""What became of every object between two label images: kept, moved, lost, gained, split, merged.

docs/comparison.md defines the words. Splits and merges that share an object are settled first, for
the one with more shared pixels; then counterparts are assigned, with the largest total overlap.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellrepro.same.matching import Overlap, partners

FAINTEST = 0.1  # IoU of an object and its counterpart: below, two that touch would have moved
KEPT_IOU = 0.5  # least IoU of an object that counts as kept
KEPT_WITHIN = 1.0  # pixels; an object whose centroid went farther counts as moved
_INSIDE = 0.5  # share of a piece that lies in the whole
_PIECE = 0.1  # share of the whole that a piece covers
_COVERED = 0.5  # share of the whole that the pieces cover together


class ObjectKind(StrEnum):
    """What became of an object; each member equals its word."""

    KEPT = "kept"
    MOVED = "moved"
    LOST = "lost"
    GAINED = "gained"
    SPLIT = "split"
    MERGED = "merged"


class ObjectChange(NamedTuple):
    """What became of one object, or of the objects that one split into or was merged from."""

    kind: ObjectKind
    labels_a: tuple[int, ...]  # several for the parts of a split or merge, none where missing
    labels_b: tuple[int, ...]
    iou: float  # of all parts together; 0 for lost and gained
    position: tuple[float, ...]  # centroid in a, in b for gained; pixels, (y, x) or (z, y, x)
    position_b: tuple[float, ...] | None  # in b
    area_a: int  # pixels, of all parts together
    area_b: int
    displacement: float  # pixels between the centroids; NaN for lost and gained
    # Of a split or merge in a stack: (z, z + 1) where one part ends and the next begins, as
    # where planes were stitched on one side only.
    cut_between: tuple[tuple[int, int], ...] = ()

    @property
    def renumbered(self) -> bool:
        """Whether one object has other numbers on the two sides."""
        return self.kind in (ObjectKind.KEPT, ObjectKind.MOVED) and self.labels_a != self.labels_b

    @property
    def cuts(self) -> str:
        """The planes between which it is cut, as text: "z 3 | 4"; empty if none."""
        return ", ".join(f"z {z} | {after}" for z, after in self.cut_between)


def object_changes(table: Overlap) -> tuple[ObjectChange, ...]:
    """What became of every object, in raster order of first appearance, in a if a has it."""
    events = _events(table)
    free_a, free_b = np.ones(table.n_a, bool), np.ones(table.n_b, bool)
    for event in events:
        free_a[event.of_a] = False
        free_b[event.of_b] = False
    open_pairs = free_a[table.rows] & free_b[table.columns] & (table.iou >= FAINTEST)
    pairs = partners(table, open_pairs)
    free_a[table.rows[pairs]] = False
    free_b[table.columns[pairs]] = False
    none = np.zeros(0, np.int64)
    events += [_Event(ObjectKind.LOST, i, none, 0) for i in np.argwhere(free_a)]
    events += [_Event(ObjectKind.GAINED, none, i, 0) for i in np.argwhere(free_b)]
    found = [(event.first(table), event.change(table)) for event in events]
    first = table.first_a[table.rows[pairs]].tolist()
    found += zip(first, _of_counterparts(table, pairs), strict=True)
    # Nothing but position settles the order. A gained object can begin at the pixel of another's
    # first one; then what a has comes first.
    found.sort(key=lambda each: (each[0], each[1].kind == ObjectKind.GAINED))
    return tuple(change for _, change in found)


@dataclass(frozen=True, eq=False)
class _Event:
    """One object without a counterpart, or one and the parts that it fell into or came of."""

    kind: ObjectKind
    of_a: NDArray[np.int64]
    of_b: NDArray[np.int64]
    pixels: int  # shared

    @property
    def weight(self) -> tuple[int, int]:
        return self.pixels, len(self.of_a) + len(self.of_b)

    @cached_property
    def objects(self) -> set[tuple[str, int]]:
        return {("a", i) for i in self.of_a.tolist()} | {("b", j) for j in self.of_b.tolist()}

    def first(self, table: Overlap) -> int:
        """Its first pixel."""
        of_a, of_b = table.first_a[self.of_a], table.first_b[self.of_b]
        return int(of_a.min() if len(of_a) else of_b.min())

    def change(self, table: Overlap) -> ObjectChange:
        areas_a, areas_b = table.areas_a[self.of_a], table.areas_b[self.of_b]
        area_a, area_b = int(areas_a.sum()), int(areas_b.sum())
        at_a = tuple((areas_a @ table.centroids_a[self.of_a] / max(1, area_a)).tolist())
        at_b = tuple((areas_b @ table.centroids_b[self.of_b] / max(1, area_b)).tolist())
        return ObjectChange(
            self.kind,
            tuple(table.labels_a[self.of_a].tolist()),
            tuple(table.labels_b[self.of_b].tolist()),
            self.pixels / (area_a + area_b - self.pixels),
            at_a if area_a else at_b,
            at_b if area_b else None,
            area_a,
            area_b,
            math.dist(at_a, at_b) if area_a and area_b else math.nan,
            _cuts(table.planes_a[self.of_a]) + _cuts(table.planes_b[self.of_b]),
        )


def _cuts(planes: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Between which planes one part ends and another begins; none for a single part."""
    ends = np.intersect1d(planes[:, 1], planes[:, 0] - 1).tolist()
    return tuple((z, z + 1) for z in ends)


def _events(table: Overlap) -> list[_Event]:
    """Splits and merges that share no object, those with more shared pixels first."""
    wholes = _wholes(table.pixels, table.rows, table.columns, table.areas_a, table.areas_b)
    candidates = [_Event(ObjectKind.SPLIT, one, parts, n) for one, parts, n in wholes]
    wholes = _wholes(table.pixels, table.columns, table.rows, table.areas_b, table.areas_a)
    candidates += [_Event(ObjectKind.MERGED, parts, one, n) for one, parts, n in wholes]
    candidates.sort(key=lambda event: event.weight, reverse=True)
    taken: set[tuple[str, int]] = set()
    chosen = []
    for _, alike in itertools.groupby(candidates, key=lambda event: event.weight):
        free = [event for event in alike if not event.objects & taken]
        claims = Counter(part for event in free for part in event.objects)
        # Of two alike nothing says which it was, and swapping a and b must not decide it.
        alone = [event for event in free if all(claims[part] == 1 for part in event.objects)]
        chosen += alone
        taken.update(part for event in alone for part in event.objects)
    return chosen


def _wholes(
    pixels: NDArray[np.int64],
    wholes: NDArray[np.int64],
    parts: NDArray[np.int64],
    areas: NDArray[np.int64],
    areas_of_parts: NDArray[np.int64],
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], int]]:
    """Objects whose place several others share, these others, and the pixels they cover."""
    # Divided, not multiplied: 0.1 * 70 is more than 7, and 7 / 70 is 0.1.
    inside = pixels / areas_of_parts[parts] >= _INSIDE
    at = np.flatnonzero(inside & (pixels / areas[wholes] >= _PIECE))
    n_pieces = np.bincount(wholes[at], minlength=len(areas))
    covered = np.bincount(wholes[at], pixels[at], minlength=len(areas))
    for whole in np.flatnonzero((n_pieces >= 2) & (covered >= _COVERED * areas)):
        of_whole = at[wholes[at] == whole]
        yield np.array([whole]), np.sort(parts[of_whole]), int(covered[whole])


def _of_counterparts(table: Overlap, pairs: NDArray[np.intp]) -> list[ObjectChange]:
    rows, columns, iou = table.rows[pairs], table.columns[pairs], table.iou[pairs]
    centroids_a, centroids_b = table.centroids_a[rows], table.centroids_b[columns]
    displacement = np.sqrt(((centroids_a - centroids_b) ** 2).sum(1))
    # A centroid is rounded: one pixel further must not look like less than one pixel.
    kept = (iou >= KEPT_IOU) & (displacement < KEPT_WITHIN * (1 - 1e-9))
    return [
        ObjectChange(ObjectKind.KEPT if is_kept else ObjectKind.MOVED, (a,), (b,), *rest)
        for is_kept, a, b, *rest in zip(
            kept.tolist(),
            table.labels_a[rows].tolist(),
            table.labels_b[columns].tolist(),
            iou.tolist(),
            map(tuple, centroids_a.tolist()),
            map(tuple, centroids_b.tolist()),
            table.areas_a[rows].tolist(),
            table.areas_b[columns].tolist(),
            displacement.tolist(),
            strict=True,
        )
    ]
