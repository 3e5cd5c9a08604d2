"""Which objects of two label images overlap, and which of them are each other's counterpart.

Both are read as *runs*, stretches of one row in which neither label changes, in blocks of rows:
beyond the two arrays, memory grows with the number of objects and of overlapping pairs only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.label_numbers import renumbered
from cellrepro.images.image_blocks import blocks_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_LARGEST_TABLE = 2**22
"""Labels up to here, or up to the number of pixels, index tables; larger ones are renumbered."""

Integers = NDArray[np.int64]


class Runs(NamedTuple):
    """The runs of some whole rows of two label images, in raster order; R runs."""

    labels_a: NDArray[np.integer]
    """The label of each run in the first image."""
    labels_b: NDArray[np.integer]
    """The label of each run in the second image."""
    starts: Integers
    """Position of the first pixel in the flat image."""
    lengths: Integers
    """Pixels; no run crosses the end of a row."""


def runs(a: NDArray[np.integer], b: NDArray[np.integer]) -> Iterator[Runs]:
    """Read the runs of two label images, a block of rows at a time."""
    for block in blocks_of(a.shape):
        flat_a = np.ascontiguousarray(a[block]).ravel()
        flat_b = np.ascontiguousarray(b[block]).ravel()
        begins = np.ones(len(flat_a), bool)
        np.not_equal(flat_a[1:], flat_a[:-1], out=begins[1:])
        begins[1:] |= flat_b[1:] != flat_b[:-1]
        begins[:: a.shape[-1]] = True
        starts = np.flatnonzero(begins)
        lengths = np.diff(starts, append=len(flat_a))
        yield Runs(flat_a[starts], flat_b[starts], starts + block.start * a[0].size, lengths)


def equal_images(a: NDArray[np.integer], b: NDArray[np.integer]) -> bool:
    """Whether two images of one shape have the same label in every pixel."""
    return all(np.array_equal(a[block], b[block]) for block in blocks_of(a.shape))


@dataclass(frozen=True, eq=False)
class Overlap:
    """Which objects of two label images overlap, and by how much; only pairs that do.

    The A objects of a and B of b count from 0 in raster order of first appearance, so that nothing
    computed from this depends on their labels. The P pairs are sorted by (row, column).
    """

    labels_a: Integers
    """Labels of the objects of a, as given."""
    labels_b: Integers
    """Labels of the objects of b, as given."""
    areas_a: Integers
    """Pixels of each object of a."""
    areas_b: Integers
    """Pixels of each object of b."""
    centroids_a: NDArray[np.float64]
    """Pixels, in the order of the axes; D of them."""
    centroids_b: NDArray[np.float64]
    """The same of b."""
    first_a: Integers
    """Position of an object's first pixel in the flat image."""
    first_b: Integers
    """The same of b."""
    planes_a: Integers
    """First and last plane of a stack; zeros of a flat image."""
    planes_b: Integers
    """The same of b."""
    rows: Integers
    """The object of a in each pair, from 0."""
    columns: Integers
    """The object of b in each pair, from 0."""
    pixels: Integers
    """Pixels that the two share, at least 1."""
    iou: NDArray[np.float64]
    """Intersection over union of the two."""
    n_background: int
    """Pixels that are background in both."""
    equal_labels: bool
    """Whether a and b have the same label in every pixel."""

    @property
    def n_a(self) -> int:
        """Objects of a."""
        return len(self.labels_a)

    @property
    def n_b(self) -> int:
        """Objects of b."""
        return len(self.labels_b)


def overlap(a: NDArray[np.integer], b: NDArray[np.integer]) -> Overlap:
    """Make the sparse contingency table of two label images, and measure their objects."""
    side_a = _Side(a)
    side_b = _Side(b)
    pairs = _pairs_of_labels(side_a, side_b)
    objects_a = side_a.in_raster_order()
    objects_b = side_b.in_raster_order()
    share_pixels = (pairs.label_a > 0) & (pairs.label_b > 0)
    rows = _rank(objects_a, side_a.n)[pairs.label_a[share_pixels]]
    columns = _rank(objects_b, side_b.n)[pairs.label_b[share_pixels]]
    order = np.lexsort((columns, rows))
    rows = rows[order]
    columns = columns[order]
    shared = pairs.pixels[share_pixels][order]
    areas_a = side_a.n_pixels[objects_a]
    areas_b = side_b.n_pixels[objects_b]
    is_background = (pairs.label_a == 0) & (pairs.label_b == 0)
    return Overlap(
        labels_a=side_a.labels(objects_a),
        labels_b=side_b.labels(objects_b),
        areas_a=areas_a,
        areas_b=areas_b,
        centroids_a=(side_a.moments[:, objects_a] / areas_a).T,
        centroids_b=(side_b.moments[:, objects_b] / areas_b).T,
        first_a=side_a.first[objects_a],
        first_b=side_b.first[objects_b],
        planes_a=side_a.planes(objects_a),
        planes_b=side_b.planes(objects_b),
        rows=rows,
        columns=columns,
        pixels=shared,
        iou=shared / (areas_a[rows] + areas_b[columns] - shared),
        n_background=int(pairs.pixels[is_background].sum()),
        equal_labels=equal_images(a, b),
    )


class _Side:
    """Sums over the pixels of every object of one image; its labels index tables."""

    def __init__(self, image: NDArray[np.integer]):
        self.image = image
        # The labels as given, by the small ones that stand for them.
        self._original_labels: Integers | None = None
        if image.max(initial=0) > max(_LARGEST_TABLE, image.size):
            self.image, numbers = renumbered(image)
            self._original_labels = np.zeros(max(numbers.values()) + 1, np.int64)
            self._original_labels[list(numbers.values())] = list(numbers)
        self.n = int(self.image.max(initial=0)) + 1
        self.n_pixels = np.zeros(self.n, np.int64)
        self.moments = np.zeros((image.ndim, self.n))
        self.first = np.full(self.n, np.iinfo(np.int64).max)
        self.last = np.zeros(self.n, np.int64)  # the first pixel of its last run

    def labels(self, objects: Integers) -> Integers:
        """The labels of some objects, as given."""
        return objects if self._original_labels is None else self._original_labels[objects]

    def add(self, objects: Integers, block: Runs, moments: list[NDArray[np.float64]]) -> None:
        """Add a block of runs to the sums."""
        shown = objects > 0
        if not shown.any():
            return
        objects = objects[shown]
        starts = block.starts[shown]
        lowest = int(objects.min())
        n = int(objects.max()) + 1 - lowest
        here = slice(lowest, lowest + n)  # of a million objects, few lie in a block
        position = objects - lowest
        # Sums of whole numbers below 2**53 are exact in float64, which `bincount` adds in.
        self.n_pixels[here] += np.bincount(position, block.lengths[shown], n).astype(np.int64)
        for total, moment in zip(self.moments, moments, strict=True):
            total[here] += np.bincount(position, moment[shown], n)
        # Of equal indices the last assignment stays, so running backwards keeps the first run.
        first = np.full(n, np.iinfo(np.int64).max)
        first[position[::-1]] = starts[::-1]
        np.minimum(self.first[here], first, out=self.first[here])
        self.last[objects] = starts

    def planes(self, objects: Integers) -> Integers:
        """The first and the last plane of each, (A, 2)."""
        n_plane = math.prod(self.image.shape[-2:])
        return np.stack([self.first[objects], self.last[objects]], axis=1) // n_plane

    def in_raster_order(self) -> Integers:
        """The objects that are there, by first appearance."""
        present = np.flatnonzero(self.n_pixels[1:]) + 1
        return present[np.argsort(self.first[present])]


def _rank(positions: Integers, n: int) -> Integers:
    rank = np.zeros(n, np.int64)
    rank[positions] = np.arange(len(positions))
    return rank


def _moments(block: Runs, shape: tuple[int, ...]) -> list[NDArray[np.float64]]:
    """Sum of the coordinate along each axis over the pixels of each run."""
    lengths = block.lengths.astype(np.float64)
    row, column = np.divmod(block.starts, shape[-1])
    along_row = lengths * (column + (block.lengths - 1) / 2)
    if len(shape) == 2:
        return [lengths * row, along_row]
    plane, row = np.divmod(row, shape[1])
    return [lengths * plane, lengths * row, along_row]


class LabelPairs(NamedTuple):
    """Pairs of a label of a and one of b, 0 among them, and the pixels that have both."""

    label_a: Integers
    """The label of a in each pair."""
    label_b: Integers
    """The label of b in each pair."""
    pixels: Integers
    """The pixels that have both."""

    @classmethod
    def summed(cls, pairs: Sequence[LabelPairs]) -> LabelPairs:
        """Each different pair of several lists once, in order."""
        nothing = np.zeros((3, 0), np.int64)
        label_a, label_b, pixels = np.concatenate([nothing, *pairs], axis=1)
        n_b = np.uint64(label_b.max(initial=0) + 1)
        code = label_a.astype(np.uint64) * n_b + label_b.astype(np.uint64)  # both below 2**32
        # Rows come in order, mostly, which makes a stable sort three times as fast as `unique`.
        order = np.argsort(code, kind="stable")
        code = code[order]
        first = np.flatnonzero(np.diff(code, prepend=code[:1] + np.uint64(1)))
        of_a, of_b = np.divmod(code[first], n_b)
        n_pixels = np.add.reduceat(pixels[order], first) if len(first) else pixels
        return cls(of_a.astype(np.int64), of_b.astype(np.int64), n_pixels)

    @classmethod
    def of_runs(cls, block: Runs) -> LabelPairs:
        """The pairs in some rows, each once."""
        label_a = block.labels_a.astype(np.int64)
        label_b = block.labels_b.astype(np.int64)
        return cls.summed([cls(label_a, label_b, block.lengths)])

    def exchanged(self) -> LabelPairs:
        """The same of b and a."""
        return LabelPairs(self.label_b, self.label_a, self.pixels)


def label_pairs(a: NDArray[np.integer], b: NDArray[np.integer]) -> LabelPairs:
    """Every pair of labels that some pixel has, once, in order."""
    return LabelPairs.summed([LabelPairs.of_runs(block) for block in runs(a, b)])


def _pairs_of_labels(side_a: _Side, side_b: _Side) -> LabelPairs:
    """Every pair of labels, once; on the way the objects of both sides are measured."""
    of_blocks: list[LabelPairs] = []
    for block in runs(side_a.image, side_b.image):
        of_blocks.append(LabelPairs.of_runs(block))
        moments = _moments(block, side_a.image.shape)
        side_a.add(block.labels_a.astype(np.int64), block, moments)
        side_b.add(block.labels_b.astype(np.int64), block, moments)
    return LabelPairs.summed(of_blocks)


# -- pairing objects: positions in the list of overlapping pairs -----------------------------


def matches(table: Overlap, threshold: float) -> NDArray[np.intp]:
    """Match objects one to one, as many as possible."""
    eligible = np.flatnonzero(table.iou >= threshold)
    if threshold > 0.5:
        return eligible  # as said below
    rows = table.rows[eligible]
    columns = table.columns[eligible]
    if threshold == 0.5:
        # No assignment is needed. Say object i overlaps j and k with IoU >= 1/2 each. Then
        # |i & j| >= |i | j| / 2 >= |i| / 2, and so does |i & k|. As j and k are disjoint, both
        # are |i| / 2 exactly, hence |i | j| = |i|: j and k are the two halves of i, inside it,
        # and overlap nothing else. So above 1/2 every eligible pair is on its own, and at 1/2
        # the only ties are an object and its two exact halves, of which one can match.
        return eligible[_first_of_each(rows) & _first_of_each(columns)]
    if not len(eligible):
        return eligible
    from scipy.sparse.csgraph import maximum_bipartite_matching

    graph = _graph(np.ones(len(eligible)), rows, columns, shape=(table.n_a, table.n_b))
    column_of_row = maximum_bipartite_matching(graph, perm_type="column")
    return eligible[column_of_row[rows] == columns]


def _graph(
    weights: NDArray[np.float64], rows: Integers, columns: Integers, *, shape: tuple[int, int]
) -> csr_array:
    """A bipartite graph with indices of 32 bits: scipy's matchings take no others up to 1.14."""
    from scipy.sparse import csr_array

    edges = rows.astype(np.int32), columns.astype(np.int32)
    return csr_array((weights, edges), shape=shape)


def _first_of_each(values: Integers) -> NDArray[np.bool_]:
    first = np.zeros(len(values), bool)
    first[np.unique(values, return_index=True)[1]] = True
    return first


def partners(table: Overlap, among: NDArray[np.bool_] | None = None) -> NDArray[np.intp]:
    """Pair objects one to one so that their total overlap is largest."""
    allowed = np.ones(len(table.iou), bool) if among is None else among
    # A pair (i, j) with IoU > 1/2 is in every such assignment: if i went with k and j with l
    # instead, then |i & k| + |l & j| <= |i| - |i & j| + |j| - |i & j| < |i & j|, because
    # IoU > 1/2 means |i| + |j| < 3 |i & j|; so pairing i with j overlaps more.
    certain = (table.iou > 0.5) & allowed
    free_row = np.ones(table.n_a, bool)
    free_column = np.ones(table.n_b, bool)
    free_row[table.rows[certain]] = False
    free_column[table.columns[certain]] = False
    still_open = np.flatnonzero(allowed & free_row[table.rows] & free_column[table.columns])
    chosen = _heaviest_assignment(
        table.rows[still_open], table.columns[still_open], _weights(table, still_open)
    )
    return np.sort(np.concatenate([np.flatnonzero(certain), still_open[chosen]]))


def _weights(table: Overlap, pairs: NDArray[np.intp]) -> NDArray[np.float64]:
    """Shared pixels; near centroids, then the order of appearance, settle equal assignments."""
    rows = table.rows[pairs]
    columns = table.columns[pairs]
    apart = np.sqrt(((table.centroids_a[rows] - table.centroids_b[columns]) ** 2).sum(1))
    n = max(table.n_a, table.n_b, 1)
    crossing = ((rows - columns) / n) ** 2
    late = (rows + columns) / (2 * n)
    preferred = 1 / (1 + apart) - 0.1 * crossing - 0.01 * late + 0.11  # above 0, at most 1.11
    most = max(1, min(len(np.unique(rows)), len(np.unique(columns))))
    return table.pixels[pairs] + preferred / (2 * most)


def _heaviest_assignment(
    rows: Integers, columns: Integers, weights: NDArray[np.float64]
) -> NDArray[np.intp]:
    """Positions of the pairs of a heaviest one-to-one assignment on a sparse graph."""
    if not len(rows):
        return np.zeros(0, np.intp)
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    # linear_sum_assignment (scipy 1.17) wants a dense table, and scipy's sparse solver only knows
    # assignments in which every row has a partner. So every row and column gets a stand-in of
    # weight 0, and the stand-ins of an overlapping pair may pair with each other: what is left
    # over takes its stand-in, and the stand-ins of a chosen pair take each other. Adding 1 to
    # every weight changes no ranking, as all such assignments have the same number of pairs; it
    # is needed because the solver takes 0 as "no edge".
    row_ids, row = np.unique(rows, return_inverse=True)
    column_ids, column = np.unique(columns, return_inverse=True)
    n_rows = len(row_ids)
    n_columns = len(column_ids)
    all_rows = np.arange(n_rows)
    all_columns = np.arange(n_columns)
    edges_from = np.concatenate([row, all_rows, n_rows + all_columns, n_rows + column])
    edges_to = np.concatenate([column, n_columns + all_rows, all_columns, n_columns + row])
    edge_weights = np.ones(len(edges_from))
    edge_weights[: len(weights)] += weights
    n = n_rows + n_columns
    graph = _graph(edge_weights, edges_from, edges_to, shape=(n, n))
    chosen_rows, chosen_columns = min_weight_full_bipartite_matching(graph, maximize=True)
    column_of_row = np.empty(n, np.int64)
    column_of_row[chosen_rows] = chosen_columns
    return np.flatnonzero(column_of_row[row] == column)


# -- without a match -------------------------------------------------------------------------


class UnmatchedCells(NamedTuple):
    """Labels without a match in the other result."""

    before: set[int]
    after: set[int]


def unmatched_cells(
    before: NDArray[np.integer], after: NDArray[np.integer], *, least_iou: float = 0.5
) -> UnmatchedCells:
    """Find the labels of either result that have no match of so high an IoU."""
    table = overlap(before, after)
    pairs = matches(table, least_iou)
    matched_before = set(table.labels_a[table.rows[pairs]].tolist())
    matched_after = set(table.labels_b[table.columns[pairs]].tolist())
    return UnmatchedCells(labels_in(before) - matched_before, labels_in(after) - matched_after)


def labels_in(masks: NDArray[np.integer]) -> set[int]:
    """The labels of all cells."""
    return set(np.unique(masks[masks > 0]).tolist())
