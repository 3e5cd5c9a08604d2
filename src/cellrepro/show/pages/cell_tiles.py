"""The cells that differ most between two label images, each in a small picture of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cellrepro.comparison.category_map import categories
from cellrepro.comparison.object_changes import ObjectChange, ObjectKind
from cellrepro.show.figures.colours import DIMMED
from cellrepro.show.figures.pixels import background_of, enlarged, with_outlines
from cellrepro.show.pages.parts import Panel, panel
from cellrepro.words import iou_text, place_text
from samebits.words import grouped, joined

_SIDE = 264  # of a tile, pixels
_FRAME = 8  # from a cell to the corners around it, pixels of the tile
_CORNER = 14  # length of their lines, pixels of the tile
_TICK = 9  # length of a line at the edge, pixels of the tile
_MARGIN = 6  # around the cell that is not dimmed, pixels of the tile
_LEAST_SIDE = 24  # of the part that it shows, pixels of the image
_PLANES_AROUND = 2  # a cell that is seen from the side
_ROUND_A_CELL = 2.6  # how much wider than the cell that part is


@dataclass(frozen=True)
class CellTile:
    """A picture of one cell that differs."""

    change: ObjectChange
    facts: Sequence[str]
    """Its numbers and sizes on both sides, and where it is."""
    panel: Panel
    """Its heading is the plane of a stack."""
    section: Panel | None = None
    """The cell of a stack from the side, at the same scale; its heading says which planes."""


def cell_tiles(
    changes: Sequence[ObjectChange],
    image: np.ndarray | None,
    a: np.ndarray,
    b: np.ndarray,
    *,
    by_plane: bool = False,
) -> tuple[CellTile, ...]:
    """Draw each changed cell closely, with the outlines of both sides.

    Of a stack the plane is drawn on which that cell differs most, with a section from the side;
    with ``by_plane``, where cells are of one plane, that plane alone.
    """
    if not changes:
        return ()
    is_stack = a.ndim == 3
    differs = (categories(a, b) if is_stack else np.zeros(a.shape, np.uint8)) >= 2

    @lru_cache(maxsize=4)
    def background(z: int) -> np.ndarray:
        if not is_stack:
            return background_of(image, a.shape)
        return background_of(None if image is None else image[z], a.shape[1:])

    tiles = []
    for change in changes:
        z = 0
        centre = change.position[-2:]
        if is_stack:
            z = round(change.position[0]) if by_plane else _telling_plane(change, a, b, differs)
        plane_a = a[z] if is_stack else a
        plane_b = b[z] if is_stack else b
        near = _window(centre, max(change.area_a, change.area_b), plane_a.shape)
        own = _own(change, plane_a[near], plane_b[near])
        if is_stack and own.any():
            offsets = [part.start for part in near]
            centre = tuple((np.argwhere(own).mean(axis=0) + offsets).tolist())
            near = _window(centre, int(own.sum()), plane_a.shape)
            own = _own(change, plane_a[near], plane_b[near])
        facts = _facts(change)
        heading = f"plane z {z}" if is_stack else ""
        name = f"{change.in_words}: {'; '.join(facts)}"
        scale = _SIDE / max(own.shape)
        pixels = _picture(background(z)[near], plane_a[near], plane_b[near], own, scale)
        section = None
        if is_stack and len(a) > 1 and not by_plane:
            cut = _telling_cut(change, a, b, differs, near)
            part = (cut.planes, cut.y, near[1])
            of_image = None if image is None else image[part]
            side_a, side_b = a[part], b[part]
            own = _own(change, side_a, side_b)
            side = _picture(background_of(of_image, own.shape), side_a, side_b, own, scale)
            for rows, at in ((pixels, cut.y - near[0].start), (side, z - cut.planes.start)):
                _mark_cut(rows, at, scale)
            section = panel(side, cut.heading, f"{cut.heading}; {name}")
        alt = "; ".join(filter(None, [heading, name]))
        shown = panel(pixels, heading, alt)
        tiles.append(CellTile(change, facts, shown, section))
    return tuple(tiles)


def _picture(
    background: np.ndarray, a: np.ndarray, b: np.ndarray, own: np.ndarray, scale: float
) -> np.ndarray:
    """Draw a part of an image with the outlines of both sides, and what lies around a cell dim."""
    side = round(scale * max(own.shape))
    pixels = with_outlines(background, {"a": a, "b": b}, side=side)
    _dim_around(pixels, own)
    _mark_corners(pixels, own)
    return pixels


@dataclass(frozen=True)
class _Cut:
    """A section through a stack, across planes and along x."""

    y: int
    planes: slice

    @property
    def heading(self) -> str:
        """Say where it lies, and which planes it shows."""
        first, last = self.planes.start, self.planes.stop - 1
        return f"xz at y {self.y}, where most differs; z {first} to {last}"


def _telling_cut(
    change: ObjectChange,
    a: np.ndarray,
    b: np.ndarray,
    differs: np.ndarray,
    near: tuple[slice, slice],
) -> _Cut:
    """Choose the row at which a cell of a stack differs most, and the planes around the cell."""
    part = (slice(None), *near)
    own = _own(change, a[part], b[part])
    is_telling = own & differs[part]
    row = (is_telling if is_telling.any() else own).sum(axis=(0, 2)).argmax()
    planes = np.flatnonzero(own.any(axis=(1, 2))).tolist() or [0, len(a) - 1]
    first = max(0, planes[0] - _PLANES_AROUND)
    end = min(len(a), planes[-1] + _PLANES_AROUND + 1)
    return _Cut(near[0].start + int(row), slice(first, end))


def _mark_cut(pixels: np.ndarray, row: int, scale: float) -> None:
    """Mark at both edges, in place, where the other picture of a cell cuts this one."""
    y = round((row + 0.5) * scale) - 1
    last = pixels.shape[1] - 1
    for colour, widened in ((0, 1), (255, 0)):
        for ends in ((0, _TICK), (last - _TICK, last)):
            _line(pixels, (y, y), ends, widened, colour)


def _own(change: ObjectChange, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where a cell lies on either side."""
    return np.isin(a, change.labels_a) | np.isin(b, change.labels_b)


def _telling_plane(change: ObjectChange, a: np.ndarray, b: np.ndarray, differs: np.ndarray) -> int:
    """Choose the plane on which a cell of a stack differs most, else the one that shows most."""
    rows, columns = _window(change.position[1:], max(change.area_a, change.area_b), a.shape[1:])
    near = (slice(None), rows, columns)
    own = _own(change, a[near], b[near])
    is_telling = own & differs[near]
    return int((is_telling if is_telling.any() else own).sum(axis=(1, 2)).argmax())


def _dim_around(pixels: np.ndarray, own: np.ndarray) -> None:
    """Dim the surroundings of a cell, in place."""
    from scipy import ndimage

    is_near = ndimage.binary_dilation(enlarged(own, pixels.shape[:2]), iterations=_MARGIN)
    pixels[~is_near] = np.rint(pixels[~is_near] * DIMMED)


def _mark_corners(pixels: np.ndarray, own: np.ndarray) -> None:
    """Draw the corners of a frame around a cell, in place; black below white, to be seen on all."""
    seen = enlarged(own, pixels.shape[:2])
    if not seen.any():
        return  # the cell lies beside the window, as one that is long and bent
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


def _window(centre: Sequence[float], area: int, shape: Sequence[int]) -> tuple[slice, slice]:
    """Rows and columns around a cell of so many pixels."""
    side = max(_LEAST_SIDE, round(_ROUND_A_CELL * area**0.5))
    slices = []
    for middle, n_pixels in zip(centre, shape, strict=True):
        length = min(side, n_pixels)
        start = int(np.clip(round(middle - length / 2), 0, n_pixels - length))
        slices.append(slice(start, start + length))
    return slices[0], slices[1]


def _facts(change: ObjectChange) -> tuple[str, ...]:
    place = f"centre {place_text(change.position)}"
    for axis in ("z ", "y ", "x "):
        place = place.replace(axis, f"{axis.strip()}\u00a0")
    unit = "voxels" if len(change.position) == 3 else "px"
    in_a = _cells(change.labels_a)
    in_b = _cells(change.labels_b)
    if not change.labels_b:
        return (_alone(change, in_a, "A", "B"), f"{grouped(change.area_a)} {unit}", place)
    if not change.labels_a:
        return (_alone(change, in_b, "B", "A"), f"{grouped(change.area_b)} {unit}", place)
    sizes = f"{grouped(change.area_a)} {unit} in A, {grouped(change.area_b)} {unit} in B"
    if change.area_a == change.area_b:
        sizes = f"{grouped(change.area_a)} {unit} in both"
    is_cut = change.kind in (ObjectKind.SPLIT, ObjectKind.MERGED)
    of_parts = " of all parts together" if is_cut else ""
    facts = (
        f"{in_a} in both" if in_a == in_b else f"{in_a} in A, {in_b} in B",
        sizes,
        place,
        f"IoU{of_parts}\u00a0{iou_text(change.iou)}",
        *([f"shift\u00a0{change.shift_text}\u00a0px"] if change.is_moved_alone else []),
    )
    return (*facts, f"cut between {change.cuts}") if change.cuts else facts


def _alone(change: ObjectChange, cells: str, side: str, other: str) -> str:
    """Say that one side alone has a cell, or in which cell of the other side it lies."""
    if change.inside:
        return f"{cells} of {side}, inside {_cells(change.inside)} of {other}"
    return f"only in {side}: {cells}"


def _cells(labels: Sequence[int]) -> str:
    """Name cells in a sentence: "cell 4", "cells 4 and 5"."""
    return f"cell {labels[0]}" if len(labels) == 1 else f"cells {joined([*map(str, labels)])}"
