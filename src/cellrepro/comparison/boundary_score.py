"""F1 of the boundaries of two label images, give or take some pixels.

G. Csurka et al., BMVC 2013. Computed from a block of rows or planes at a time.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from cellrepro.images.image_blocks import blocks_of

TOLERANCE = 2
"""Pixels by which boundaries may lie apart and still count as the same."""


def boundary_f1(a: NDArray[np.integer], b: NDArray[np.integer]) -> float:
    """Get a share in [0, 1]; 0 if only one side has a boundary, NaN if neither has."""
    shifts = _shifts_within_tolerance(a.ndim)
    counts = np.zeros(4, np.int64)
    for rows in blocks_of(a.shape):
        # The edge of a block would hide a boundary, so each reaches into its neighbours.
        low = max(0, rows.start - TOLERANCE - 1)
        block = slice(low, rows.stop + TOLERANCE + 1)
        boundary_a = np.pad(_boundary(a[block]), TOLERANCE)
        boundary_b = np.pad(_boundary(b[block]), TOLERANCE)
        start = rows.start - low + TOLERANCE
        inner = slice(start, start + rows.stop - rows.start)
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
    """Give the boundary within some rows or planes, as positions in the whole array."""
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
