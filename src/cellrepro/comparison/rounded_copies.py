"""One network as the other in a type of fewer or more bits: the same numbers, or rounded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import numpy as np

from cellrepro.comparison.weight_tensors import (
    NUMPY_TYPES,
    Bits,
    Tensor,
    Values,
    pieces,
    values,
)

Copy = Literal["same numbers", "B is A rounded", "A is B rounded"]
"""How one network may be the other in another type of numbers, the closest first."""
_COPIES: tuple[Copy, ...] = get_args(Copy)
_PIECE = 2**18  # parameters of each file in memory at a time, in search of a copy
_BITS = {dtype: 8 * np.dtype(as_numpy).itemsize for dtype, as_numpy in NUMPY_TYPES.items()}


def copy_of(pairs: Iterable[tuple[Tensor, Tensor]]) -> Copy | None:
    """Say how two networks whose types differ are copies of each other; None where they are not."""
    possible = set(_COPIES)
    for a, b in pairs:
        if a.shape != b.shape:
            return None
        possible &= _copies(a, b)
        if not possible:
            return None
    return next(kind for kind in _COPIES if kind in possible)


def _copies(a: Tensor, b: Tensor) -> set[Copy]:
    """Find the senses in which all numbers of two tensors are the same."""
    possible: set[Copy] = {"same numbers"}
    if _BITS[a.dtype] > _BITS[b.dtype]:
        possible.add("B is A rounded")
    if _BITS[b.dtype] > _BITS[a.dtype]:
        possible.add("A is B rounded")
    for of_a, of_b in pieces([a, b], _PIECE):
        values_a = values(of_a, a.dtype)
        values_b = values(of_b, b.dtype)
        if not np.array_equal(values_a, values_b, equal_nan=True):
            possible.discard("same numbers")
        if "B is A rounded" in possible and not _is_rounded(values_a, of_b, b.dtype):
            possible.discard("B is A rounded")
        if "A is B rounded" in possible and not _is_rounded(values_b, of_a, a.dtype):
            possible.discard("A is B rounded")
    return possible


def _is_rounded(wide: Values, narrow: Bits, dtype: str) -> bool:
    """Whether numbers are others, rounded to the nearest, to the even one of two."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "BF16":
            bits = wide.astype("<f4").view("<u4")
            rounded = (
                bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
            ) >> np.uint32(16)
            rounded_values = values(rounded.astype("<u2"), dtype)
        else:
            rounded_values = wide.astype(NUMPY_TYPES[dtype]).astype(np.float64)
    return bool(np.array_equal(rounded_values, values(narrow, dtype), equal_nan=True))
