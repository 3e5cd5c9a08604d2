"""How many boundary pixels of the objects of two label images lie close to each other."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 2  # pixels by which boundaries may lie apart and still count as the same
BLOCK = 2**21  # pixels that are looked at at a time


def boundary_f1(a: NDArray[np.integer], b: NDArray[np.integer]) -> float:
    """F1 of the boundary pixels of two label images, give or take `TOLERANCE` (Csurka et al., "What
    is a good evaluation measure for semantic segmentation?", BMVC 2013): the pixels of objects with
    another label beside one of their faces. 0 if one side has none, NaN if neither has."""
    counts = np.zeros(4, np.int64)
    step = max(1, BLOCK // max(1, a[:1].size))
    shifts = _shifts(a.ndim)
    for first in range(0, len(a) if a.size else 0, step):
        low = max(0, first - TOLERANCE - 1)  # the edge of a block would hide a boundary
        of_a, of_b = (
            np.pad(_boundary(image[low : first + step + TOLERANCE + 1]), TOLERANCE)
            for image in (a, b)
        )
        inner = slice(first - low + TOLERANCE, first - low + TOLERANCE + min(step, len(a) - first))
        at_a, at_b = (
            np.flatnonzero(part[inner]) + inner.start * part.strides[0] for part in (of_a, of_b)
        )
        flat_shifts = shifts @ np.array(of_a.strides)  # bytes, so positions of booleans
        n_close = (
            _n_close(at_a, of_b.ravel(), flat_shifts),
            _n_close(at_b, of_a.ravel(), flat_shifts),
        )
        counts += (len(at_a), len(at_b), *n_close)
    n_a, n_b, n_close_a, n_close_b = counts.tolist()
    if not (n_close_a and n_close_b):
        return 0.0 if n_a or n_b else math.nan
    precision, recall = n_close_b / n_b, n_close_a / n_a
    return 2 * precision * recall / (precision + recall)


def _shifts(n_axes: int) -> NDArray[np.int64]:
    """Shifts up to the tolerance, shape (N, D), the nearest first."""
    every = np.array(list(itertools.product(range(-TOLERANCE, TOLERANCE + 1), repeat=n_axes)))
    squares = (every**2).sum(1)
    near = squares <= TOLERANCE**2
    return every[near][np.argsort(squares[near], kind="stable")]


def _boundary(labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    found = np.zeros(labels.shape, bool)
    for axis in range(labels.ndim):
        along, marked = np.moveaxis(labels, axis, 0), np.moveaxis(found, axis, 0)
        edge = along[1:] != along[:-1]
        marked[:-1] |= edge
        marked[1:] |= edge
    found &= labels != 0
    return found


def _n_close(points: NDArray[np.intp], other: NDArray[np.bool_], shifts: NDArray[np.int64]) -> int:
    left = points
    for shift in shifts:
        left = left[~other[left + shift]]
        if not len(left):
            break
    return len(points) - len(left)
