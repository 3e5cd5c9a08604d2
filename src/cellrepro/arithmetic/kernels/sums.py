"""Sums, means, variances and norms."""

from __future__ import annotations

from typing import Any

import torch

from cellrepro.arithmetic import elementary
from cellrepro.arithmetic.kernels.registry import NoPortableForm, PortableForms, axes_of
from cellrepro.arithmetic.sums import pairwise_mean, pairwise_sum

FORMS = PortableForms()


@FORMS.of("sum")
def _sum(
    a: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    return pairwise_sum(a if dtype is None else a.to(dtype), axes_of(dim), keepdim=keepdim)


@FORMS.of("mean")
def _mean(
    a: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    return pairwise_mean(a if dtype is None else a.to(dtype), axes_of(dim), keepdim=keepdim)


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
    centred = a - pairwise_mean(a, axes_of(dim), keepdim=True)
    squares = pairwise_sum(centred * centred, axes_of(dim), keepdim=keepdim)
    n_averaged = a.numel() // max(1, squares.numel())
    return squares / torch.full_like(squares, max(0, n_averaged - correction))


@FORMS.of("std")
def _std(*arguments: Any, **options: Any) -> torch.Tensor:
    return elementary.square_root(_var(*arguments, **options))


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
        return pairwise_sum(numbers.abs(), axes_of(dim), keepdim=keepdim)
    if ord == 2:
        total = pairwise_sum(numbers * numbers, axes_of(dim), keepdim=keepdim)
        return elementary.square_root(total)
    if ord == float("inf"):
        axes = axes_of(dim)
        every_axis = list(range(a.dim()))
        return numbers.abs().amax(every_axis if axes is None else list(axes), keepdim=keepdim)
    raise NoPortableForm(f"has a portable form for the norms 1, 2 and infinity, and got {ord}")


@FORMS.of("prod")
def _prod(a: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
    raise NoPortableForm("multiplies in an order of its own, and has no portable form")
