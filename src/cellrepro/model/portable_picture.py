"""The coloured picture of flows that Cellpose returns, with the same bits on every machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_DIRECTIONS = ((1.0, 0.0), (-0.5, 0.8660254037844386), (-0.5, -0.8660254037844386))
"""Cosine and sine of the directions that are red, green and blue: 0, 120 and 240 degrees."""


def dx_to_circ(flows: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Colour flows by their direction, as ``cellpose.plot.dx_to_circ`` does.

    The cosine of an angle between two directions is their product: no arc tangent is needed.
    """
    from cellpose.transforms import normalize99

    squares = [flow * flow for flow in flows]
    total = squares[0].copy()
    for square in squares[1:]:
        total += square
    brightness = 255 * np.clip(normalize99(np.sqrt(total), downsample=True), 0, 1.0)
    brightness /= 2
    length = np.sqrt(squares[0] + squares[1])
    has_direction = length > 0
    length[~has_direction] = 1
    picture = np.zeros((*flows.shape[1:], 3), "uint8")
    for colour, (cosine, sine) in enumerate(_DIRECTIONS):
        along = flows[0] * np.float32(cosine) - flows[1] * np.float32(sine)
        # Cellpose turns all directions by half a circle, and counts none as the first
        of_angle = np.where(has_direction, -(along / length), np.float32(-cosine))
        shade = brightness * (of_angle + 1)
        picture[..., colour] = np.clip(shade, 0, 255).astype("uint8")
    return picture
