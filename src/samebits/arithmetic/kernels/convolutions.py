"""Convolutions in two dimensions and their gradients, as products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from samebits.arithmetic.kernels.products import product
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_float32
from samebits.arithmetic.kernels.sums import pairwise_sum

FORMS = PortableForms()


@dataclass(frozen=True)
class Convolution:
    """How a kernel is moved over an image; pairs are along Y and X, in pixels."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int = 1
    """Parts into which the channels are divided."""

    def patches(self, images: torch.Tensor) -> torch.Tensor:
        """Unfold what the kernel sees in each window: shape (B, groups, C * kernel, windows)."""
        if self.kernel == self.stride == (1, 1) and self.padding == (0, 0):
            columns = images.flatten(2)
        else:
            columns = functional.unfold(
                images, self.kernel, self.dilation, padding=self.padding, stride=self.stride
            )
        return columns.reshape(len(images), self.groups, -1, columns.shape[-1])

    def from_patches(self, patches: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
        """Add patches up where they overlap, in the order of the numbers of the kernel."""
        n_images, _, n_windows = patches.shape
        height, width = self.kernel
        n_channels = patches.shape[1] // (height * width)
        n_down, n_across = self.output_size(size)
        assert n_down * n_across == n_windows
        by_offset = patches.reshape(n_images, n_channels, height, width, n_down, n_across)
        padded = patches.new_zeros(
            n_images, n_channels, size[0] + 2 * self.padding[0], size[1] + 2 * self.padding[1]
        )
        for y in range(height):
            for x in range(width):
                top = y * self.dilation[0]
                left = x * self.dilation[1]
                bottom = top + (n_down - 1) * self.stride[0] + 1
                right = left + (n_across - 1) * self.stride[1] + 1
                window = padded[:, :, top : bottom : self.stride[0], left : right : self.stride[1]]
                window += by_offset[:, :, y, x]
        inside_y = slice(self.padding[0], self.padding[0] + size[0])
        inside_x = slice(self.padding[1], self.padding[1] + size[1])
        return padded[:, :, inside_y, inside_x].contiguous()

    def output_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """How many windows there are along Y and X in an image of a size."""
        n_down, n_across = (
            (
                size[axis]
                + 2 * self.padding[axis]
                - self.dilation[axis] * (self.kernel[axis] - 1)
                - 1
            )
            // self.stride[axis]
            + 1
            for axis in range(2)
        )
        return n_down, n_across


class _Gradients(NamedTuple):
    """Gradients of a convolution; none where it was not asked for."""

    images: torch.Tensor | None
    weight: torch.Tensor | None
    bias: torch.Tensor | None


def _convolve(
    images: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    convolution: Convolution,
) -> torch.Tensor:
    """Convolve images."""
    groups = convolution.groups
    patches = convolution.patches(images).flatten(0, 1)
    kernels = weight.reshape(groups, weight.shape[0] // groups, -1)
    output = product(_for_each_image(kernels, len(images)), patches)
    output = output.reshape(
        len(images), weight.shape[0], *convolution.output_size((images.shape[2], images.shape[3]))
    )
    if bias is not None:
        output += bias.reshape(1, -1, 1, 1)
    return output


def _for_each_image(kernels: torch.Tensor, n_images: int) -> torch.Tensor:
    """Kernels, shape (groups, M, K), once more for each image; without a copy of a single group."""
    if len(kernels) == 1:
        return kernels.expand(n_images, -1, -1)
    return kernels.repeat(n_images, 1, 1)


def _convolve_backward(
    gradient: torch.Tensor,
    images: torch.Tensor,
    weight: torch.Tensor,
    convolution: Convolution,
    *,
    output_mask: Sequence[bool],
) -> _Gradients:
    """The gradients of `_convolve`."""
    groups = convolution.groups
    n_images = len(images)
    columns = gradient.reshape(n_images * groups, weight.shape[0] // groups, -1)
    of_images = of_weight = of_bias = None
    if output_mask[0]:
        kernels = weight.reshape(groups, weight.shape[0] // groups, -1)
        transposed = _for_each_image(kernels.transpose(1, 2), n_images)
        patches = product(transposed, columns).reshape(n_images, -1, columns.shape[-1])
        of_images = convolution.from_patches(patches, (images.shape[2], images.shape[3]))
    if output_mask[1]:
        patches = convolution.patches(images)
        # one product over all windows of all images
        seen = patches.permute(1, 0, 3, 2).flatten(1, 2)
        by_group = gradient.reshape(n_images, groups, weight.shape[0] // groups, -1)
        changes = by_group.permute(1, 2, 0, 3).flatten(2, 3)
        of_weight = product(changes, seen).reshape(weight.shape)
    if output_mask[2]:
        of_bias = pairwise_sum(gradient, [0, 2, 3])
    return _Gradients(of_images, of_weight, of_bias)


def _convolve_transposed(
    images: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    convolution: Convolution,
    *,
    output_padding: tuple[int, int],
) -> torch.Tensor:
    """The transposed convolution of images, shape (B, C, Y, X) to (B, N, Y', X')."""
    size = tuple(
        (images.shape[2 + axis] - 1) * convolution.stride[axis]
        - 2 * convolution.padding[axis]
        + convolution.dilation[axis] * (convolution.kernel[axis] - 1)
        + output_padding[axis]
        + 1
        for axis in range(2)
    )
    groups = convolution.groups
    kernels = weight.reshape(groups, weight.shape[0] // groups, -1)
    transposed = _for_each_image(kernels.transpose(1, 2), len(images))
    columns = images.reshape(len(images) * groups, images.shape[1] // groups, -1)
    patches = product(transposed, columns).reshape(len(images), -1, columns.shape[-1])
    output = convolution.from_patches(patches, (size[0], size[1]))
    if bias is not None:
        output += bias.reshape(1, -1, 1, 1)
    return output


# -- the operations ------------------------------------------------------------------------


def pair(values: Sequence[int]) -> tuple[int, int]:
    """One number along Y and X, or one for each."""
    return values[0], values[-1]


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
    del settings  # of cuDNN, which computes nothing here
    check_float32(a, weight, bias)
    convolution = _convolution_of(weight, stride, padding, dilation, groups)
    if transposed:
        return _convolve_transposed(
            a, weight, bias, convolution, output_padding=pair(output_padding)
        )
    return _convolve(a, weight, bias, convolution)


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
    del bias_sizes, output_padding  # follow from the shapes of gradient and weight
    check_float32(gradient, a, weight)
    convolution = _convolution_of(weight, stride, padding, dilation, groups)
    if not transposed:
        return _convolve_backward(gradient, a, weight, convolution, output_mask=output_mask)
    # what is forward for the one is backward for the other
    of_images = _convolve(gradient, weight, None, convolution) if output_mask[0] else None
    of_weight = None
    if output_mask[1]:
        only_weight = (False, True, False)
        gradients = _convolve_backward(a, gradient, weight, convolution, output_mask=only_weight)
        of_weight = gradients.weight
    of_bias = pairwise_sum(gradient, [0, 2, 3]) if output_mask[2] else None
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
