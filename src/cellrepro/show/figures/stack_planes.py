"""The plane of a stack that tells most, for pictures that show one."""

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


def flat(image: np.ndarray | None, *labels: np.ndarray | None) -> Plane:
    """Get the plane of a stack on which the first two label images differ most.

    Of one label image the fullest plane; a flat image stays as it is.
    """
    first, *others = [each for each in labels if each is not None]
    if first.ndim == 2:
        return Plane("", image, labels)
    z = telling_plane(category_map(first, others[0] if others else first))
    image_plane = None if image is None else image[z]
    label_planes = tuple(None if each is None else each[z] for each in labels)
    return Plane(plane_name(z, len(first)), image_plane, label_planes)


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
