"""How large a network's tiles are, and by how much an image is resized before it is cut."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TileLayout:
    """What decides where tiles lie beside an image and its settings.

    The usual values are those of Cellpose 4.0 to 4.2.
    """

    tile_size: int = 256
    """Usual size of a tile, in pixels."""
    network_diameter: float = 30.0
    """Diameter of a cell to which an image is resized, in pixels."""
    usual_diameter: float = 30.0
    """Diameter in the image that is assumed where none is set, in pixels."""
    fills_tile: bool = True
    """Whether an image that is smaller than a tile is padded to the size of one."""
