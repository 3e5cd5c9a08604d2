"""Where Cellpose's tiles begin and end in an image."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from cellrepro.model.tile_layout import TileLayout
from cellrepro.spec.segmentation_settings import Settings

_PAD = 16  # pixels; Cellpose pads to a multiple, at least by as many
_USUAL = TileLayout()


class TileLine(NamedTuple):
    """A row or a column at which a tile begins or ends."""

    axis: Literal["y", "x"]
    """``y`` for a row, ``x`` for a column."""
    at: int
    """Pixels from the beginning of the image."""


def tile_lines(
    shape: Sequence[int], settings: Settings, layout: TileLayout = _USUAL
) -> Iterator[TileLine]:
    """Find where tiles begin and end inside an image: rows in order, then columns.

    After ``cellpose.transforms.get_pad_yx`` and ``make_tiles`` (4.2.1.1, 3.1.1.2).
    """
    axes: tuple[Literal["y", "x"], ...] = ("y", "x")
    for axis, n_pixels in zip(axes, shape[:2], strict=True):
        tiles = tiles_along(n_pixels, settings, layout)
        for at in sorted({line for tile in tiles for line in tile}):
            if 0 < at < n_pixels:
                yield TileLine(axis, at)


def tiles_along(
    n_pixels: int, settings: Settings, layout: TileLayout = _USUAL
) -> list[tuple[int, int]]:
    """Give where the tiles along one axis of an image begin and end, in pixels of the image.

    The first and the last tile reach beyond the image.

    >>> tiles_along(512, Settings())
    [(-8, 248), (128, 384), (264, 520)]
    """
    scale = layout.network_diameter / (settings.diameter or layout.usual_diameter)
    size = settings.bsize or layout.tile_size
    n_scaled = int(n_pixels * scale)
    n_missing = -n_scaled % _PAD
    if layout.fills_tile and n_scaled < size:
        n_missing = max(0, size - n_scaled - _PAD)
    n_before = _PAD // 2 + n_missing // 2
    n_padded = n_scaled + n_missing + _PAD
    n_tiles = _n_tiles(n_padded, size, settings)
    starts = np.linspace(0, n_padded - min(size, n_padded), n_tiles).astype(int).tolist()
    return [
        (round((start - n_before) / scale), round((start + size - n_before) / scale))
        for start in starts
    ]


def _n_tiles(n_padded: int, size: int, settings: Settings) -> int:
    """How many tiles of a size cover an axis of a padded image."""
    if settings.augment:
        return max(2, math.ceil(2 * n_padded / size))
    if n_padded <= size:
        return 1
    return math.ceil((1 + 2 * settings.tile_overlap) * n_padded / size)
