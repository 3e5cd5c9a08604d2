"""Flows of masks and their errors, with the same bits on every machine.

Cellpose lets heat spread from the centre of each cell, pixel by pixel with a list of neighbours.
Here cells of about one size are laid side by side, each in a box of its own, and the sum of the
neighbours is taken along one axis after the other: every operation is one of NumPy's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

_Label = TypeVar("_Label", np.uint16, np.uint32, np.int32, np.int64)

Box: TypeAlias = "tuple[slice[int, int, None], ...]"
"""Rows and columns of a cell in an image; None for a number that no pixel has."""

_TOGETHER = 2**15
"""Pixels of the boxes whose heat spreads together: 256 kB of float64, which a cache holds."""
_BOX_STEP = 4
"""Pixels: boxes that round up to the same multiple of it are of one size."""
LEAST_LENGTH = 1e-60
"""Cellpose adds it to the length of a gradient, so as not to divide by 0."""


def masks_to_flows(
    masks: NDArray[_Label], device: torch.device | None = None, niter: int | None = None
) -> tuple[NDArray[np.float64], list[Box] | None]:
    """Flows to the centre of each mask, as ``cellpose.dynamics.masks_to_flows_gpu`` gives them."""
    from cellpose.dynamics import get_centers
    from scipy.ndimage import find_objects

    flows = np.zeros((2, *masks.shape))
    if masks.max(initial=0) == 0:
        return flows, None
    boxes = find_objects(masks)
    centres, extents = get_centers(masks, boxes)  # of whole numbers, which are exact
    n_steps = 2 * int(extents.max()) if niter is None else niter
    heat = np.zeros((masks.shape[0] + 2, masks.shape[1] + 2))
    for cells in _groups(boxes):
        _spread_heat(heat, masks, cells, centres, n_steps)
    y, x = np.nonzero(masks)
    gradient_y = heat[y + 2, x + 1] - heat[y, x + 1]
    gradient_x = heat[y + 1, x + 2] - heat[y + 1, x]
    length = np.sqrt(gradient_y * gradient_y + gradient_x * gradient_x) + LEAST_LENGTH
    flows[0, y, x] = gradient_y / length
    flows[1, y, x] = gradient_x / length
    return flows, boxes


class _Cells(NamedTuple):
    """Cells that fit into boxes of one size."""

    numbers: list[int]
    """Labels of the label image, less 1."""
    boxes: list[Box]
    height: int
    """Pixels of the common size of box."""
    width: int


def _groups(boxes: list[Box]) -> Iterator[_Cells]:
    """Group cells of about one size, as many together as fit into the cache."""
    by_size: dict[tuple[int, int], list[int]] = {}
    for number, (rows, columns) in enumerate(boxes):
        size = (rounded_up(rows.stop - rows.start), rounded_up(columns.stop - columns.start))
        by_size.setdefault(size, []).append(number)
    for (height, width), numbers in by_size.items():
        n_together = max(1, _TOGETHER // (height * width))
        for begin in range(0, len(numbers), n_together):
            chosen = numbers[begin : begin + n_together]
            yield _Cells(chosen, [boxes[number] for number in chosen], height, width)


def rounded_up(length: int) -> int:
    """Round the length of a box up, so that many boxes are of one size."""
    return -(-length // _BOX_STEP) * _BOX_STEP


def _spread_heat(
    heat: NDArray[np.float64],
    masks: NDArray[_Label],
    cells: _Cells,
    centres: NDArray[np.int64],
    n_steps: int,
) -> None:
    """Diffuse heat in some cells, and add it to an image with a border of one pixel.

    A pixel becomes the mean of itself and its eight neighbours, of which those outside its cell
    count as 0. The outer two of three are added first, so that a mirrored cell has the same sums.
    """
    n_cells = len(cells.numbers)
    share = np.zeros((cells.height, cells.width, n_cells))
    sources = np.empty((3, n_cells), np.int64)
    for position, (number, box) in enumerate(zip(cells.numbers, cells.boxes, strict=True)):
        is_cell = masks[box] == number + 1
        share[: is_cell.shape[0], : is_cell.shape[1], position] = is_cell
        y, x = centres[number]
        sources[:, position] = (y - box[0].start + 1, x - box[1].start + 1, position)
    share /= 9.0
    boxed = np.zeros((cells.height + 2, cells.width + 2, n_cells))
    of_rows = np.empty((cells.height, cells.width + 2, n_cells))
    of_all = np.empty(share.shape)
    inner = boxed[1:-1, 1:-1]
    for _ in range(n_steps):
        boxed[tuple(sources)] += 1.0
        np.add(boxed[:-2], boxed[2:], out=of_rows)
        of_rows += boxed[1:-1]
        np.add(of_rows[:, :-2], of_rows[:, 2:], out=of_all)
        of_all += of_rows[:, 1:-1]
        np.multiply(of_all, share, out=inner)
    for position, box in enumerate(cells.boxes):
        rows, columns = box
        height = rows.stop - rows.start
        width = columns.stop - columns.start
        target = heat[rows.start + 1 : rows.stop + 1, columns.start + 1 : columns.stop + 1]
        target += inner[:height, :width, position]  # 0 outside its own cell


def flow_error(
    masks: NDArray[_Label], flows: NDArray[np.float32], device: torch.device | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean squared difference of flows from those of masks, as ``cellpose.dynamics.flow_error``."""
    flows_of_masks, _ = masks_to_flows(masks, device)
    difference = flows_of_masks - flows / np.float32(5)
    squares = difference[0] * difference[0] + difference[1] * difference[1]
    numbers = masks.reshape(-1)
    # NumPy adds weights one by one, in the order of the pixels (1.24 to 2.4)
    totals = np.bincount(numbers, weights=squares.reshape(-1))
    counts = np.bincount(numbers)
    return totals[1:] / counts[1:], flows_of_masks
