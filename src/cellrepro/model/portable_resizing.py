"""Images resized as OpenCV does, with the same bits on every machine.

OpenCV's own has vector code that fuses operations on some processors (OpenCV 4.10 to 5.0).
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from samebits.errors import BadInput, NotPossibleHere

_Pixel = TypeVar("_Pixel", np.float32, np.float64, np.uint8, np.uint16, np.int16)
_Float = TypeVar("_Float", np.float32, np.float64)

NEAREST = 0
"""OpenCV's ``INTER_NEAREST``."""
LINEAR = 1
"""OpenCV's ``INTER_LINEAR``."""

_INTERPOLATED = ("float32", "float64", "uint8", "uint16", "int16")
"""Types of images that OpenCV interpolates (4.10 to 5.0); it takes the nearest pixel of any."""


def resize(
    image: NDArray[_Pixel], size: tuple[int, int], interpolation: int = LINEAR
) -> NDArray[_Pixel]:
    """Resize an image, as ``cv2.resize`` does, which drops the axis of a single channel."""
    width = int(size[0])
    height = int(size[1])
    if interpolation == NEAREST:
        rows = _nearest(image.shape[0], height)
        columns = _nearest(image.shape[1], width)
        resized = image[rows[:, None], columns]
    elif interpolation == LINEAR:
        resized = _linear(image, height, width)
    else:
        raise NotPossibleHere(
            f"an image was to be resized with OpenCV's interpolation {interpolation}; mode "
            "portable has nearest (0) and linear (1), which are all that Cellpose 4.2 uses for "
            "segmentation: use mode strict"
        )
    is_one_channel = resized.ndim == 3 and resized.shape[2] == 1
    return resized[..., 0] if is_one_channel else resized


def _nearest(length: int, new_length: int) -> NDArray[np.int64]:
    """Index of the pixel of an axis that each pixel of the resized axis copies."""
    step = 1.0 / (new_length / length)
    indices = np.floor(np.arange(new_length) * step).astype(np.int64)
    return np.minimum(indices, length - 1)


def _linear(image: NDArray[_Pixel], height: int, width: int) -> NDArray[_Pixel]:
    """Interpolate along X, then along Y, in float32 (images of float64 in float64)."""
    if image.dtype.name not in _INTERPOLATED:
        raise BadInput(
            f"an image of type {image.dtype} was to be resized, which OpenCV cannot do either; "
            f"expected one of {', '.join(_INTERPOLATED)}: convert it, or leave normalize on"
        )
    if image.dtype == np.uint8:
        return _of_bytes(image.astype(np.int64), height, width).astype(image.dtype)
    if image.dtype == np.float64:
        return _along_both_axes(image.astype(np.float64), height, width).astype(image.dtype)
    resized = _along_both_axes(image.astype(np.float32), height, width)
    if image.dtype.kind in "iu":
        resized = np.rint(resized)
    return resized.astype(image.dtype)


def _along_both_axes(pixels: NDArray[_Float], height: int, width: int) -> NDArray[_Float]:
    along_x = _between(pixels, _Neighbours.of_axis(pixels.shape[1], width), axis=1)
    return _between(along_x, _Neighbours.of_axis(pixels.shape[0], height), axis=0)


def _of_bytes(pixels: NDArray[np.int64], height: int, width: int) -> NDArray[np.int64]:
    """Interpolate in whole numbers, as OpenCV does with bytes: shares are counted in 2048ths.

    OpenCV drops 4 bits after the first axis and 16 after the second, and rounds the last 2.
    """
    x = _Neighbours.of_axis(pixels.shape[1], width, rounds_positions=True)
    y = _Neighbours.of_axis(pixels.shape[0], height, rounds_positions=True)
    lower_x, upper_x = x.shares_of_2048(axis=1, n_axes=pixels.ndim)
    lower_y, upper_y = y.shares_of_2048(axis=0, n_axes=pixels.ndim)
    along_x = pixels.take(x.lower, axis=1) * lower_x + pixels.take(x.upper, axis=1) * upper_x
    along_x >>= 4
    from_above = (along_x.take(y.lower, axis=0) * lower_y) >> 16
    from_below = (along_x.take(y.upper, axis=0) * upper_y) >> 16
    return (from_above + from_below + 2) >> 2


class _Neighbours(NamedTuple):
    """The two pixels of an axis between which each pixel of the resized axis lies."""

    lower: NDArray[np.int64]
    upper: NDArray[np.int64]
    upper_share: NDArray[np.float32]
    """Weight of the upper one, from 0 to 1."""

    @classmethod
    def of_axis(
        cls, length: int, new_length: int, *, rounds_positions: bool = False
    ) -> _Neighbours:
        """Find them; the outermost pixels are repeated beyond the image.

        OpenCV rounds the positions of pixels of 8 bits to float32, those of others not.
        """
        step = 1.0 / (new_length / length)
        middles = (np.arange(new_length) + 0.5) * step - 0.5
        if rounds_positions:
            middles = middles.astype(np.float32).astype(np.float64)
        positions = np.clip(middles, 0, length - 1)
        lower = np.floor(positions)
        upper_share = (positions - lower).astype(np.float32)
        indices = lower.astype(np.int64)
        return cls(indices, np.minimum(indices + 1, length - 1), upper_share)

    def shares_of_2048(
        self, *, axis: int, n_axes: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Weights of the lower and the upper pixels in 2048ths, shaped for one axis."""
        shape = [1] * n_axes
        shape[axis] = len(self.lower)
        lower = np.rint((np.float32(1) - self.upper_share) * np.float32(2048))
        upper = np.rint(self.upper_share * np.float32(2048))
        return lower.astype(np.int64).reshape(shape), upper.astype(np.int64).reshape(shape)


def _between(pixels: NDArray[_Float], neighbours: _Neighbours, *, axis: int) -> NDArray[_Float]:
    """Interpolate along one axis: two products and their sum, each rounded by itself."""
    shape = [1] * pixels.ndim
    shape[axis] = len(neighbours.lower)
    upper_share = neighbours.upper_share.reshape(shape)
    lower_share = np.float32(1) - upper_share
    result = pixels.take(neighbours.lower, axis=axis)
    result *= lower_share
    upper = pixels.take(neighbours.upper, axis=axis)
    upper *= upper_share
    result += upper
    return result
