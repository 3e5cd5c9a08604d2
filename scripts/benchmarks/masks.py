"""Comparing masks: beside other packages, memory, many runs."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from benchmarks.label_images import grid_of_cells
from benchmarks.measuring import ROUNDS, Extent, Figure, in_turns, ratio_of

THRESHOLDS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


def masks(extent: Extent) -> Iterator[Figure]:
    """Beside Cellpose's and StarDist's scores; with `--all` the memory for large images, too."""
    from cellpose import metrics
    from stardist.matching import matching

    from cellrepro.comparison.mask_comparison import compare_masks
    from cellrepro.comparison.scores import average_precision

    size, n = extent.of((128, 20), (2048, 5000))
    a = grid_of_cells(size, n, 0)
    b = grid_of_cells(size, n, 1)
    functions: dict[str, Callable[[], object]] = {
        "full": lambda: compare_masks(a, b),
        "ap": lambda: average_precision(a, b, THRESHOLDS),
        "cellpose": lambda: metrics.average_precision(a, b, threshold=list(THRESHOLDS))[0],
        "stardist": lambda: [m.accuracy for m in matching(a, b, thresh=THRESHOLDS)],
    }
    matching(a[:64, :64], b[:64, :64])  # its compiler runs at the first call
    ours = average_precision(a, b, THRESHOLDS)
    for name in ("cellpose", "stardist"):
        furthest = float(np.abs(np.asarray(functions[name]()) - ours).max())
        assert furthest < 1e-6, f"{name} scores otherwise, by up to {furthest}"
    seconds = in_turns(functions, ROUNDS, warm_up=False)
    for name, called in (("full", "full comparison"), ("ap", "AP at ten thresholds")):
        for other in ("cellpose", "stardist"):
            theirs = statistics.median(seconds[other])
            mine = statistics.median(seconds[name])
            how = f"median of {ROUNDS}, {theirs:.2f} s and {mine:.3f} s; the same figures"
            title = f"{other} AP / {called}, {size}², {n} objects"
            yield ratio_of(title, seconds, other, name, ">= 15", how)
    if extent.name != "usual":
        yield from _large_masks(extent.of(512, None, 30_000))


CHILD = Path(__file__).with_name("peak_memory.py")


def _large_masks(size: int) -> Iterator[Figure]:
    """Two files compared as the command compares them, a cell in every 30 x 30 pixels."""
    for packing, compression in (("plain", None), ("packed", "zlib")):
        with tempfile.TemporaryDirectory() as scratch:
            paths = [Path(scratch, f"{side}.tif") for side in "ab"]
            for seed, path in enumerate(paths):
                labels = grid_of_cells(size, (size // 30) ** 2, seed, np.uint32)
                tiles = (512, 512) if compression else None
                tifffile.imwrite(path, labels, bigtiff=True, tile=tiles, compression=compression)
            command = [sys.executable, str(CHILD), *map(str, paths)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        peak, seconds, n_objects = map(float, done.stdout.split())
        name = f"two files of {size}² uint32, {packing} TIFF"
        how = f"{n_objects:.0f} objects; the whole process, read from the disk"
        yield Figure(f"{name}, seconds", seconds, "<= 60", how)
        yield Figure(f"{name}, memory in GB", peak / 1e9, "< 4", f"{how}, without mapped pages")


def many(extent: Extent) -> Iterator[Figure]:
    """Agreement of 1,000 runs of which 20 differ, beside those 20 alone; digests known, or not."""
    from cellrepro.comparison.consensus import agree
    from samebits.digests import file_digest

    n_runs, n_distinct, side = extent.of((6, 2, 128), (1000, 20, 2048))
    n_objects = (side // 29) ** 2

    def repeated(items: list[Any]) -> list[Any]:
        return [items[i % n_distinct] for i in range(n_runs)]

    with tempfile.TemporaryDirectory() as scratch:
        paths = [Path(scratch, f"{i}.npy") for i in range(n_distinct)]
        for i, path in enumerate(paths):
            np.save(path, grid_of_cells(side, n_objects, i))
        digests = [file_digest(path) for path in paths]
        readers = [partial(np.load, path) for path in paths]
        seconds = in_turns(
            {
                "few": lambda: agree(readers, digests=digests),
                "all": lambda: agree(repeated(readers), digests=repeated(digests)),
                "few, no digests": lambda: agree(readers),
                "all, no digests": lambda: agree(repeated(readers)),
            },
            3,
            warm_up=False,
        )
    how = f"3 rounds, {side}² pixels, {n_objects} objects"
    name = f"agreement: {n_runs} runs with digests / the {n_distinct} that differ"
    yield ratio_of(name, seconds, "all", "few", "<= 1.5", how)
    few = statistics.median(seconds["few"])
    yield Figure(f"agreement: {n_distinct} different results, seconds", few, "", f"median, {how}")
    name = f"agreement: {n_runs} runs without digests / the {n_distinct} that differ"
    how += "; every file is read and digested"
    yield ratio_of(name, seconds, "all, no digests", "few, no digests", "", how)
