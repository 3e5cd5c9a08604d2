"""Average and maximum pooling in one to three dimensions, with their gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from samebits.arithmetic.kernels.convolutions import for_each_axis
from samebits.arithmetic.kernels.indexing import FORMS as PLACING
from samebits.arithmetic.kernels.indexing import added_at
from samebits.arithmetic.kernels.registry import PortableForms, check_type
from samebits.arithmetic.kernels.sums import pairwise_sum

FORMS = PortableForms()


@dataclass(frozen=True)
class _Windows:
    """Windows of an image along its last axes, in the order of these axes, in pixels."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    ceil_mode: bool
    """Whether a window may extend beyond the padding."""

    @classmethod
    def of(
        cls,
        n_axes: int,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
    ) -> _Windows:
        kernel = for_each_axis(kernel_size, n_axes)
        return cls(
            kernel,
            for_each_axis(stride, n_axes) if len(stride) else kernel,
            for_each_axis(padding, n_axes),
            ceil_mode,
        )

    def counts(self, size: Sequence[int]) -> list[int]:
        """How many windows there are along each axis of an image; the last one begins in it."""
        counts = []
        for length, kernel, stride, padding in zip(
            size, self.kernel, self.stride, self.padding, strict=True
        ):
            room = length + 2 * padding - kernel
            count = (room + (stride - 1 if self.ceil_mode else 0)) // stride + 1
            if self.ceil_mode and (count - 1) * stride >= length + padding:
                count -= 1
            counts.append(count)
        return counts

    def margins(self, size: Sequence[int]) -> list[int]:
        """Pixels to add before and behind each axis, from the last axis on."""
        margins = []
        for axis in reversed(range(len(size))):
            needed = (self.counts(size)[axis] - 1) * self.stride[axis] + self.kernel[axis]
            behind = max(0, needed - size[axis] - self.padding[axis])
            margins += [self.padding[axis], behind]
        return margins

    def numbers_in(self, size: Sequence[int], *, count_include_pad: bool) -> torch.Tensor:
        """How many numbers each window has, of the image and its padding or of the image alone."""
        total = torch.ones(self.counts(size), dtype=torch.float64)
        for axis, length in enumerate(size):
            padding = self.padding[axis]
            begin = torch.arange(self.counts(size)[axis]) * self.stride[axis] - padding
            end = (begin + self.kernel[axis]).clamp(max=length + padding)
            if not count_include_pad:
                begin = begin.clamp(min=0)
                end = end.clamp(max=length)
            shape = [1] * len(size)
            shape[axis] = -1
            total *= (end - begin).reshape(shape)
        return total


def _divisors(
    windows: _Windows, like: torch.Tensor, *, count_include_pad: bool, override: int | None
) -> torch.Tensor:
    """By what the sum of each window is divided: as many axes as the images have at their end."""
    are_alike = not windows.ceil_mode and (count_include_pad or not any(windows.padding))
    if override is not None or are_alike:
        divisor = math.prod(windows.kernel) if override is None else override
        return torch.full((), divisor, dtype=like.dtype, device=like.device)
    size = like.shape[-len(windows.kernel) :]
    return windows.numbers_in(size, count_include_pad=count_include_pad).to(like)


def _average(
    a: torch.Tensor, windows: _Windows, *, count_include_pad: bool, override: int | None
) -> torch.Tensor:
    check_type(a)
    n_axes = len(windows.kernel)
    size = a.shape[-n_axes:]
    parts = functional.pad(a, windows.margins(size))
    outer = a.dim() - n_axes
    for axis, count in enumerate(windows.counts(size)):
        parts = parts.unfold(outer + axis, windows.kernel[axis], windows.stride[axis])
        parts = parts.narrow(outer + axis, 0, count)
    order = [*range(outer), *range(outer + n_axes, outer + 2 * n_axes)]
    order += range(outer, outer + n_axes)
    sums = pairwise_sum(parts.permute(order).flatten(outer, outer + n_axes - 1), [outer])
    divisors = _divisors(windows, a, count_include_pad=count_include_pad, override=override)
    return sums / divisors.expand_as(sums)


def _average_backward(
    gradient: torch.Tensor,
    a: torch.Tensor,
    windows: _Windows,
    *,
    count_include_pad: bool,
    override: int | None,
) -> torch.Tensor:
    """Shares are added up where windows overlap, in the order of the numbers of the kernel."""
    check_type(gradient, a)
    n_axes = len(windows.kernel)
    size = a.shape[-n_axes:]
    divisors = _divisors(windows, a, count_include_pad=count_include_pad, override=override)
    shares = gradient / divisors.expand_as(gradient)
    padded = functional.pad(torch.zeros_like(a), windows.margins(size))
    for offset in itertools.product(*map(range, windows.kernel)):
        seen = padded
        for axis, begin in enumerate(offset):
            count = windows.counts(size)[axis]
            at = a.dim() - n_axes + axis
            seen = seen.narrow(at, begin, (count - 1) * windows.stride[axis] + 1)
            seen = seen.unfold(at, 1, windows.stride[axis]).squeeze(-1)
        seen += shares
    for axis, length in enumerate(size):
        padded = padded.narrow(a.dim() - n_axes + axis, windows.padding[axis], length)
    return padded.contiguous()


@FORMS.of("avg_pool1d")
def _avg_pool1d(
    a: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> torch.Tensor:
    windows = _Windows.of(1, kernel_size, stride, padding, ceil_mode)
    return _average(a, windows, count_include_pad=count_include_pad, override=None)


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
    windows = _Windows.of(2, kernel_size, stride, padding, ceil_mode)
    return _average(a, windows, count_include_pad=count_include_pad, override=divisor_override)


@FORMS.of("avg_pool3d")
def _avg_pool3d(
    a: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> torch.Tensor:
    windows = _Windows.of(3, kernel_size, stride, padding, ceil_mode)
    return _average(a, windows, count_include_pad=count_include_pad, override=divisor_override)


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
    windows = _Windows.of(2, kernel_size, stride, padding, ceil_mode)
    return _average_backward(
        gradient, a, windows, count_include_pad=count_include_pad, override=divisor_override
    )


@FORMS.of("avg_pool3d_backward")
def _avg_pool3d_backward(
    gradient: torch.Tensor,
    a: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> torch.Tensor:
    windows = _Windows.of(3, kernel_size, stride, padding, ceil_mode)
    return _average_backward(
        gradient, a, windows, count_include_pad=count_include_pad, override=divisor_override
    )


# -- to a size ------------------------------------------------------------------------------


def _spans(length: int, n_windows: int) -> list[tuple[int, int]]:
    """Where windows begin and end that together cover an axis."""
    return [
        (index * length // n_windows, -(-(index + 1) * length // n_windows))
        for index in range(n_windows)
    ]


def _n_numbers(size: Sequence[int], output_size: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """How many numbers each of these windows has."""
    total = like.new_ones(tuple(output_size))
    for axis, (length, n_windows) in enumerate(zip(size, output_size, strict=True)):
        lengths = like.new_tensor([end - begin for begin, end in _spans(length, n_windows)])
        shape = [1] * len(size)
        shape[axis] = -1
        total *= lengths.reshape(shape)
    return total


@FORMS.of("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def _adaptive_average(a: torch.Tensor, output_size: Sequence[int]) -> torch.Tensor:
    """The last axis is summed first."""
    check_type(a)
    n_axes = len(output_size)
    sums = a
    for axis in reversed(range(a.dim() - n_axes, a.dim())):
        spans = _spans(a.shape[axis], output_size[axis - a.dim() + n_axes])
        parts = [
            pairwise_sum(sums.narrow(axis, begin, end - begin), [axis], keepdim=True)
            for begin, end in spans
        ]
        sums = torch.cat(parts, axis)
    return sums / _n_numbers(a.shape[-n_axes:], output_size, a).expand_as(sums)


@FORMS.of("_adaptive_avg_pool2d_backward")
def _adaptive_average_backward_2d(gradient: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    return _adaptive_average_backward(gradient, a, n_axes=2)


@FORMS.of("_adaptive_avg_pool3d_backward")
def _adaptive_average_backward_3d(gradient: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    return _adaptive_average_backward(gradient, a, n_axes=3)


def _adaptive_average_backward(
    gradient: torch.Tensor, a: torch.Tensor, *, n_axes: int
) -> torch.Tensor:
    """Shares are added where windows overlap, in the order of the windows."""
    check_type(gradient, a)
    output_size = gradient.shape[-n_axes:]
    shares = gradient / _n_numbers(a.shape[-n_axes:], output_size, a).expand_as(gradient)
    for axis in range(a.dim() - n_axes, a.dim()):
        spread = shares.new_zeros([*shares.shape[:axis], a.shape[axis], *shares.shape[axis + 1 :]])
        for index, (begin, end) in enumerate(_spans(a.shape[axis], shares.shape[axis])):
            spread.narrow(axis, begin, end - begin).add_(shares.narrow(axis, index, 1))
        shares = spread
    return shares


# -- largest numbers ------------------------------------------------------------------------


def _at_largest(
    gradient: torch.Tensor, a: torch.Tensor, indices: torch.Tensor, *, n_axes: int
) -> torch.Tensor:
    """Gradients added up at the places of the largest numbers, which windows may share."""
    check_type(gradient, a)
    n_pixels = math.prod(a.shape[-n_axes:])
    flat_indices = indices.flatten(-n_axes).reshape(-1, math.prod(indices.shape[-n_axes:]))
    images = torch.arange(len(flat_indices), device=a.device)[:, None] * n_pixels
    positions = (flat_indices + images).reshape(-1)
    return added_at(a.new_zeros(a.numel()), positions, gradient.reshape(-1)).reshape(a.shape)


def _at_largest_of_its_own(
    gradient: torch.Tensor, a: torch.Tensor, indices: torch.Tensor, *, n_axes: int
) -> torch.Tensor:
    """Gradients put at the places of the largest numbers, where no two windows share one."""
    check_type(gradient, a)
    flat = a.new_zeros(a.shape).flatten(-n_axes)
    placed = flat.scatter(-1, indices.flatten(-n_axes), gradient.flatten(-n_axes))
    return placed.reshape(a.shape)


def _max_pool_backward(
    gradient: torch.Tensor,
    a: torch.Tensor,
    windows: _Windows,
    dilation: Sequence[int],
    indices: torch.Tensor,
) -> torch.Tensor:
    n_axes = len(windows.kernel)
    spans = [
        d * (k - 1) + 1
        for d, k in zip(for_each_axis(dilation, n_axes), windows.kernel, strict=True)
    ]
    overlap = any(s < span for s, span in zip(windows.stride, spans, strict=True))
    placed = _at_largest if overlap else _at_largest_of_its_own
    return placed(gradient, a, indices, n_axes=n_axes)


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
    windows = _Windows.of(2, kernel_size, stride, padding, ceil_mode)
    return _max_pool_backward(gradient, a, windows, dilation, indices)


@FORMS.of("max_pool3d_with_indices_backward")
def _max_pool3d_backward(
    gradient: torch.Tensor,
    a: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: torch.Tensor,
) -> torch.Tensor:
    windows = _Windows.of(3, kernel_size, stride, padding, ceil_mode)
    return _max_pool_backward(gradient, a, windows, dilation, indices)


@FORMS.of("adaptive_max_pool2d_backward")
def _adaptive_max_pool2d_backward(
    gradient: torch.Tensor, a: torch.Tensor, indices: torch.Tensor
) -> torch.Tensor:
    return _at_largest(gradient, a, indices, n_axes=2)


@FORMS.of("adaptive_max_pool3d_backward")
def _adaptive_max_pool3d_backward(
    gradient: torch.Tensor, a: torch.Tensor, indices: torch.Tensor
) -> torch.Tensor:
    return _at_largest(gradient, a, indices, n_axes=3)


@FORMS.of("max_unpool2d", "max_unpool3d")
def _max_unpool(
    a: torch.Tensor, indices: torch.Tensor, output_size: Sequence[int], *windows: Sequence[int]
) -> torch.Tensor:
    """Numbers put back where they were the largest of their windows."""
    del windows  # from which the size follows
    n_axes = len(output_size)
    shape = (*a.shape[:-n_axes], *output_size)
    flat = a.new_zeros(shape).flatten(-n_axes)
    scattered = PLACING["scatter"](flat, -1, indices.flatten(-n_axes), a.flatten(-n_axes))
    return scattered.reshape(shape)
