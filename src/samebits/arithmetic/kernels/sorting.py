"""Sorting, where of equal numbers the first comes first, and what follows from it."""

from __future__ import annotations

from typing import Any

import torch

from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms

FORMS = PortableForms()


@FORMS.of("sort")
def _sort(
    a: torch.Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    del stable  # equal numbers stay in order in any case
    values, indices = torch.sort(a, dim=dim, descending=descending, stable=True)
    return values, indices


@FORMS.of("topk")
def _topk(
    a: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Take the first of equal numbers; which of them PyTorch takes depends on the machine."""
    del sorted  # they are sorted in any case
    values, indices = _sort(a, dim, largest)
    return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)


@FORMS.of("kthvalue")
def _kthvalue(
    a: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = (part.narrow(dim, k - 1, 1) for part in _sort(a, dim))
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


@FORMS.of("median")
def _median(a: torch.Tensor, *dims: Any) -> torch.Tensor:
    if dims:
        raise NoPortableForm("has a portable form without an axis only; use kthvalue for one")
    return torch.median(a)
