"""Activations and softmax with their gradients, as fixed sequences of operations."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from samebits.arithmetic.kernels.elementary import (
    erf_of_block,
    exp,
    exp_at_most_one,
    expm1_at_most_zero,
    log,
    log1p_of_unit,
    sigmoid,
    sigmoid_of_block,
    where_negative,
    where_positive,
)
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_type
from samebits.arithmetic.kernels.sums import pairwise_sum
from samebits.arithmetic.memory import Block, mapped, of_either, slices

FORMS = PortableForms()

_SQRT_HALF = 0.7071067811865476
_ONE_BY_SQRT_TWO_PI = 0.3989422804014327


@FORMS.of("gelu")
def gelu(numbers: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """x times the chance that a normal number is less than x, or an approximation of it."""
    check_type(numbers)
    return mapped(_gelu_of_block if approximate == "none" else _gelu_by_tanh, numbers)


@of_either
def _gelu_of_block(numbers: Block) -> Block:
    value = _normal_chance(numbers)
    value *= numbers
    return value


def _normal_chance(numbers: Block) -> Block:
    """The chance that a normal number is less than x: (1 + erf(x / sqrt 2)) / 2."""
    chance = erf_of_block(numbers * _SQRT_HALF)
    chance += 1.0
    chance *= 0.5
    return chance


@FORMS.of("gelu_backward")
def gelu_backward(
    gradient: torch.Tensor, numbers: torch.Tensor, *, approximate: str = "none"
) -> torch.Tensor:
    """The gradient of `gelu`."""
    check_type(gradient, numbers)
    of_block = _gelu_backward_of_block if approximate == "none" else _gelu_backward_by_tanh
    return mapped(of_block, *torch.broadcast_tensors(gradient, numbers))


@of_either
def _gelu_backward_of_block(gradient: Block, numbers: Block) -> Block:
    density = exp_at_most_one((numbers * numbers) * -0.5)
    density *= _ONE_BY_SQRT_TWO_PI
    density *= numbers
    density += _normal_chance(numbers)
    density *= gradient
    return density


_ROOT_OF_EIGHT_BY_PI = 1.5957691216057308
_CUBIC = 0.044715


@of_either
def _gelu_by_tanh(numbers: Block) -> Block:
    """x (1 + tanh(u)) / 2, which is x sigmoid(2 u)."""
    value = sigmoid_of_block(_doubled_argument(numbers))
    value *= numbers
    return value


def _doubled_argument(numbers: Block) -> Block:
    """2 u = sqrt(8 / pi) (x + 0.044715 x**3)."""
    factor = numbers * numbers
    factor *= _CUBIC
    factor += 1.0
    factor *= numbers
    factor *= _ROOT_OF_EIGHT_BY_PI
    return factor


@of_either
def _gelu_backward_by_tanh(gradient: Block, numbers: Block) -> Block:
    share = sigmoid_of_block(_doubled_argument(numbers))
    slope = numbers * numbers
    slope *= 3.0 * _CUBIC
    slope += 1.0
    slope *= _ROOT_OF_EIGHT_BY_PI
    slope *= numbers
    slope *= 1.0 - share
    slope += 1.0
    slope *= share
    slope *= gradient
    return slope


@FORMS.of("sigmoid_backward")
def _sigmoid_backward(gradient: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    rest = output.neg().add_(1.0)
    return gradient * rest.mul_(output)


@FORMS.of("tanh_backward")
def _tanh_backward(gradient: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    return gradient * (output * output).neg_().add_(1.0)


@FORMS.of("silu")
def silu(numbers: torch.Tensor) -> torch.Tensor:
    """x times its sigmoid."""
    check_type(numbers)
    return mapped(_silu_of_block, numbers)


@of_either
def _silu_of_block(numbers: Block) -> Block:
    value = sigmoid_of_block(numbers)
    value *= numbers
    return value


@FORMS.of("silu_backward")
def silu_backward(gradient: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """The gradient of `silu`, from its gradient and what it was given."""
    check_type(gradient, numbers)
    return gradient * mapped(_slope_of_silu, numbers)


@of_either
def _slope_of_silu(numbers: Block) -> Block:
    chance = sigmoid_of_block(numbers)
    slope = 1.0 - chance
    slope *= numbers
    slope += 1.0
    slope *= chance
    return slope


@FORMS.of("leaky_relu")
def _leaky_relu(numbers: torch.Tensor, negative_slope: float = 0.01) -> torch.Tensor:
    scaled = numbers * negative_slope
    if numbers.dtype != torch.float32:
        return torch.where(numbers > 0, numbers, scaled)
    return where_positive(numbers, numbers, scaled)


@FORMS.of("leaky_relu_backward")
def _leaky_relu_backward(
    gradient: torch.Tensor, numbers: torch.Tensor, negative_slope: float, self_is_result: bool
) -> torch.Tensor:
    del self_is_result  # the signs are those of the argument, too
    scaled = gradient * negative_slope
    if gradient.dtype != torch.float32 or numbers.dtype != torch.float32:
        return torch.where(numbers > 0, gradient, scaled)
    return where_positive(numbers, gradient, scaled)


@FORMS.of("rrelu_with_noise")
def _rrelu(
    numbers: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    del noise, generator
    _refuse_drawn_slopes(training)
    return _leaky_relu(numbers, (lower + upper) / 2)


@FORMS.of("rrelu_with_noise_backward")
def _rrelu_backward(
    gradient: torch.Tensor,
    numbers: torch.Tensor,
    noise: torch.Tensor,
    lower: float,
    upper: float,
    training: bool,
    self_is_result: bool,
) -> torch.Tensor:
    del noise
    _refuse_drawn_slopes(training)
    return _leaky_relu_backward(gradient, numbers, (lower + upper) / 2, self_is_result)


def _refuse_drawn_slopes(training: bool) -> None:
    if training:
        raise NoPortableForm("has a portable form in evaluation only, where no slope is drawn")


_SOFTPLUS_IS_X = 20
"""From here on log(1 + exp(x)) is x in float32, and its slope is 1; not so in float64."""


@FORMS.of("softplus")
def _softplus(a: torch.Tensor, beta: float = 1, threshold: float = 20) -> torch.Tensor:
    """log(1 + exp(b x)) / b, and x where b x is above the threshold."""
    check_type(a)
    scaled = a * beta
    values = mapped(_softplus_of_block, scaled)
    if beta != 1:
        values /= torch.full_like(values, beta)
    elif threshold >= _SOFTPLUS_IS_X and a.dtype == torch.float32:
        return values
    return torch.where(scaled > threshold, a, values)


def _softplus_of_block(numbers: torch.Tensor) -> torch.Tensor:
    """max(x, 0) + log(1 + exp(-abs(x)))."""
    return log1p_of_unit(exp_at_most_one(numbers.abs().neg_())).add_(numbers.clamp(min=0.0))


@FORMS.of("softplus_backward")
def _softplus_backward(
    gradient: torch.Tensor, a: torch.Tensor, beta: float, threshold: float
) -> torch.Tensor:
    check_type(gradient, a)
    scaled = a * beta
    slope = gradient * sigmoid(scaled)
    if threshold >= _SOFTPLUS_IS_X and a.dtype == torch.float32:
        return slope
    return torch.where(scaled > threshold, gradient, slope)


@FORMS.of("log_sigmoid_forward")
def _log_sigmoid(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """min(x, 0) - log(1 + exp(-abs(x))), and exp(-abs(x)) for the gradient."""
    check_type(a)
    exponential = mapped(_exp_of_less, a)
    return a.clamp(max=0.0).sub_(mapped(log1p_of_unit, exponential)), exponential


@of_either
def _exp_of_less(numbers: Block) -> Block:
    return exp_at_most_one(-abs(numbers))


@FORMS.of("log_sigmoid_backward")
def _log_sigmoid_backward(
    gradient: torch.Tensor, a: torch.Tensor, buffer: torch.Tensor
) -> torch.Tensor:
    """1 - sigmoid(x), from exp(-abs(x)) where PyTorch kept it."""
    check_type(gradient, a)
    exponential = buffer if buffer.numel() == a.numel() else mapped(_exp_of_less, a)
    numerator = where_negative(a.contiguous(), torch.ones_like(exponential), exponential)
    return gradient * (numerator / (exponential + 1.0))


@FORMS.of("elu")
def _elu(
    a: torch.Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> torch.Tensor:
    check_type(a)
    negative = mapped(_expm1_of_less, a if input_scale == 1 else a * input_scale)
    if alpha * scale != 1:
        negative *= alpha * scale
    positive = a.clamp(min=0.0)
    return negative + (positive if scale == 1 else positive.mul_(scale))


def _expm1_of_less(numbers: torch.Tensor) -> torch.Tensor:
    return expm1_at_most_zero(numbers.clamp(max=0.0))


@FORMS.of("elu_backward")
def _elu_backward(
    gradient: torch.Tensor,
    alpha: float,
    scale: float,
    input_scale: float,
    is_result: bool,
    a: torch.Tensor,
) -> torch.Tensor:
    """From what was given, or from the result where that was written over it."""
    check_type(gradient, a)
    factor = alpha * scale
    if is_result:
        slope = (a + factor).mul_(input_scale)
    else:
        below = (a if input_scale == 1 else a * input_scale).clamp(max=0.0)
        slope = mapped(exp_at_most_one, below).mul_(input_scale * factor)
    return where_positive(a, gradient * scale, gradient * slope)


_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946
"""G. Klambauer et al., Self-Normalizing Neural Networks, NeurIPS 30 (2017)."""


@FORMS.of("selu")
def _selu(a: torch.Tensor) -> torch.Tensor:
    return _elu(a, _SELU_ALPHA, _SELU_SCALE)


@FORMS.of("celu")
def _celu(a: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    return _elu(a, alpha, 1.0, 1.0 / alpha)


@FORMS.of("hardsigmoid")
def _hardsigmoid(a: torch.Tensor) -> torch.Tensor:
    check_type(a)
    sixths = torch.threshold(a + 3.0, 0.0, 0.0).clamp_(max=6.0)
    return sixths / torch.full_like(sixths, 6.0)


@FORMS.of("hardsigmoid_backward")
def _hardsigmoid_backward(gradient: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    check_type(gradient, a)
    sixth = gradient / torch.full_like(gradient, 6.0)
    return sixth.masked_fill((a <= -3.0) | (a >= 3.0), 0.0)


@FORMS.of("hardswish")
def _hardswish(a: torch.Tensor) -> torch.Tensor:
    check_type(a)
    sixfold = torch.threshold(a + 3.0, 0.0, 0.0).clamp_(max=6.0).mul_(a)
    return sixfold / torch.full_like(sixfold, 6.0)


@FORMS.of("hardswish_backward")
def _hardswish_backward(gradient: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    check_type(gradient, a)
    near = a.clamp(-3.0, 3.0)
    slope = (near / torch.full_like(near, 3.0)).add_(0.5)
    slope *= (a > -3.0) & (a < 3.0)
    slope += a >= 3.0
    return gradient * slope


@FORMS.of("mish")
def _mish(a: torch.Tensor) -> torch.Tensor:
    """x tanh(softplus(x))."""
    check_type(a)
    return mapped(_mish_of_block, a)


def _mish_of_block(numbers: torch.Tensor) -> torch.Tensor:
    return _tanh_of_softplus(numbers, exp_at_most_one(numbers.abs().neg_())).mul_(numbers)


def _tanh_of_softplus(numbers: torch.Tensor, exponential: torch.Tensor) -> torch.Tensor:
    """((1 + e)**2 - 1) / ((1 + e)**2 + 1) of e = exp(x), in terms of exp(-abs(x))."""
    square = exponential * exponential
    twice = exponential * 2.0
    numerator = where_negative(numbers, square + twice, twice + 1.0)
    remainder = where_negative(numbers, torch.full_like(square, 2.0), square * 2.0)
    return numerator / remainder.add_(numerator)


@FORMS.of("mish_backward")
def _mish_backward(gradient: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    check_type(gradient, a)
    return mapped(_mish_backward_of_block, gradient, a)


def _mish_backward_of_block(gradient: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    share = _tanh_of_softplus(numbers, exp_at_most_one(numbers.abs().neg_()))
    slope = (share * share).neg_().add_(1.0).mul_(numbers).mul_(sigmoid_of_block(numbers))
    return slope.add_(share).mul_(gradient)


@FORMS.of("hardshrink")
def _hardshrink(a: torch.Tensor, lambd: float = 0.5) -> torch.Tensor:
    return a.masked_fill((a >= -lambd) & (a <= lambd), 0.0)


@FORMS.of("softshrink")
def _softshrink(a: torch.Tensor, lambd: float = 0.5) -> torch.Tensor:
    check_type(a)
    shrunk = torch.where(a > 0, a - lambd, a + lambd)
    return shrunk.masked_fill_((a >= -lambd) & (a <= lambd), 0.0)


@FORMS.of("hardshrink_backward", "softshrink_backward")
def _shrink_backward(gradient: torch.Tensor, a: torch.Tensor, lambd: float) -> torch.Tensor:
    return gradient.masked_fill((a >= -lambd) & (a <= lambd), 0.0)


@FORMS.of("_prelu_kernel")
def _prelu(a: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    check_type(a, weight)
    return where_positive(a, a, a * weight)


@FORMS.of("_prelu_kernel_backward")
def _prelu_backward(
    gradient: torch.Tensor, a: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    check_type(gradient, a, weight)
    of_input = where_positive(a, gradient, gradient * weight)
    return of_input, gradient * a.clamp(max=0.0)


@FORMS.of("glu")
def _glu(a: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """The first half times the sigmoid of the second."""
    check_type(a)
    first, second = _halves(a, dim)
    return sigmoid(second) * first


@FORMS.of("glu_backward")
def _glu_backward(gradient: torch.Tensor, a: torch.Tensor, dim: int) -> torch.Tensor:
    check_type(gradient, a)
    first, second = _halves(a, dim)
    share = sigmoid(second)
    of_second = gradient * (1.0 - share).mul_(share).mul_(first)
    return torch.cat([share * gradient, of_second], dim)


def _halves(a: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    if a.dim() == 0 or a.shape[dim] % 2:
        raise NoPortableForm(f"needs an axis of an even length, and got {[*a.shape]}")
    half = a.shape[dim] // 2
    return a.narrow(dim, 0, half), a.narrow(dim, half, half)


@FORMS.of("_softmax", "softmax")
def softmax(numbers: torch.Tensor, dim: int, half_to_float: bool = False) -> torch.Tensor:
    """Exponentials that sum to 1 along one axis."""
    check_type(numbers)
    _refuse_conversion(numbers, half_to_float)
    if numbers.dim() == 0 or numbers.numel() == 0:
        return torch.ones_like(numbers).where(numbers.isfinite(), torch.nan)
    rows = numbers.movedim(dim, -1)
    flat = rows.reshape(-1, rows.shape[-1])
    result = torch.empty_like(flat, memory_format=torch.contiguous_format)
    for part in slices(len(flat), item_size=flat.shape[1], device=flat.device):
        result[part] = _softmax_of_rows(flat[part])
    return result.reshape(rows.shape).movedim(-1, dim)


def _softmax_of_rows(rows: torch.Tensor) -> torch.Tensor:
    exponentials = exp_at_most_one(rows - rows.amax(dim=1, keepdim=True))
    return exponentials.div_(pairwise_sum(exponentials, [1], keepdim=True))


@FORMS.of("_safe_softmax")
def _safe_softmax(
    numbers: torch.Tensor, dim: int, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Rows in which everything is masked are 0."""
    check_type(numbers)
    _refuse_conversion(numbers, dtype)
    is_masked = (numbers == -torch.inf).all(dim=dim, keepdim=True)
    return softmax(numbers, dim).masked_fill(is_masked, 0.0)


def _refuse_conversion(numbers: torch.Tensor, wanted: bool | torch.dtype | None) -> None:
    """Refuse ``half_to_float``, or a ``dtype``, that asks for a result in another type."""
    if wanted not in (None, False, numbers.dtype):
        raise NoPortableForm("has a portable form without a change of type only")


@FORMS.of("_softmax_backward_data")
def _softmax_backward(
    gradient: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> torch.Tensor:
    check_type(gradient, output)
    _refuse_conversion(output, input_dtype)
    if output.dim() == 0 or output.numel() == 0:
        return torch.zeros_like(output)
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
    check_type(numbers)
    _refuse_conversion(numbers, half_to_float)
    if numbers.dim() == 0 or numbers.numel() == 0:
        return numbers - numbers
    shifted = numbers - numbers.amax(dim=dim, keepdim=True)
    return shifted - log(pairwise_sum(exp(shifted), [dim], keepdim=True))


@FORMS.of("_log_softmax_backward_data")
def _log_softmax_backward(
    gradient: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> torch.Tensor:
    check_type(gradient, output)
    _refuse_conversion(output, input_dtype)
    if output.dim() == 0 or output.numel() == 0:
        return torch.zeros_like(output)
    return gradient - exp(output) * pairwise_sum(gradient, [dim], keepdim=True)


@FORMS.of("logsumexp")
def _logsumexp(a: torch.Tensor, dim: int | Sequence[int], keepdim: bool = False) -> torch.Tensor:
    """The largest number stands before the sum; where all are infinite, it is the result."""
    check_type(a)
    dims = [dim] if isinstance(dim, int) else [*dim]
    axes = dims or [*range(a.dim())]
    largest = a.amax(axes, keepdim=True) if a.numel() else a.sum(axes, keepdim=True).log()
    offset = largest.masked_fill(largest.isinf(), 0.0)
    total = log(pairwise_sum(exp(a - offset), axes, keepdim=True)).add_(offset)
    if keepdim:
        return total
    for axis in sorted({axis % a.dim() for axis in axes if a.dim()}, reverse=True):
        total = total.squeeze(axis)
    return total


@FORMS.of("logaddexp")
def _logaddexp(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """max(a, b) + log(1 + exp(-abs(a - b))); equal infinities are 0 apart."""
    check_type(a, b)
    distance = (a - b).masked_fill_(a == b, 0.0)
    return mapped(log1p_of_unit, mapped(_exp_of_less, distance)).add_(torch.maximum(a, b))
