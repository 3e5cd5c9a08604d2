"""The cells that differ most between two label images, each in a small picture of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cellrepro.comparison.mask_comparison import MaskComparison
from cellrepro.comparison.object_changes import ObjectChange, ObjectKind
from cellrepro.show.figures.colours import DIMMED
from cellrepro.show.figures.pixels import background_of, enlarged, with_outlines
from cellrepro.show.pages.parts import Panel, panel
from cellrepro.words import grouped, joined, place_text

_SIDE = 264  # of a tile, pixels
_FRAME = 8  # from a cell to the corners around it, pixels of the tile
_CORNER = 14  # length of their lines, pixels of the tile
_MARGIN = 6  # around the cell that is not dimmed, pixels of the tile
_LEAST_SIDE = 24  # of the part that it shows, pixels of the image
_ROUND_A_CELL = 2.6  # how much wider than the cell that part is


@dataclass(frozen=True)
class CellTile:
    """A picture of one cell that differs."""

    sign: str
    kind: ObjectKind
    facts: Sequence[str]
    """Its numbers and sizes on both sides, and where it is."""
    panel: Panel


def differing_pixels(change: ObjectChange) -> int:
    """Count the pixels that only one of the two sides has of a cell."""
    both = change.area_a + change.area_b
    return round(both * (1 - change.iou) / (1 + change.iou))


def changed_cells(comparison: MaskComparison) -> list[ObjectChange]:
    """Get the cells that are not kept, those that matter most first.

    Lost, gained, split and merged ones, the largest first; then moved ones, by differing pixels.
    """

    def weight(change: ObjectChange) -> tuple[bool, int]:
        is_moved = change.kind == ObjectKind.MOVED
        size = differing_pixels(change) if is_moved else max(change.area_a, change.area_b)
        return is_moved, -size

    changed = [change for change in comparison.objects if change.kind != ObjectKind.KEPT]
    return sorted(changed, key=weight)


def cell_tiles(
    changes: Sequence[ObjectChange], image: np.ndarray | None, a: np.ndarray, b: np.ndarray
) -> tuple[CellTile, ...]:
    """Draw each changed cell closely, with the outlines of both sides."""
    is_stack = a.ndim == 3

    @lru_cache(maxsize=4)
    def background(z: int) -> np.ndarray:
        if not is_stack:
            return background_of(image, a.shape)
        return background_of(None if image is None else image[z], a.shape[1:])

    tiles = []
    for change in changes:
        z = round(change.position[0]) if is_stack else 0
        rows, columns = _window(change, a.shape[-2:], is_stack=is_stack)
        labels = {
            name: (side[z] if is_stack else side)[rows, columns]
            for name, side in (("a", a), ("b", b))
        }
        pixels = with_outlines(background(z)[rows, columns], labels, side=_SIDE)
        own = np.isin(labels["a"], change.labels_a) | np.isin(labels["b"], change.labels_b)
        _dim_around(pixels, own)
        _mark_corners(pixels, own)
        facts = _facts(change)
        alt = f"{change.kind.in_words}: {'; '.join(facts)}"
        tiles.append(CellTile(change.kind.sign, change.kind, facts, panel(pixels, "", alt)))
    return tuple(tiles)


def _dim_around(pixels: np.ndarray, own: np.ndarray) -> None:
    """Dim the surroundings of a cell, in place."""
    from scipy import ndimage

    is_near = ndimage.binary_dilation(enlarged(own, pixels.shape[:2]), iterations=_MARGIN)
    pixels[~is_near] = np.rint(pixels[~is_near] * DIMMED)


def _mark_corners(pixels: np.ndarray, own: np.ndarray) -> None:
    """Draw the corners of a frame around a cell, in place; black below white, to be seen on all."""
    seen = enlarged(own, pixels.shape[:2])
    if not seen.any():
        return  # a stack's cell whose middle plane does not show it
    corners = []
    for axis in (1, 0):
        inside = np.flatnonzero(seen.any(axis=axis))
        last = pixels.shape[1 - axis] - 1
        corners.append((max(0, inside[0] - _FRAME), min(last, inside[-1] + _FRAME)))
    for colour, widened in ((0, 1), (255, 0)):
        for y, into_y in zip(corners[0], (1, -1), strict=True):
            for x, into_x in zip(corners[1], (1, -1), strict=True):
                _line(pixels, (y, y), (x, x + into_x * _CORNER), widened, colour)
                _line(pixels, (y, y + into_y * _CORNER), (x, x), widened, colour)


def _line(
    pixels: np.ndarray, rows: tuple[int, int], columns: tuple[int, int], widened: int, colour: int
) -> None:
    """Draw a line of two pixels along rows or columns, widened on every side."""
    spans = [
        slice(max(0, min(ends) - widened), max(ends) + 2 + widened) for ends in (rows, columns)
    ]
    pixels[spans[0], spans[1]] = colour


def _window(change: ObjectChange, shape: tuple[int, ...], *, is_stack: bool) -> tuple[slice, slice]:
    """Rows and columns around a cell, moved inside the image."""
    area = max(change.area_a, change.area_b)
    across = area ** (1 / 3 if is_stack else 1 / 2)
    side = max(_LEAST_SIDE, round(_ROUND_A_CELL * across))
    slices = []
    for centre, n_pixels in zip(change.position[-2:], shape, strict=True):
        length = min(side, n_pixels)
        start = int(np.clip(round(centre - length / 2), 0, n_pixels - length))
        slices.append(slice(start, start + length))
    return slices[0], slices[1]


def _facts(change: ObjectChange) -> tuple[str, ...]:
    place = place_text(change.position)
    in_a = _cells(change.labels_a)
    in_b = _cells(change.labels_b)
    if not change.labels_b:
        return (f"only in A: {in_a}", f"{grouped(change.area_a)} px", place)
    if not change.labels_a:
        return (f"only in B: {in_b}", f"{grouped(change.area_b)} px", place)
    return (
        f"{in_a} in both" if in_a == in_b else f"{in_a} in A, {in_b} in B",
        f"{grouped(change.area_a)} px in A, {grouped(change.area_b)} px in B",
        place,
        f"IoU {change.iou:.2f}",
    )


def _cells(labels: Sequence[int]) -> str:
    """Name cells in a sentence: "cell 4", "cells 4 and 5"."""
    return f"cell {labels[0]}" if len(labels) == 1 else f"cells {joined([*map(str, labels)])}"
