"""Numbers written and added at places that are given by their indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cellrepro.arithmetic.forms.registry import NoPortableForm, PortableForms, check_float32
from cellrepro.arithmetic.scattered_sums import added_at

FORMS = PortableForms()


@FORMS.of("index_put", "_index_put_impl", "_unsafe_index_put")
def _index_put(
    a: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> torch.Tensor:
    if not accumulate or not a.dtype.is_floating_point:
        return torch.ops.aten.index_put.default(a, indices, values, accumulate)
    numbered = torch.arange(a.numel(), device=a.device).view(a.shape)
    places = torch.ops.aten.index.Tensor(numbered, indices)
    return _added_at(a, places, values.expand(places.shape))


@FORMS.of("index_add")
def _index_add(
    a: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: Any = 1
) -> torch.Tensor:
    numbered = torch.arange(a.numel(), device=a.device).view(a.shape)
    values = source if alpha == 1 else source * alpha
    return _added_at(a, numbered.index_select(dim, index), values)


@FORMS.of("scatter_add")
def _scatter_add(
    a: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor
) -> torch.Tensor:
    used = source[tuple(slice(length) for length in index.shape)]
    numbered = torch.arange(a.numel(), device=a.device).view(a.shape)
    others = numbered[tuple(slice(length) for length in index.shape)]
    own = torch.arange(a.shape[dim], device=a.device)[: index.shape[dim]]
    stride = numbered.stride(dim) if a.dim() else 1
    shape = [1] * a.dim()
    shape[dim] = -1
    return _added_at(a, others + (index - own.view(shape)) * stride, used)


@FORMS.of("embedding_dense_backward")
def _embedding_dense_backward(
    gradient: torch.Tensor,
    indices: torch.Tensor,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> torch.Tensor:
    if scale_grad_by_freq:
        raise NoPortableForm("has a portable form without scale_grad_by_freq only")
    width = gradient.shape[-1]
    kept = gradient.masked_fill((indices == padding_idx)[..., None], 0.0)
    places = indices[..., None] * width + torch.arange(width, device=gradient.device)
    return _added_at(gradient.new_zeros(num_weights, width), places, kept)


def _added_at(a: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Numbers added at places, counted through all of a tensor."""
    check_float32("index_add", a, values)
    total = added_at(a.reshape(-1), places.reshape(-1), values.reshape(-1))
    return total.view(a.shape)
