"""Convolutions, and what is put together from windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cellrepro.arithmetic.convolutions import (
    Convolution,
    convolve,
    convolve_backward,
    convolve_transposed,
)
from cellrepro.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_float32, pair
from cellrepro.arithmetic.sums import pairwise_sum

FORMS = PortableForms()


def _convolution_of(
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Convolution:
    if weight.dim() != 4:
        raise NoPortableForm(f"has a portable form in two dimensions, and got {weight.dim() - 2}")
    return Convolution(
        kernel=(weight.shape[2], weight.shape[3]),
        stride=pair(stride),
        padding=pair(padding),
        dilation=pair(dilation),
        groups=groups,
    )


@FORMS.of("convolution", "_convolution")
def _convolution(
    a: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *settings: Any,
) -> torch.Tensor:
    check_float32("convolution", a, weight, bias)
    convolution = _convolution_of(weight, stride, padding, dilation, groups)
    if transposed:
        return convolve_transposed(
            a, weight, bias, convolution, output_padding=pair(output_padding)
        )
    return convolve(a, weight, bias, convolution)


@FORMS.of("convolution_backward")
def _convolution_backward(
    gradient: torch.Tensor,
    a: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:
    check_float32("convolution_backward", gradient, a, weight)
    convolution = _convolution_of(weight, stride, padding, dilation, groups)
    wanted = (bool(output_mask[0]), bool(output_mask[1]), bool(output_mask[2]))
    if not transposed:
        return convolve_backward(gradient, a, weight, convolution, wanted=wanted)
    # what is forward for the one is backward for the other
    of_images = convolve(gradient, weight, None, convolution) if wanted[0] else None
    of_weight = None
    if wanted[1]:
        asked = (False, True, False)
        of_weight = convolve_backward(a, gradient, weight, convolution, wanted=asked).weight
    of_bias = pairwise_sum(gradient, [0, 2, 3]) if wanted[2] else None
    return of_images, of_weight, of_bias


@FORMS.of("col2im")
def _col2im(
    patches: torch.Tensor,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> torch.Tensor:
    if patches.dim() != 3:
        raise NoPortableForm("has a portable form for (N, C, L) only: add the first axis")
    convolution = Convolution(
        kernel=pair(kernel_size),
        stride=pair(stride),
        padding=pair(padding),
        dilation=pair(dilation),
    )
    return convolution.from_patches(patches, pair(output_size))


@FORMS.of("unfold_backward")
def _unfold_backward(
    gradient: torch.Tensor, input_sizes: Sequence[int], dim: int, size: int, step: int
) -> torch.Tensor:
    """Windows are added one place after the other."""
    total = gradient.new_zeros(input_sizes)
    axis = dim % len(input_sizes)
    n_windows = gradient.shape[axis]
    for place in range(size):
        stop = place + (n_windows - 1) * step + 1
        index = [slice(None)] * len(input_sizes)
        index[axis] = slice(place, stop, step)
        total[tuple(index)] += gradient[..., place]
    return total
