"""Conditions under which a result may have been made.

A condition is what is not usual, by name: settings of ``eval``, the ``model``, its ``precision``,
the version of Cellpose, and what the image was read as (``image.depth``, ``image.channels``,
``image.crop``).
"""

from __future__ import annotations

from typing import Any

PRECISION = "precision"
MODEL = "model"
VERSION = "cellpose"
IMAGE_DEPTH = "image.depth"
IMAGE_CHANNELS = "image.channels"
IMAGE_CROP = "image.crop"

Condition = dict[str, Any]
"""Values by name; a name without one has its default, or nobody recorded it."""

Crop = tuple[tuple[int, int], tuple[int, int]]
"""Rows and columns of a part of an image, each from the first to before the second."""


_PRECISIONS = ("bfloat16", "float16", "float32", "float64")


def refuse_no_precision(value: object) -> None:
    """Refuse what a file records as the precision of a network, and none can have."""
    if value not in _PRECISIONS:
        raise TypeError(f"{PRECISION} is {value!r}; expected one of {', '.join(_PRECISIONS)}")


def changed_names(before: Condition, after: Condition) -> list[str]:
    """Give the names whose values differ between two conditions."""
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]


def without(condition: Condition, name: str) -> Condition:
    """Give a condition without one of its names."""
    return {key: value for key, value in condition.items() if key != name}
