"""Sorting, where of equal numbers the first comes first, and what follows from it."""

from __future__ import annotations

from typing import Any

import torch

from samebits.arithmetic.kernels.registry import PortableForms

FORMS = PortableForms()


@FORMS.of("sort", in_any_type=True)
def _sort(
    a: torch.Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    del stable  # equal numbers stay in order in any case
    values, indices = torch.sort(a, dim=dim, descending=descending, stable=True)
    return values, indices


@FORMS.of("topk", in_any_type=True)
def _topk(
    a: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Take the first of equal numbers; which of them PyTorch takes depends on the machine."""
    del sorted  # they are sorted in any case
    if a.dim() == 0:
        return a.clone(), torch.zeros_like(a, dtype=torch.int64)
    values, indices = _sort(a, dim, largest)
    return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)


@FORMS.of("kthvalue", in_any_type=True)
def _kthvalue(
    a: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    if a.dim() == 0:
        return a.clone(), torch.zeros_like(a, dtype=torch.int64)
    values, indices = (part.narrow(dim, k - 1, 1) for part in _sort(a, dim))
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


@FORMS.of("median", in_any_type=True)
def _median(a: torch.Tensor, *axis: Any) -> Any:
    """The lower of two middle numbers, and NaN where there is one."""
    return _middle(a, *axis, ignore_nan=False)


@FORMS.of("nanmedian", in_any_type=True)
def _nanmedian(a: torch.Tensor, *axis: Any) -> Any:
    """The lower of two middle numbers among those that are numbers."""
    return _middle(a, *axis, ignore_nan=True)


def _middle(
    a: torch.Tensor, dim: int | None = None, keepdim: bool = False, *, ignore_nan: bool
) -> Any:
    """Without an axis the number alone, and a zero is +0; of equal numbers the first is named."""
    if dim is None:
        flat = a.flatten()
        value = torch.nanmedian(flat) if ignore_nan else torch.median(flat)
        return value.add_(0.0) if value.is_floating_point() else value
    if a.dim() == 0:
        return a.clone(), torch.zeros_like(a, dtype=torch.int64)
    values, indices = _sort(a, dim)
    n_numbers = (~a.isnan()).sum(dim, keepdim=True)
    place = ((n_numbers - 1) // 2).clamp(min=0)
    if not ignore_nan:
        place = torch.where(n_numbers < a.shape[dim], n_numbers, place)
    middle = values.gather(dim, place), indices.gather(dim, place)
    return middle if keepdim else tuple(part.squeeze(dim) for part in middle)
