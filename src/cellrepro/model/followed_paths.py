"""End points of pixels that follow the flows, each known for a range of thresholds.

A path depends on ``cellprob_threshold`` only through which pixels beside it are above: the flows of
the others are 0. Each path is kept with the range of thresholds at which the same pixels beside it
are above, and another threshold in that range gives the same end, bit for bit. As the threshold
moves, mostly pixels at the rim of cells are followed anew.

Each step is Cellpose's own (``dynamics.steps_interp``), taken block by block. A pixel that stands
where it stood `_CIRCLE` steps before goes round in a circle, and is followed no longer.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

_BLOCK = 2**14
"""Pixels that are followed together, so that their arrays stay in the cache."""
_CIRCLE = 12
"""Steps between two looks at which pixels stand where they stood: of 1, 2, 3, 4, 6 and 12 steps."""
_NOTED_TOGETHER = ((*(1,) * 6, 3, 3), (3,) * 4, (6, 6))
"""How many steps are noted at once, in the first `_CIRCLE` steps, the next, and all others: what
stands beside a path that has left the rim of its cell need not be known so closely."""


class Ends(NamedTuple):
    """Where the pixels above a threshold arrive."""

    pixels: tuple[NDArray[np.int64], ...]
    """Their rows and columns."""
    places: torch.Tensor
    """Where each arrives, float32 of shape (2, N), as ``dynamics.follow_flows`` gives it."""
    n_followed: int
    """Pixels that had to be followed anew."""


class FollowedPaths:
    """The paths of the pixels of one image, followed once for each range of thresholds."""

    def __init__(self, flows: NDArray[np.float32], probability: NDArray[np.float32]) -> None:
        self._flows = flows
        self._probability = probability
        self._n_steps = 0
        self._ends = torch.zeros((2, probability.size))
        self._lowest = np.empty(0, np.float32)
        self._highest = np.empty(0, np.float32)

    def ends(self, threshold: float, n_steps: int, *, n_threads: int) -> Ends:
        """Give the ends of all pixels above a threshold after so many steps."""
        if n_steps != self._n_steps:
            self._n_steps = n_steps
            self._lowest = np.full(self._probability.size, np.inf, np.float32)
            self._highest = np.full(self._probability.size, -np.inf, np.float32)
        limit = self._probability.dtype.type(threshold)
        is_above = self._probability > limit
        above = np.flatnonzero(is_above)
        is_known = (self._lowest[above] <= limit) & (limit < self._highest[above])
        to_follow = above[~is_known]
        if len(to_follow):
            self._follow(to_follow, is_above, n_threads)
        return Ends(np.nonzero(is_above), self._ends[:, above], len(to_follow))

    def _follow(
        self, pixels: NDArray[np.int64], is_above: NDArray[np.bool_], n_threads: int
    ) -> None:
        field = _Field(self._flows * is_above / 5.0, self._probability, is_above)
        blocks = [pixels[begin : begin + _BLOCK] for begin in range(0, len(pixels), _BLOCK)]

        def follow(block: NDArray[np.int64]) -> _Path:
            with torch.inference_mode():
                return field.followed(block, self._n_steps)

        with ThreadPoolExecutor(max(1, min(n_threads, len(blocks)))) as threads:
            for block, path in zip(blocks, threads.map(follow, blocks), strict=True):
                self._ends[:, block] = path.places
                self._lowest[block] = path.lowest
                self._highest[block] = path.highest


class _Path(NamedTuple):
    """The paths of some pixels."""

    places: torch.Tensor
    lowest: NDArray[np.float32]
    """The least threshold at which each path is this one."""
    highest: NDArray[np.float32]
    """The threshold from which on it is another."""


class _Field:
    """The flows above a threshold, and what stands beside each place of a path."""

    def __init__(
        self,
        flows: NDArray[np.float32],
        probability: NDArray[np.float32],
        is_above: NDArray[np.bool_],
    ) -> None:
        self._sizes = probability.shape
        self._spans = np.array(self._sizes)[::-1].astype("float") - 1
        self._image = torch.zeros((1, 2, *self._sizes))
        for axis, flow in enumerate(flows):
            self._image[0, 1 - axis] = torch.from_numpy(flow).to(torch.float32)
        for axis, span in enumerate(self._spans):
            self._image[:, axis] *= 2.0 / span
        self._scale = torch.tensor([self._sizes[1], self._sizes[0]], dtype=torch.float32)
        self._last = self._scale - 1
        self._longest_step = float(np.abs(flows).max(initial=0)) * 1.01  # in pixels
        known = np.where(np.isnan(probability), -np.inf, probability)  # NaN is never above
        below = np.where(is_above, -np.inf, known).astype(np.float32)
        above = np.where(is_above, -probability, -np.inf).astype(np.float32)
        self._beside = {
            together: (_largest_within(reach, below), _largest_within(reach, above))
            for together in (1, 3, 6)
            for reach in [self._reach(together)]
        }

    def _reach(self, together: int) -> int:
        """Pixels around the nearest one that so many steps can sample, seen from their middle.

        A place lies between four pixels, at most one from the nearest.
        """
        return int(together // 2 * self._longest_step + 0.5) + 1

    def followed(self, pixels: NDArray[np.int64], n_steps: int) -> _Path:
        """Follow the flows from some pixels, given by their places in the flat image."""
        width = self._sizes[1]
        starts = np.stack([pixels % width, pixels // width], axis=-1)
        points = torch.from_numpy(starts.astype(np.float32))[None, None]
        for axis, span in enumerate(self._spans):
            points[..., axis] /= span
        points *= 2
        points -= 1
        path = _Moving(points, len(pixels))
        for _ in range(n_steps % _CIRCLE):
            self._steps(path, 1)
        for block in range(n_steps // _CIRCLE):
            before = path.points.clone()
            for together in _NOTED_TOGETHER[min(block, len(_NOTED_TOGETHER) - 1)]:
                self._steps(path, together)
            if not path.keep_moving((path.points != before).any(dim=-1)[0, 0]):
                break
        return self._in_pixels(*path.finished())

    def _steps(self, path: _Moving, together: int) -> None:
        """Take steps as ``dynamics.steps_interp`` of Cellpose 4.2.1.1 does, and note them once."""
        points = path.points
        for step in range(together):
            if step == together // 2:
                self._note(path, together)
            moved = torch.nn.functional.grid_sample(self._image, points, align_corners=False)
            points += moved.permute(0, 2, 3, 1)
            points.clamp_(-1.0, 1.0)

    def _note(self, path: _Moving, together: int) -> None:
        """Note what stands beside the places of some steps."""
        nearest = torch.addcmul(self._last, path.points[0, 0], self._scale)
        nearest.mul_(0.5).round_().clamp_(min=0)
        columns, rows = torch.minimum(nearest, self._last).long().unbind(-1)
        place = torch.add(columns, rows, alpha=self._sizes[1])
        below, above = self._beside[together]
        torch.maximum(path.below, below[place], out=path.below)
        torch.maximum(path.above, above[place], out=path.above)

    def _in_pixels(self, points: torch.Tensor, below: torch.Tensor, above: torch.Tensor) -> _Path:
        points += 1
        points *= 0.5
        for axis, span in enumerate(self._spans):
            points[:, axis] *= span
        return _Path(points[:, [1, 0]].T, below.numpy(), -above.numpy())


class _Moving:
    """Pixels on their way; those that go in circles are put aside."""

    def __init__(self, points: torch.Tensor, n_pixels: int) -> None:
        self.points = points
        self.below = torch.full((n_pixels,), -torch.inf)
        self.above = torch.full((n_pixels,), -torch.inf)
        self._which = torch.arange(n_pixels)
        self._all = (torch.empty((n_pixels, 2)), self.below.clone(), self.above.clone())

    def keep_moving(self, moves: torch.Tensor) -> bool:
        """Put aside those that do not move; whether any is left."""
        self._put_aside(~moves)
        self._which = self._which[moves]
        self.points = self.points[:, :, moves].contiguous()
        self.below = self.below[moves]
        self.above = self.above[moves]
        return bool(len(self._which))

    def _put_aside(self, chosen: torch.Tensor) -> None:
        which = self._which[chosen]
        values = (self.points[0, 0], self.below, self.above)
        for whole, moving in zip(self._all, values, strict=True):
            whole[which] = moving[chosen]

    def finished(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Give places, and what stood beside the paths, of all pixels."""
        self._put_aside(torch.ones_like(self._which, dtype=torch.bool))
        return self._all


def _largest_within(reach: int, values: NDArray[np.float32]) -> torch.Tensor:
    """The largest value around each pixel, up to so many rows and columns away; flat."""
    import cv2

    around = np.ones((2 * reach + 1, 2 * reach + 1), np.uint8)
    return torch.from_numpy(cv2.dilate(values, around)).flatten()
