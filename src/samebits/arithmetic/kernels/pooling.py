"""Average and maximum pooling in two dimensions, with their gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from samebits.arithmetic.kernels.convolutions import Convolution, pair
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_float32
from samebits.arithmetic.kernels.sums import pairwise_mean

FORMS = PortableForms()


@FORMS.of("avg_pool2d")
def _avg_pool2d(
    a: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> torch.Tensor:
    check_float32(a)
    _check_axes(a)
    if ceil_mode or divisor_override is not None or (any(padding) and not count_include_pad):
        raise NoPortableForm("has a portable form for whole windows only")
    pooling = _pooling(kernel_size, stride, padding)
    windows = pooling.patches(a).reshape(*a.shape[:2], -1, *pooling.output_size(pair(a.shape[2:])))
    return pairwise_mean(windows, [2])


@FORMS.of("avg_pool2d_backward")
def _avg_pool2d_backward(
    gradient: torch.Tensor,
    a: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> torch.Tensor:
    del ceil_mode, count_include_pad, divisor_override  # what the form of forward refuses
    _check_axes(a)
    pooling = _pooling(kernel_size, stride, padding)
    n_averaged = pooling.kernel[0] * pooling.kernel[1]
    shares = gradient / torch.full_like(gradient, n_averaged)
    patches = shares.flatten(2)[:, :, None].expand(-1, -1, n_averaged, -1)
    return pooling.from_patches(patches.flatten(1, 2), pair(a.shape[2:]))


@FORMS.of("max_pool2d_with_indices_backward")
def _max_pool2d_backward(
    gradient: torch.Tensor,
    a: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: torch.Tensor,
) -> torch.Tensor:
    del ceil_mode  # the indices lie in the image in any case
    pooling = _pooling(kernel_size, stride, padding)
    spans = [d * (k - 1) + 1 for d, k in zip(pair(dilation), pooling.kernel, strict=True)]
    if any(s < span for s, span in zip(pooling.stride, spans, strict=True)):
        raise NoPortableForm("has a portable form for windows that do not overlap only")
    flat = a.new_zeros(a.shape).flatten(-2)
    return flat.scatter(-1, indices.flatten(-2), gradient.flatten(-2)).reshape(a.shape)


def _check_axes(a: torch.Tensor) -> None:
    if a.dim() != 4:
        raise NoPortableForm("has a portable form for (N, C, Y, X) only: add the first axis")


def _pooling(
    kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> Convolution:
    kernel = pair(kernel_size)
    return Convolution(
        kernel=kernel,
        stride=pair(stride) if len(stride) else kernel,
        padding=pair(padding),
        dilation=(1, 1),
    )
