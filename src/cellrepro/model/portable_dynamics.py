"""The end points of pixels that follow the flows, with the same bits on every machine.

Cellpose's ``dynamics.steps_interp`` samples the flows with ``grid_sample``, which fuses operations
where a processor can. Here each operation is one of NumPy's, which IEEE 754 rounds in one way.

Pixels are followed block by block, so that a block stays in the cache. Unlike Cellpose, this uses
that the next position is a function of the last one alone: a pixel that stands where it stood a
number of steps before goes round in a circle, and if the steps that are left are a multiple of that
number, it ends where it stands, bit for bit. Most pixels circle in their last digits soon after
they arrive, and are followed no longer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray

_BLOCK = 2**14
"""Pixels that are followed together: some 20 arrays of 64 kB, which a cache holds."""
_CIRCLE = 12
"""Steps between two looks at which pixels stand where they stood: circles of 1, 2, 3, 4, 6 and 12
steps are found. Of 5,000 cells in 2048 x 2048 pixels 5 pixels in 100 still move after 200 steps."""


def follow_flows(
    flows: NDArray[np.float32],
    inds: Sequence[NDArray[np.int64]],
    niter: int,
    device: torch.device | None = None,
) -> torch.Tensor:
    """Follow the flows from some pixels, as ``cellpose.dynamics.steps_interp`` does."""
    field = _Field(flows)
    coordinates = field.coordinates(inds)
    n_pixels = coordinates.shape[1]
    blocks = [coordinates[:, begin : begin + _BLOCK] for begin in range(0, n_pixels, _BLOCK)]
    n_threads = max(1, min(torch.get_num_threads(), len(blocks)))
    with ThreadPoolExecutor(n_threads) as threads:
        list(threads.map(lambda block: _follow(field, block, niter), blocks))
    ends = field.positions(coordinates)
    return torch.from_numpy(ends).to(device)


class _Field:
    """The flows of an image, interpolated between its pixels.

    Cellpose 4.2.1.1 maps the outermost pixels to -1 and 1 and samples with ``align_corners`` off,
    so that a pixel i of n looks its flow up at i n / (n - 1) - 1/2. Coordinates here are those
    plus 1, for a border of zeros, and the flows are stretched likewise.
    """

    def __init__(self, flows: NDArray[np.float32]) -> None:
        self._sizes = flows.shape[1:]
        self._stretches = [np.float32(size / max(1, size - 1)) for size in self._sizes]
        self._padded_sizes = [size + 2 for size in self._sizes]
        inner = tuple(slice(1, -1) for _ in self._sizes)
        self._padded: list[NDArray[np.float32]] = []
        for flow, stretch in zip(flows, self._stretches, strict=True):
            padded = np.zeros(self._padded_sizes, np.float32)
            padded[inner] = flow.astype(np.float32) * stretch
            self._padded.append(padded.reshape(-1))

    def coordinates(self, pixels: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        """The coordinates of pixels in the flows, float32, shape (axes, N)."""
        return np.stack(
            [
                along_axis.astype(np.float32) * stretch + np.float32(0.5)
                for along_axis, stretch in zip(pixels, self._stretches, strict=True)
            ]
        )

    def positions(self, coordinates: NDArray[np.float32]) -> NDArray[np.float32]:
        """Coordinates in the flows as positions in the image, in pixels; NaN becomes 0."""
        positions = np.stack(
            [
                (along_axis - np.float32(0.5)) / stretch
                for along_axis, stretch in zip(coordinates, self._stretches, strict=True)
            ]
        )
        return np.nan_to_num(positions, copy=False, nan=0.0)

    def step(self, coordinates: NDArray[np.float32]) -> NDArray[np.float32]:
        """Coordinates after one step, at most half a pixel outside the image."""
        lower = np.floor(coordinates)
        upper_shares = coordinates - lower
        with np.errstate(invalid="ignore"):  # NaN stands anywhere, and stays NaN
            corner = lower[0].astype(np.intp)
            for axis in range(1, len(coordinates)):
                corner *= self._padded_sizes[axis]
                corner += lower[axis].astype(np.intp)
        after = np.empty_like(coordinates)
        for axis, size in enumerate(self._sizes):
            flow = self._between(self._padded[axis], corner, upper_shares)
            np.add(coordinates[axis], flow, out=after[axis])
            np.clip(after[axis], np.float32(0.5), np.float32(size + 0.5), out=after[axis])
        return after

    def _between(
        self, flow: NDArray[np.float32], corner: NDArray[np.intp], upper_shares: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Interpolate a flow along the last axes; ``corner`` is the flat index of the lower one."""
        n_axes = len(upper_shares)
        if n_axes == 0:
            return flow.take(corner, mode="clip")
        stride = math.prod(self._padded_sizes[len(self._sizes) - n_axes + 1 :])
        lower = self._between(flow, corner, upper_shares[1:])
        upper = self._between(flow, corner + stride, upper_shares[1:])
        upper -= lower
        upper *= upper_shares[0]
        upper += lower
        return upper


def _follow(field: _Field, coordinates: NDArray[np.float32], n_steps: int) -> None:
    """Follow the flows from some coordinates, and overwrite them by the last ones."""
    current = coordinates.copy()
    for _ in range(n_steps % _CIRCLE):
        current = field.step(current)
    still_moving = np.arange(coordinates.shape[1])
    for _ in range(n_steps // _CIRCLE):
        before = current
        for _ in range(_CIRCLE):
            current = field.step(current)
        coordinates[:, still_moving] = current
        moved = (current != before).any(axis=0)
        still_moving = still_moving[moved]
        current = current[:, moved]
        if len(still_moving) == 0:
            return
    coordinates[:, still_moving] = current


class Histogram:
    """Counts by position, in the place of the sparse tensor in Cellpose's ``get_masks_torch``.

    That tensor sorts all positions; whole numbers can be counted in any order.
    """

    def __init__(
        self, coordinates: torch.Tensor, counted: torch.Tensor, size: tuple[int, ...]
    ) -> None:
        self._coordinates = coordinates
        self._dtype = counted.dtype
        self._size = tuple(int(length) for length in size)

    def to_dense(self) -> torch.Tensor:
        """The count at each position, in the type of the numbers that are counted."""
        flat = self._coordinates[0].long()
        for along_axis, length in zip(self._coordinates[1:], self._size[1:], strict=True):
            flat = flat * length + along_axis
        counts = torch.bincount(flat, minlength=math.prod(self._size))
        return counts.to(self._dtype).reshape(self._size)
