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
DEPTH = "image.depth"
CHANNELS = "image.channels"
CROP = "image.crop"

Condition = dict[str, Any]
"""Values by name; a name that is not in it has its usual value, or nobody recorded it."""

Crop = tuple[tuple[int, int], tuple[int, int]]
"""Rows and columns of a part of an image in pixels, the second of each left out."""


def changed_names(before: Condition, after: Condition) -> list[str]:
    """Give the names whose values differ between two conditions."""
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]


def without(condition: Condition, name: str) -> Condition:
    """Give a condition with one of its names at its usual value."""
    return {key: value for key, value in condition.items() if key != name}
