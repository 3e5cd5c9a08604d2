"""The window in which a difference is replayed: as given, or where most cells changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.ndimage import find_objects

from cellrepro.comparison.label_numbers import canonical
from cellrepro.comparison.object_matching import Integers, unmatched_cells
from cellrepro.explanation.tile_lines import tiles_along
from cellrepro.model.window import Window
from cellrepro.spec.segmentation_settings import Settings
from samebits.errors import BadInput

AUTO = "auto"
"""Stands for the window with most changed cells."""

_USUAL_SIZE = 200  # pixels along each edge
_LEAST_SIZE = 32
_MOST_CANDIDATES = 300


class TilesNeeded(NamedTuple):
    """How many of an image's tiles a window needs, with Cellpose's defaults."""

    n: int
    of: int


def chosen_window(crop: str | Sequence[int], a: Integers, b: Integers) -> Window:
    """Find the window that a user gave, or the one with most changed cells."""
    shape = (a.shape[0], a.shape[1])
    if crop == AUTO:
        return _window_of_most(a, b)
    numbers = _numbers(crop)
    y, x = numbers[:2]
    size = numbers[2] if len(numbers) > 2 else _USUAL_SIZE
    if not (0 <= y < shape[0] and 0 <= x < shape[1]):
        raise BadInput(f"crop is at y {y}, x {x}; expected a place in the image, which has {shape}")
    if size < _LEAST_SIZE:
        raise BadInput(f"crop has {size} pixels along an edge; expected at least {_LEAST_SIZE}")
    window = _around(y, x, size, shape)
    cells_a, cells_b = window.cells_of(a), window.cells_of(b)
    if not (cells_a.any() and cells_b.any()):
        raise BadInput(
            f"one of the two has no cell that lies wholly in {window.in_words}: masks without "
            f"a cell tell nothing of their settings; give a larger SIZE, or {AUTO}"
        )
    if not any(unmatched_cells(cells_a, cells_b, least_iou=1.0)):
        raise BadInput(
            f"of the cells that lie wholly in {window.in_words}, none differs: there is "
            "nothing to replay; give the place of a changed cell, as `cellrepro compare` lists "
            f"them, a larger SIZE, or {AUTO}"
        )
    return window


def tiles_needed(window: Window, shape: Sequence[int]) -> TilesNeeded:
    """Count the tiles on which a window lies, among all of an image, (Y, X)."""
    n_needed, n_all = 1, 1
    for pixels, n_pixels in zip((window.rows, window.columns), shape, strict=False):
        tiles = tiles_along(n_pixels, Settings())
        n_all *= len(tiles)
        n_needed *= sum(start < pixels[1] and pixels[0] < stop for start, stop in tiles)
    return TilesNeeded(n_needed, n_all)


def _numbers(crop: str | Sequence[int]) -> list[int]:
    words = crop.split(",") if isinstance(crop, str) else list(crop)
    try:
        numbers = [int(word) for word in words]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) not in (2, 3):
        raise BadInput(
            f"crop is {crop!r}; expected Y,X or Y,X,SIZE in pixels, as 250,310,200, or {AUTO}"
        )
    return numbers


def _around(y: int, x: int, size: int, shape: tuple[int, int]) -> Window:
    """A window around a point, moved into the image."""
    edges = []
    for centre, n_pixels in zip((y, x), shape, strict=True):
        low = max(0, min(centre - size // 2, n_pixels - size))
        edges.append((low, min(low + size, n_pixels)))
    return Window(rows=edges[0], columns=edges[1])


def _window_of_most(a: Integers, b: Integers) -> Window:
    """The window of usual size that holds most changed cells wholly."""
    boxes = np.array(_boxes(a, b, least_iou=0.5) or _boxes(a, b, least_iou=1.0))
    if not len(boxes):
        raise BadInput("no cell differs between the two, so that there is nothing to replay")
    shape = (a.shape[0], a.shape[1])
    step = -(-len(boxes) // _MOST_CANDIDATES)
    counted = []
    for top, bottom, left, right in boxes[::step].tolist():
        window = _around((top + bottom) // 2, (left + right) // 2, _USUAL_SIZE, shape)
        if window.cells_of(a).any() and window.cells_of(b).any():
            counted.append((_n_inside(boxes, window), window))
    if not counted:
        raise BadInput(
            f"no window of {_USUAL_SIZE} pixels around a changed cell holds cells of both sides; "
            "give Y,X,SIZE with a larger SIZE"
        )
    n_inside, window = max(counted, key=lambda count: count[0])
    if not n_inside:
        raise BadInput(
            f"no changed cell lies wholly in a window of {_USUAL_SIZE} pixels; give Y,X,SIZE with "
            "a larger SIZE"
        )
    return window


def _boxes(a: Integers, b: Integers, *, least_iou: float) -> list[tuple[int, int, int, int]]:
    """Top, bottom, left and right of the cells without a match in the other result."""
    numbered = (canonical(a).astype(np.int64), canonical(b).astype(np.int64))
    boxes = []
    unmatched = unmatched_cells(*numbered, least_iou=least_iou)
    for masks, labels in zip(numbered, unmatched, strict=True):
        for label, (rows, columns) in enumerate(find_objects(masks), start=1):
            if label in labels:
                boxes.append((rows.start, rows.stop, columns.start, columns.stop))
    return boxes


def _n_inside(boxes: Integers, window: Window) -> int:
    """How many boxes lie wholly in a window, without touching its border."""
    is_inside = (
        (boxes[:, 0] > window.rows[0])
        & (boxes[:, 1] < window.rows[1])
        & (boxes[:, 2] > window.columns[0])
        & (boxes[:, 3] < window.columns[1])
    )
    return int(np.count_nonzero(is_inside))
