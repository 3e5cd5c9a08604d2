"""What became of every object between two label images: kept, moved, lost, gained, split, merged.

``docs/comparison.md`` defines the words. Splits and merges that share an object are settled first,
for the one with more shared pixels; then counterparts are assigned, with the largest total overlap.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.object_matching import Overlap, partners
from cellrepro.enums import StrEnum
from samebits.results import derived

LEAST_IOU = 0.1
"""IoU of an object and its counterpart; below, two that merely touch would count as moved."""
KEPT_IOU = 0.5
"""IoU with its counterpart at which an object can count as kept."""
KEPT_WITHIN = 1.0
"""Pixels; an object whose centroid is farther from that of its counterpart counts as moved."""

RESIZED = "kept, another size"
"""What kept objects are called of which one side has fewer than three quarters of the pixels."""
RESIZED_MEANS = "kept, but more than a quarter smaller or a third larger"
"""What it means, beside `ObjectKind.meaning`."""

_LEAST_SHARE = 0.75
"""Share of the larger side's pixels that the smaller one has at least, else it is one of these."""
_LEAST_INSIDE = 0.5
"""Share of a part's pixels that lie in the whole."""
_LEAST_PIECE = 0.1
"""Share of the whole that a part covers."""
_LEAST_COVERED = 0.5
"""Share of the whole that all its parts cover together."""

_Positions = NDArray[np.int64]
"""Objects of one side, as positions in the arrays of an `Overlap`."""


class ObjectKind(StrEnum):
    """The fates of an object; each member equals its word."""

    KEPT = "kept"
    MOVED = "moved"
    LOST = "lost"
    GAINED = "gained"
    SPLIT = "split"
    MERGED = "merged"

    @property
    def in_words(self) -> str:
        """The word for people: what counts as moved mostly overlaps less, and did not move."""
        return "shifted or reshaped" if self is ObjectKind.MOVED else str(self)

    @property
    def sign(self) -> str:
        """A sign for those who see no colours."""
        return _SHOWN[self].sign

    def meaning(self, a: str, b: str, unit: str = "pixel") -> str:
        """Say what it means of an object in two label images, of which people know these names."""
        return _SHOWN[self].meaning.format(a=a, b=b, unit=unit)


class _Shown(NamedTuple):
    """How pages and figures show a kind."""

    sign: str
    meaning: str
    """With the names ``{a}`` and ``{b}`` of the two label images, and the ``{unit}`` of these."""


_KEPT_MEANS = (
    f"a counterpart that overlaps by half or more (IoU of {KEPT_IOU} or more), its centre less "
    f"than {KEPT_WITHIN:.0f} {{unit}} away; its size may differ"
)
_MOVED_MEANS = (
    f"a counterpart that overlaps by less than half (IoU below {KEPT_IOU}), or whose centre lies "
    f"{KEPT_WITHIN:.0f} {{unit}} or more away"
)
_SHOWN = {
    ObjectKind.KEPT: _Shown("=", _KEPT_MEANS),
    ObjectKind.MOVED: _Shown("≈", _MOVED_MEANS),
    ObjectKind.LOST: _Shown("−", "no counterpart in {b}"),
    ObjectKind.GAINED: _Shown("+", "no counterpart in {a}"),
    ObjectKind.SPLIT: _Shown("1→n", "one in {a}, several in {b}"),
    ObjectKind.MERGED: _Shown("n→1", "several in {a}, one in {b}"),
}

MOST_TELLING_FIRST = (
    ObjectKind.LOST,
    ObjectKind.GAINED,
    ObjectKind.SPLIT,
    ObjectKind.MERGED,
    ObjectKind.MOVED,
    ObjectKind.KEPT,
)
"""The kinds in the order in which a reader looks for cells."""


class ObjectChange(NamedTuple):
    """The fate of one object, or of the objects that one split into or was merged from."""

    kind: ObjectKind
    """Its fate, in a word."""
    labels_a: tuple[int, ...]
    """Several for the parts of a split or merge; empty where the side has no such object."""
    labels_b: tuple[int, ...]
    """Several for the parts of a split or merge; empty where the side has no such object."""
    iou: float
    """Intersection over union, of all parts together; 0 for lost and gained."""
    position: tuple[float, ...]
    """Centroid in a, of gained ones in b; pixels, (y, x) or (z, y, x)."""
    position_b: tuple[float, ...] | None
    """Centroid in b; None for lost ones."""
    area_a: int
    """Pixels, of all parts together."""
    area_b: int
    """Pixels, of all parts together."""
    displacement: float
    """Pixels between the two centroids; NaN for lost and gained."""
    cut_between: tuple[tuple[int, int], ...] = ()
    """The cuts of a split or merge in a stack: planes (z, z + 1) where one part ends and the next
    begins, as where planes were stitched on one side only."""
    inside: tuple[int, ...] = ()
    """Of a lost or gained one: the label of the other side's object in which half of it or more
    lies, as a small cell in a large one; empty where there is none."""

    @derived
    def renumbered(self) -> bool:
        """Whether one object has different numbers on the two sides."""
        return self.kind in (ObjectKind.KEPT, ObjectKind.MOVED) and self.labels_a != self.labels_b

    @property
    def is_equal(self) -> bool:
        """Whether it is one cell on both sides, and the same in every pixel."""
        return self.iou == 1 and len(self.labels_a) == len(self.labels_b) == 1

    def of_image(self, image: str) -> dict[str, object]:
        """Give its fields as JSON has them, with the image in which the object lies.

        Labels and place stand there also under the short names by which scripts read them.
        """
        y, x = self.position[-2:]
        short = {"a": self.labels_a, "b": self.labels_b, "y": y, "x": x}
        return {"image": image, **self._asdict(), **short, "renumbered": self.renumbered}

    @property
    def growth(self) -> float:
        """How much larger it is in b, as a share of its area in a; 0 where one side lacks it."""
        has_both = self.labels_a and self.labels_b
        return (self.area_b - self.area_a) / self.area_a if has_both else 0.0

    @property
    def is_resized(self) -> bool:
        """Whether it is kept, but one side has fewer than three quarters of the other's pixels."""
        smaller, larger = sorted((self.area_a, self.area_b))
        return self.kind == ObjectKind.KEPT and smaller < _LEAST_SHARE * larger

    @property
    def growth_in_words(self) -> str:
        """How much larger or smaller it is in b: "46 % smaller"."""
        return f"{100 * abs(self.growth):.0f} % {'larger' if self.growth > 0 else 'smaller'}"

    @property
    def shift_text(self) -> str:
        """The displacement to read, never rounded up to where a cell is no more kept."""
        if math.isnan(self.displacement):
            return "–"
        is_near = self.displacement < KEPT_WITHIN
        return f"{min(self.displacement, KEPT_WITHIN - 0.1) if is_near else self.displacement:.1f}"

    @property
    def is_moved_alone(self) -> bool:
        """Whether it is not kept for its displacement alone, as it overlaps by half or more."""
        return self.kind == ObjectKind.MOVED and self.iou >= KEPT_IOU

    @property
    def in_words(self) -> str:
        """Its fate in words, with a change of size or its place: "kept, 46 % smaller"."""
        of_size = f", {self.growth_in_words}" if self.is_resized else ""
        of_place = ", inside another cell" if self.inside else ""
        return f"{self.kind.in_words}{of_size}{of_place}"

    @property
    def cuts(self) -> str:
        """The planes between which it is cut, from 0, as text: "planes z 3 | 4"; empty if none."""
        return ", ".join(f"planes z {z} | {after}" for z, after in self.cut_between)


def object_changes(table: Overlap) -> tuple[ObjectChange, ...]:
    """Find out what became of every object.

    In raster order of first appearance, in a if a has the object. Each object is in exactly one
    change.
    """
    cut_changes = _splits_and_merges(table)
    free_a = np.ones(table.n_a, bool)
    free_b = np.ones(table.n_b, bool)
    for change in cut_changes:
        free_a[change.objects_a] = False
        free_b[change.objects_b] = False
    may_be_paired = free_a[table.rows] & free_b[table.columns] & (table.iou >= LEAST_IOU)
    pairs = partners(table, may_be_paired)
    free_a[table.rows[pairs]] = False
    free_b[table.columns[pairs]] = False
    changes = [
        *(change.placed(table) for change in cut_changes),
        *_lost_or_gained(ObjectKind.LOST, _objects_of_a(table), free_a, table.pixels),
        *_lost_or_gained(ObjectKind.GAINED, _objects_of_b(table), free_b, table.pixels),
        *_counterparts(table, pairs),
    ]
    # Nothing but position settles the order. A gained object can begin at the pixel of another's
    # first one; then what a has comes first.
    changes.sort(key=lambda each: (each.first_pixel, each.change.kind == ObjectKind.GAINED))
    return tuple(each.change for each in changes)


class _PlacedChange(NamedTuple):
    """A change, and the position of its first pixel in the flat image."""

    first_pixel: int
    change: ObjectChange


@dataclass(frozen=True, eq=False)
class _CutChange:
    """One object, and the several of the other side that it split into or was merged from."""

    kind: ObjectKind
    """Split or merged."""
    objects_a: _Positions
    """Objects of a, as positions in an `Overlap`."""
    objects_b: _Positions
    """Objects of b, likewise."""
    n_shared: int
    """Pixels that both sides share."""

    @property
    def weight(self) -> tuple[int, int]:
        """Weigh it among several, of which the heaviest goes first: shared pixels, then objects."""
        return self.n_shared, len(self.objects_a) + len(self.objects_b)

    @cached_property
    def objects(self) -> set[tuple[str, int]]:
        """Side and position of every object."""
        of_a = {("a", position) for position in self.objects_a.tolist()}
        of_b = {("b", position) for position in self.objects_b.tolist()}
        return of_a | of_b

    def placed(self, table: Overlap) -> _PlacedChange:
        """Describe it, with its areas and centroids."""
        areas_a = table.areas_a[self.objects_a]
        areas_b = table.areas_b[self.objects_b]
        area_a = int(areas_a.sum())
        area_b = int(areas_b.sum())
        centroid_a = _joint_centroid(table.centroids_a[self.objects_a], areas_a)
        centroid_b = _joint_centroid(table.centroids_b[self.objects_b], areas_b)
        cuts_a = _cuts(table.planes_a[self.objects_a])
        cuts_b = _cuts(table.planes_b[self.objects_b])
        change = ObjectChange(
            kind=self.kind,
            labels_a=tuple(table.labels_a[self.objects_a].tolist()),
            labels_b=tuple(table.labels_b[self.objects_b].tolist()),
            iou=self.n_shared / (area_a + area_b - self.n_shared),
            position=centroid_a,
            position_b=centroid_b,
            area_a=area_a,
            area_b=area_b,
            displacement=math.dist(centroid_a, centroid_b),
            cut_between=cuts_a + cuts_b,
        )
        return _PlacedChange(int(table.first_a[self.objects_a].min()), change)


def _joint_centroid(centroids: NDArray[np.float64], areas: _Positions) -> tuple[float, ...]:
    """The centroid of some objects together."""
    return tuple((areas @ centroids / int(areas.sum())).tolist())


def _cuts(planes: _Positions) -> tuple[tuple[int, int], ...]:
    """Find the planes between which one part ends and another begins; none for a single part."""
    ends = np.intersect1d(planes[:, 1], planes[:, 0] - 1).tolist()
    return tuple((z, z + 1) for z in ends)


class _Objects(NamedTuple):
    """What an `Overlap` says of the objects of one side."""

    labels: _Positions
    areas: NDArray[np.int64]
    centroids: NDArray[np.float64]
    first_pixels: NDArray[np.int64]
    of_pairs: _Positions
    """The object in each overlapping pair."""
    other_labels: NDArray[np.int64]
    """The label of the other side's object in each overlapping pair."""


def _objects_of_a(table: Overlap) -> _Objects:
    return _Objects(
        table.labels_a,
        table.areas_a,
        table.centroids_a,
        table.first_a,
        of_pairs=table.rows,
        other_labels=table.labels_b[table.columns],
    )


def _objects_of_b(table: Overlap) -> _Objects:
    return _Objects(
        table.labels_b,
        table.areas_b,
        table.centroids_b,
        table.first_b,
        of_pairs=table.columns,
        other_labels=table.labels_a[table.rows],
    )


def _lost_or_gained(
    kind: ObjectKind, side: _Objects, is_alone: NDArray[np.bool_], pixels: NDArray[np.int64]
) -> Iterator[_PlacedChange]:
    """The objects that one side alone has; ``pixels`` are those of overlapping pairs."""
    is_lost = kind == ObjectKind.LOST
    columns = (
        np.flatnonzero(is_alone).tolist(),
        side.first_pixels[is_alone].tolist(),
        side.labels[is_alone].tolist(),
        side.centroids[is_alone].tolist(),
        side.areas[is_alone].tolist(),
    )
    holders = _holders(side, is_alone, pixels)
    for position, first_pixel, label, centroid, area in zip(*columns, strict=True):
        change = ObjectChange(
            kind=kind,
            labels_a=(label,) if is_lost else (),
            labels_b=() if is_lost else (label,),
            iou=0.0,
            position=tuple(centroid),
            position_b=None if is_lost else tuple(centroid),
            area_a=area if is_lost else 0,
            area_b=0 if is_lost else area,
            displacement=math.nan,
            inside=holders.get(position, ()),
        )
        yield _PlacedChange(first_pixel, change)


def _holders(
    side: _Objects, is_alone: NDArray[np.bool_], pixels: NDArray[np.int64]
) -> dict[int, tuple[int]]:
    """The label of the other side's object that holds half of an object or more, the first one."""
    is_inside = pixels / side.areas[side.of_pairs] >= _LEAST_INSIDE
    pairs = np.flatnonzero(is_alone[side.of_pairs] & is_inside)
    holders: dict[int, tuple[int]] = {}
    for position, label in zip(
        side.of_pairs[pairs].tolist(), side.other_labels[pairs].tolist(), strict=True
    ):
        holders.setdefault(position, (label,))
    return holders


# -- splits and merges -------------------------------------------------------------------------


def _splits_and_merges(table: Overlap) -> list[_CutChange]:
    """Splits and merges that share no object, those with more shared pixels first."""
    of_a = _objects_of_a(table)
    of_b = _objects_of_b(table)
    candidates = [
        _CutChange(ObjectKind.SPLIT, cut.whole, cut.parts, cut.n_covered)
        for cut in _wholes_with_parts(table.pixels, wholes=of_a, parts=of_b)
    ]
    candidates += [
        _CutChange(ObjectKind.MERGED, cut.parts, cut.whole, cut.n_covered)
        for cut in _wholes_with_parts(table.pixels, wholes=of_b, parts=of_a)
    ]
    candidates.sort(key=lambda candidate: candidate.weight, reverse=True)
    taken: set[tuple[str, int]] = set()
    chosen = []
    for _, of_one_weight in itertools.groupby(candidates, key=lambda candidate: candidate.weight):
        free = [candidate for candidate in of_one_weight if not candidate.objects & taken]
        claims = Counter(part for candidate in free for part in candidate.objects)
        # Of two with one weight nothing says which it was, and swapping a and b must not decide it.
        unrivalled = [each for each in free if all(claims[part] == 1 for part in each.objects)]
        chosen += unrivalled
        taken.update(part for each in unrivalled for part in each.objects)
    return chosen


class _CutObject(NamedTuple):
    """An object of one side whose pixels several objects of the other side share."""

    whole: _Positions
    """The object."""
    parts: _Positions
    """The objects of the other side."""
    n_covered: int
    """Pixels of the whole that the parts cover."""


def _wholes_with_parts(
    pixels: NDArray[np.int64], *, wholes: _Objects, parts: _Objects
) -> Iterator[_CutObject]:
    """Every object of one side that at least two objects of the other side share."""
    # Divided, not multiplied: 0.1 * 70 is more than 7, and 7 / 70 is 0.1.
    is_inside = pixels / parts.areas[parts.of_pairs] >= _LEAST_INSIDE
    is_piece = pixels / wholes.areas[wholes.of_pairs] >= _LEAST_PIECE
    pairs = np.flatnonzero(is_inside & is_piece)
    n_wholes = len(wholes.areas)
    n_parts = np.bincount(wholes.of_pairs[pairs], minlength=n_wholes)
    n_covered = np.bincount(wholes.of_pairs[pairs], pixels[pairs], minlength=n_wholes)
    is_cut = (n_parts >= 2) & (n_covered >= _LEAST_COVERED * wholes.areas)
    by_whole = pairs[np.argsort(wholes.of_pairs[pairs], kind="stable")]
    ends = np.cumsum(n_parts)
    for whole in np.flatnonzero(is_cut):
        pairs_of_whole = by_whole[ends[whole] - n_parts[whole] : ends[whole]]
        yield _CutObject(
            whole=np.array([whole]),
            parts=np.sort(parts.of_pairs[pairs_of_whole]),
            n_covered=int(n_covered[whole]),
        )


# -- counterparts ------------------------------------------------------------------------------


def _counterparts(table: Overlap, pairs: NDArray[np.intp]) -> Iterator[_PlacedChange]:
    """The kept and moved objects: every pair of an object and its counterpart."""
    rows = table.rows[pairs]
    columns = table.columns[pairs]
    iou = table.iou[pairs]
    centroids_a = table.centroids_a[rows]
    centroids_b = table.centroids_b[columns]
    displacement = np.sqrt(((centroids_a - centroids_b) ** 2).sum(1))
    # A centroid is rounded: one pixel further must not look like less than one pixel.
    is_kept = (iou >= KEPT_IOU) & (displacement < KEPT_WITHIN * (1 - 1e-9))
    # As lists, which are read one by one much faster than arrays.
    rows_of_pairs = zip(
        table.first_a[rows].tolist(),
        is_kept.tolist(),
        table.labels_a[rows].tolist(),
        table.labels_b[columns].tolist(),
        iou.tolist(),
        centroids_a.tolist(),
        centroids_b.tolist(),
        table.areas_a[rows].tolist(),
        table.areas_b[columns].tolist(),
        displacement.tolist(),
        strict=True,
    )
    for first, kept, label_a, label_b, overlap, at_a, at_b, area_a, area_b, apart in rows_of_pairs:
        change = ObjectChange(
            kind=ObjectKind.KEPT if kept else ObjectKind.MOVED,
            labels_a=(label_a,),
            labels_b=(label_b,),
            iou=overlap,
            position=tuple(at_a),
            position_b=tuple(at_b),
            area_a=area_a,
            area_b=area_b,
            displacement=apart,
        )
        yield _PlacedChange(first, change)
