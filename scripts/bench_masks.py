"""Comparing label images, beside Cellpose and StarDist, and in large images.

The masks are made up: discs on a grid, of which the second image jitters place and size, drops
some, and cuts some in two.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

Row = tuple[str, float, str, str]
THRESHOLDS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
ROUNDS = 5


def discs(size: int, n: int, seed: int, *, dtype: type = np.int32) -> np.ndarray:
    """A label image of about n round objects on a grid, shape (size, size)."""
    random = np.random.default_rng(seed)
    per_side = int(np.ceil(np.sqrt(n)))
    step = size // per_side
    image = np.zeros((size, size), dtype)
    y, x = np.mgrid[:step, :step]
    label = 0
    for i in range(per_side):
        for j in range(per_side):
            label += 1
            if random.random() < 0.02:
                continue
            radius = step * (0.35 + 0.12 * random.random())
            centre = step / 2 + random.normal(0, 0.5, 2)
            inside = (y - centre[0]) ** 2 + (x - centre[1]) ** 2 < radius**2
            if random.random() < 0.02:
                inside &= abs(x - centre[1]) > 1
            image[i * step : (i + 1) * step, j * step : (j + 1) * step][inside] = label
    return image


def masks(extent: str) -> Iterator[Row]:
    """Every figure of the comparison; its memory in large images takes a minute."""
    yield from beside_others(*((128, 20) if extent == "smallest" else (2048, 5000)))
    if extent != "usual":
        yield from large(512 if extent == "smallest" else 16384)


def beside_others(size: int, n: int) -> Iterator[Row]:
    """Time beside `cellpose.metrics.average_precision` and `stardist.matching.matching`."""
    from cellpose import metrics
    from stardist.matching import matching

    from cellrepro.compare.metrics import average_precision, compare_masks

    a, b = discs(size, n, 0), discs(size, n, 1)
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
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            started = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - started)
    for name, called in (("full", "full comparison"), ("ap", "AP at ten thresholds")):
        for other in ("cellpose", "stardist"):
            ratios = sorted(
                theirs / mine for mine, theirs in zip(seconds[name], seconds[other], strict=True)
            )
            ratio = statistics.median(ratios)
            yield (
                f"{other} AP / {called}, {size}², {n} objects",
                ratio,
                ">= 15",
                f"median of {ROUNDS} ({ratios[0]:.0f} to {ratios[-1]:.0f}); "
                f"{statistics.median(seconds[other]):.2f} s and "
                f"{statistics.median(seconds[name]):.3f} s; the same figures",
            )


def large(size: int) -> Iterator[Row]:
    """Peak memory of a process that compares two large images."""
    kinds = ((np.uint16, 60_000, "in memory"), (np.int32, 300_000, "mapped from files"))
    for dtype, most, where in kinds:
        n = int(most * (size / 16384) ** 2)
        with tempfile.TemporaryDirectory() as scratch:
            paths = [Path(scratch, f"{side}.npy") for side in "ab"]
            for seed, path in enumerate(paths):
                np.save(path, discs(size, n, seed, dtype=dtype))
            argument = "r" if where == "mapped from files" else "-"
            command = [sys.executable, __file__, argument, *map(str, paths)]
            answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        peak, seconds, n_objects = (float(word) for word in answer.split())
        yield (
            f"memory for {size}² {np.dtype(dtype).name}, GB, {where}",
            peak / 1e9,
            "< 2",
            f"peak of the whole process, {n_objects:.0f} objects, {seconds:.1f} s"
            + ("; without pages of the files" if argument == "r" else ""),
        )


def _child(mode: str, paths: list[str]) -> None:
    """Compare two arrays; print peak memory in bytes, seconds, and objects."""
    from cellrepro.compare.metrics import compare_masks

    compare_masks(np.eye(3, dtype=int), np.eye(3, dtype=int))
    a, b = (np.load(path, mmap_mode=None if mode == "-" else "r") for path in paths)
    field = "RssAnon:" if mode == "r" else "VmRSS:"
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            text = Path("/proc/self/status").read_text()
            peak = max(peak, int(text.split(field)[1].split()[0]) * 1024)

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    result = compare_masks(a, b)
    seconds = time.perf_counter() - started
    done.set()
    watcher.join()
    print(peak, seconds, result.n_objects_a)


if __name__ == "__main__":  # started by `large`
    _child(sys.argv[1], sys.argv[2:])
