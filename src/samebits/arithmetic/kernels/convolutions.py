"""Convolutions in one and two dimensions and their gradients, as products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from samebits.arithmetic.kernels.products import multiplied
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms
from samebits.arithmetic.kernels.sums import pairwise_sum
from samebits.arithmetic.memory import as_array

FORMS = PortableForms()

_FEWEST_IN_A_ROW = 8
"""Windows of a row from which on they are copied faster than by PyTorch's own loop."""


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
        size = self.output_size((images.shape[2], images.shape[3]))
        if self.kernel == self.stride == (1, 1) and self.padding == (0, 0):
            columns = images.flatten(2)
        elif size[1] < _FEWEST_IN_A_ROW:
            columns = functional.unfold(
                images, self.kernel, self.dilation, padding=self.padding, stride=self.stride
            )
        else:
            columns = self._seen(images, size)
        return columns.reshape(len(images), self.groups, -1, size[0] * size[1])

    def patches_of_all(self, images: torch.Tensor, windows: tuple[int, int]) -> torch.Tensor:
        """The same of all images together, of the first ``windows`` along Y and X: shape (groups,
        C * kernel, B * windows)."""
        seen = self._seen(images, windows).permute(1, 2, 3, 0, 4, 5)
        return seen.reshape(self.groups, -1, len(images) * windows[0] * windows[1])

    def _seen(self, images: torch.Tensor, windows: tuple[int, int]) -> torch.Tensor:
        """What lies at each place of the kernel, without a copy: shape (B, C, kernel, windows)."""
        down, across = self.padding
        padded = functional.pad(images, (across, across, down, down))
        of_image, of_channel, of_row, of_pixel = padded.stride()
        return padded.as_strided(
            (*images.shape[:2], *self.kernel, *windows),
            (
                of_image,
                of_channel,
                of_row * self.dilation[0],
                of_pixel * self.dilation[1],
                of_row * self.stride[0],
                of_pixel * self.stride[1],
            ),
        )

    def from_patches(
        self, patches: torch.Tensor, size: tuple[int, int], windows: tuple[int, int] | None = None
    ) -> torch.Tensor:
        """Add patches up where they overlap, in the order of the numbers of the kernel.

        There is one for each of the ``windows`` along Y and X; by default for all.
        """
        n_images = len(patches)
        height, width = self.kernel
        n_channels = patches.shape[1] // (height * width)
        n_down, n_across = windows or self.output_size(size)
        by_offset: Any = patches.reshape(n_images, n_channels, height, width, n_down, n_across)
        padded = patches.new_zeros(
            n_images, n_channels, size[0] + 2 * self.padding[0], size[1] + 2 * self.padding[1]
        )
        total: Any = as_array(padded)  # of the same memory
        if total is None:
            total = padded
        else:
            by_offset = as_array(by_offset, of_any_size=True)
        with np.errstate(over="ignore", invalid="ignore"):
            for y in range(height):
                for x in range(width):
                    top = y * self.dilation[0]
                    left = x * self.dilation[1]
                    bottom = top + (n_down - 1) * self.stride[0] + 1
                    right = left + (n_across - 1) * self.stride[1] + 1
                    window = total[
                        :, :, top : bottom : self.stride[0], left : right : self.stride[1]
                    ]
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
    output = multiplied(_for_each_image(kernels, len(images)), patches)
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
        patches = multiplied(transposed, columns).reshape(n_images, -1, columns.shape[-1])
        of_images = convolution.from_patches(patches, (images.shape[2], images.shape[3]))
    if output_mask[1]:
        # one product over all windows of all images
        seen = convolution.patches_of_all(images, (gradient.shape[2], gradient.shape[3])).mT
        by_group = gradient.reshape(n_images, groups, weight.shape[0] // groups, -1)
        changes = by_group.permute(1, 2, 0, 3).flatten(2, 3)
        of_weight = multiplied(changes, seen).reshape(weight.shape)
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
    patches = multiplied(transposed, columns).reshape(len(images), -1, columns.shape[-1])
    windows = (images.shape[2], images.shape[3])
    output = convolution.from_patches(patches, (size[0], size[1]), windows)
    if bias is not None:
        output += bias.reshape(1, -1, 1, 1)
    return output


# -- the operations ------------------------------------------------------------------------


def pair(values: Sequence[int]) -> tuple[int, int]:
    """One number along Y and X, or one for each."""
    return values[0], values[-1]


_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class _Call:
    """What a convolution is told beside its numbers, for images in two dimensions."""

    convolution: Convolution
    is_transposed: bool
    output_padding: tuple[int, int]
    is_line: bool
    """Whether the images have one dimension: they are of one row here."""

    @classmethod
    def of(
        cls,
        weight: torch.Tensor,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        transposed: bool,
        output_padding: Sequence[int],
        groups: int,
    ) -> _Call:
        if weight.dim() not in (3, 4):
            raise NoPortableForm(
                f"has a portable form in one and two dimensions, and got {weight.dim() - 2}"
            )
        is_line = weight.dim() == 3

        def along(values: Sequence[int], across: int) -> tuple[int, int]:
            return (across, values[-1]) if is_line else pair(values)

        convolution = Convolution(
            kernel=along(weight.shape[2:], 1),
            stride=along(stride, 1),
            padding=along(padding, 0),
            dilation=along(dilation, 1),
            groups=groups,
        )
        return cls(convolution, transposed, along(output_padding, 0), is_line)

    def numbers(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Tensors as images in two dimensions, of numbers that are not shorter than float32."""
        dtypes = {tensor.dtype for tensor in tensors}
        if len(dtypes) > 1:
            raise NoPortableForm(
                f"has a portable form for one type of numbers, and got {sorted(map(str, dtypes))}"
            )
        if not tensors[0].is_floating_point():
            raise NoPortableForm(f"has a portable form for fractions, and got {tensors[0].dtype}")
        if tensors[0].dim() != (3 if self.is_line else 4):
            raise NoPortableForm("has a portable form for stacks of images: add the first axis")
        wide = [tensor.float() if tensor.dtype in _HALF else tensor for tensor in tensors]
        return [tensor[:, :, None] if self.is_line else tensor for tensor in wide]

    def result(self, images: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """A result with the dimensions and of the type that was given."""
        return (images[:, :, 0] if self.is_line else images).to(dtype)


@FORMS.of("convolution", "_convolution", in_any_type=True)
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
    if len(a) == 0:  # the shape is that of one image
        one = a.new_zeros(1, *a.shape[1:])
        settings_of_it = (stride, padding, dilation, transposed, output_padding, groups)
        return _convolution(one, weight, bias, *settings_of_it)[:0]
    call = _Call.of(weight, stride, padding, dilation, transposed, output_padding, groups)
    images, kernels = call.numbers(a, weight)
    of_output = None if bias is None else bias.to(images.dtype)
    if transposed:
        output = _convolve_transposed(
            images, kernels, of_output, call.convolution, output_padding=call.output_padding
        )
    else:
        output = _convolve(images, kernels, of_output, call.convolution)
    return call.result(output, a.dtype)


@FORMS.of("convolution_backward", in_any_type=True)
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
    del bias_sizes  # follows from the shape of the gradient
    if len(a) == 0:
        shapes = (a.shape, weight.shape, gradient.shape[1:2])
        return tuple(
            gradient.new_zeros(shape) if is_wanted else None
            for shape, is_wanted in zip(shapes, output_mask, strict=True)
        )
    call = _Call.of(weight, stride, padding, dilation, transposed, output_padding, groups)
    changes, images, kernels = call.numbers(gradient, a, weight)
    if transposed:
        gradients = _transposed_backward(
            changes, images, kernels, call.convolution, output_mask=output_mask
        )
    else:
        gradients = _convolve_backward(
            changes, images, kernels, call.convolution, output_mask=output_mask
        )
    of_images, of_weight, of_bias = gradients
    return (
        None if of_images is None else call.result(of_images, a.dtype),
        None if of_weight is None else call.result(of_weight, weight.dtype),
        None if of_bias is None else of_bias.to(gradient.dtype),
    )


def _transposed_backward(
    gradient: torch.Tensor,
    images: torch.Tensor,
    weight: torch.Tensor,
    convolution: Convolution,
    *,
    output_mask: Sequence[bool],
) -> _Gradients:
    """What is forward for the one is backward for the other."""
    of_images = None
    if output_mask[0]:
        # output_padding may make room for more windows than there are images
        whole = _convolve(gradient, weight, None, convolution)
        of_images = whole[:, :, : images.shape[2], : images.shape[3]].contiguous()
    of_weight = None
    if output_mask[1]:
        only_weight = (False, True, False)
        of_weight = _convolve_backward(
            images, gradient, weight, convolution, output_mask=only_weight
        ).weight
    of_bias = pairwise_sum(gradient, [0, 2, 3]) if output_mask[2] else None
    return _Gradients(of_images, of_weight, of_bias)


@FORMS.of("col2im", in_any_type=True)
def _col2im(
    patches: torch.Tensor,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> torch.Tensor:
    convolution = Convolution(
        kernel=pair(kernel_size),
        stride=pair(stride),
        padding=pair(padding),
        dilation=pair(dilation),
    )
    stacked = patches if patches.dim() == 3 else patches[None]
    wide = stacked.float() if patches.dtype in _HALF else stacked
    images = convolution.from_patches(wide, pair(output_size)).to(patches.dtype)
    return images if patches.dim() == 3 else images[0]


@FORMS.of("unfold_backward")
def _unfold_backward(
    gradient: torch.Tensor, input_sizes: Sequence[int], dim: int, size: int, step: int
) -> torch.Tensor:
    """Windows are added one place after the other."""
    if not input_sizes:  # a single number, whose only window has one place
        return gradient.reshape(()).clone()
    total = gradient.new_zeros(input_sizes)
    axis = dim % len(input_sizes)
    n_windows = gradient.shape[axis]
    for place in range(size):
        stop = place + (n_windows - 1) * step + 1
        index = [slice(None)] * len(input_sizes)
        index[axis] = slice(place, stop, step)
        total[tuple(index)] += gradient[..., place]
    return total
