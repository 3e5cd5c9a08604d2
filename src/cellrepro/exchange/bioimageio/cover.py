"""The cover of a package: its test image, and beside it the same with outlines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_OUTLINE = (255, 200, 0)  # yellow


def write_cover(pixels: NDArray[np.float32], masks: NDArray[np.uint32], path: Path) -> None:
    """Write the test image, and beside it the same with the outlines of its objects."""
    from PIL import Image

    picture = _as_rgb(pixels[0])
    outlined = picture.copy()
    outlined[_is_outline(masks)] = _OUTLINE
    Image.fromarray(np.hstack([picture, outlined])).save(path, format="png")


def _as_rgb(channels: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Each channel scaled to its range; shape (Y, X, 3)."""
    low = channels.min(axis=(1, 2), keepdims=True)
    extent = np.maximum(channels.max(axis=(1, 2), keepdims=True) - low, 1e-6)
    scaled = (255 * (channels - low) / extent).astype(np.uint8)
    if len(scaled) == 1:
        scaled = np.repeat(scaled, 3, axis=0)
    missing = 3 - len(scaled)
    return np.moveaxis(np.pad(scaled, ((0, missing), (0, 0), (0, 0))), 0, 2)


def _is_outline(masks: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Pixels of objects that touch another label or the background."""
    is_edge = np.zeros(masks.shape, bool)
    below = masks[1:] != masks[:-1]
    beside = masks[:, 1:] != masks[:, :-1]
    is_edge[1:] |= below
    is_edge[:-1] |= below
    is_edge[:, 1:] |= beside
    is_edge[:, :-1] |= beside
    return is_edge & (masks > 0)
