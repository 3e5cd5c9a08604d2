"""How the installed Cellpose cuts an image into tiles, and which channels of it it scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cellrepro.model.cellpose_generation import NETWORK_DIAMETER, generation_of


@dataclass(frozen=True)
class TileLayout:
    """The layout of tiles, as far as neither image nor settings decide it.

    The defaults are those of Cellpose 4.0 to 4.2.
    """

    tile_size: int = 256
    """Pixels along an edge, where no setting says another number."""
    network_diameter: float = float(NETWORK_DIAMETER)
    """Diameter of a cell in the image that the network sees, in pixels."""
    usual_diameter: float = float(NETWORK_DIAMETER)
    """Diameter of a cell that is assumed where none is set, in pixels of the image."""
    fills_tile: bool = True
    """Whether an image that is smaller than a tile is padded to the size of one."""


class HasDiameters(Protocol):
    """The part of a ``CellposeModel`` of Cellpose 3 that tells the layout of its tiles."""

    diam_mean: float
    diam_labels: float


def tile_layout(model: HasDiameters) -> TileLayout:
    """The layout of the tiles of a ``CellposeModel``."""
    generation = generation_of()
    if generation.builds_own_networks:
        return TileLayout()
    return TileLayout(
        tile_size=generation.tile_size,
        network_diameter=float(model.diam_mean),
        usual_diameter=float(model.diam_labels),
        fills_tile=False,
    )


def scaled_channels(image: np.ndarray, options: Mapping[str, object]) -> np.ndarray:
    """The channels of a plane, (Y, X) or (Y, X, C), whose intensities ``eval`` scales."""
    generation = generation_of()
    if generation.n_channels is None:
        return image
    from cellpose.transforms import convert_image

    pixels = image if image.ndim > 2 else image[..., None]
    channel_axis = pixels.ndim - 1
    if generation.chooses_channels:
        chosen = options.get("channels")
        return np.asarray(convert_image(pixels, chosen, channel_axis=channel_axis))
    return np.asarray(convert_image(pixels, channel_axis=channel_axis))
