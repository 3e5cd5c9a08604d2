"""Boundaries of the objects of two label images, and how many lie close to each other."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cellrepro.errors import BadInput

TOLERANCE = 2.0
"""Pixels by which boundaries may lie apart and still count as the same."""

_BLOCK = 2**21
"""Pixels that are looked at at a time."""

_MOST_WIDE = 64
"""Largest tolerance, pixels: what is looked at grows with its square, in 3-D with its cube."""


@dataclass(frozen=True)
class BoundaryMatch:
    """How many boundary pixels of each side lie close to one of the other.

    Attributes
    ----------
    n_a, n_b : int
        Boundary pixels.
    n_close_a, n_close_b : int
        Of these, within the tolerance of one of the other side.
    """

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


def match_boundaries(
    a: NDArray[np.integer], b: NDArray[np.integer], *, tolerance: float = TOLERANCE
) -> BoundaryMatch:
    """Count the boundary pixels that two label images share, give or take a tolerance.

    A boundary pixel is a pixel of an object with another label, or background, beside one of its
    faces (4 neighbours in 2-D, 6 in 3-D). The edge of the image is no boundary. The measure is
    that of Csurka et al., "What is a good evaluation measure for semantic segmentation?" (BMVC
    2013), over the boundaries of all objects together.

    Parameters
    ----------
    a, b : ndarray of int, shape (Y, X) or (Z, Y, X)
        Label images of one shape, 0 is background.
    tolerance : float
        Largest Euclidean distance between two boundary pixels that count as the same, pixels.

    Returns
    -------
    BoundaryMatch

    Raises
    ------
    BadInput
        If the tolerance is negative, no number, or larger than 64 pixels.
    """
    if not 0 <= tolerance <= _MOST_WIDE:
        raise BadInput(
            f"the tolerance of boundaries is {tolerance} pixels, and it is 0 to {_MOST_WIDE}; "
            "2 is usual"
        )
    if not a.size:
        return BoundaryMatch(0, 0, 0, 0)
    reach = math.floor(tolerance)
    offsets = _offsets(tolerance, a.ndim)
    step = max(1, _BLOCK // a[0].size)
    counts = np.zeros(4, np.int64)
    for first in range(0, len(a), step):
        last = min(first + step, len(a))
        outline_a = _padded_outline(a, first, last, reach)
        outline_b = _padded_outline(b, first, last, reach)
        shifts = offsets @ np.array(outline_a.strides)  # bytes, and so positions, of booleans
        points_a, points_b = (_points(o, last - first, reach) for o in (outline_a, outline_b))
        counts += (
            len(points_a),
            len(points_b),
            _n_close(points_a, outline_b.ravel(), shifts),
            _n_close(points_b, outline_a.ravel(), shifts),
        )
    return BoundaryMatch(*counts.tolist())


def _offsets(tolerance: float, n_axes: int) -> NDArray[np.int64]:
    """Shifts up to the tolerance, shape (N, D), the nearest first."""
    reach = math.floor(tolerance)
    shifts = np.array(list(itertools.product(range(-reach, reach + 1), repeat=n_axes)))
    squares = (shifts**2).sum(1)
    near = np.sqrt(squares) <= tolerance  # the square of the root of 18 is less than 18
    return shifts[near][np.argsort(squares[near], kind="stable")]


def _padded_outline(
    image: NDArray[np.integer], first: int, last: int, reach: int
) -> NDArray[np.bool_]:
    """Boundary pixels of rows ``first - reach`` to ``last + reach``, False outside the image."""
    low, high = max(0, first - reach), min(len(image), last + reach)
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
    missing = (reach - (first - low), reach - (high - last))
    return np.pad(rows, [missing, *[(reach, reach)] * (image.ndim - 1)])


def _points(outline: NDArray[np.bool_], n_rows: int, reach: int) -> NDArray[np.intp]:
    """Positions, in the flat padded outline, of the boundary pixels of the inner rows."""
    return np.flatnonzero(outline[reach : reach + n_rows]) + reach * outline.strides[0]


def _n_close(points: NDArray[np.intp], other: NDArray[np.bool_], shifts: NDArray[np.int64]) -> int:
    left = points
    for shift in shifts:
        left = left[~other[left + shift]]
        if not len(left):
            break
    return len(points) - len(left)
