"""Measuring the images of an experiment under two sides, and concluding from them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tifffile

from benchmarks.label_images import grid_of_cells
from benchmarks.measuring import Extent, Figure

READOUTS = "count,area,equivalent_diameter,nearest_neighbour,mean_intensity"


def conclusion(extent: Extent) -> Iterator[Figure]:
    """A hundred images of 1024² with two folders of masks, from files to the words."""
    import cellrepro

    n_images, size, n_cells = extent.of((6, 128, 20), (100, 1024, 300))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        groups = _write_experiment(folder, n_images=n_images, size=size, n_cells=n_cells)
        started = time.perf_counter()
        cellrepro.conclusion(
            folder / "a", folder / "b", folder / "images", groups=groups, readouts=READOUTS
        )
        seconds = time.perf_counter() - started
    how = f"one call, {n_cells} cells in an image, five readouts; files are read"
    yield Figure(f"conclusion over {n_images} images of {size}²", seconds, "<= 20", how)


def _write_experiment(folder: Path, *, n_images: int, size: int, n_cells: int) -> dict[str, str]:
    """Write images and both masks; half of the images are treated."""
    generator = np.random.default_rng(0)
    for name in ("a", "b", "images"):
        (folder / name).mkdir()
    groups = {}
    for number in range(n_images):
        name = f"image_{number}"
        for side in ("a", "b"):
            masks = grid_of_cells(size, n_cells, 2 * number + (side == "b"))
            tifffile.imwrite(folder / side / f"{name}_masks.tif", masks.astype(np.uint16))
        image = generator.integers(0, 4096, (size, size)).astype(np.uint16)
        tifffile.imwrite(folder / "images" / f"{name}.tif", image)
        groups[name] = "treated" if number % 2 else "control"
    return groups
