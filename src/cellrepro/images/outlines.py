"""Cells as outlines, drawn as a label image.

An outline runs along the corners of pixels, as ImageJ and QuPath draw it: a pixel is inside where
its centre is. Or it runs from one outermost pixel of the cell to the next, as OpenCV finds it and
Cellpose writes it: these pixels belong to the cell. The steps between its points tell which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import fastremap
import numpy as np
from numpy.typing import NDArray

from samebits.errors import BadInput
from samebits.words import amount, some

Ring = NDArray[np.float64]
"""Points (x, y) of a closed line, shape (N, 2)."""
Shape = tuple[int, ...]

MOST_CELLS = 2**20
MOST_POINTS = 2**24
"""Of one file."""
_MOST_PIXELS = 2**30  # of the image that is drawn
_MOST_OF_IMAGE = 16  # times its pixels in the boxes around all cells, so that drawing ends
_MOST_CROSSINGS = 2**22  # of an outline and rows of pixels, beside those of its box
_FARTHEST = 2**20  # pixels; no image has such a side


@dataclass(frozen=True, eq=False)
class Outline:
    """The outline of a cell."""

    rings: tuple[Ring, ...]
    """Its parts and holes: a point in an odd number of rings is inside."""
    name: str = ""
    plane: int | None = None
    """The plane of a stack on which it lies, from 0."""
    category: str = ""
    """What a program classified it as."""


@dataclass(frozen=True, eq=False)
class DrawnOutlines:
    """A label image that was drawn from outlines."""

    labels: NDArray[np.uint32]
    notes: tuple[str, ...]
    """What a reader has to know of it, clauses without the name of the file."""


@dataclass(frozen=True, eq=False)
class Outlines:
    """The outlines in a file."""

    path: Path
    cells: tuple[Outline, ...]
    remarks: tuple[str, ...] = ()
    """What of the file is no cell, clauses without its name."""
    along_pixels: bool | None = field(default=None)
    """Whether they run from pixel to pixel; None where their steps tell it."""

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """The number of each cell: its name, where every name is another number, else its place."""
        names = [cell.name for cell in self.cells]
        if len(set(names)) == len(names) and all(map(_is_number, names)):
            return np.array([int(name) for name in names], np.int64)
        return np.arange(1, len(self.cells) + 1, dtype=np.int64)

    @cached_property
    def run_along_pixels(self) -> bool:
        """Whether their points are the outermost pixels of each cell."""
        if self.along_pixels is not None:
            return self.along_pixels
        rings = [ring for cell in self.cells for ring in cell.rings]
        return bool(rings) and all(map(_has_unit_steps, rings)) and any(map(_goes_on, rings))

    @cached_property
    def extent(self) -> Shape:
        """The smallest image (Y, X), or stack (Z, Y, X), with the origin and all outlines."""
        corners = np.array([ring.max(axis=0) for cell in self.cells for ring in cell.rings])
        reach = corners.max(axis=0, initial=0.0).reshape(2) if len(corners) else np.zeros(2)
        beyond = 1 if self.run_along_pixels else 0
        width, height = (max(1, int(np.ceil(side)) + beyond) for side in reach)
        planes = self._planes
        return (max(planes) + 1, height, width) if len(planes) > 1 else (height, width)

    @cached_property
    def categories(self) -> Counter[str]:
        """How many cells a program classified as what."""
        return Counter(cell.category for cell in self.cells if cell.category)

    @property
    def _planes(self) -> set[int]:
        return {cell.plane for cell in self.cells if cell.plane is not None}

    def drawn(self, shape: Shape | None = None) -> DrawnOutlines:
        """Draw them in an image of a shape, by default the smallest with all of them.

        Of several that overlap the last one is on top.
        """
        shape = shape or self.extent
        self._refuse_wrong_shape(shape)
        labels = np.zeros(shape, np.uint32)
        n_overlapping = n_outside = n_filled = 0
        for cell, number in zip(self.cells, self.numbers, strict=True):
            plane = labels if labels.ndim == 2 else labels[cell.plane or 0]
            box = _box(cell, plane.shape, along_pixels=self.run_along_pixels)
            part = plane[box.top : box.bottom, box.left : box.right]
            n_filled += part.size
            n_crossings = sum(_n_crossings(ring, box) for ring in cell.rings)
            if (
                n_filled > _MOST_OF_IMAGE * labels.size + _MOST_CROSSINGS
                or n_crossings > part.size + _MOST_CROSSINGS
            ):
                raise BadInput(
                    f"{self.path}: its outlines cover the image more than {_MOST_OF_IMAGE} times, "
                    "or run to and fro without end, as cells do not; export the cells alone"
                )
            inside = _filled(cell.rings, box, along_pixels=self.run_along_pixels)
            n_overlapping += int(np.count_nonzero(part[inside]))
            n_outside += not inside.any()
            part[inside] = number
        notes = (*self.remarks, *self._notes(labels, n_overlapping, n_outside))
        return DrawnOutlines(labels, notes)

    def _notes(
        self, labels: NDArray[np.uint32], n_overlapping: int, n_outside: int
    ) -> Iterator[str]:
        if n_outside:
            was = "covers" if n_outside == 1 else "cover"
            yield (
                f"{n_outside} of {amount(len(self.cells), 'outline')} {was} no pixel of an image "
                f"of {' × '.join(map(str, labels.shape[-2:]))} pixels, and {was} none here"
            )
        if n_overlapping:
            n_left = int(np.count_nonzero(fastremap.unique(labels)))
            n_hidden = len(self.cells) - n_outside - n_left
            hidden = f"; {amount(n_hidden, 'cell')} nothing is left of" if n_hidden > 0 else ""
            pixels = amount(n_overlapping, "pixel")
            verb = "lies" if n_overlapping == 1 else "lie"
            yield f"{pixels} {verb} in several outlines, and there the last one counts{hidden}"

    def _refuse_wrong_shape(self, shape: Shape) -> None:
        """Refuse an image in which they cannot lie, or that would fill the memory."""
        if int(np.prod(shape, dtype=np.int64)) > _MOST_PIXELS:
            raise BadInput(
                f"{self.path}: its outlines need an image of {' × '.join(map(str, shape))} pixels, "
                f"expected at most {_MOST_PIXELS} pixels; are they in pixels of the image?"
            )
        planes = self._planes
        if len(shape) == 2 and len(planes) > 1:
            raise BadInput(
                f"{self.path}: its outlines lie on {len(planes)} planes, and the image has one; "
                "expected the outlines of one plane, or a stack beside them"
            )
        if len(shape) == 3 and not (planes and max(planes) < shape[0]):
            lie = f"up to z {max(planes)}" if planes else "on no plane that it names"
            raise BadInput(
                f"{self.path}: its outlines lie {lie}, and the stack has {shape[0]} planes; "
                "expected outlines with the position of each in the stack"
            )
        self._refuse_far_outside(shape)

    def _refuse_far_outside(self, shape: Shape) -> None:
        """Refuse outlines that mostly lie outside: in other units, or of another image."""
        if not self.cells:
            return
        centres = np.array([_centre(cell) for cell in self.cells])
        is_outside = ((centres < 0) | (centres > (shape[-1], shape[-2]))).any(axis=1)
        n_outside = int(np.count_nonzero(is_outside))
        if 2 * n_outside > len(self.cells):
            smallest = centres.min(axis=0)
            largest = centres.max(axis=0)
            raise BadInput(
                f"{self.path}: {n_outside} of {amount(len(self.cells), 'outline')} "
                f"{'lies' if n_outside == 1 else 'lie'} outside of the image of "
                f"{shape[-2]} × {shape[-1]} pixels (their centres: x {smallest[0]:.4g} to "
                f"{largest[0]:.4g}, y {smallest[1]:.4g} to {largest[1]:.4g}); expected x and y in "
                "pixels of this image, from its upper left corner: export them in pixels, not in "
                "micrometres or in places of a whole slide"
            )


def size_note(shape: Shape) -> str:
    """Say that the size of an image was made up."""
    return (
        "outlines have no size of an image, so the smallest one with all of them was taken, "
        f"{' × '.join(map(str, shape))} pixels"
    )


def outlines_of(
    path: Path,
    cells: Sequence[Outline],
    remarks: Sequence[str] = (),
    *,
    along_pixels: bool | None = None,
) -> Outlines:
    """Check outlines that were read from a file: numbers that can be places in an image."""
    if not cells:
        why = f" ({some(list(remarks))})" if remarks else ""
        raise BadInput(
            f"{path}: no outline of a cell{why}; expected polygons, at least three points each"
        )
    for place, cell in enumerate(cells, start=1):
        for ring in cell.rings:
            if not (np.abs(ring) < _FARTHEST).all():  # False of NaN, too
                raise BadInput(
                    f"{path}: outline {place} has a point that is no place in an image (NaN, or "
                    f"{_FARTHEST} pixels or more from the origin); expected x and y in pixels"
                )
    return Outlines(path, tuple(cells), tuple(remarks), along_pixels)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and 0 < int(name[:11]) < 2**32 and len(name) <= 10


def _steps(ring: Ring) -> Ring:
    steps = np.roll(ring, -1, axis=0) - ring
    return steps[steps.any(axis=1)]  # a point that stands twice is no step


def _has_unit_steps(ring: Ring) -> bool:
    """Whether every point is a whole pixel, and the next one a neighbour of it."""
    return bool((ring == np.rint(ring)).all()) and bool((np.abs(_steps(ring)) <= 1).all())


def _goes_on(ring: Ring) -> bool:
    """Whether a step is diagonal, or repeated: a line along corners has points at corners alone."""
    steps = _steps(ring)
    return bool(steps.all(axis=1).any() or (steps == np.roll(steps, -1, axis=0)).all(axis=1).any())


def _centre(cell: Outline) -> NDArray[np.float64]:
    lower = np.min([ring.min(axis=0) for ring in cell.rings], axis=0)
    upper = np.max([ring.max(axis=0) for ring in cell.rings], axis=0)
    return np.asarray((lower + upper) / 2)


class _Box(NamedTuple):
    """The part of an image around a cell, in pixels."""

    top: int
    bottom: int
    left: int
    right: int


def _box(cell: Outline, shape: Shape, *, along_pixels: bool) -> _Box:
    lower = np.floor(np.min([ring.min(axis=0) for ring in cell.rings], axis=0)).astype(int)
    upper = np.ceil(np.max([ring.max(axis=0) for ring in cell.rings], axis=0)).astype(int)
    upper += int(along_pixels)
    left, top = np.clip(lower, 0, (shape[1], shape[0])).tolist()
    right, bottom = np.clip(upper, 0, (shape[1], shape[0])).tolist()
    return _Box(top, bottom, left, right)


def _rows_crossed(
    y: NDArray[np.float64], height: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row that each edge of a ring crosses, and how many rows it crosses."""
    next_y = np.roll(y, -1)
    first = np.clip(np.ceil(np.minimum(y, next_y)), 0, height).astype(np.int64)
    end = np.clip(np.ceil(np.maximum(y, next_y)), 0, height).astype(np.int64)
    return first, end - first


def _n_crossings(ring: Ring, box: _Box) -> int:
    return int(_rows_crossed(ring[:, 1] - box.top, box.bottom - box.top)[1].sum())


def _filled(rings: Sequence[Ring], box: _Box, *, along_pixels: bool) -> NDArray[np.bool_]:
    """Which pixels of a box are inside of rings.

    Along each row of pixel centres, inside and outside change at every crossing of a ring.
    """
    height = box.bottom - box.top
    width = box.right - box.left
    origin = np.array([box.left, box.top]) + (0.0 if along_pixels else 0.5)
    changes = np.zeros((height, width + 1), np.uint8)  # only whether their number is even counts
    for ring in rings:
        x, y = (ring - origin).T
        next_x = np.roll(x, -1)
        next_y = np.roll(y, -1)
        first, n_crossed = _rows_crossed(y, height)
        edge = np.repeat(np.arange(len(ring)), n_crossed)
        row = np.arange(len(edge)) - np.repeat(np.cumsum(n_crossed) - n_crossed, n_crossed)
        row += first[edge]
        share = (row - y[edge]) / (next_y[edge] - y[edge])
        crossing = np.ceil(x[edge] + share * (next_x[edge] - x[edge]))
        column = np.clip(crossing, 0, width).astype(np.int64)
        np.add.at(changes, (row, column), 1)
    inside = (np.cumsum(changes, axis=1, dtype=np.uint8)[:, :width] % 2).astype(bool)
    if along_pixels:
        for ring in rings:
            x, y = (ring - origin).astype(np.int64).T
            shown = (x >= 0) & (x < width) & (y >= 0) & (y < height)
            inside[y[shown], x[shown]] = True
    return inside
