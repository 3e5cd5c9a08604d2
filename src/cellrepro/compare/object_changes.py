"""What became of every object between two label images: kept, moved, lost, gained, split, merged.

The words are exclusive, and every object is in exactly one change:

* *split*: one object of a whose place two or more of b share. Each of these pieces lies in it with
  at least half of its own pixels and covers at least a tenth of it; together they cover at least
  half of it.
* *merged*: the same with a and b exchanged.
* *kept*: an object and its counterpart, with an IoU of at least 0.5 and centroids less than one
  pixel apart. The outline may differ: the IoU says how far.
* *moved*: an object and its counterpart that overlap less or whose centroids are farther apart.
* *lost*, *gained*: an object of a, or of b, without a counterpart.

Splits and merges that share an object are settled first, for the one with more shared pixels; then
counterparts are assigned one to one, with the largest total overlap. A counterpart has an IoU of at
least 0.1: below, two objects that touch would pass for one that moved.
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

from cellrepro.compare.matching import Overlap, partners

FAINTEST = 0.1
"""Least IoU of an object and its counterpart."""
KEPT_IOU = 0.5
"""Least IoU of an object that counts as kept."""
KEPT_WITHIN = 1.0
"""Pixels; an object whose centroid went farther counts as moved."""
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

    @property
    def renumbered(self) -> bool:
        """Whether one object has other numbers on the two sides."""
        return self.kind in (ObjectKind.KEPT, ObjectKind.MOVED) and self.labels_a != self.labels_b


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
    found = [(int(table.first_a[event.of_a].min()), _of_event(table, event)) for event in events]
    first_a, first_b = table.first_a.tolist(), table.first_b.tolist()
    counterparts = _of_counterparts(table, pairs)
    found += zip((first_a[i] for i in table.rows[pairs]), counterparts, strict=True)
    for i in np.flatnonzero(free_a).tolist():
        label, at, area = table.labels_a[i], table.centroids_a[i], table.areas_a[i]
        found.append((first_a[i], _one_sided(ObjectKind.LOST, label, at, area)))
    for i in np.flatnonzero(free_b).tolist():
        label, at, area = table.labels_b[i], table.centroids_b[i], table.areas_b[i]
        found.append((first_b[i], _one_sided(ObjectKind.GAINED, label, at, area)))
    # Nothing but position settles the order. A gained object can begin at the pixel of another's
    # first one; then what a has comes first.
    found.sort(key=lambda each: (each[0], each[1].kind == ObjectKind.GAINED))
    return tuple(change for _, change in found)


def _one_sided(kind: ObjectKind, label: int, centroid: NDArray, area: int) -> ObjectChange:
    labels, at, none = (int(label),), tuple(centroid.tolist()), ()
    if kind == ObjectKind.LOST:
        return ObjectChange(kind, labels, none, 0.0, at, None, int(area), 0, math.nan)
    return ObjectChange(kind, none, labels, 0.0, at, at, 0, int(area), math.nan)


# -- splits and merges -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Event:
    kind: ObjectKind
    of_a: NDArray[np.int64]
    of_b: NDArray[np.int64]
    pixels: int

    @property
    def weight(self) -> tuple[int, int]:
        return self.pixels, len(self.of_a) + len(self.of_b)

    @cached_property
    def objects(self) -> set[tuple[str, int]]:
        return {("a", i) for i in self.of_a.tolist()} | {("b", j) for j in self.of_b.tolist()}


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


def _of_event(table: Overlap, event: _Event) -> ObjectChange:
    areas_a, areas_b = table.areas_a[event.of_a], table.areas_b[event.of_b]
    position = np.average(table.centroids_a[event.of_a], axis=0, weights=areas_a).tolist()
    position_b = np.average(table.centroids_b[event.of_b], axis=0, weights=areas_b).tolist()
    area_a, area_b = int(areas_a.sum()), int(areas_b.sum())
    return ObjectChange(
        event.kind,
        tuple(table.labels_a[event.of_a].tolist()),
        tuple(table.labels_b[event.of_b].tolist()),
        event.pixels / (area_a + area_b - event.pixels),
        tuple(position),
        tuple(position_b),
        area_a,
        area_b,
        math.dist(position, position_b),
    )


# -- counterparts ----------------------------------------------------------------------------


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
