"""Numbers written and added at positions that are given by indices, which may repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from samebits.arithmetic.exact_sums import BITS_OF_DOUBLE, n_bits_of_count, rounder
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_type
from samebits.bit_equality import same_bits

FORMS = PortableForms()


@FORMS.of("index_put", "_index_put_impl", "_unsafe_index_put", in_any_type=True)
def _index_put(
    a: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> torch.Tensor:
    del unsafe  # only leaves out a check of the indices
    if not accumulate:
        result = torch.ops.aten.index_put.default(a, indices, values, False)
        _refuse_if_ambiguous(torch.ops.aten.index.Tensor(result, indices), values)
        return result
    if not a.dtype.is_floating_point:
        return torch.ops.aten.index_put.default(a, indices, values, accumulate)
    numbered = torch.arange(a.numel(), device=a.device).view(a.shape)
    positions = torch.ops.aten.index.Tensor(numbered, indices)
    return summed_at(a, positions, values.expand(positions.shape))


@FORMS.of("scatter", in_any_type=True)
def _scatter(
    a: torch.Tensor, dim: int, index: torch.Tensor, source: Any, *, reduce: str | None = None
) -> torch.Tensor:
    if reduce is not None:
        raise NoPortableForm("has a portable form without reduce only")
    result = torch.scatter(a, dim, index, source)
    if isinstance(source, torch.Tensor) and index.dim():
        used = source[tuple(slice(length) for length in index.shape)]
        _refuse_if_ambiguous(result.gather(dim, index), used)
    return result


@FORMS.of("index_copy", in_any_type=True)
def _index_copy(
    a: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor
) -> torch.Tensor:
    result = torch.index_copy(a, dim, index, source)
    if a.dim():
        _refuse_if_ambiguous(result.index_select(dim, index), source)
    return result


def _refuse_if_ambiguous(read_back: torch.Tensor, written: torch.Tensor) -> None:
    """Refuse several numbers for one position: which of them stays depends on threads."""
    if not same_bits(read_back, written.expand(read_back.shape)):
        raise NoPortableForm("writes different numbers into one place, in the order of threads")


@FORMS.of("index_add")
def _index_add(
    a: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: Any = 1
) -> torch.Tensor:
    if index.numel() == 0 or a.numel() == 0:
        return a.clone()
    numbered = torch.arange(a.numel(), device=a.device).view(a.shape)
    values = source if alpha == 1 else source * alpha
    return summed_at(a, numbered.index_select(dim, index), values)


@FORMS.of("scatter_add")
def _scatter_add(
    a: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor
) -> torch.Tensor:
    if index.numel() == 0:
        return a.clone()
    if not a.dim():
        added = _scatter_add(a[None], 0, index.reshape(1), source.reshape(1))
        return added.reshape(())
    index = index.reshape(1) if not index.dim() else index
    source = source.reshape(1) if not source.dim() else source
    used = source[tuple(slice(length) for length in index.shape)]
    dim %= a.dim()
    if not bool(((index >= 0) & (index < a.shape[dim])).all()):
        raise IndexError(f"expected indices from 0 to {a.shape[dim] - 1}")
    numbered = torch.arange(a.numel(), device=a.device).view(a.shape)
    lengths = (1 if axis == dim else length for axis, length in enumerate(index.shape))
    begins = numbered[tuple(map(slice, lengths))]
    return summed_at(a, begins + index * numbered.stride(dim), used)


def scattered_sum(
    a: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    *,
    include_self: bool,
    mean: bool,
) -> torch.Tensor:
    """Sums, or means, of the numbers at each position, with what stood there or without it."""
    check_type(a, source)
    if index.numel() == 0:
        return a.clone()
    begun = a if include_self else a.scatter(dim, index, 0.0)
    sums = _scatter_add(begun, dim, index, source)
    if not mean:
        return sums
    counts = torch.full(a.shape, int(include_self), dtype=torch.int64, device=a.device)
    counts = counts.scatter_add(dim, index, torch.ones_like(index))
    return sums / counts.clamp(min=1).to(sums.dtype)


@FORMS.of("put", in_any_type=True)
def _put(
    a: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    if not accumulate or not a.dtype.is_floating_point:
        # PyTorch's own raises in the modes strict and portable, whether places repeat or not.
        row = a.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate)
        if not accumulate:
            _refuse_if_ambiguous(row[index], source.reshape(index.shape))
        return row.view(a.shape)
    wrapped = torch.where(index < 0, index + a.numel(), index)
    return summed_at(a, wrapped, source)


def summed_at(a: torch.Tensor, positions: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A tensor with numbers added to it at positions, counted through all of it."""
    check_type(a, values)
    total = added_at(a.reshape(-1), positions.reshape(-1), values.reshape(-1))
    return total.view(a.shape)


def added_at(target: torch.Tensor, positions: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A row of numbers, with others added to it at positions that may repeat.

    The numbers of a position are rounded so that their sum is exact, also where threads race (see
    `samebits.arithmetic.exact_sums`); in float64 what was rounded away is added so, too. Infinities
    and NaN need no order.

    >>> added_at(torch.tensor([1.0, 2.0]), torch.tensor([1, 1]), torch.tensor([0.5, 0.25]))
    tensor([1.0000, 2.7500])
    """
    numbers = values.double()
    if target.dtype == torch.float64:
        _refuse_large(numbers)
    sums, rest = _exact_sums_at(target, positions, numbers)
    total = sums + target.double()
    if target.dtype == torch.float64:
        rest = torch.where(rest.isfinite(), rest, 0.0)  # where a sum is infinite or NaN
        total += _exact_sums_at(target, positions, rest)[0]
    return total.to(target.dtype)


_LARGE = 2.0**900
"""From here on the power of two to which numbers are rounded may be infinite."""


def _refuse_large(numbers: torch.Tensor) -> None:
    if bool((numbers.isfinite() & (numbers.abs() >= _LARGE)).any()):
        raise NoPortableForm(
            f"adds float64 numbers at places in a portable form below {_LARGE:.0e}, and got larger "
            "ones"
        )


def _exact_sums_at(
    like: torch.Tensor, positions: torch.Tensor, numbers: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of float64 numbers at positions in a row, each rounded before so that no order of adding
    matters; and what was rounded away of each number."""
    largest = torch.zeros_like(like, dtype=torch.float64)
    largest.scatter_reduce_(0, positions, numbers.abs(), "amax")
    added = rounder(largest, BITS_OF_DOUBLE - n_bits_of_count(len(positions)))
    shift = added.index_select(0, positions)
    rounded = numbers + shift
    rounded -= shift
    is_rounded = largest.isfinite()
    if not bool(is_rounded.all()):
        rounded = torch.where(is_rounded.index_select(0, positions), rounded, numbers)
    sums = torch.zeros_like(largest).index_add_(0, positions, rounded)
    return sums, numbers - rounded
