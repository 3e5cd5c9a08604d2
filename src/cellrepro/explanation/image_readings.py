"""An image as other programs may have read it: in 8 bits, with other channels, or a part of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from cellrepro.explanation.conditions import CHANNELS, CROP, DEPTH, Condition
from cellrepro.explanation.search_values import TRIED


def as_read(image: np.ndarray, condition: Mapping[str, Any]) -> np.ndarray:
    """Give an image as another reader may have given it."""
    image = _in_depth(image, condition.get(DEPTH))
    image = _with_channels(image, condition.get(CHANNELS))
    crop = condition.get(CROP)
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


def readings(image: np.ndarray) -> Iterator[Condition]:
    """Give the conditions of an image that make another one of it, (Y, X) or (Y, X, C)."""
    for name in (DEPTH, CHANNELS):
        for value in TRIED[name]:
            if applies(name, value, image):
                yield {name: value}


def applies(name: str, value: object, image: np.ndarray) -> bool:
    """Whether a value of a condition can make another result of this image."""
    if name == DEPTH:
        if image.dtype == np.uint16:
            return True
        return value != "8 bit" and image.dtype != np.uint8
    if name == CHANNELS:
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
