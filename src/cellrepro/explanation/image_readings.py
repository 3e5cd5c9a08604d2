"""An image as other programs may have read it: in 8 bits, with other channels, or a part of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from cellrepro.explanation.conditions import IMAGE_CHANNELS, IMAGE_CROP, IMAGE_DEPTH, Condition
from cellrepro.explanation.recorded_settings import (
    IMAGE_DIGEST,
    IMAGE_DTYPE,
    IMAGE_SHAPE,
    NOT_RECORDED,
    RecordedSettings,
)
from cellrepro.explanation.search_values import TRIED
from cellrepro.images.integer_images import Integers
from samebits.digests import array_digest

_AS_IN_FILE: Condition = {IMAGE_DEPTH: None, IMAGE_CHANNELS: None}


def as_read(image: np.ndarray, condition: Mapping[str, Any]) -> np.ndarray:
    """Read an image, (Y, X) or (Y, X, C), as a condition says."""
    image = _in_depth(image, condition.get(IMAGE_DEPTH))
    image = _with_channels(image, condition.get(IMAGE_CHANNELS))
    crop = condition.get(IMAGE_CROP)
    if crop is not None:
        (top, bottom), (left, right) = crop
        image = image[top:bottom, left:right]
    return np.ascontiguousarray(image)


def _in_depth(image: np.ndarray, depth: str | None) -> np.ndarray:
    if depth is None:
        return image
    if depth == "8 bit":
        return (image >> 8 if image.dtype == np.uint16 else image).astype(np.uint8)
    low = float(image.min())
    high = float(image.max())
    return np.rint((image - low) * (255 / max(high - low, 1e-9))).astype(np.uint8)


def _with_channels(image: np.ndarray, channels: str | None) -> np.ndarray:
    if channels is None:
        return image
    if channels == "reversed":
        return image[..., ::-1]
    if channels == "mean":
        return image.mean(axis=-1).astype(image.dtype)
    chosen = image[..., [int(number) - 1 for number in channels.split()]]
    return chosen[..., 0] if chosen.shape[-1] == 1 else chosen


def can_be_read(image: np.ndarray, name: str, value: object) -> bool:
    """Whether a value of a condition can make another array of this image."""
    if name == IMAGE_DEPTH:
        if image.dtype == np.uint16:
            return True
        return value != "8 bit" and image.dtype != np.uint8
    if name == IMAGE_CHANNELS:
        return _has_channels(str(value), image)
    return True


def _has_channels(channels: str, image: np.ndarray) -> bool:
    """Whether an image of several channels has those that are named, one or all of them."""
    n_channels = image.shape[2] if image.ndim == 3 else 1
    if n_channels == 1:
        return False
    if channels in ("reversed", "mean"):
        return True
    numbers = [int(number) for number in channels.split()]
    return max(numbers) <= n_channels and len(numbers) in (1, n_channels)


def _usual_and_other_readings(image: np.ndarray) -> Iterator[Condition]:
    yield {}
    for name in (IMAGE_DEPTH, IMAGE_CHANNELS):
        for value in TRIED[name]:
            if can_be_read(image, name, value):
                yield {name: value}


# -- how an image was read -------------------------------------------------------------------


class ReceivedPixels(NamedTuple):
    """How a script read an image, as far as the digest of its pixels tells."""

    reading: Condition
    """Its depth and channels; empty where nothing is recorded, or the pixels are others."""
    remark: str
    """Whether the image is the one that was segmented; empty where nothing is recorded."""


def received_pixels(record: RecordedSettings, image: Integers) -> ReceivedPixels:
    """Find the reading of an image whose digest is that of the pixels which ``eval`` received."""
    digest = record.value(IMAGE_DIGEST)
    if digest == NOT_RECORDED:
        return ReceivedPixels({}, "")
    dtype = str(record.value(IMAGE_DTYPE))
    for reading in _usual_and_other_readings(image):
        if any(array_digest(array) == digest for array in _as_passed(image, reading, dtype)):
            read_as = ", ".join(f"{name} {value}" for name, value in reading.items())
            how = f", read with {read_as}" if reading else ""
            remark = f"the image is the one that eval received{how}: its pixels have that digest"
            return ReceivedPixels({**_AS_IN_FILE, **reading}, remark)
    return ReceivedPixels(
        {},
        f"the image is not the one that eval received: that was {dtype} of shape "
        f"{record.value(IMAGE_SHAPE)}, and this is {image.dtype} of shape {[*image.shape]}, and "
        "its pixels have a different digest, also in 8 bits and with other channels. Give the file "
        "that was segmented; or the script changed the pixels (scaled, cropped, filtered) before "
        "eval, which is not replayed",
    )


def _as_passed(image: Integers, reading: Condition, dtype: str) -> Iterator[Integers]:
    """The arrays that scripts pass: channels last, first, or one; in the recorded type."""
    pixels = as_read(image, reading)
    for array in (pixels, pixels.astype(dtype)):
        yield array
        yield array[..., None]
        if array.ndim == 3:
            yield np.moveaxis(array, -1, 0)


def reading_of(image: np.ndarray, pixels_read: np.ndarray) -> Condition:
    """Find the reading of an image that gives the pixels of a stored run; empty for none."""
    if pixels_read.shape[:2] != image.shape[:2]:
        return {}  # of a crop its masks show where it lies
    for reading in _usual_and_other_readings(image):
        pixels = as_read(image, reading)
        if pixels.dtype == pixels_read.dtype and np.array_equal(pixels, pixels_read):
            return {**_AS_IN_FILE, **reading}
    return {}
