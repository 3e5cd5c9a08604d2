"""Rows of a table, one for each index or added up in bags, and the gradients of the table."""

from __future__ import annotations

import torch

from samebits.arithmetic.kernels.indexing import summed_at
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_type
from samebits.arithmetic.kernels.sums import FORMS as ADDING
from samebits.arithmetic.kernels.sums import pairwise_sum

FORMS = PortableForms()

_MEAN = 1
_MAX = 2
"""How PyTorch writes the mode of an ``EmbeddingBag``; 0 is its sum."""


@FORMS.of("embedding_dense_backward")
def _embedding_dense_backward(
    gradient: torch.Tensor,
    indices: torch.Tensor,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> torch.Tensor:
    kept = gradient.masked_fill((indices == padding_idx)[..., None], 0.0)
    if scale_grad_by_freq:
        kept = kept / _frequencies(indices, num_weights, like=kept)
    return _added_to_rows(gradient.new_zeros(num_weights, gradient.shape[-1]), indices, kept)


def _frequencies(indices: torch.Tensor, n_rows: int, *, like: torch.Tensor) -> torch.Tensor:
    """How often each index is among them, as numbers to divide rows by."""
    counts = torch.bincount(indices.flatten(), minlength=n_rows).to(like.dtype)
    return counts[indices][..., None].expand_as(like)


def _added_to_rows(table: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A table with values added to its rows."""
    width = table.shape[-1]
    positions = rows[..., None] * width + torch.arange(width, device=table.device)
    return summed_at(table, positions, values)


@FORMS.of("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[torch.Tensor, ...]:
    """The numbers beside the sums are whole, and PyTorch's own; so is the largest row."""
    check_type(weight, per_sample_weights)
    if include_last_offset and offsets[-1] != len(indices):  # which PyTorch takes in two ways
        raise NoPortableForm("has a portable form where the last offset is the number of indices")
    settings = (scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset)
    given = (weight, indices, offsets, *settings, padding_idx)
    output, *others = torch.ops.aten._embedding_bag.default(*given)
    if mode != _MAX:
        is_kept = indices != padding_idx
        bags = _bags(offsets, len(indices))[is_kept]
        rows = weight[indices[is_kept]]
        if per_sample_weights is not None:
            rows = rows * per_sample_weights[is_kept, None]
        output = _added_to_rows(torch.zeros_like(output), bags, rows)
        if mode == _MEAN:
            counts = others[1][: len(output), None].clamp(min=1)
            output = output / counts.to(output.dtype).expand_as(output)
    return output, *others


def _bags(offsets: torch.Tensor, n_indices: int) -> torch.Tensor:
    """In which bag each index is, of bags that begin at offsets; the last one may be an end."""
    places = torch.arange(n_indices, device=offsets.device)
    return torch.searchsorted(offsets.long(), places, right=True) - 1


@FORMS.of("_embedding_bag_backward")
def _embedding_bag_backward(
    gradient: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    bags: torch.Tensor,
    bag_size: torch.Tensor,
    largest: torch.Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: torch.Tensor | None,
    padding_idx: int = -1,
) -> torch.Tensor:
    del bags  # left out by PyTorch where it needs none itself
    if sparse:
        raise NoPortableForm("has a portable form with sparse=False only")
    table = gradient.new_zeros(num_weights, gradient.shape[1])
    if mode == _MAX:
        is_full = bag_size > 0
        columns = torch.arange(gradient.shape[1], device=gradient.device)
        positions = largest[is_full] * gradient.shape[1] + columns
        return summed_at(table, positions, gradient[is_full])
    is_kept = indices != padding_idx
    rows = indices[is_kept]
    of_bag = _bags(offsets, len(indices))[is_kept]
    values = gradient[of_bag]
    if per_sample_weights is not None:
        values = values * per_sample_weights[is_kept, None]
    if scale_grad_by_freq:
        values = values / _frequencies(rows, num_weights, like=values)
    if mode == _MEAN:
        values = values / bag_size[of_bag, None].to(values.dtype).expand_as(values)
    return _added_to_rows(table, rows, values)


@FORMS.of("_embedding_bag_per_sample_weights_backward")
def _embedding_bag_per_sample_weights_backward(
    gradient: torch.Tensor,
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    bags: torch.Tensor,
    mode: int,
    padding_idx: int = -1,
) -> torch.Tensor:
    del bags, mode  # follow from the offsets; only sums have weights
    check_type(gradient, weight)
    products = gradient[_bags(offsets, len(indices))] * weight[indices]
    return pairwise_sum(products, [1]).masked_fill_(indices == padding_idx, 0.0)


@FORMS.of("embedding_renorm")
def _embedding_renorm(
    weight: torch.Tensor, indices: torch.Tensor, max_norm: float, norm_type: float
) -> torch.Tensor:
    if 0 in weight.stride():
        raise NoPortableForm("has a portable form for a table whose rows are not the same memory")
    rows = torch.unique(indices)
    return weight.index_copy(0, rows, _renorm(weight[rows], norm_type, 0, max_norm))


@FORMS.of("renorm")
def _renorm(a: torch.Tensor, p: float, dim: int, maxnorm: float) -> torch.Tensor:
    check_type(a)
    axes = [axis for axis in range(a.dim()) if axis != dim % a.dim()]
    norm = ADDING["linalg_vector_norm"](a, p, axes, True)
    shorter = torch.full_like(norm, maxnorm) / (norm + _LEAST_NORM)
    return a * torch.where(norm > maxnorm, shorter, 1.0)


_LEAST_NORM = 1e-7
"""As PyTorch has it."""
