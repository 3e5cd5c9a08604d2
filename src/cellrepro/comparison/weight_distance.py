"""How far one vector of parameters is from another: L2, angle, and steps between floats (ulps).

A tensor is read a piece at a time, so that memory does not grow with the files; its pieces are
summed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.weight_tensors import Bits, Tensor, differences, pieces, values

_PIECE = 2**15  # parameters of each file in memory at a time, with some ten float64 values each


@dataclass(frozen=True, kw_only=True)
class Distance:
    """How far the second of two vectors of parameters, b, is from the first, a."""

    n_differing: int
    """Parameters with different bits, in a different shape or dtype, or in one file only."""
    l2: float
    """Length of b - a; NaN if a name or a shape differs; 0 between equal bits."""
    relative_l2: float
    """`l2` over the length of a; infinite if only a is all zero."""
    cosine: float
    """Cosine of the angle between a and b; 1 if l2 is 0, NaN if exactly one is all zero."""
    max_abs: float
    """Largest difference of one parameter, NaN counting as the largest."""
    max_abs_name: str | None
    """The first tensor that has it."""
    max_ulp: int | None
    """Most steps from float to next float between a and b; None without floats, for other shapes or
    dtypes, and where one of the two is NaN and the bits differ."""
    median_ulp: int | None
    """Median of these steps, rounded down to 0, 1, 2, 4, 8 and so on."""


_N_ULP_DIGITS = 66  # binary digits of the largest distance of two float64 numbers, and one more


class _FloatLayout(NamedTuple):
    """How the bits of a float are divided."""

    n_bits: int
    n_mantissa: int


_FLOATS = {
    "F64": _FloatLayout(64, 52),
    "F32": _FloatLayout(32, 23),
    "F16": _FloatLayout(16, 10),
    "BF16": _FloatLayout(16, 7),
}


class _Ulps(NamedTuple):
    """Steps from float to next float between the parameters of a piece."""

    known: bool
    """Whether a and b are of one shape and dtype, and no NaN stands beside another value."""
    largest: int
    """Most steps; -1 without any float."""
    n_by_digits: NDArray[np.int64]
    """Parameters by the number of binary digits of their distance."""


_NO_FLOATS = _Ulps(known=True, largest=-1, n_by_digits=np.zeros(_N_ULP_DIGITS, np.int64))
_NOT_KNOWN = _NO_FLOATS._replace(known=False)


class _Products(NamedTuple):
    """Sums over the parameters of a piece, of products of two of a, b and b - a."""

    squared_difference: float
    a_times_b: float
    a_squared: float
    b_squared: float


class Sums(NamedTuple):
    """The sums that the distance of a piece of a tensor is made of."""

    tensor: str | None
    """Name of the tensor, if it has a distance."""
    n_differing: int
    """Parameters that differ."""
    products: _Products
    """Sums of products."""
    max_abs: float
    """Largest difference of one parameter."""
    n_not_finite: int
    """Parameters that are NaN or infinite on either side."""
    ulps: _Ulps
    """Steps between floats."""


def sums_without_distance(n: int) -> Sums:
    """The sums of n parameters that have no counterpart."""
    return Sums(
        tensor=None,
        n_differing=n,
        products=_Products(math.nan, math.nan, math.nan, math.nan),
        max_abs=math.nan,
        n_not_finite=0,
        ulps=_NOT_KNOWN,
    )


def sums_of_tensor(name: str, a: Tensor, b: Tensor) -> list[Sums]:
    """The sums of every piece of one tensor, whose shapes may differ."""
    if a.shape != b.shape:
        return [sums_without_distance(max(a.n, b.n))]
    return [
        _sums_of_piece(name, bits_a, bits_b, (a.dtype, b.dtype))
        for bits_a, bits_b in pieces([a, b], _PIECE)
    ]


def _sums_of_piece(name: str, bits_a: Bits, bits_b: Bits, dtypes: tuple[str, str]) -> Sums:
    one_dtype = dtypes[0] == dtypes[1]
    a = values(bits_a, dtypes[0])
    b = values(bits_b, dtypes[1])
    same_bits = bits_a == bits_b if one_dtype else np.zeros(len(a), bool)
    difference = differences(a, b, same_bits)
    finite = np.isfinite(a) & np.isfinite(b)
    # Sums, not dot products: BLAS adds in an order that depends on its number of threads.
    with np.errstate(over="ignore", invalid="ignore"):
        products = _Products(
            squared_difference=float((difference * difference).sum()),
            a_times_b=float((a * b).sum()),
            a_squared=float((a * a).sum()),
            b_squared=float((b * b).sum()),
        )
    return Sums(
        tensor=name,
        n_differing=len(a) - int(np.count_nonzero(same_bits)),
        products=products,
        max_abs=float(np.abs(difference).max(initial=0)),
        n_not_finite=len(a) - int(np.count_nonzero(finite)),
        ulps=_ulps(bits_a, bits_b, dtypes[0]) if one_dtype else _NOT_KNOWN,
    )


def _ulps(a: Bits, b: Bits, dtype: str) -> _Ulps:
    """The steps between two pieces of one dtype.

    Floats of one dtype in order of size are consecutive integers once the sign is taken off their
    bits. Infinity is one step beyond the largest number, and -0 and 0 are the same.
    """
    if dtype not in _FLOATS or not len(a):
        return _NO_FLOATS
    layout = _FLOATS[dtype]
    sign = np.uint64(1 << (layout.n_bits - 1))
    infinity = np.uint64((1 << (layout.n_bits - 1)) - (1 << layout.n_mantissa))
    differing = np.flatnonzero(a != b)
    bits_a = a[differing].astype(np.uint64)
    bits_b = b[differing].astype(np.uint64)
    size_a = bits_a & ~sign
    size_b = bits_b & ~sign
    if max(size_a.max(initial=0), size_b.max(initial=0)) > infinity:
        return _NOT_KNOWN
    on_one_side_of_zero = np.maximum(size_a, size_b) - np.minimum(size_a, size_b)
    steps = np.where((bits_a ^ bits_b) & sign, size_a + size_b, on_one_side_of_zero)
    n_digits = np.frexp(steps.astype(np.float64))[1]
    n_by_digits = np.bincount(n_digits, minlength=_N_ULP_DIGITS)
    n_by_digits[0] += len(a) - len(differing)
    return _Ulps(known=True, largest=int(steps.max(initial=0)), n_by_digits=n_by_digits)


def distance_of(sums: Sequence[Sums]) -> Distance:
    """The distance of several pieces as one vector."""
    total = np.array([piece.products for piece in sums]).reshape(-1, 4).sum(0)
    products = _Products(*total.tolist())
    sizes = [0.0, *(piece.max_abs for piece in sums)]
    at = int(np.argmax(sizes))  # the first NaN, if there is one
    # Squares of float64 numbers below 1e-162 are lost, and a distance of 0 means equal values.
    l2 = float(np.maximum(math.sqrt(products.squared_difference), sizes[at]))
    max_ulp, median_ulp = _largest_and_median([piece.ulps for piece in sums])
    return Distance(
        n_differing=sum(piece.n_differing for piece in sums),
        l2=l2,
        relative_l2=_relative(l2, products),
        cosine=_cosine(l2, products),
        max_abs=sizes[at],
        max_abs_name=sums[at - 1].tensor if at else None,
        max_ulp=max_ulp,
        median_ulp=median_ulp,
    )


def _relative(l2: float, products: _Products) -> float:
    if l2 == 0:
        return 0.0
    length_a = math.sqrt(products.a_squared)
    return l2 / length_a if length_a else math.inf


def _cosine(l2: float, products: _Products) -> float:
    if l2 == 0:
        return 1.0
    length_a = math.sqrt(products.a_squared)
    length_b = math.sqrt(products.b_squared)
    if not (length_a and length_b):
        return math.nan
    return float(np.clip(products.a_times_b / (length_a * length_b), -1, 1))  # rounding exceeds 1


def _largest_and_median(ulps: Sequence[_Ulps]) -> tuple[int | None, int | None]:
    """Most and median steps over all pieces; None where one is not known, or without floats."""
    largest = max((piece.largest for piece in ulps), default=-1)
    if largest < 0 or not all(piece.known for piece in ulps):
        return None, None
    n_up_to = np.cumsum(np.sum([piece.n_by_digits for piece in ulps], axis=0))
    median_digits = int(np.searchsorted(n_up_to, (int(n_up_to[-1]) + 1) // 2))
    return largest, (1 << median_digits) >> 1
