"""Layer, batch and group normalisation with their gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cellrepro.arithmetic import batch_norm, layer_norm
from cellrepro.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_float32
from cellrepro.arithmetic.kernels.single_operations import between

FORMS = PortableForms()


@FORMS.of("native_layer_norm")
def _native_layer_norm(
    a: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    check_float32("layer_norm", a, weight, bias)
    return layer_norm.layer_norm(
        a,
        n_normalised=torch.Size(normalized_shape).numel(),
        weight=weight,
        bias=bias,
        epsilon=eps,
    )


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
    gradients = layer_norm.layer_norm_backward(
        gradient,
        a,
        n_normalised=torch.Size(normalized_shape).numel(),
        mean=mean,
        inverse_deviation=rstd,
        weight=weight,
    )
    return tuple(
        part if wanted else None for part, wanted in zip(gradients, output_mask, strict=True)
    )


@FORMS.of("native_batch_norm", "_native_batch_norm_legit")
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
    check_float32("batch_norm", a, weight, bias)
    if not training:
        if running_mean is None or running_var is None:
            raise NoPortableForm("has no portable form without training and without statistics")
        mean = batch_norm.per_channel(running_mean, a)
        variance = batch_norm.per_channel(running_var, a)
        assert mean is not None
        assert variance is not None
        normalised = (a - mean) * batch_norm.inverse_deviation(variance, eps)
        nothing = a.new_empty(0)
        return batch_norm.scaled(normalised, weight, bias), nothing, nothing
    axes = [axis for axis in range(a.dim()) if axis != 1]
    found = batch_norm.statistics(a, axes, epsilon=eps)
    if running_mean is not None:
        running_mean.copy_(between(running_mean, found.mean.flatten(), momentum))
    if running_var is not None:
        n_averaged = a.numel() // a.shape[1]
        unbiased = found.variance.flatten() * float(n_averaged)
        unbiased = unbiased / torch.full_like(unbiased, max(1, n_averaged - 1))
        running_var.copy_(between(running_var, unbiased, momentum))
    normalised = (a - found.mean) * found.inverse_deviation
    return (
        batch_norm.scaled(normalised, weight, bias),
        found.mean.flatten(),
        found.inverse_deviation.flatten(),
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
    used_mean = save_mean if train else running_mean
    mean = batch_norm.per_channel(used_mean, a)
    if train:
        inverse = batch_norm.per_channel(save_invstd, a)
    else:
        variance = batch_norm.per_channel(running_var, a)
        assert variance is not None
        inverse = batch_norm.inverse_deviation(variance, eps)
    assert mean is not None
    assert inverse is not None
    normalised = (a - mean) * inverse
    for_normalised = batch_norm.scaled(gradient, weight, None)
    if train:
        axes = [axis for axis in range(a.dim()) if axis != 1]
        of_input = batch_norm.gradient_of_normalised(for_normalised, normalised, inverse, axes)
    else:
        of_input = for_normalised * inverse
    gradients = (
        of_input,
        batch_norm.sums_of_channels(gradient * normalised),
        batch_norm.sums_of_channels(gradient),
    )
    return tuple(
        part if wanted else None for part, wanted in zip(gradients, output_mask, strict=True)
    )


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
    check_float32("group_norm", a, weight, bias)
    grouped = a.reshape(n_images, group, -1)
    found = batch_norm.statistics(grouped, [2], epsilon=eps)
    normalised = ((grouped - found.mean) * found.inverse_deviation).reshape(a.shape)
    return (
        batch_norm.scaled(normalised, weight, bias),
        found.mean.reshape(n_images, group),
        found.inverse_deviation.reshape(n_images, group),
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
    grouped = (a.reshape(n_images, group, -1) - mean.reshape(n_images, group, 1)) * inverse
    for_normalised = batch_norm.scaled(gradient, weight, None).reshape(n_images, group, -1)
    of_input = batch_norm.gradient_of_normalised(for_normalised, grouped, inverse, [2])
    gradients = (
        of_input.reshape(a.shape),
        batch_norm.sums_of_channels(gradient * grouped.reshape(a.shape)),
        batch_norm.sums_of_channels(gradient),
    )
    return tuple(
        part if wanted else None for part, wanted in zip(gradients, output_mask, strict=True)
    )
