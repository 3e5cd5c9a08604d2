"""Layer normalisation and its gradients, with sums in halves and a correctly rounded root."""

from __future__ import annotations

from typing import NamedTuple

import torch

from cellrepro.arithmetic.blocks import slices
from cellrepro.arithmetic.elementary import square_root
from cellrepro.arithmetic.sums import pairwise_mean, pairwise_sum


class LayerNorm(NamedTuple):
    """What `layer_norm` gives."""

    output: torch.Tensor
    """Of the shape of what was given."""
    mean: torch.Tensor
    """Of each row."""
    inverse_deviation: torch.Tensor
    """1 by the standard deviation of each row."""


class LayerNormGradients(NamedTuple):
    """What `layer_norm_backward` gives."""

    numbers: torch.Tensor
    weight: torch.Tensor
    """Summed over all rows."""
    bias: torch.Tensor
    """Summed over all rows."""


def layer_norm(
    numbers: torch.Tensor,
    *,
    n_normalised: int,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    epsilon: float,
) -> LayerNorm:
    """Normalise rows to mean 0 and variance 1."""
    rows = numbers.reshape(-1, n_normalised)
    output = torch.empty_like(rows, memory_format=torch.contiguous_format)
    means = rows.new_empty((len(rows), 1))
    inverse_deviations = torch.empty_like(means)
    for part in slices(len(rows), item_size=n_normalised, device=rows.device):
        mean = pairwise_mean(rows[part], [1], keepdim=True)
        centred = rows[part] - mean
        variance = pairwise_mean(centred * centred, [1], keepdim=True)
        deviation = square_root(variance + epsilon)
        inverse_deviation = torch.ones_like(deviation) / deviation
        centred *= inverse_deviation
        if weight is not None:
            centred *= weight.reshape(-1)
        if bias is not None:
            centred += bias.reshape(-1)
        output[part] = centred
        means[part] = mean
        inverse_deviations[part] = inverse_deviation
    n_outer = numbers.dim()
    while n_outer > 0 and numbers.shape[n_outer:].numel() != n_normalised:
        n_outer -= 1
    outer_shape = [*numbers.shape[:n_outer], *[1] * (numbers.dim() - n_outer)]
    return LayerNorm(
        output.reshape(numbers.shape),
        means.reshape(outer_shape),
        inverse_deviations.reshape(outer_shape),
    )


def layer_norm_backward(
    gradient: torch.Tensor,
    numbers: torch.Tensor,
    *,
    n_normalised: int,
    mean: torch.Tensor,
    inverse_deviation: torch.Tensor,
    weight: torch.Tensor | None,
) -> LayerNormGradients:
    """The gradients of `layer_norm`."""
    rows = numbers.reshape(-1, n_normalised)
    gradients = gradient.reshape(-1, n_normalised)
    means = mean.reshape(-1, 1)
    inverse_deviations = inverse_deviation.reshape(-1, 1)
    of_rows = torch.empty_like(rows, memory_format=torch.contiguous_format)
    for_weight = torch.empty_like(of_rows)
    for part in slices(len(rows), item_size=n_normalised, device=rows.device):
        normalised = (rows[part] - means[part]).mul_(inverse_deviations[part])
        for_weight[part] = normalised * gradients[part]
        scaled = gradients[part] if weight is None else gradients[part] * weight.reshape(-1)
        mean_gradient = pairwise_mean(scaled, [1], keepdim=True)
        mean_product = pairwise_mean(scaled * normalised, [1], keepdim=True)
        normalised *= mean_product
        change = (scaled - mean_gradient).sub_(normalised)
        of_rows[part] = change.mul_(inverse_deviations[part])
    shape = [n_normalised] if weight is None else weight.shape
    return LayerNormGradients(
        of_rows.reshape(numbers.shape),
        pairwise_sum(for_weight, [0]).reshape(shape),
        pairwise_sum(gradients, [0]).reshape(shape),
    )
