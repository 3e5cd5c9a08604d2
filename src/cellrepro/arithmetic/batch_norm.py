"""Batch and group normalisation with their gradients, with sums in halves."""

from __future__ import annotations

from typing import NamedTuple

import torch

from cellrepro.arithmetic.elementary import square_root
from cellrepro.arithmetic.sums import pairwise_mean, pairwise_sum


class Statistics(NamedTuple):
    """Of each channel, or each group of each image."""

    mean: torch.Tensor
    inverse_deviation: torch.Tensor
    """1 by the standard deviation."""
    variance: torch.Tensor
    """Divided by the count."""


def statistics(numbers: torch.Tensor, dims: list[int], *, epsilon: float) -> Statistics:
    """Mean and deviation along some axes, which stay with the length 1."""
    mean = pairwise_mean(numbers, dims, keepdim=True)
    centred = numbers - mean
    variance = pairwise_mean(centred * centred, dims, keepdim=True)
    return Statistics(mean, inverse_deviation(variance, epsilon), variance)


def inverse_deviation(variance: torch.Tensor, epsilon: float) -> torch.Tensor:
    """1 by the square root of a variance and a small number."""
    deviation = square_root(variance + epsilon)
    return torch.ones_like(deviation) / deviation


def per_channel(numbers: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor | None:
    """One number a channel, shape (C,), in the shape in which it extends over images."""
    if numbers is None:
        return None
    return numbers.reshape(1, -1, *[1] * (like.dim() - 2))


def scaled(
    normalised: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None
) -> torch.Tensor:
    """Each channel multiplied and moved."""
    channel_weight = per_channel(weight, normalised)
    channel_bias = per_channel(bias, normalised)
    result = normalised if channel_weight is None else normalised * channel_weight
    return result if channel_bias is None else result + channel_bias


def gradient_of_normalised(
    gradient: torch.Tensor, normalised: torch.Tensor, inverse: torch.Tensor, dims: list[int]
) -> torch.Tensor:
    """The gradient of what was normalised along some axes, from that of the result."""
    mean_gradient = pairwise_mean(gradient, dims, keepdim=True)
    mean_product = pairwise_mean(gradient * normalised, dims, keepdim=True)
    return ((gradient - mean_gradient) - normalised * mean_product) * inverse


def sums_of_channels(numbers: torch.Tensor) -> torch.Tensor:
    """Over images and pixels: shape (C,)."""
    return pairwise_sum(numbers, [axis for axis in range(numbers.dim()) if axis != 1])
