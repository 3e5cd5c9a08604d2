"""Percentiles with the same bits on every machine and in every version of NumPy."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Float = TypeVar("_Float", np.float32, np.float64)


def percentile(
    numbers: NDArray[_Float], percent: float, axis: tuple[int, ...] | None = None
) -> NDArray[_Float] | _Float:
    """A percentile, between the two nearest numbers, as ``numpy.percentile`` gives it.

    NumPy 2 computes the place between the two in the type of the numbers, NumPy 1 in float64; here
    it is float64.

    Of the same type; NaN where a number is NaN.

    >>> float(percentile(np.array([1.0, 2.0, 4.0]), 75.0))
    3.0
    """
    if axis is None:
        rows = numbers.reshape(-1)
    else:
        together = tuple(place % numbers.ndim for place in axis)
        kept = [place for place in range(numbers.ndim) if place not in together]
        shape_kept = [numbers.shape[place] for place in kept]
        rows = numbers.transpose(*kept, *together).reshape(*shape_kept, -1)
    last = rows.shape[-1] - 1
    position = float(percent) / 100.0 * last
    lower = min(math.floor(position), last)
    upper = min(lower + 1, last)
    in_part = np.partition(rows, sorted({lower, upper, last}), axis=-1)
    below = in_part[..., lower].astype(np.float64)
    above = in_part[..., upper].astype(np.float64)
    value = np.asarray(below + (above - below) * (position - lower))
    has_nan = np.isnan(in_part[..., last])  # NaN is sorted to the end
    value[has_nan] = np.nan
    rounded: NDArray[_Float] = value.astype(numbers.dtype)
    return rounded[()]
