"""Cellpose's normalisation, percentiles and filters, with the same bits on every machine.

SciPy's filters are compiled, and on some processors its compiler joins a product and a sum into
one operation; the fast Fourier transform adds in an order of its own on each. Here every product
and every sum is an operation of NumPy, or one of whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from samebits import product
from samebits.torch_internals import modes_suspended_if_any

_Float = TypeVar("_Float", np.float32, np.float64)

_DIGITS = Context(prec=40)
"""Far more than the 17 of a float64 number, so that rounding to one is correct."""
_TRUNCATED_AFTER = 4.0
"""SciPy's default: standard deviations that its weights reach."""
_NO_FILTER = 1e-15
"""A standard deviation up to this one leaves an axis as it is, as in SciPy."""


def percentile(
    numbers: NDArray[_Float], percent: float, axis: tuple[int, ...] | None = None
) -> NDArray[_Float] | _Float:
    """Interpolate a percentile linearly, as ``numpy.percentile`` does; NaN where a number is NaN.

    NumPy 2 computes the share between two numbers in their type, NumPy 1 in float64, as here.

    >>> float(percentile(np.array([1.0, 2.0, 4.0]), 75.0))
    3.0
    """
    if axis is None:
        rows = numbers.reshape(-1)
    else:
        reduced = tuple(each % numbers.ndim for each in axis)
        kept = [each for each in range(numbers.ndim) if each not in reduced]
        shape_kept = [numbers.shape[each] for each in kept]
        rows = numbers.transpose(*kept, *reduced).reshape(*shape_kept, -1)
    last = rows.shape[-1] - 1
    position = float(percent) / 100.0 * last
    lower = min(math.floor(position), last)
    upper = min(lower + 1, last)
    partitioned = np.partition(rows, sorted({lower, upper, last}), axis=-1)
    below = partitioned[..., lower].astype(np.float64)
    above = partitioned[..., upper].astype(np.float64)
    value = np.asarray(below + (above - below) * (position - lower))
    has_nan = np.isnan(partitioned[..., last])  # NaN is sorted to the end
    value[has_nan] = np.nan
    rounded: NDArray[_Float] = value.astype(numbers.dtype)
    return rounded[()]


def gaussian_filter1d(numbers: NDArray[_Float], sigma: float, axis: int = -1) -> NDArray[_Float]:
    """Smooth along one axis, as ``scipy.ndimage.gaussian_filter1d`` does."""
    radius = int(_TRUNCATED_AFTER * float(sigma) + 0.5)
    weights = gaussian_weights(np.arange(-radius, radius + 1, dtype=np.float64), sigma)
    length = numbers.shape[axis]
    rows = np.moveaxis(numbers, axis, 0).astype(np.float64)
    widths = [(radius, radius)] + [(0, 0)] * (rows.ndim - 1)
    padded = np.pad(rows, widths, mode="symmetric")
    total = padded[radius : radius + length] * weights[radius]
    for distance in range(radius, 0, -1):  # the outermost first, as SciPy adds them
        before = padded[radius - distance : radius - distance + length]
        after = padded[radius + distance : radius + distance + length]
        total += (before + after) * weights[radius - distance]
    return np.moveaxis(total.astype(numbers.dtype), 0, axis)


def gaussian_filter(numbers: NDArray[_Float], sigma: Sequence[float]) -> NDArray[_Float]:
    """Smooth along each axis, as ``scipy.ndimage.gaussian_filter`` does."""
    smoothed = numbers
    for axis, deviation in enumerate(sigma):
        if deviation > _NO_FILTER:
            smoothed = gaussian_filter1d(smoothed, deviation, axis)
    return smoothed


def smooth_sharpen_img(
    img: NDArray[np.float32],
    smooth_radius: float = 6,
    sharpen_radius: float = 12,
    device: torch.device | None = None,
    is3D: bool = False,
) -> NDArray[np.float32]:
    """Smooth an image, and subtract its surround.

    As ``cellpose.transforms.smooth_sharpen_img`` does, but without a Fourier transform.
    """
    is_one_channel = img.ndim == 2 or (is3D and img.ndim == 3)
    stack = img[..., None] if is_one_channel else img
    stack = stack[None] if stack.ndim == 3 else stack
    size = (stack.shape[1], stack.shape[2])
    smoothing = _Surround.of_size(size, smooth_radius) if smooth_radius > 0 else None
    surround = _Surround.of_size(size, sharpen_radius) if sharpen_radius > 0 else None
    filtered = np.empty_like(stack)
    for plane in range(stack.shape[0]):
        for channel in range(stack.shape[3]):
            pixels_of_plane = np.ascontiguousarray(stack[plane, :, :, channel])
            filtered[plane, :, :, channel] = _filtered(pixels_of_plane, smoothing, surround)
    return filtered.reshape(img.shape)


def _filtered(
    pixels: NDArray[np.float32], smoothing: _Surround | None, surround: _Surround | None
) -> NDArray[np.float32]:
    """One plane, less its surround where one is given."""
    if smoothing is not None:
        smooth = smoothing.mean_around(pixels)
        return smooth if surround is None else smooth - surround.mean_around(pixels)
    if surround is None:
        return pixels
    # Cellpose 4.2.1.1 puts 1 in the middle of the kernel, in the place of its weight there
    own_share = np.float32(1 + surround.middle)
    return pixels * own_share - surround.mean_around(pixels)


class _Surround:
    """Weighted means around each pixel of a plane, whose ends are joined to its beginnings."""

    def __init__(self, y_weights: NDArray[np.float64], x_weights: NDArray[np.float64]) -> None:
        middle_y = y_weights[len(y_weights) // 2]
        middle_x = x_weights[len(x_weights) // 2]
        self.middle = float(middle_y * middle_x)
        self._of_rows = torch.from_numpy(_circulant(y_weights))
        self._of_columns = torch.from_numpy(_circulant(x_weights).T)

    @classmethod
    def of_size(cls, size: tuple[int, int], radius: float) -> _Surround:
        """Gaussian weights for a plane of a size, of a standard deviation in pixels.

        Cellpose 4.2.1.1 takes positions along X from the height of the image, too.
        """
        height, width = size
        y_weights = gaussian_weights(_positions(height, height), radius)
        x_weights = gaussian_weights(_positions(height, width), radius)
        return cls(y_weights, x_weights)

    def mean_around(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """The weighted mean around each pixel, float32."""
        with modes_suspended_if_any():  # a product of whole numbers is portable by itself
            along_y = product(self._of_rows, torch.from_numpy(pixels))
            return product(along_y, self._of_columns).numpy()


def _positions(extent: int, length: int) -> NDArray[np.float64]:
    """Cellpose's ``linspace(-extent / 2, extent / 2 + 1, length)``, in float64."""
    step = (extent + 1.0) / (length - 1) if length > 1 else 0.0
    return np.arange(length, dtype=np.float64) * step + (-extent / 2)


def _circulant(weights: NDArray[np.float64]) -> NDArray[np.float32]:
    """A matrix that correlates a column with weights, whose middle stands at the pixel itself."""
    length = len(weights)
    twice = np.concatenate([weights, weights]).astype(np.float32)
    shifted = np.lib.stride_tricks.sliding_window_view(twice, length)
    matrix: NDArray[np.float32] = shifted[(length // 2 - np.arange(length)) % length]
    return matrix


# --- weights ----------------------------------------------------------------------------------


def exponentials(exponents: Iterable[float]) -> NDArray[np.float64]:
    """The exponential function, by decimal arithmetic: slow, so for hundreds of numbers at most.

    NumPy's own has vector code for some processors, with other roundings (NumPy 1.24 to 2.4).

    >>> exponentials([0.0, 1.0]).tolist()
    [1.0, 2.718281828459045]
    """
    powers = [float(_DIGITS.exp(Decimal(float(exponent)))) for exponent in exponents]
    return np.array(powers, dtype=np.float64)


def gaussian_weights(positions: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    """A Gaussian at some positions, scaled to a sum of 1."""
    heights = exponentials(-0.5 / (deviation * deviation) * (positions * positions))
    return heights / math.fsum(heights)
