"""Images and masks of a made-up store: squares in rows, of which trainings lose and move some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray

IMAGES = ("img_a", "img_b", "img_c")

_SIZE = 256  # pixels along an edge
_CELLS = 8  # along an edge
_STEP = _SIZE // _CELLS  # pixels from a cell to the next

Labels = NDArray[np.uint16]


@dataclass(frozen=True)
class Drawing:
    """What the masks of an image depend on."""

    image: int
    setting: int
    seed: int
    on_gpu: bool
    nuance: int
    """Which of a few ways a race may end; 0 where there was none."""

    def masks(self) -> Labels:
        """The truth, but setting and seed lose and move some cells, device and race move a few."""
        labels = truth_of(self.image)
        training = [self.image, self.setting, self.seed]
        on_device = [*training, int(self.on_gpu)]
        for square, number in _squares(labels, _some_cells(training, 6)):
            square[:] = 0 if number % 3 == 0 else np.roll(square, 3, axis=0)
        _move(labels, _some_cells(on_device, 2))
        if self.nuance:
            _move(labels, _some_cells([*on_device, self.nuance], 2))
        return labels


def truth_of(image: int) -> Labels:
    """The squares of an image."""
    y, x = np.indices((_SIZE, _SIZE))
    inside = ((y % _STEP) > 3 + image) & ((x % _STEP) > 5)
    return (inside * (y // _STEP * _CELLS + x // _STEP + 1)).astype(np.uint16)


def write_images(folder: Path) -> None:
    """Write every image, its squares brighter than the rest, and its truth."""
    folder.mkdir()
    for index, name in enumerate(IMAGES):
        truth = truth_of(index)
        noise = np.random.default_rng(index).poisson(30, truth.shape)
        light = (noise + 60 * (truth > 0)).astype(np.uint8)
        tifffile.imwrite(folder / f"{name}.tif", light)
        tifffile.imwrite(folder / f"{name}_masks.tif", truth)


def _some_cells(seed: list[int], n: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).choice(_CELLS**2, n, replace=False)


def _move(labels: Labels, numbers: Iterable[int]) -> None:
    for square, _ in _squares(labels, numbers):
        square[:] = np.roll(square, 3, axis=0)


def _squares(labels: Labels, numbers: Iterable[int]) -> Iterator[tuple[Labels, int]]:
    """Views of the squares of cells, with the numbers of these."""
    for number in numbers:
        row, column = divmod(int(number), _CELLS)
        y = row * _STEP
        x = column * _STEP
        yield labels[y : y + _STEP, x : x + _STEP], int(number)
