"""Conditions under which a result may have been made, and the values that are tried of each.

A condition is what is not usual, by name: settings of ``eval``, the ``model``, its ``precision``,
the version of Cellpose, and what the image was read as (``image.depth``, ``image.channels``,
``image.crop``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

PRECISION = "precision"
MODEL = "model"
VERSION = "cellpose"
DEPTH = "image.depth"
CHANNELS = "image.channels"
CROP = "image.crop"

Condition = dict[str, Any]
"""Values by name; a name that is not in it has its usual value, or nobody recorded it."""

Crop = tuple[tuple[int, int], tuple[int, int]]
"""Rows and columns of a part of an image in pixels, the second of each left out."""

TRIED: Mapping[str, tuple[Any, ...]] = {
    PRECISION: ("bfloat16", "float32"),
    DEPTH: ("8 bit", "8 bit over its range"),
    CHANNELS: ("reversed", "1", "2", "3", "mean", "1 3 2", "2 1 3", "2 3 1", "3 1 2"),
    "flow_threshold": (0.0, 0.1, 0.2, 0.3, 0.5, 0.6, 0.8, 1.0),
    "cellprob_threshold": (-6.0, -4.0, -3.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0),
    "niter": (20, 50, 100, 150, 300, 500, 1000),
    "min_size": (-1, 5, 30, 50, 100, 200, 500),
    "max_size_fraction": (0.01, 0.05, 0.1, 0.2, 1.0),
    "normalize.normalize": (False,),
    "diameter": (10.0, 12.0, 15.0, 17.0, 20.0, 24.0, 27.0, 35.0, 40.0, 45.0, 50.0, 60.0, 75.0),
    "normalize.percentile": (
        (0.0, 100.0),
        (0.1, 99.9),
        (1.0, 99.9),
        (2.0, 98.0),
        (3.0, 97.0),
        (5.0, 95.0),
    ),
    "normalize.sharpen": (2.0, 4.0, 8.0),
    "normalize.smooth_radius": (1.0, 2.0, 4.0),
    "normalize.tile_norm_blocksize": (50, 100, 200),
    "normalize.invert": (True,),
    "augment": (True,),
    "tile_overlap": (0.05, 0.25, 0.5),
}
"""What is tried of what nobody recorded; of two that explain as much, the first is believed."""

NUMBERS: Mapping[str, tuple[Any, ...]] = {
    "diameter": tuple(sorted((*TRIED["diameter"], 30.0))),
    "flow_threshold": tuple(sorted((*TRIED["flow_threshold"], 0.4))),
    "cellprob_threshold": tuple(sorted((*TRIED["cellprob_threshold"], 0.0))),
    "niter": tuple(sorted((*TRIED["niter"], 200))),
    "min_size": tuple(sorted((*TRIED["min_size"], 15))),
}
"""Settings that are tried between these values, too: those of `TRIED` and the usual one."""

STEPS: Mapping[str, tuple[Any, ...]] = {
    "diameter": (1.0, 0.5, 0.1),
    "flow_threshold": (0.1, 0.05, 0.01),
    "cellprob_threshold": (0.5, 0.1, 0.05, 0.01),
    "niter": (50, 10, 1),
    "min_size": (10, 5, 1),
}
"""How fine a number is tried: people choose round ones, so multiples of these, coarse ones first.
"""

PAIRS = (("cellprob_threshold", "flow_threshold"), ("diameter", "cellprob_threshold"))
"""Settings that are searched together: the best value of one depends on the other's."""

COARSE: Mapping[str, tuple[float, ...]] = {
    "cellprob_threshold": NUMBERS["cellprob_threshold"],
    # A diameter that is wrong by a tenth may give quite other cells: none between shows the way.
    "diameter": (*(float(pixels) for pixels in range(10, 41)), 45.0, 50.0, 60.0, 75.0),
}
"""Values of the first setting of a pair, on the grid that is searched first."""

FEW: Mapping[str, tuple[float, ...]] = {
    "flow_threshold": (0.0, 0.2, 0.4, 0.6, 1.0),
    "cellprob_threshold": (-3.0, -1.0, 0.0, 1.0, 3.0),
}
"""Values of the second setting of a pair, beside each of the first."""


def as_read(image: np.ndarray, condition: Mapping[str, Any]) -> np.ndarray:
    """Give an image as another reader may have given it.

    Parameters
    ----------
    image : ndarray, shape (Y, X) or (Y, X, C)
    condition : mapping
        Of which ``image.depth``, ``image.channels`` and ``image.crop`` count.

    Returns
    -------
    ndarray, shape (Y, X) or (Y, X, C)
        With 8 bits, other channels, or a part of the image; contiguous.
    """
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


def applies(name: str, value: Any, image: np.ndarray) -> bool:
    """Whether a value of a condition can make another result of this image."""
    if name == DEPTH:
        return image.dtype == np.uint16 or (value != "8 bit" and image.dtype != np.uint8)
    if name == CHANNELS:
        n_channels = image.shape[2] if image.ndim == 3 else 1
        has_them = all(int(letter) <= n_channels for letter in value if letter.isdigit())
        names_one_or_all = value.count(" ") in (0, n_channels - 1)
        return n_channels > 1 and has_them and names_one_or_all
    return True


def changed_names(before: Condition, after: Condition) -> list[str]:
    """Give the names whose values differ between two conditions."""
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]


def without(condition: Condition, name: str) -> Condition:
    """Give a condition with one of its names at its usual value."""
    return {other: value for other, value in condition.items() if other != name}


def neighbours(name: str, value: Any) -> tuple[Any, Any]:
    """Give the nearest of the values that are tried, below and above one; else itself."""
    below = [number for number in NUMBERS[name] if number < value]
    above = [number for number in NUMBERS[name] if number > value]
    return max(below, default=value), min(above, default=value)


def multiples(low: Any, high: Any, step: Any) -> list[Any]:
    """Give the multiples of a step between two values, which are left out.

    >>> multiples(20.0, 22.0, 0.5), multiples(-1, 16, 5)
    ([20.5, 21.0, 21.5], [0, 5, 10, 15])
    """
    first = math.floor(low / step) + 1
    last = math.ceil(high / step) - 1
    values = [round(factor * step, 4) for factor in range(first, last + 1)]
    return [value for value in values if low < value < high]


def around(values: Sequence[float], value: float) -> list[float]:
    """Give a value, its neighbours among those that are tried, and the middles between.

    >>> around((0.0, 1.0, 2.0), 1.0)
    [0.0, 0.5, 1.0, 1.5, 2.0]
    """
    nearest = min(range(len(values)), key=lambda index: abs(values[index] - value))
    low = values[max(nearest - 1, 0)]
    high = values[min(nearest + 1, len(values) - 1)]
    return sorted({low, (low + value) / 2, value, (value + high) / 2, high})
