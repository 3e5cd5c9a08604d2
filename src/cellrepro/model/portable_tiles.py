"""The weights of Cellpose's tiles with the same bits on every machine."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from cellrepro.model.portable_functions import exponentials

_LEAST_SIZE = 224
"""Pixels: the weights of a smaller tile are the middle of these."""
_EDGE = 20
"""Pixels from the edge of a tile, where its weight is one half."""


@functools.lru_cache(maxsize=32)
def taper_mask(ly: int = 224, lx: int = 224, sig: float = 7.5) -> NDArray[np.float64]:
    """The weight of each pixel of a tile, as ``cellpose.transforms._taper_mask`` gives it."""
    size = max(_LEAST_SIZE, ly, lx)
    from_middle = np.abs(np.arange(size) - (size - 1) / 2)
    along_axis = 1 / (1 + exponentials((from_middle - (size / 2 - _EDGE)) / sig))
    weights = along_axis * along_axis[:, np.newaxis]
    top = size // 2 - ly // 2
    left = size // 2 - lx // 2
    weights = weights[top : top + ly, left : left + lx]
    weights.flags.writeable = False
    return weights
