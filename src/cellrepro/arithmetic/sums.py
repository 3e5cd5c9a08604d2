"""Sums whose order of additions follows from their length alone.

The second half of the numbers is added to the first, then the second quarter to the first, and so
on: each step is a single addition of two tensors, and its rounding is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

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
