"""Activations and losses with their gradients, as fixed sequences of operations."""

from __future__ import annotations

import torch

from cellrepro.arithmetic.blocks import mapped, slices
from cellrepro.arithmetic.elementary import (
    erf_of_block,
    exp,
    exp_at_most_one,
    log1p_of_unit,
    sigmoid,
)
from cellrepro.arithmetic.sums import pairwise_sum

_SQRT_HALF = 0.7071067811865476
_ONE_BY_SQRT_TWO_PI = 0.3989422804014327


def gelu(numbers: torch.Tensor) -> torch.Tensor:
    """x times the chance that a normal number is less than x, of float32 numbers."""
    return mapped(_gelu, numbers)


def _gelu(numbers: torch.Tensor) -> torch.Tensor:
    return _normal_chance(numbers).mul_(numbers)


def _normal_chance(numbers: torch.Tensor) -> torch.Tensor:
    """The chance that a normal number is less than x: (1 + erf(x / sqrt 2)) / 2."""
    return erf_of_block(numbers * _SQRT_HALF).add_(1.0).mul_(0.5)


def gelu_backward(gradient: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """The gradient of `gelu`."""
    return mapped(_gelu_backward, gradient, numbers)


def _gelu_backward(gradient: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    density = exp_at_most_one((numbers * numbers).mul_(-0.5))
    density *= _ONE_BY_SQRT_TWO_PI
    density *= numbers
    density += _normal_chance(numbers)
    return density.mul_(gradient)


def softmax(numbers: torch.Tensor, dim: int) -> torch.Tensor:
    """Exponentials that sum to 1 along one axis, of float32 numbers."""
    rows = numbers.movedim(dim, -1)
    flat = rows.reshape(-1, rows.shape[-1])
    result = torch.empty_like(flat, memory_format=torch.contiguous_format)
    for part in slices(len(flat), item_size=flat.shape[1], device=flat.device):
        result[part] = _softmax_of_rows(flat[part])
    return result.reshape(rows.shape).movedim(-1, dim)


def _softmax_of_rows(rows: torch.Tensor) -> torch.Tensor:
    if rows.shape[1] == 0:
        return rows.clone()
    exponentials = exp_at_most_one(rows - rows.amax(dim=1, keepdim=True))
    return exponentials.div_(pairwise_sum(exponentials, [1], keepdim=True))


def softmax_backward(gradient: torch.Tensor, output: torch.Tensor, dim: int) -> torch.Tensor:
    """The gradient of `softmax`."""
    gradients = gradient.movedim(dim, -1)
    outputs = output.movedim(dim, -1)
    flat_gradient = gradients.reshape(-1, gradients.shape[-1])
    flat_output = outputs.reshape(-1, outputs.shape[-1])
    result = torch.empty_like(flat_output, memory_format=torch.contiguous_format)
    for part in slices(len(flat_output), item_size=flat_output.shape[1], device=output.device):
        weighted = flat_gradient[part] * flat_output[part]
        means = pairwise_sum(weighted, [1], keepdim=True)
        result[part] = (flat_gradient[part] - means).mul_(flat_output[part])
    return result.reshape(outputs.shape).movedim(-1, dim)


def log_softmax(numbers: torch.Tensor, dim: int) -> torch.Tensor:
    """The logarithm of `softmax`, of float32 numbers."""
    from cellrepro.arithmetic.elementary import log

    shifted = numbers - numbers.amax(dim=dim, keepdim=True)
    return shifted - log(pairwise_sum(exp(shifted), [dim], keepdim=True))


def log_softmax_backward(gradient: torch.Tensor, output: torch.Tensor, dim: int) -> torch.Tensor:
    """The gradient of `log_softmax`, from its gradient and what it gave."""
    return gradient - exp(output) * pairwise_sum(gradient, [dim], keepdim=True)


def binary_cross_entropy_with_logits(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The loss of each logit: max(x, 0) - x t + log(1 + exp(-abs(x))), not yet averaged."""
    return mapped(_cross_entropy, logits, targets.expand_as(logits).contiguous())


def _cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    loss = log1p_of_unit(exp_at_most_one(logits.abs().neg_()))
    loss += logits.clamp(min=0.0)
    loss -= logits * targets
    return loss


def sigmoid_backward(gradient: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """The gradient of ``sigmoid``, from its gradient and what it gave."""
    rest = output.neg().add_(1.0)
    return rest.mul_(output).mul_(gradient)


def silu(numbers: torch.Tensor) -> torch.Tensor:
    """x times its sigmoid."""
    return sigmoid(numbers).mul_(numbers)


def silu_backward(gradient: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """The gradient of `silu`, from its gradient and what it was given."""
    chance = sigmoid(numbers)
    slope = chance.neg().add_(1.0).mul_(numbers).add_(1.0).mul_(chance)
    return slope.mul_(gradient)
