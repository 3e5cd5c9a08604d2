"""The scores of two label images that literature names, each with its source.

All are computed from one `Overlap` of the two, but that of boundaries. A score over nothing is NaN.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.object_matching import BLOCK, Integers, Overlap

TOLERANCE = 2
"""Pixels by which boundaries may lie apart and still count as the same."""

Scores = NDArray[np.float64]


def ratio(part: float, whole: float) -> float:
    """A share of a whole; NaN of nothing.

    >>> ratio(1, 4), ratio(0, 0)
    (0.25, nan)
    """
    return float(part) / float(whole) if whole else math.nan


def ratios(parts: Scores, whole: Scores | int) -> Scores:
    """`ratio` of each part, shape (T,)."""
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
        return parts / whole


def mean(values: NDArray) -> float:
    """The mean of some numbers; NaN of none."""
    return float(values.mean()) if len(values) else math.nan


def aggregated_jaccard_index(table: Overlap) -> float:
    """Aggregated Jaccard index (AJI), a being the truth.

    In [0, 1]; NaN if neither side holds an object.

    As Kumar et al. define it (IEEE TMI 2017), which
    ``cellpose.metrics.aggregated_jaccard_index`` (4.2.1.1) does not.
    """
    best_first = np.lexsort((table.columns, -table.pixels, -table.iou, table.rows))
    best = best_first[np.unique(table.rows[best_first], return_index=True)[1]]
    rows = table.rows[best]
    columns = table.columns[best]
    shared = table.pixels[best]
    unions = table.areas_a[rows] + table.areas_b[columns] - shared
    without_overlap = np.delete(table.areas_a, rows).sum()
    never_taken = np.delete(table.areas_b, np.unique(columns)).sum()
    return ratio(shared.sum(), unions.sum() + without_overlap + never_taken)


class SharedPixels(NamedTuple):
    """Every pair of an object of a and one of b that share pixels, background being one of them."""

    in_a: Integers
    """The object of a, from 1; 0 is background."""
    in_b: Integers
    """The object of b, likewise."""
    pixels: Integers
    """How many both hold, at least 1."""


def shared_pixels(table: Overlap) -> SharedPixels:
    """All pixels of two label images by the pair of objects that they belong to."""
    n_a = table.n_a
    n_b = table.n_b
    only_a = table.areas_a - np.bincount(table.rows, table.pixels, n_a).astype(np.int64)
    only_b = table.areas_b - np.bincount(table.columns, table.pixels, n_b).astype(np.int64)
    objects_a = np.arange(n_a) + 1
    objects_b = np.arange(n_b) + 1
    in_a = np.concatenate([table.rows + 1, objects_a, np.zeros(n_b + 1, np.int64)])
    in_b = np.concatenate([table.columns + 1, np.zeros(n_a, np.int64), objects_b, [0]])
    pixels = np.concatenate([table.pixels, only_a, only_b, [table.n_background]])
    any_shared = pixels > 0
    return SharedPixels(in_a[any_shared], in_b[any_shared], pixels[any_shared])


def conditional_entropy(condition: Integers, pixels: Integers) -> float:
    """How uncertain it is where a pixel lies on one side, once it is known where on the other."""
    if not len(pixels):
        return math.nan
    # Logarithms of ratios of whole numbers: an object that is not cut adds exactly 0.
    bits = np.log2(pixels / np.bincount(condition, pixels)[condition])
    return abs(float(np.sum(pixels / pixels.sum() * bits)))  # never -0


def adapted_rand_error(shared: SharedPixels) -> float:
    """Adapted Rand error (SNEMI3D), a being the truth."""
    is_cell = shared.in_a > 0
    in_a = shared.in_a[is_cell]
    in_b = shared.in_b[is_cell]
    pixels = shared.pixels[is_cell].astype(np.float64)
    n_pixels = pixels.sum()

    def joined_pairs(counts: NDArray) -> float:
        return float(np.sum(counts**2) - n_pixels)

    in_both = joined_pairs(pixels)
    in_truth = joined_pairs(np.bincount(in_a, pixels))
    in_prediction = joined_pairs(np.bincount(in_b, pixels))
    return 1 - ratio(2 * in_both, in_truth + in_prediction)


# -- boundaries ------------------------------------------------------------------------------


def boundary_f1(a: NDArray[np.integer], b: NDArray[np.integer]) -> float:
    """F1 of the boundaries of two label images, give or take `TOLERANCE` pixels.

    In [0, 1]; 0 if only one side has a boundary, NaN if neither has.

    Csurka et al., BMVC 2013. Computed from a block of rows or planes at a time.
    """
    shifts = _shifts_within_tolerance(a.ndim)
    step = max(1, BLOCK // max(1, a[:1].size))
    counts = np.zeros(4, np.int64)
    for first in range(0, len(a) if a.size else 0, step):
        # The edge of a block would hide a boundary, so each reaches into its neighbours.
        low = max(0, first - TOLERANCE - 1)
        block = slice(low, first + step + TOLERANCE + 1)
        boundary_a = np.pad(_boundary(a[block]), TOLERANCE)
        boundary_b = np.pad(_boundary(b[block]), TOLERANCE)
        start = first - low + TOLERANCE
        inner = slice(start, start + min(step, len(a) - first))
        points_a = _flat_positions(boundary_a, inner)
        points_b = _flat_positions(boundary_b, inner)
        flat_shifts = shifts @ np.array(boundary_a.strides)  # bytes, so positions of booleans
        n_close_a = _n_close(points_a, boundary_b.ravel(), flat_shifts)
        n_close_b = _n_close(points_b, boundary_a.ravel(), flat_shifts)
        counts += (len(points_a), len(points_b), n_close_a, n_close_b)
    n_a, n_b, n_close_a, n_close_b = counts.tolist()
    if not (n_close_a and n_close_b):
        return 0.0 if n_a or n_b else math.nan
    precision = n_close_b / n_b
    recall = n_close_a / n_a
    return 2 * precision * recall / (precision + recall)


def _shifts_within_tolerance(n_axes: int) -> NDArray[np.int64]:
    """Every step to a pixel within `TOLERANCE`, the nearest first, shape (S, n_axes)."""
    cube = itertools.product(range(-TOLERANCE, TOLERANCE + 1), repeat=n_axes)
    within = [shift for shift in cube if math.hypot(*shift) <= TOLERANCE]
    return np.array(sorted(within, key=lambda shift: math.hypot(*shift)))


def _boundary(labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    boundary = np.zeros(labels.shape, bool)
    for axis in range(labels.ndim):
        along = np.moveaxis(labels, axis, 0)
        marked = np.moveaxis(boundary, axis, 0)
        edge = along[1:] != along[:-1]
        marked[:-1] |= edge
        marked[1:] |= edge
    boundary &= labels != 0
    return boundary


def _flat_positions(boundary: NDArray[np.bool_], inner: slice) -> NDArray[np.intp]:
    """Where the boundary is within some rows or planes, as positions in the whole array."""
    return np.flatnonzero(boundary[inner]) + inner.start * boundary.strides[0]


def _n_close(
    points: NDArray[np.intp], boundary: NDArray[np.bool_], shifts: NDArray[np.int64]
) -> int:
    """How many points have a boundary within reach."""
    not_close = points
    for shift in shifts:
        not_close = not_close[~boundary[not_close + shift]]
        if not len(not_close):
            break
    return len(points) - len(not_close)
