"""Activations and softmax with their gradients, as fixed sequences of operations."""

from __future__ import annotations

import torch

from samebits.arithmetic.kernels.elementary import erf_of_block, exp, exp_at_most_one, log, sigmoid
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_float32
from samebits.arithmetic.kernels.sums import pairwise_sum
from samebits.arithmetic.memory import mapped, slices

FORMS = PortableForms()

_SQRT_HALF = 0.7071067811865476
_ONE_BY_SQRT_TWO_PI = 0.3989422804014327


@FORMS.of("gelu")
def gelu(numbers: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """x times the chance that a normal number is less than x."""
    _check_gelu(approximate, numbers)
    return mapped(_gelu_of_block, numbers)


def _gelu_of_block(numbers: torch.Tensor) -> torch.Tensor:
    return _normal_chance(numbers).mul_(numbers)


def _normal_chance(numbers: torch.Tensor) -> torch.Tensor:
    """The chance that a normal number is less than x: (1 + erf(x / sqrt 2)) / 2."""
    return erf_of_block(numbers * _SQRT_HALF).add_(1.0).mul_(0.5)


@FORMS.of("gelu_backward")
def gelu_backward(
    gradient: torch.Tensor, numbers: torch.Tensor, *, approximate: str = "none"
) -> torch.Tensor:
    """The gradient of `gelu`."""
    _check_gelu(approximate, numbers)
    return mapped(_gelu_backward_of_block, gradient, numbers)


def _gelu_backward_of_block(gradient: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    density = exp_at_most_one((numbers * numbers).mul_(-0.5))
    density *= _ONE_BY_SQRT_TWO_PI
    density *= numbers
    density += _normal_chance(numbers)
    return density.mul_(gradient)


def _check_gelu(approximate: str, numbers: torch.Tensor) -> None:
    check_float32(numbers)
    if approximate != "none":
        raise NoPortableForm(f"has a portable form for approximate='none', and got {approximate!r}")


@FORMS.of("sigmoid_backward")
def _sigmoid_backward(gradient: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    rest = output.neg().add_(1.0)
    return rest.mul_(output).mul_(gradient)


@FORMS.of("tanh_backward")
def _tanh_backward(gradient: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    return (output * output).neg_().add_(1.0).mul_(gradient)


@FORMS.of("silu")
def silu(numbers: torch.Tensor) -> torch.Tensor:
    """x times its sigmoid."""
    check_float32(numbers)
    return sigmoid(numbers).mul_(numbers)


@FORMS.of("silu_backward")
def silu_backward(gradient: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """The gradient of `silu`, from its gradient and what it was given."""
    check_float32(gradient, numbers)
    chance = sigmoid(numbers)
    slope = chance.neg().add_(1.0).mul_(numbers).add_(1.0).mul_(chance)
    return slope.mul_(gradient)


@FORMS.of("leaky_relu")
def _leaky_relu(numbers: torch.Tensor, negative_slope: float = 0.01) -> torch.Tensor:
    return torch.where(numbers > 0, numbers, numbers * negative_slope)


@FORMS.of("leaky_relu_backward")
def _leaky_relu_backward(
    gradient: torch.Tensor, numbers: torch.Tensor, negative_slope: float, self_is_result: bool
) -> torch.Tensor:
    del self_is_result  # the signs are those of the argument, too
    return torch.where(numbers > 0, gradient, gradient * negative_slope)


@FORMS.of("_softmax", "softmax")
def softmax(numbers: torch.Tensor, dim: int, half_to_float: bool = False) -> torch.Tensor:
    """Exponentials that sum to 1 along one axis."""
    check_float32(numbers)
    _refuse_conversion(half_to_float)
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


@FORMS.of("_safe_softmax")
def _safe_softmax(
    numbers: torch.Tensor, dim: int, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Rows in which everything is masked are 0."""
    check_float32(numbers)
    _refuse_conversion(dtype)
    is_masked = (numbers == -torch.inf).all(dim=dim, keepdim=True)
    return softmax(numbers, dim).masked_fill(is_masked, 0.0)


def _refuse_conversion(wanted: bool | torch.dtype | None) -> None:
    """Refuse ``half_to_float``, or a ``dtype``, that asks for a result in another type."""
    if wanted not in (None, False, torch.float32):
        raise NoPortableForm("has a portable form in float32 only, without a change of type")


@FORMS.of("_softmax_backward_data")
def _softmax_backward(
    gradient: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> torch.Tensor:
    check_float32(output)
    _refuse_conversion(input_dtype)
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


@FORMS.of("_log_softmax", "log_softmax")
def _log_softmax(numbers: torch.Tensor, dim: int, half_to_float: bool = False) -> torch.Tensor:
    check_float32(numbers)
    _refuse_conversion(half_to_float)
    shifted = numbers - numbers.amax(dim=dim, keepdim=True)
    return shifted - log(pairwise_sum(exp(shifted), [dim], keepdim=True))


@FORMS.of("_log_softmax_backward_data")
def _log_softmax_backward(
    gradient: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> torch.Tensor:
    check_float32(output)
    _refuse_conversion(input_dtype)
    return gradient - exp(output) * pairwise_sum(gradient, [dim], keepdim=True)
