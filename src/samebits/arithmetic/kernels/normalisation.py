"""Layer, batch and group normalisation with their gradients, with a correctly rounded root."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from samebits.arithmetic.kernels.blocks import ones_like
from samebits.arithmetic.kernels.elementary import root
from samebits.arithmetic.kernels.finite import all_finite
from samebits.arithmetic.kernels.pointwise import between
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_type
from samebits.arithmetic.kernels.sums import FORMS as ADDING
from samebits.arithmetic.kernels.sums import mean_along, pairwise_sum, sum_along
from samebits.arithmetic.memory import Block, arrays_of, slices

FORMS = PortableForms()


class _Normalised(NamedTuple):
    """Numbers with mean 0 and variance 1 along some axes, and how they were made so."""

    numbers: torch.Tensor
    mean: torch.Tensor
    """Mean, with the length 1 along these axes, as the two below."""
    variance: torch.Tensor
    """Divided by the count."""
    inverse_deviation: torch.Tensor
    """1 by the standard deviation."""

    def or_where_infinite(self, wide: _Normalised) -> _Normalised:
        """These, and those of float64 where a variance is infinite, or NaN."""
        is_finite = self.variance.isfinite()
        return _Normalised(
            torch.where(is_finite, self.numbers, wide.numbers.float()),
            torch.where(is_finite, self.mean, wide.mean.float()),
            torch.where(is_finite, self.variance, wide.variance.float()),
            torch.where(is_finite, self.inverse_deviation, wide.inverse_deviation.float()),
        )


def _normalised(numbers: torch.Tensor, axes: list[int], *, epsilon: float) -> _Normalised:
    arrays = arrays_of(numbers)
    if arrays is not None:
        of_array = _normalised_array(arrays[0], axes, epsilon=epsilon)
        if of_array is not None:
            return _Normalised(*map(torch.from_numpy, of_array))
    normalised = _normalised_in_its_type(numbers, axes, epsilon=epsilon)
    if all_finite(normalised.variance):
        return normalised
    wide = _normalised_in_its_type(numbers.double(), axes, epsilon=epsilon)
    return normalised.or_where_infinite(wide)


def _normalised_array(numbers: Any, axes: list[int], *, epsilon: float) -> Any:
    """The same of an array, as arrays; None where a variance is infinite, or NaN."""
    with np.errstate(all="ignore"):
        normalised = _normalised_in_its_type(numbers, axes, epsilon=epsilon)
    return normalised if np.isfinite(normalised.variance).all() else None


def _normalised_in_its_type(numbers: Any, axes: list[int], *, epsilon: float) -> Any:
    mean = mean_along(numbers, axes)
    centred = numbers - mean
    variance = mean_along(centred * centred, axes)
    inverse = _inverse_deviation(variance, epsilon)
    centred *= inverse
    return _Normalised(centred, mean, variance, inverse)


def _inverse_deviation(variance: Block, epsilon: float) -> Block:
    """1 by the square root of a variance and a small number."""
    deviation = root(variance + epsilon)
    return ones_like(deviation) / deviation


def _gradient_of_normalised(
    gradient: Block, normalised: Block, inverse: Block, axes: list[int]
) -> Block:
    """The gradient of what was normalised along some axes, from that of the result."""
    mean_gradient = mean_along(gradient, axes)
    mean_product = mean_along(gradient * normalised, axes)
    change = gradient - mean_gradient
    change -= normalised * mean_product
    change *= inverse
    return change


def _masked(
    gradients: Sequence[torch.Tensor], output_mask: Sequence[bool]
) -> tuple[torch.Tensor | None, ...]:
    """The gradients that were asked for; None in place of the others."""
    return tuple(
        gradient if wanted else None
        for gradient, wanted in zip(gradients, output_mask, strict=True)
    )


# -- rows ----------------------------------------------------------------------------------


@FORMS.of("native_layer_norm")
def _native_layer_norm(
    a: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Output, and of each row mean and 1 by the standard deviation."""
    check_type(a, weight, bias)
    n_normalised = torch.Size(normalized_shape).numel()
    rows = a.reshape(-1, n_normalised)
    outer = _outer_shape(a, n_normalised)
    arrays = arrays_of(rows, weight, bias)
    of_rows = arrays and _normalised_array(arrays[0], [1], epsilon=eps)
    if arrays and of_rows:
        scaled = of_rows.numbers
        with np.errstate(all="ignore"):
            if weight is not None:
                scaled *= arrays[1].reshape(-1)
            if bias is not None:
                scaled += arrays[2].reshape(-1)
        return (
            torch.from_numpy(np.ascontiguousarray(scaled).reshape(a.shape)),
            torch.from_numpy(of_rows.mean.reshape(outer)),
            torch.from_numpy(of_rows.inverse_deviation.reshape(outer)),
        )
    output = torch.empty_like(rows, memory_format=torch.contiguous_format)
    means = rows.new_empty((len(rows), 1))
    inverse_deviations = torch.empty_like(means)
    for part in slices(len(rows), item_size=n_normalised, device=rows.device):
        normalised = _normalised(rows[part], [1], epsilon=eps)
        scaled = normalised.numbers
        if weight is not None:
            scaled *= weight.reshape(-1)
        if bias is not None:
            scaled += bias.reshape(-1)
        output[part] = scaled
        means[part] = normalised.mean
        inverse_deviations[part] = normalised.inverse_deviation
    return output.reshape(a.shape), means.reshape(outer), inverse_deviations.reshape(outer)


def _outer_shape(a: torch.Tensor, n_normalised: int) -> list[int]:
    """The shape of one number for each row."""
    n_outer = a.dim()
    while n_outer > 0 and a.shape[n_outer:].numel() != n_normalised:
        n_outer -= 1
    return [*a.shape[:n_outer], *[1] * (a.dim() - n_outer)]


@FORMS.of("native_layer_norm_backward")
def _native_layer_norm_backward(
    gradient: torch.Tensor,
    a: torch.Tensor,
    normalized_shape: Sequence[int],
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:
    n_normalised = torch.Size(normalized_shape).numel()
    rows = a.reshape(-1, n_normalised)
    gradients = gradient.reshape(-1, n_normalised)
    means = mean.reshape(-1, 1)
    inverse_deviations = rstd.reshape(-1, 1)
    arrays = arrays_of(rows, gradients, means, inverse_deviations, weight)
    if arrays is not None:
        of_input, *of_both = map(torch.from_numpy, _layer_norm_backward_of_arrays(*arrays))
        of_parameters = [each.reshape(tuple(normalized_shape)) for each in of_both]
        return _masked((of_input.reshape(a.shape), *of_parameters), output_mask)
    of_rows = torch.empty_like(rows, memory_format=torch.contiguous_format)
    for_weight = torch.empty_like(of_rows)
    for part in slices(len(rows), item_size=n_normalised, device=rows.device):
        normalised = (rows[part] - means[part]).mul_(inverse_deviations[part])
        for_weight[part] = normalised * gradients[part]
        scaled = gradients[part] if weight is None else gradients[part] * weight.reshape(-1)
        of_rows[part] = _gradient_of_normalised(scaled, normalised, inverse_deviations[part], [1])
    shapes = [
        torch.Size(normalized_shape) if parameter is None else parameter.shape
        for parameter in (weight, bias)
    ]
    return _masked(
        (
            of_rows.reshape(a.shape),
            pairwise_sum(for_weight, [0]).reshape(shapes[0]),
            pairwise_sum(gradients, [0]).reshape(shapes[1]),
        ),
        output_mask,
    )


def _layer_norm_backward_of_arrays(
    rows: Any, gradients: Any, means: Any, inverse_deviations: Any, weight: Any
) -> tuple[Any, ...]:
    """Gradients of rows, weight and bias, of small arrays."""
    with np.errstate(all="ignore"):
        normalised = rows - means
        normalised *= inverse_deviations
        scaled = gradients if weight is None else gradients * weight.reshape(-1)
        of_rows = _gradient_of_normalised(scaled, normalised, inverse_deviations, [1])
        normalised *= gradients
        return np.ascontiguousarray(of_rows), sum_along(normalised, [0]), sum_along(gradients, [0])


# -- channels ------------------------------------------------------------------------------


def _per_channel(numbers: Block, like: Block) -> Block:
    """One number a channel, shape (C,), in the shape in which it extends over images."""
    return numbers.reshape(1, -1, *[1] * (like.ndim - 2))


def _scaled(normalised: Block, weight: Block | None, bias: Block | None) -> Block:
    """Each channel multiplied and moved."""
    result = normalised
    if weight is not None:
        result = result * _per_channel(weight, normalised)
    if bias is not None:
        result = result + _per_channel(bias, normalised)
    return result


def _axes_without_channels(numbers: Block) -> list[int]:
    return [axis for axis in range(numbers.ndim) if axis != 1]


def _sums_of_channels(numbers: Block) -> Block:
    """Over images and pixels: shape (C,)."""
    return sum_along(numbers, _axes_without_channels(numbers)).reshape(-1)


@FORMS.of("_native_batch_norm_legit")
def _batch_norm_legit(
    a: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    *others: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """With running statistics before the other arguments, or without."""
    statistics = () if len(others) > 3 else (None, None)
    return _native_batch_norm(a, weight, bias, *statistics, *others)


@FORMS.of("_native_batch_norm_legit_no_training")
def _batch_norm_as_learnt(
    a: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _native_batch_norm(a, weight, bias, running_mean, running_var, False, momentum, eps)


@FORMS.of("cudnn_batch_norm")
def _batch_norm_of_gpu(
    a: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    """cuDNN returns room for what it keeps of the forward pass, too."""
    outputs = _native_batch_norm(
        a, weight, bias, running_mean, running_var, training, momentum, eps
    )
    return (*outputs, a.new_empty(0, dtype=torch.uint8))


@FORMS.of("cudnn_batch_norm_backward")
def _batch_norm_of_gpu_backward(
    a: torch.Tensor,
    gradient: torch.Tensor,
    weight: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    save_mean: torch.Tensor | None,
    save_var: torch.Tensor | None,
    epsilon: float,
    reserve: torch.Tensor,
) -> tuple[torch.Tensor | None, ...]:
    """Of a training: otherwise PyTorch calls another one."""
    if reserve.numel():
        raise NoPortableForm("has no portable form for what cuDNN kept of a forward pass")
    return _native_batch_norm_backward(
        gradient,
        a,
        weight,
        running_mean,
        running_var,
        save_mean,
        save_var,
        True,
        epsilon,
        [True, True, True],
    )


@FORMS.of("native_batch_norm")
def _native_batch_norm(
    a: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Output, and in training of each channel mean and 1 by the standard deviation."""
    check_type(a, weight, bias)
    if training and any(map(_is_one_place, (running_mean, running_var))):
        raise NoPortableForm("has no portable form that writes all statistics into one place")
    if not training:
        if running_mean is None or running_var is None:
            raise NoPortableForm("has no portable form without training and without statistics")
        inverse = _inverse_deviation(_per_channel(running_var, a), eps)
        normalised = (a - _per_channel(running_mean, a)) * inverse
        nothing = a.new_empty(0)
        return _scaled(normalised, weight, bias), nothing, nothing
    arrays = arrays_of(a, weight, bias, running_mean, running_var)
    outputs = arrays and _batch_norm_of_arrays(arrays, momentum=momentum, epsilon=eps)
    if outputs:
        output, mean, inverse, *statistics = map(_tensor, outputs)
        for target, new in zip((running_mean, running_var), statistics, strict=True):
            if target is not None:
                target.copy_(new)
        return output, mean, inverse
    of_batch = _normalised(a, _axes_without_channels(a), epsilon=eps)
    if running_mean is not None:
        running_mean.copy_(between(running_mean, of_batch.mean.flatten(), momentum))
    if running_var is not None:
        n_averaged = a.numel() // a.shape[1]
        unbiased = of_batch.variance.flatten() * float(n_averaged)
        unbiased = unbiased / torch.full_like(unbiased, max(1, n_averaged - 1))
        running_var.copy_(between(running_var, unbiased, momentum))
    return (
        _scaled(of_batch.numbers, weight, bias),
        of_batch.mean.flatten(),
        of_batch.inverse_deviation.flatten(),
    )


@FORMS.of("native_batch_norm_backward")
def _native_batch_norm_backward(
    gradient: torch.Tensor,
    a: torch.Tensor,
    weight: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    save_mean: torch.Tensor | None,
    save_invstd: torch.Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:
    if train:
        assert save_mean is not None
        assert save_invstd is not None
        arrays = arrays_of(a, gradient, weight, save_mean, save_invstd)
        if arrays is not None:
            return _masked(
                tuple(map(torch.from_numpy, _batch_norm_backward_of_arrays(*arrays))), output_mask
            )
        mean = _per_channel(save_mean, a)
        inverse = _per_channel(save_invstd, a)
    else:
        assert running_mean is not None
        assert running_var is not None
        mean = _per_channel(running_mean, a)
        inverse = _inverse_deviation(_per_channel(running_var, a), eps)
    normalised = (a - mean) * inverse
    for_normalised = _scaled(gradient, weight, None)
    if train:
        axes = _axes_without_channels(a)
        of_input = _gradient_of_normalised(for_normalised, normalised, inverse, axes)
    else:
        of_input = for_normalised * inverse
    return _masked(
        (of_input, _sums_of_channels(gradient * normalised), _sums_of_channels(gradient)),
        output_mask,
    )


def _batch_norm_of_arrays(
    given: Sequence[Any], *, momentum: float, epsilon: float
) -> tuple[Any, ...] | None:
    """In training: output, mean, 1 by the standard deviation, and the running statistics, of small
    arrays; None where a number is not finite."""
    a, weight, bias, running_mean, running_var = given
    of_batch = _normalised_array(a, _axes_without_channels(a), epsilon=epsilon)
    if of_batch is None:
        return None
    with np.errstate(all="ignore"):
        output = of_batch.numbers
        if weight is not None:
            output *= _per_channel(weight, a)
        if bias is not None:
            output += _per_channel(bias, a)
        mean = of_batch.mean.reshape(-1)
        n_averaged = a.size // a.shape[1]
        unbiased = of_batch.variance.reshape(-1) * float(n_averaged)
        unbiased /= max(1, n_averaged - 1)
        statistics = []
        for before, now in ((running_mean, mean), (running_var, unbiased)):
            statistics.append(None if before is None else before + (now - before) * momentum)
    is_finite = all(each is None or np.isfinite(each).all() for each in statistics)
    inverse = of_batch.inverse_deviation.reshape(-1)
    return (output, mean, inverse, *statistics) if is_finite else None


def _batch_norm_backward_of_arrays(
    a: Any, gradient: Any, weight: Any, mean: Any, inverse: Any
) -> tuple[Any, ...]:
    """In training: gradients of the input, the weight and the bias, of small arrays."""
    with np.errstate(all="ignore"):
        of_channel = _per_channel(inverse, a)
        normalised = a - _per_channel(mean, a)
        normalised *= of_channel
        for_normalised = _scaled(gradient, weight, None)
        axes = _axes_without_channels(a)
        of_input = _gradient_of_normalised(for_normalised, normalised, of_channel, axes)
        normalised *= gradient
        return of_input, _sums_of_channels(normalised), _sums_of_channels(gradient)


def _tensor(array: Any) -> Any:
    return None if array is None else torch.from_numpy(array)


def _is_one_place(numbers: torch.Tensor | None) -> bool:
    """Whether several numbers are one in memory."""
    return numbers is not None and len(numbers) > 1 and numbers.stride(0) == 0


@FORMS.of("native_group_norm")
def _native_group_norm(
    a: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    n_images: int,
    n_channels: int,
    n_pixels: int,
    group: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Output, and of each group of each image mean and 1 by the standard deviation."""
    check_type(a, weight, bias)
    grouped = a.reshape(n_images, group, n_channels // group * n_pixels)
    of_groups = _normalised(grouped, [2], epsilon=eps)
    return (
        _scaled(of_groups.numbers.reshape(a.shape), weight, bias),
        of_groups.mean.reshape(n_images, group),
        of_groups.inverse_deviation.reshape(n_images, group),
    )


@FORMS.of("native_group_norm_backward")
def _native_group_norm_backward(
    gradient: torch.Tensor,
    a: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    n_images: int,
    n_channels: int,
    n_pixels: int,
    group: int,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:
    inverse = rstd.reshape(n_images, group, 1)
    shape = (n_images, group, n_channels // group * n_pixels)
    grouped = (a.reshape(shape) - mean.reshape(n_images, group, 1)) * inverse
    for_normalised = _scaled(gradient, weight, None).reshape(shape)
    of_input = _gradient_of_normalised(for_normalised, grouped, inverse, [2])
    return _masked(
        (
            of_input.reshape(a.shape),
            _sums_of_channels(gradient * grouped.reshape(a.shape)),
            _sums_of_channels(gradient),
        ),
        output_mask,
    )


# -- of weights ----------------------------------------------------------------------------------


@FORMS.of("_weight_norm_interface")
def _weight_norm(
    a: torch.Tensor, lengths: torch.Tensor, dim: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights of given lengths in the direction of others, and how long those are."""
    check_type(a, lengths)
    axes = _all_but(a, dim)
    own_lengths = ADDING["linalg_vector_norm"](a, 2, axes, True) if axes else a.abs()
    return a * (lengths / own_lengths), own_lengths


@FORMS.of("_weight_norm_interface_backward")
def _weight_norm_backward(
    gradient: torch.Tensor,
    a: torch.Tensor,
    lengths: torch.Tensor,
    own_lengths: torch.Tensor,
    dim: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    check_type(gradient, a, lengths)
    axes = _all_but(a, dim)
    products = gradient * a
    along = pairwise_sum(products, axes, keepdim=True) if axes else products
    across = gradient - a * (along / (own_lengths * own_lengths))
    return across * (lengths / own_lengths), along / own_lengths


def _all_but(a: torch.Tensor, dim: int) -> list[int]:
    return [axis for axis in range(a.dim()) if axis != dim % a.dim()]
