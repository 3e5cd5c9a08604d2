"""Sums, means, variances and norms, whose order of additions follows from their length alone.

The second half of the numbers is added to the first, then the second quarter to the first, and so
on: each step is a single addition of two tensors, and its rounding is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from samebits.arithmetic.kernels.elementary import square_root
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms

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
    for axis in reversed(axes):
        total = total.squeeze(axis)
    return total


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


# -- the operations ------------------------------------------------------------------------


def _axes_of(dim: int | Sequence[int] | None) -> Sequence[int] | None:
    """Axes as PyTorch writes them: none, one, or several."""
    return [dim] if isinstance(dim, int) else dim


@FORMS.of("sum")
def _sum(
    a: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    return pairwise_sum(a if dtype is None else a.to(dtype), _axes_of(dim), keepdim=keepdim)


@FORMS.of("mean")
def _mean(
    a: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    return pairwise_mean(a if dtype is None else a.to(dtype), _axes_of(dim), keepdim=keepdim)


@FORMS.of("var")
def _var(
    a: torch.Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> torch.Tensor:
    if correction is None:
        correction = 1 if unbiased else 0
    if isinstance(dim, bool):  # var(a, unbiased)
        correction = int(dim)
        dim = None
    centred = a - pairwise_mean(a, _axes_of(dim), keepdim=True)
    squares = pairwise_sum(centred * centred, _axes_of(dim), keepdim=keepdim)
    n_averaged = a.numel() // max(1, squares.numel())
    return squares / torch.full_like(squares, max(0, n_averaged - correction))


@FORMS.of("std")
def _std(*arguments: Any, **options: Any) -> torch.Tensor:
    return square_root(_var(*arguments, **options))


@FORMS.of("linalg_vector_norm")
def _vector_norm(
    a: torch.Tensor,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    numbers = a if dtype is None else a.to(dtype)
    if ord == 1:
        return pairwise_sum(numbers.abs(), _axes_of(dim), keepdim=keepdim)
    if ord == 2:
        total = pairwise_sum(numbers * numbers, _axes_of(dim), keepdim=keepdim)
        return square_root(total)
    if ord == float("inf"):
        axes = _axes_of(dim)
        every_axis = list(range(a.dim()))
        return numbers.abs().amax(every_axis if axes is None else list(axes), keepdim=keepdim)
    raise NoPortableForm(f"has a portable form for the norms 1, 2 and infinity, and got {ord}")


@FORMS.of("prod")
def _prod(a: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
    del a, arguments, options
    raise NoPortableForm("multiplies in an order of its own, and has no portable form")
