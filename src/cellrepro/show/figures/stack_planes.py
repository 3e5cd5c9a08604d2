"""The plane of a stack that tells most, for pictures that show one.

What differs on it is what differs in the stack: a cell of which another plane holds more is not
lost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cellrepro.comparison.category_map import categories as category_map


class Plane(NamedTuple):
    """One plane of a stack with its masks, or all of a flat image."""

    name: str
    """For a heading; empty for a flat image."""
    image: np.ndarray | None
    labels: tuple[np.ndarray | None, ...]
    categories: np.ndarray
    """What differs here between the first two label images, (Y, X), as `categories` says it."""
    z: int | None = None
    """Its place in the stack, from 0; None for a flat image."""


def flat(image: np.ndarray | None, *labels: np.ndarray | None) -> Plane:
    """Get the plane of a stack on which the first two label images differ most.

    Of one label image the fullest plane; a flat image stays as it is.
    """
    first, *others = [each for each in labels if each is not None]
    categories = category_map(first, others[0] if others else first)
    if first.ndim == 2:
        return Plane("", image, labels, categories)
    z = telling_plane(categories)
    image_plane = None if image is None else image[z]
    label_planes = tuple(None if each is None else each[z] for each in labels)
    return Plane(plane_name(z, len(first)), image_plane, label_planes, categories[z], z)


def telling_plane(categories: np.ndarray) -> int:
    """Choose the plane of a stack on which two label images differ most; else the fullest."""
    differs = categories >= 2
    marked = differs if differs.any() else categories > 0
    return int(marked.sum(axis=(1, 2)).argmax())


def plane_name(z: int, n_planes: int) -> str:
    """Name a plane of a stack, counted from 0 as everywhere.

    >>> plane_name(3, 7)
    'plane z 3 (of 0 to 6)'
    """
    return f"plane z {z} (of 0 to {n_planes - 1})"
