"""Sums, means, variances and norms, whose order of additions follows from their length alone.

The second half of the numbers is added to the first, then the second quarter to the first, and so
on: each step is a single addition of two tensors, and its rounding is the same everywhere.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from samebits.arithmetic.kernels.elementary import raised, square_root
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms
from samebits.arithmetic.memory import Block, as_array

FORMS = PortableForms()

_FEW = 32
"""From here on the numbers of a row lie too close together for fast additions."""


def pairwise_sum(
    numbers: torch.Tensor, dims: Sequence[int] | None = None, *, keepdim: bool = False
) -> torch.Tensor:
    """The sum along some axes, in halves.

    >>> pairwise_sum(torch.arange(6.0).reshape(2, 3), [1])
    tensor([ 3., 12.])
    """
    n_dims = numbers.dim()
    chosen = range(n_dims) if dims is None or len(dims) == 0 else dims
    axes = sorted({dim % n_dims for dim in chosen}) if n_dims else []
    total = numbers
    for axis in reversed(axes):  # the last one first: what is left is smaller
        total = _summed_along(total, axis)
    if all(numbers.shape[axis] == 1 for axis in axes):  # nothing was added, so nothing is new yet
        total = total.clone()
    if keepdim:
        return total
    return total.squeeze(axes)


def pairwise_mean(
    numbers: torch.Tensor, dims: Sequence[int] | None = None, *, keepdim: bool = False
) -> torch.Tensor:
    """The mean along some axes: the sum in halves, divided once.

    NaN where there are no numbers.
    """
    total = pairwise_sum(numbers, dims, keepdim=keepdim)
    n_averaged = numbers.numel() // total.numel() if total.numel() else 1
    return total / torch.full_like(total, n_averaged)


def _summed_along(numbers: torch.Tensor, axis: int) -> torch.Tensor:
    """The sum along one axis, which keeps the length 1."""
    if numbers.shape[axis] == 0:
        return numbers.new_zeros([*numbers.shape[:axis], 1, *numbers.shape[axis + 1 :]])
    total = numbers
    is_own = False
    while total.shape[axis] > 1:
        array = as_array(total)
        if array is not None:
            return torch.from_numpy(sum_in_halves(array, axis))
        if total.shape[axis] <= _FEW and axis == total.dim() - 1 and axis > 0:
            return _summed_along(total.movedim(axis, 0).contiguous(), 0).movedim(0, axis)
        half = total.shape[axis] // 2
        first = total.narrow(axis, 0, half)
        second = total.narrow(axis, half, half)
        odd = total.narrow(axis, 2 * half, total.shape[axis] - 2 * half)
        sums = first.add_(second) if is_own else first + second
        is_own = True
        if odd.shape[axis] == 1:
            sums.narrow(axis, 0, 1).add_(odd)
        total = sums
    return total


def sum_in_halves(numbers: NDArray[Any], axis: int) -> NDArray[Any]:
    """The same of an array."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _sum_in_halves(numbers, axis)


def _sum_in_halves(numbers: NDArray[Any], axis: int) -> NDArray[Any]:
    to_front, back = _axes_with_first(axis % numbers.ndim, numbers.ndim)
    rows = numbers.transpose(to_front)
    n_rows = len(rows)
    while n_rows > 1:
        if n_rows <= _FEW:
            rows = np.ascontiguousarray(rows)
        half = n_rows // 2
        sums = rows[:half] + rows[half : 2 * half]
        if n_rows % 2:
            sums[:1] += rows[-1:]
        rows = sums
        n_rows = half
    return rows.transpose(back)


@functools.lru_cache(maxsize=256)
def _axes_with_first(axis: int, n_axes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """All axes with one of them first, and where each is then."""
    others = [other for other in range(n_axes) if other != axis]
    back = [*range(1, axis + 1), 0, *range(axis + 1, n_axes)]
    return (axis, *others), tuple(back)


def sum_along(numbers: Block, axes: Sequence[int]) -> Block:
    """The sum along some axes, in rising order, which keep the length 1; of an array without a
    word about infinities."""
    if not isinstance(numbers, np.ndarray):
        return pairwise_sum(numbers, axes, keepdim=True)
    total = numbers
    for axis in reversed(axes):
        total = _sum_in_halves(total, axis)
    return total.copy() if total.size == numbers.size else total


def mean_along(numbers: Block, axes: Sequence[int]) -> Block:
    """The mean along some axes, as `sum_along` adds them."""
    if not isinstance(numbers, np.ndarray):
        return pairwise_mean(numbers, axes, keepdim=True)
    total = sum_along(numbers, axes)
    total /= numbers.size // max(1, total.size)
    return total


# -- the operations ------------------------------------------------------------------------


def _axes_of(dim: int | Sequence[int] | None) -> Sequence[int] | None:
    """Axes as PyTorch writes them: none, one, or several."""
    return [dim] if isinstance(dim, int) else dim


_HALF = (torch.float16, torch.bfloat16)


def _summands(a: torch.Tensor, dtype: torch.dtype | None) -> tuple[torch.Tensor, torch.dtype]:
    """Numbers in the type in which they are added, and the type of the result: those of 16 bits
    are added in float32 and rounded once."""
    of_result = a.dtype if dtype is None else dtype
    return a.to(torch.float32 if of_result in _HALF else of_result), of_result


@FORMS.of("sum", in_any_type=True)
def _sum(
    a: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    numbers, of_result = _summands(a, dtype)
    return pairwise_sum(numbers, _axes_of(dim), keepdim=keepdim).to(of_result)


@FORMS.of("mean", in_any_type=True)
def _mean(
    a: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    numbers, of_result = _summands(a, dtype)
    return pairwise_mean(numbers, _axes_of(dim), keepdim=keepdim).to(of_result)


@FORMS.of("var", in_any_type=True)
def _var(
    a: torch.Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> torch.Tensor:
    variance, _ = _variance_and_mean(a, dim, unbiased, keepdim, correction=correction)
    return variance.to(a.dtype)


@FORMS.of("std", in_any_type=True)
def _std(a: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
    variance, _ = _variance_and_mean(a, *arguments, **options)
    return square_root(variance).to(a.dtype)


@FORMS.of("var_mean", in_any_type=True)
def _var_mean(
    a: torch.Tensor, *arguments: Any, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    variance, mean = _variance_and_mean(a, *arguments, **options)
    return variance.to(a.dtype), mean.to(a.dtype)


@FORMS.of("std_mean", in_any_type=True)
def _std_mean(
    a: torch.Tensor, *arguments: Any, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    variance, mean = _variance_and_mean(a, *arguments, **options)
    return square_root(variance).to(a.dtype), mean.to(a.dtype)


def _variance_and_mean(
    a: torch.Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """In float32 of numbers with 16 bits; in float64 where squares of float32 are too large, or too
    small."""
    if correction is None:
        correction = 1 if unbiased else 0
    if isinstance(dim, bool):  # var(a, unbiased)
        correction = int(dim)
        dim = None
    numbers, _ = _summands(a, None)
    axes = _axes_of(dim)
    moments = _moments(numbers, axes, correction, keepdim=keepdim)
    if not bool(_in_range(moments.squares, moments.n_added).all()):
        wide = _moments(numbers.double(), axes, correction, keepdim=keepdim)
        moments = moments.or_where_not_in_range(wide)
    return moments.variance, moments.mean


class _Moments(NamedTuple):
    """Means and variances along some axes."""

    mean: torch.Tensor
    squares: torch.Tensor
    """Summed distances from the mean, squared."""
    variance: torch.Tensor
    n_added: int

    def or_where_not_in_range(self, wide: _Moments) -> _Moments:
        """These, and those of float64 where squares of float32 are infinite or lose digits."""
        is_in_range = _in_range(self.squares, self.n_added)
        return _Moments(
            torch.where(is_in_range, self.mean, wide.mean),
            torch.where(is_in_range, self.squares, wide.squares),
            torch.where(is_in_range, self.variance, wide.variance),
            self.n_added,
        )


def _moments(
    numbers: torch.Tensor, axes: Sequence[int] | None, correction: Any, *, keepdim: bool
) -> _Moments:
    mean = pairwise_mean(numbers, axes, keepdim=True)
    centred = numbers - mean
    squares = pairwise_sum(centred * centred, axes, keepdim=keepdim)
    n_added = numbers.numel() // max(1, squares.numel())
    variance = squares / torch.full_like(squares, max(0, n_added - correction))
    return _Moments(mean.reshape(variance.shape), squares, variance, n_added)


_LEAST_NORMAL = 2.0**-126


def _in_range(squares: torch.Tensor, n_added: int) -> torch.Tensor:
    """Where sums of squares are finite, and so large that no square has lost digits; of float64
    numbers everywhere."""
    if squares.dtype != torch.float32:
        return squares.new_ones((), dtype=torch.bool)
    return (squares >= n_added * _LEAST_NORMAL) & (squares < math.inf)


@FORMS.of("linalg_vector_norm", in_any_type=True)
def _vector_norm(
    a: torch.Tensor,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    numbers, of_result = _summands(a, dtype)
    axes = _axes_of(dim)
    if ord != 0 and _are_single(numbers, axes):  # whose powers may be 0 or infinite
        return pairwise_sum(numbers.abs(), axes, keepdim=keepdim).to(of_result)
    return _norm(numbers, ord, axes, keepdim=keepdim).to(of_result)


def _are_single(numbers: torch.Tensor, axes: Sequence[int] | None) -> bool:
    """Whether there is only one number along the axes."""
    if numbers.dim() == 0:
        return True
    return all(numbers.shape[axis] == 1 for axis in axes or range(numbers.dim()))


def _norm(
    numbers: torch.Tensor, ord: Any, axes: Sequence[int] | None, *, keepdim: bool
) -> torch.Tensor:
    if ord == 0:
        return pairwise_sum((numbers != 0).to(numbers.dtype), axes, keepdim=keepdim)
    if ord == 1:
        return pairwise_sum(numbers.abs(), axes, keepdim=keepdim)
    if ord == 2:
        total = pairwise_sum(numbers * numbers, axes, keepdim=keepdim)
        n_added = numbers.numel() // max(1, total.numel())
        is_in_range = _in_range(total, n_added)
        if not bool(is_in_range.all()):
            wide = numbers.double()
            in_wide = pairwise_sum(wide * wide, axes, keepdim=keepdim)
            total = torch.where(is_in_range, total, in_wide)
        return square_root(total).to(numbers.dtype)
    if ord in (float("inf"), float("-inf")):
        chosen = list(range(numbers.dim())) if axes is None else list(axes)
        extreme = torch.amax if ord > 0 else torch.amin
        return extreme(numbers.abs(), chosen, keepdim)
    total = pairwise_sum(raised(numbers.abs(), ord), axes, keepdim=keepdim)
    return raised(total, 1.0 / ord)


@FORMS.of("norm", in_any_type=True)
def _old_norm(
    a: torch.Tensor,
    p: Any = 2,
    dim: Any = (),
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    axes = _axes_of(dim)
    return _vector_norm(a, 2 if p is None else p, axes or None, keepdim, dtype=dtype)


@FORMS.of("dist")
def _dist(a: torch.Tensor, b: torch.Tensor, p: Any = 2) -> torch.Tensor:
    return _vector_norm(a - b, p)


@FORMS.of("nansum", in_any_type=True)
def _nansum(
    a: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    return _sum(a.masked_fill(a.isnan(), 0.0), dim, keepdim, dtype=dtype)


@FORMS.of("trace", in_any_type=True)
def _trace(a: torch.Tensor) -> torch.Tensor:
    return _sum(a.diagonal())


# -- products and running sums, in float64 and rounded once ----------------------------------


@FORMS.of("prod")
def _prod(
    a: torch.Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The second half times the first, and so on, as sums are added."""
    of_result = _of_fractions(a, dtype)
    numbers = a.to(of_result).double()
    rows = numbers.reshape(-1) if dim is None else numbers.movedim(dim, 0)
    if rows.dim() == 0:
        rows = rows.reshape(1)
    while len(rows) > 1:
        half = len(rows) // 2
        products = rows[:half] * rows[half : 2 * half]
        if len(rows) % 2:
            products[0] *= rows[-1]
        rows = products
    result = rows[0] if len(rows) else rows.new_ones(rows.shape[1:])
    if keepdim and dim is not None and a.dim():
        result = result.unsqueeze(dim)
    return result.to(of_result)


@FORMS.of("cumsum")
def _cumsum(a: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    of_result = _of_fractions(a, dtype)
    return _running(a.to(of_result), dim, torch.add)


@FORMS.of("cumprod")
def _cumprod(a: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    of_result = _of_fractions(a, dtype)
    return _running(a.to(of_result), dim, torch.mul)


def _of_fractions(a: torch.Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """The type of a result; whole numbers have come to their exact operation before."""
    of_result = a.dtype if dtype is None else dtype
    if of_result not in (torch.float32, torch.float64):
        raise NoPortableForm(f"has a portable form for float32 and float64, and got {of_result}")
    return of_result


def _running(
    numbers: torch.Tensor, dim: int, together: Callable[..., torch.Tensor]
) -> torch.Tensor:
    """Sums, or products, of all numbers up to each: in steps of 1, 2, 4, ... places, so that each
    depends on its own place alone."""
    if numbers.dim() == 0 or numbers.numel() == 0:
        return numbers.clone()
    rows = numbers.double().movedim(dim, 0).contiguous()
    step = 1
    while step < len(rows):
        rows = torch.cat([rows[:step], together(rows[step:], rows[:-step])])
        step *= 2
    return rows.movedim(0, dim).to(numbers.dtype, memory_format=torch.contiguous_format)
