"""How far the flows of each cell are from the network's: Cellpose's ``flow_error``, cell by cell.

Cellpose lets heat spread in all cells at once, with a list of the neighbours of every pixel, for
twice the extent of the largest cell. Here cells of about one size are laid side by side, each in a
box of its own, and the nine neighbours are added in the same order: on a processor every error has
the bits of Cellpose's. The heat of a cell depends on its pixels and the number of steps alone, so
that a cell that stays as it is keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cellrepro.model.portable_flows import LEAST_LENGTH, Box, rounded_up

_NEIGHBOURS = ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2), (0, 0), (0, 2), (2, 0), (2, 2))
"""Places of a pixel and its eight neighbours in a box of three by three, as Cellpose adds them."""
_TOGETHER = 2**18
"""Pixels of the boxes whose heat spreads together: threads that do less at once wait for each
other's turn with the interpreter."""
_MOST_PIXELS = 4e7
"""Pixels of an image with its border beyond which Cellpose computes in float32 (4.2.1.1)."""

_CellKey = tuple[int, int, bytes]
"""Height, width and pixels of a cell."""


@dataclass(frozen=True)
class _Cell:
    """A cell to be heated."""

    key: _CellKey
    is_cell: NDArray[np.bool_]
    centre: tuple[int, int]
    """Row and column in its box."""


class CellFlowErrors:
    """The errors of the cells of one image; the heat of those that do not change is kept."""

    def __init__(self, flows: NDArray[np.float32]) -> None:
        self._flows_of_network = flows / 5.0
        self._n_steps = 0
        self._heat: dict[_CellKey, np.ndarray] = {}

    def of(self, masks: np.ndarray, *, n_threads: int) -> NDArray[np.float64]:
        """Give the error of each cell; the cells are numbered from 1 without gaps."""
        from cellpose.dynamics import get_centers
        from scipy.ndimage import find_objects

        boxes: list[Box] = find_objects(masks)
        centres, extents = get_centers(masks, boxes)
        n_steps = 2 * int(extents.max())
        if n_steps != self._n_steps:
            self._heat.clear()
            self._n_steps = n_steps
        shape = (masks.shape[0] + 2, masks.shape[1] + 2)
        dtype = np.float32 if shape[0] * shape[1] > _MOST_PIXELS else np.float64
        cells = [
            _cell(masks[box] == number, box, centre)
            for number, (box, centre) in enumerate(zip(boxes, centres, strict=True), start=1)
        ]
        self._heat = self._heat_of(cells, dtype, n_threads)
        heat = np.zeros(shape, dtype)
        for cell, (rows, columns) in zip(cells, boxes, strict=True):
            target = heat[rows.start + 1 : rows.stop + 1, columns.start + 1 : columns.stop + 1]
            target += self._heat[cell.key]
        squares = self._squared_differences(heat, masks)
        return np.array(
            [squares[box][cell.is_cell].mean() for box, cell in zip(boxes, cells, strict=True)]
        )

    def _heat_of(
        self, cells: Sequence[_Cell], dtype: type[np.floating], n_threads: int
    ) -> dict[_CellKey, np.ndarray]:
        """The heat of these cells by their pixels, computed where it is not known."""
        heat = {cell.key: self._heat[cell.key] for cell in cells if cell.key in self._heat}
        new = {cell.key: cell for cell in cells if cell.key not in heat}
        groups = list(_groups(new.values()))

        def spread(group: list[_Cell]) -> list[np.ndarray]:
            return _spread(group, self._n_steps, dtype)

        with ThreadPoolExecutor(n_threads) as threads:
            for group, arrays in zip(groups, threads.map(spread, groups), strict=True):
                heat.update({c.key: array for c, array in zip(group, arrays, strict=True)})
        return heat

    def _squared_differences(self, heat: np.ndarray, masks: np.ndarray) -> NDArray[np.float64]:
        """The squared difference of the flows at each pixel of a cell."""
        y, x = np.nonzero(masks)
        gradients = np.stack(
            [heat[y + 2, x + 1] - heat[y, x + 1], heat[y + 1, x + 2] - heat[y + 1, x]]
        ).astype(np.float64)
        gradients /= LEAST_LENGTH + (gradients**2).sum(axis=0) ** 0.5
        squares = np.zeros(masks.shape)
        squares[y, x] = ((gradients - self._flows_of_network[:, y, x]) ** 2).sum(axis=0)
        return squares


def _cell(is_cell: NDArray[np.bool_], box: Box, centre: NDArray[np.int64]) -> _Cell:
    rows, columns = box
    key = (*is_cell.shape, np.packbits(is_cell).tobytes())
    return _Cell(key, is_cell, (int(centre[0]) - rows.start, int(centre[1]) - columns.start))


def _groups(cells: Iterable[_Cell]) -> Iterator[list[_Cell]]:
    """Group cells of about one size, so many together that threads are busy; large ones first."""
    by_size: dict[tuple[int, int], list[_Cell]] = {}
    for cell in cells:
        size = (rounded_up(cell.is_cell.shape[0]), rounded_up(cell.is_cell.shape[1]))
        by_size.setdefault(size, []).append(cell)
    for (height, width), alike in sorted(by_size.items(), reverse=True):
        n_together = max(1, _TOGETHER // (height * width))
        for begin in range(0, len(alike), n_together):
            yield alike[begin : begin + n_together]


def _spread(cells: list[_Cell], n_steps: int, dtype: type[np.floating]) -> list[np.ndarray]:
    """The heat of some cells: a pixel becomes the mean of the nine, of which others count as 0."""
    height = rounded_up(max(cell.is_cell.shape[0] for cell in cells))
    width = rounded_up(max(cell.is_cell.shape[1] for cell in cells))
    n_cells = len(cells)
    divisors = np.full((height, width, n_cells), np.inf, dtype)  # 0 outside a cell
    sources = np.empty((3, n_cells), np.int64)
    for position, cell in enumerate(cells):
        rows, columns = cell.is_cell.shape
        divisors[:rows, :columns, position][cell.is_cell] = 9
        sources[:, position] = (cell.centre[0] + 1, cell.centre[1] + 1, position)
    heat = np.zeros((height + 2, width + 2, n_cells), dtype)
    shifted = [heat[y : y + height, x : x + width] for y, x in _NEIGHBOURS]
    total = np.empty_like(divisors)
    source = tuple(sources)
    for _ in range(n_steps):
        heat[source] += 1
        np.add(shifted[0], shifted[1], out=total)
        for neighbour in shifted[2:]:
            total += neighbour
        np.divide(total, divisors, out=shifted[0])
    return [
        shifted[0][: cell.is_cell.shape[0], : cell.is_cell.shape[1], position].copy()
        for position, cell in enumerate(cells)
    ]
