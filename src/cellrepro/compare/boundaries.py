"""Boundaries of the objects of two label images, and how many lie close to each other."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 2
"""Pixels by which boundaries may lie apart and still count as the same."""

BLOCK = 2**21
"""Pixels that are looked at at a time."""


@dataclass(frozen=True)
class BoundaryMatch:
    """How many boundary pixels of each side there are, and lie close to one of the other."""

    n_a: int
    n_b: int
    n_close_a: int
    n_close_b: int

    @property
    def precision(self) -> float:
        """Share of b's boundary pixels that are close to a's; NaN if b has none."""
        return self.n_close_b / self.n_b if self.n_b else math.nan

    @property
    def recall(self) -> float:
        """Share of a's boundary pixels that are close to b's; NaN if a has none."""
        return self.n_close_a / self.n_a if self.n_a else math.nan

    @property
    def f1(self) -> float:
        """Harmonic mean of the two; 0 if one side has no boundary, NaN if neither has."""
        if not (self.n_a or self.n_b):
            return math.nan
        if not (self.n_close_a and self.n_close_b):
            return 0.0
        return 2 * self.precision * self.recall / (self.precision + self.recall)


def match_boundaries(a: NDArray[np.integer], b: NDArray[np.integer]) -> BoundaryMatch:
    """Count the boundary pixels that two label images of one shape share, give or take `TOLERANCE`.

    A boundary pixel is a pixel of an object with another label, or background, beside one of its
    faces (4 neighbours in 2-D, 6 in 3-D). The edge of the image is no boundary. The measure is
    that of Csurka et al., "What is a good evaluation measure for semantic segmentation?" (BMVC
    2013), over the boundaries of all objects together.
    """
    if not a.size:
        return BoundaryMatch(0, 0, 0, 0)
    shifts = _shifts(a.ndim)
    step = max(1, BLOCK // a[0].size)
    counts = np.zeros(4, np.int64)
    for first in range(0, len(a), step):
        last = min(first + step, len(a))
        outlines = [_padded_outline(image, first, last) for image in (a, b)]
        flat_shifts = shifts @ np.array(outlines[0].strides)  # bytes, so positions of booleans
        inner = slice(TOLERANCE, TOLERANCE + last - first)
        points = [
            np.flatnonzero(outline[inner]) + TOLERANCE * outline.strides[0] for outline in outlines
        ]
        counts += (
            len(points[0]),
            len(points[1]),
            _n_close(points[0], outlines[1].ravel(), flat_shifts),
            _n_close(points[1], outlines[0].ravel(), flat_shifts),
        )
    return BoundaryMatch(*counts.tolist())


def _shifts(n_axes: int) -> NDArray[np.int64]:
    """Shifts up to the tolerance, shape (N, D), the nearest first."""
    every = np.array(list(itertools.product(range(-TOLERANCE, TOLERANCE + 1), repeat=n_axes)))
    squares = (every**2).sum(1)
    near = squares <= TOLERANCE**2
    return every[near][np.argsort(squares[near], kind="stable")]


def _padded_outline(image: NDArray[np.integer], first: int, last: int) -> NDArray[np.bool_]:
    """Boundary pixels of these rows and `TOLERANCE` around them, False outside the image."""
    low, high = max(0, first - TOLERANCE), min(len(image), last + TOLERANCE)
    begin, end = max(0, low - 1), min(len(image), high + 1)
    labels = np.ascontiguousarray(image[begin:end])
    differs = np.zeros(labels.shape, bool)
    for axis in range(labels.ndim):
        before: tuple[slice, ...] = (slice(None),) * axis + (slice(None, -1),)
        after: tuple[slice, ...] = (slice(None),) * axis + (slice(1, None),)
        edge = labels[before] != labels[after]
        differs[before] |= edge
        differs[after] |= edge
    differs &= labels != 0
    rows = differs[low - begin : len(differs) - (end - high)]
    missing = (TOLERANCE - (first - low), TOLERANCE - (high - last))
    return np.pad(rows, [missing, *[(TOLERANCE, TOLERANCE)] * (image.ndim - 1)])


def _n_close(points: NDArray[np.intp], other: NDArray[np.bool_], shifts: NDArray[np.int64]) -> int:
    left = points
    for shift in shifts:
        left = left[~other[left + shift]]
        if not len(left):
            break
    return len(points) - len(left)
