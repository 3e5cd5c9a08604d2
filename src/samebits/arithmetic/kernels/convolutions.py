"""Convolutions in one to three dimensions and their gradients, as products of matrices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
_MOST_TOGETHER = 2**26
"""Numbers of patches that are made at a time, 0.25 GB: no number of a product depends on others."""


@dataclass(frozen=True)
class Convolution:
    """How a kernel is moved over images; a number for each of their axes, in pixels."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    """Parts into which the channels are divided."""

    def patches(self, images: torch.Tensor) -> Iterator[torch.Tensor]:
        """Unfold what the kernel sees in each window, some windows of the first axis at a time:
        shapes (B, groups, C * kernel, windows)."""
        shape = (len(images), self.groups, images.shape[1] // self.groups * math.prod(self.kernel))
        size = self.output_size(images.shape[2:])
        if {*self.kernel, *self.stride} == {1} and not any(self.padding):
            yield images.reshape(*shape, -1)
        elif len(size) == 2 and size[1] < _FEWEST_IN_A_ROW:
            yield functional.unfold(
                images, self.kernel, self.dilation, padding=self.padding, stride=self.stride
            ).reshape(*shape, -1)
        else:
            n_of_one = math.prod(shape) * math.prod(size[1:])
            n_together = max(1, _MOST_TOGETHER // max(1, n_of_one))
            for seen in self._seen(images, size).split(n_together, 2 + len(size)):
                yield seen.reshape(*shape, -1)

    def patches_of_all(
        self, images: torch.Tensor, windows: Sequence[int]
    ) -> Iterator[torch.Tensor]:
        """The same of all images together, of the first ``windows`` along each axis, some channels
        at a time: shapes (groups, C * kernel, B * windows)."""
        seen = self._seen(images, windows).unflatten(1, (self.groups, -1))
        n_of_one = math.prod(seen.shape) // max(1, seen.shape[2])
        n_together = max(1, _MOST_TOGETHER // max(1, n_of_one))
        n_axes = len(windows)
        for part in seen.split(n_together, 2):
            kernel = range(3, 3 + n_axes)
            n_seen = len(images) * math.prod(windows)
            in_order = part.permute(1, 2, *kernel, 0, *range(3 + n_axes, 3 + 2 * n_axes))
            yield in_order.reshape(self.groups, -1, n_seen)

    def _seen(self, images: torch.Tensor, windows: Sequence[int]) -> torch.Tensor:
        """What lies at each place of the kernel, without a copy: shape (B, C, kernel, windows)."""
        margins = [margin for padding in reversed(self.padding) for margin in (padding, padding)]
        padded = functional.pad(images, margins)
        of_image, of_channel, *of_axes = padded.stride()
        of_kernel = [step * of_axis for step, of_axis in zip(self.dilation, of_axes, strict=True)]
        of_windows = [step * of_axis for step, of_axis in zip(self.stride, of_axes, strict=True)]
        return padded.as_strided(
            (*images.shape[:2], *self.kernel, *windows),
            (of_image, of_channel, *of_kernel, *of_windows),
        )

    def from_patches(
        self, patches: torch.Tensor, size: Sequence[int], windows: Sequence[int]
    ) -> torch.Tensor:
        """Add patches, one for each of the windows, up where they overlap, in the order of the
        numbers of the kernel."""
        n_numbers = math.prod(self.kernel)
        by_number: Any = patches.reshape(
            len(patches), patches.shape[1] // n_numbers, n_numbers, *windows
        )
        padded = patches.new_zeros(
            *by_number.shape[:2],
            *(length + 2 * margin for length, margin in zip(size, self.padding, strict=True)),
        )
        total: Any = as_array(padded)  # of the same memory
        if total is None:
            total = padded
        else:
            by_number = as_array(by_number, of_any_size=True)
        of_axes = zip(self.kernel, self.dilation, self.stride, windows, strict=True)
        places = [
            [
                slice(place * apart, place * apart + (n_windows - 1) * step + 1, step)
                for place in range(length)
            ]
            for length, apart, step, n_windows in of_axes
        ]
        everything = slice(None)
        with np.errstate(over="ignore", invalid="ignore"):
            for number, place in enumerate(itertools.product(*places)):
                window = total[(everything, everything, *place)]
                window += by_number[:, :, number]
        inside = (
            slice(margin, margin + length)
            for length, margin in zip(size, self.padding, strict=True)
        )
        return padded[(everything, everything, *inside)].contiguous()

    def output_size(self, size: Sequence[int]) -> tuple[int, ...]:
        """How many windows there are along each axis in an image of a size."""
        of_axes = zip(size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return tuple(
            (length + 2 * margin - apart * (kernel - 1) - 1) // step + 1
            for length, kernel, step, margin, apart in of_axes
        )

    def input_size(self, windows: Sequence[int], further: Sequence[int]) -> tuple[int, ...]:
        """The size of an image with so many windows, and pixels ``further`` behind them."""
        of_axes = zip(
            windows, further, self.kernel, self.stride, self.padding, self.dilation, strict=True
        )
        return tuple(
            (n_windows - 1) * step - 2 * margin + apart * (kernel - 1) + behind + 1
            for n_windows, behind, kernel, step, margin, apart in of_axes
        )


# -- three products, each of which is forward or backward of another ------------------------


def _gathered(images: torch.Tensor, weight: torch.Tensor, convolution: Convolution) -> torch.Tensor:
    """What the kernels make of each window: the convolution, shape (B, M, windows)."""
    kernels = _for_each_image(_of_groups(weight, convolution), len(images))
    parts = [
        multiplied(kernels, patches.flatten(0, 1)).reshape(len(images), len(weight), -1)
        for patches in convolution.patches(images)
    ]
    return _joined(parts, 2).unflatten(2, convolution.output_size(images.shape[2:]))


def _spread(
    windows: torch.Tensor, weight: torch.Tensor, convolution: Convolution, size: Sequence[int]
) -> torch.Tensor:
    """The kernels added up with the number of each window: the transposed convolution, and the
    gradient of the images; shape (B, M, windows) to (B, C, size)."""
    groups = convolution.groups
    kernels = _of_groups(weight, convolution).transpose(1, 2)
    columns = windows.reshape(len(windows) * groups, len(weight) // groups, -1)
    n_numbers = math.prod(convolution.kernel)
    n_together = _MOST_TOGETHER // max(1, len(columns) * n_numbers * columns.shape[2])
    parts = []
    for some in kernels.split(max(1, n_together) * n_numbers, 1):
        patches = multiplied(_for_each_image(some, len(windows)), columns)
        patches = patches.reshape(len(windows), -1, columns.shape[2])
        images = convolution.from_patches(patches, size, windows.shape[2:])
        parts.append(images.unflatten(1, (groups, -1)))
    return _joined(parts, 2).flatten(1, 2)


def _weight_gradient(
    windows: torch.Tensor, images: torch.Tensor, weight: torch.Tensor, convolution: Convolution
) -> torch.Tensor:
    """One product over all windows of all images: the gradient of the kernels."""
    groups = convolution.groups
    by_group = windows.reshape(len(windows), groups, len(weight) // groups, -1)
    changes = by_group.permute(1, 2, 0, 3).flatten(2, 3)
    parts = [
        multiplied(changes, seen.mT)
        for seen in convolution.patches_of_all(images, windows.shape[2:])
    ]
    return _joined(parts, 2).reshape(weight.shape)


def _of_groups(weight: torch.Tensor, convolution: Convolution) -> torch.Tensor:
    """Kernels as matrices, shape (groups, M, C * kernel)."""
    return weight.reshape(convolution.groups, len(weight) // convolution.groups, -1)


def _for_each_image(kernels: torch.Tensor, n_images: int) -> torch.Tensor:
    """Kernels, shape (groups, M, K), once more for each image; without a copy of a single group."""
    if len(kernels) == 1:
        return kernels.expand(n_images, -1, -1)
    return kernels.repeat(n_images, 1, 1)


def _joined(parts: list[torch.Tensor], axis: int) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, axis)


# -- the operations ------------------------------------------------------------------------


def for_each_axis(numbers: Sequence[int], n_axes: int) -> tuple[int, ...]:
    """One number stands for every axis."""
    return tuple(numbers) * n_axes if len(numbers) == 1 else tuple(numbers)


_HALF = (torch.float16, torch.bfloat16)
_MOST_AXES = 3


def _convolution_of(
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Convolution:
    """What a convolution is told beside its numbers."""
    kernel = tuple(weight.shape[2:])
    n_axes = len(kernel)
    if not 1 <= n_axes <= _MOST_AXES:
        raise NoPortableForm(f"has a portable form in one to three dimensions, and got {n_axes}")
    return Convolution(
        kernel=kernel,
        stride=for_each_axis(stride, n_axes),
        padding=for_each_axis(padding, n_axes),
        dilation=for_each_axis(dilation, n_axes),
        groups=groups,
    )


def _wide(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Stacks of images and kernels, of numbers that are not shorter than float32."""
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) > 1:
        raise NoPortableForm(
            f"has a portable form for one type of numbers, and got {sorted(map(str, dtypes))}"
        )
    if not tensors[0].is_floating_point():
        raise NoPortableForm(f"has a portable form for fractions, and got {tensors[0].dtype}")
    if tensors[0].dim() != tensors[-1].dim():
        raise NoPortableForm("has a portable form for stacks of images: add the first axis")
    return [tensor.float() if tensor.dtype in _HALF else tensor for tensor in tensors]


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
    convolution = _convolution_of(weight, stride, padding, dilation, groups)
    images, kernels = _wide(a, weight)
    if transposed:
        further = for_each_axis(output_padding, len(convolution.kernel))
        size = convolution.input_size(images.shape[2:], further)
        output = _spread(images, kernels, convolution, size)
    else:
        output = _gathered(images, kernels, convolution)
    if bias is not None:
        output += bias.to(output.dtype).reshape(-1, *[1] * len(convolution.kernel))
    return output.to(a.dtype)


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
    del bias_sizes, output_padding  # follow from the shape of the gradient
    if len(a) == 0:
        shapes = (a.shape, weight.shape, gradient.shape[1:2])
        return tuple(
            gradient.new_zeros(shape) if is_wanted else None
            for shape, is_wanted in zip(shapes, output_mask, strict=True)
        )
    convolution = _convolution_of(weight, stride, padding, dilation, groups)
    changes, images, kernels = _wide(gradient, a, weight)
    of_images = of_weight = of_bias = None
    if output_mask[0] and transposed:
        whole = _gathered(changes, kernels, convolution)
        # output_padding may make room for more windows than there are images
        inside = (slice(None), slice(None), *map(slice, images.shape[2:]))
        of_images = whole[inside].contiguous()
    elif output_mask[0]:
        of_images = _spread(changes, kernels, convolution, images.shape[2:])
    if output_mask[1]:
        windows, seen = (images, changes) if transposed else (changes, images)
        of_weight = _weight_gradient(windows, seen, kernels, convolution)
    if output_mask[2]:
        of_bias = pairwise_sum(changes, [0, *range(2, changes.dim())])
    return tuple(
        None if each is None else each.to(a.dtype) for each in (of_images, of_weight, of_bias)
    )


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
        kernel=for_each_axis(kernel_size, 2),
        stride=for_each_axis(stride, 2),
        padding=for_each_axis(padding, 2),
        dilation=for_each_axis(dilation, 2),
    )
    size = for_each_axis(output_size, 2)
    stacked = patches if patches.dim() == 3 else patches[None]
    wide = stacked.float() if patches.dtype in _HALF else stacked
    images = convolution.from_patches(wide, size, convolution.output_size(size))
    images = images.to(patches.dtype)
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
