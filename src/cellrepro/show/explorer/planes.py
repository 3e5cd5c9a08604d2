"""Planes: arrays as they travel to the browser, narrow and deflated.

Nothing here knows of runs, widgets or browsers.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from typing_extensions import NotRequired, TypedDict

from cellrepro.show.figures.pixels import is_photograph

_VALUES_IN_PIECE = 2**20


class PackedPlane(TypedDict):
    """One plane as the browser receives it."""

    data: bytes
    """A zlib stream: little-endian values in C order, or JSON as UTF-8."""
    dtype: str
    """``uint8``, ``uint16`` or ``uint32``; ``json`` for what is no array."""
    shape: list[int]
    """(Y, X), of an image (Y, X, C); empty for JSON."""
    low: NotRequired[list[float]]
    """Images only: the lower limit of the contrast of each channel, as a stored value."""
    high: NotRequired[list[float]]
    """Images only: the upper limit."""
    lowest: NotRequired[list[int]]
    """Images only: the least stored value of each channel, in the whole stack."""
    highest: NotRequired[list[int]]
    """Images only: the greatest."""
    offset: NotRequired[float]
    """Images only: a value is ``offset + step * stored``."""
    step: NotRequired[float]
    """Images only: how far apart neighbouring values are."""
    exact: NotRequired[bool]
    """Images only: whether no value was rounded."""
    n_runs: NotRequired[int]
    """Votes only: how many runs there are."""


def packed_array(array: np.ndarray) -> PackedPlane:
    """Pack an array in the narrowest type that holds it."""
    dtype = np.min_scalar_type(int(array.max()))
    data = np.ascontiguousarray(array, dtype=dtype.newbyteorder("<")).tobytes()
    return {"data": _deflated(data), "dtype": dtype.name, "shape": list(array.shape)}


def packed_json(value: object) -> PackedPlane:
    """Pack a value that JSON can hold."""
    data = json.dumps(value, allow_nan=False).encode()
    return {"data": _deflated(data), "dtype": "json", "shape": []}


def _deflated(data: bytes) -> bytes:
    # Level 1: label images are so regular that more effort saves little and costs seconds.
    return zlib.compress(data, level=1)


@dataclass(frozen=True, eq=False)
class NarrowImage:
    """An image in two bytes a value: `numpy.uint16` with an offset and a step."""

    stored: NDArray[np.uint16]
    """A value of the image is ``offset + step * stored``."""
    low: list[float]
    """Percentile 1 of each channel, as a stored value: where its contrast begins."""
    high: list[float]
    """Percentile 99 of each channel, as a stored value: where its contrast ends."""
    lowest: list[int]
    """The least stored value of each channel."""
    highest: list[int]
    """The greatest stored value of each channel."""
    offset: float
    step: float
    exact: bool
    """Whether no value was rounded."""
    dtype: np.dtype
    """That of the image."""

    @classmethod
    def of(cls, image: np.ndarray) -> NarrowImage:
        """Narrow an image.

        Integers that span less than 2**16 are stored exactly. Others are rounded to 1/65535 of
        their span, ten times finer than the four digits that the read-out shows.
        """
        wide = np.float64 if image.dtype.kind == "f" else np.int64
        offset = wide(image.min()).item()
        span = wide(image.max()).item() - offset
        exact = wide is np.int64 and span < 2**16
        step = 1 if exact else span / (2**16 - 1) or 1
        stored = np.empty(image.shape, np.uint16)
        for narrow, values in zip(_in_pieces(stored), _in_pieces(image), strict=True):
            narrow[...] = np.rint((values.astype(wide) - offset) / step)
        axes = tuple(range(image.ndim - 1))
        low, high = _percentiles(stored, (1, 99))
        if is_photograph(image):
            low = np.full_like(low, low.min())
            high = np.full_like(high, high.max())
        # A channel of one value, or nearly, has no contrast to stretch: use its whole span.
        is_flat = low == high
        lowest = stored.min(axes)
        highest = stored.max(axes)
        low = np.where(is_flat, lowest, low)
        high = np.where(is_flat, highest, high)
        high = np.where(low == high, low + 1, high)
        return cls(
            stored,
            low=low.tolist(),
            high=high.tolist(),
            lowest=lowest.tolist(),
            highest=highest.tolist(),
            offset=offset,
            step=step,
            exact=exact,
            dtype=image.dtype,
        )

    def as_given(self, stored: NDArray[np.uint16]) -> np.ndarray:
        """A part of `stored` with its values in the image, as near to them as they are stored."""
        if self.exact:
            return (stored.astype(np.int64) + int(self.offset)).astype(self.dtype)
        return (self.offset + self.step * stored).astype(self.dtype)

    def packed(self, plane: np.ndarray) -> PackedPlane:
        """Pack one plane of `stored`, with all that the browser needs to show it."""
        packed = packed_array(plane)
        packed["low"] = self.low
        packed["high"] = self.high
        packed["lowest"] = self.lowest
        packed["highest"] = self.highest
        packed["offset"] = self.offset
        packed["step"] = self.step
        packed["exact"] = self.exact
        return packed


def _in_pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """Split an array along its first axis into pieces of which wider copies are small."""
    n_pieces = max(1, min(len(array), array.size // _VALUES_IN_PIECE))
    yield from np.array_split(array, n_pieces)


def _percentiles(stored: NDArray[np.uint16], percents: tuple[float, ...]) -> NDArray[np.float64]:
    """Percentiles of each channel, (percent, channel), as `numpy.percentile` gives them.

    Counted, as sorting would take several copies of the image.
    """
    n_channels = stored.shape[-1]
    counts = np.zeros((n_channels, 2**16), np.int64)
    for piece in _in_pieces(stored):
        for channel in range(n_channels):
            counts[channel] += np.bincount(piece[..., channel].ravel(), minlength=2**16)
    places = np.array(percents) / 100 * (stored.size // n_channels - 1)
    by_channel = []
    for up_to in counts.cumsum(axis=1):
        below = np.searchsorted(up_to, np.floor(places), side="right")
        above = np.searchsorted(up_to, np.ceil(places), side="right")
        by_channel.append(below + (above - below) * (places % 1))
    return np.stack(by_channel, axis=1)
