"""A window of an image, segmented as part of the whole image, but only with the tiles on it.

The image is scaled, normalised and tiled whole, so that a cell in the window gets the pixels that
it has in the whole image; a crop would be normalised by itself and tiled in a different way. Only
the network is spared the tiles that do not touch the window.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from cellrepro.model.patching import replaced
from cellrepro.words import area_text

if TYPE_CHECKING:
    import torch

    from cellrepro.images.integer_images import Integers

Edges = Sequence[Sequence[int]]
"""For each tile its first pixel along an axis, and the one after its last."""

Tiling = tuple[NDArray[np.float32], Edges, Edges, int, int]
"""The output of Cellpose's ``make_tiles``: tiles, their rows and columns, and the padded size."""


class MakesTiles(Protocol):
    """Cellpose's ``make_tiles``."""

    def __call__(self, image: NDArray[np.float32], **options: object) -> Tiling:
        """Cut a padded image, (C, Y, X), into tiles."""


_MARGIN = 32
"""Pixels around the window, as the network sees them, that lie on tiles which are computed, too:
Cellpose pads an image by up to 31, and where exactly the window lies among them is left open."""

_N_OUTPUTS = 3  # two flows, and the logit of being cell
_N_STYLES = 256
_NO_CELL = -20.0  # a logit below any threshold that is in use


@dataclass(frozen=True)
class Window:
    """A rectangle of an image."""

    rows: tuple[int, int]
    """The first pixel, and the one after the last."""
    columns: tuple[int, int]
    """The same along X."""

    @property
    def in_words(self) -> str:
        """Say where it lies."""
        return area_text(self.rows, self.columns)

    def cells_of(self, masks: Integers) -> Integers:
        """Give the cells that lie wholly in the window."""
        cut = masks[slice(*self.rows), slice(*self.columns)]
        at_border = np.unique(np.concatenate([cut[0], cut[-1], cut[:, 0], cut[:, -1]]))
        return np.where(np.isin(cut, at_border), 0, cut)

    @contextmanager
    def in_force(self, shape: Sequence[int]) -> Iterator[None]:
        """Fill the tiles that do not touch the window with NaN, for one block of ``eval``."""
        transforms = importlib.import_module("cellpose.transforms")
        stand_in = functools.partial(self._tiles, transforms.make_tiles, shape)
        with replaced(transforms, "make_tiles", stand_in):
            yield

    def _tiles(
        self,
        make_tiles: MakesTiles,
        shape: Sequence[int],
        image: NDArray[np.float32],
        **options: object,
    ) -> Tiling:
        """Cellpose's tiles of a padded image, (C, Y, X), with NaN in those off the window."""
        tiles, rows, columns, n_rows, n_columns = make_tiles(image, **options)
        near_rows = _padded(self.rows, shape[0], image.shape[1])
        near_columns = _padded(self.columns, shape[1], image.shape[2])
        flat = tiles.reshape(-1, *tiles.shape[2:])
        for i in range(len(flat)):
            if not (_overlap(rows[i], near_rows) and _overlap(columns[i], near_columns)):
                flat[i] = np.nan
        return flat.reshape(tiles.shape), rows, columns, n_rows, n_columns


class WindowedNetwork:
    """A network that computes the tiles of a window, and finds nothing in the others."""

    def __init__(self, network: Callable[[torch.Tensor], Sequence[torch.Tensor]]) -> None:
        self._network = network

    def __getattr__(self, name: str) -> object:
        return getattr(self._network, name)

    def __call__(self, tiles: torch.Tensor) -> Sequence[torch.Tensor]:
        """Give outputs, shape (n, 3, Y, X), and styles; tiles of NaN have no cell."""
        import torch

        needed = [i for i in range(len(tiles)) if not bool(torch.isnan(tiles[i]).any())]
        if len(needed) == len(tiles):
            return self._network(tiles)
        size = tiles.shape[-2:]
        outputs = torch.zeros((len(tiles), _N_OUTPUTS, *size), device=tiles.device)
        outputs[:, -1] = _NO_CELL
        styles = torch.zeros((len(tiles), _N_STYLES), device=tiles.device)
        if needed:
            computed, computed_styles = self._network(tiles[needed])[:2]
            for i, output, style in zip(needed, computed, computed_styles, strict=True):
                outputs[i] = output
                styles[i] = style
        return outputs, styles


def _padded(pixels: tuple[int, int], n_pixels: int, n_padded: int) -> tuple[float, float]:
    """Pixels of an axis in the scaled and padded image, with a margin on either side."""
    scale = n_padded / n_pixels
    return pixels[0] * scale - _MARGIN, pixels[1] * scale + _MARGIN


def _overlap(a: Sequence[float], b: Sequence[float]) -> bool:
    return bool(a[0] < b[1] and b[0] < a[1])
