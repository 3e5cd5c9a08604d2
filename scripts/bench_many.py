"""Agreement of many runs: 1,000 runs of which 20 differ, beside those 20 alone."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.compare.consensus import agree
from cellrepro.store.digests import file_digest

ROUNDS = 3
PITCH = 29  # pixels between cells of 24 pixels across, a few of them changed in each result

Row = tuple[str, float, str, str]


def many(extent: str) -> Iterator[Row]:
    """Digests known, and not."""
    n_runs, n_distinct, side = (6, 2, 128) if extent == "smallest" else (1000, 20, 2048)

    def repeated(items: list[Any]) -> list[Any]:
        return [items[i % n_distinct] for i in range(n_runs)]

    with tempfile.TemporaryDirectory() as scratch:
        paths = [Path(scratch, f"{i}.npy") for i in range(n_distinct)]
        for i, path in enumerate(paths):
            np.save(path, result(i, side))
        digests = [file_digest(path) for path in paths]
        readers = [partial(np.load, path) for path in paths]
        how = f"medians of {ROUNDS} rounds, {side}² pixels, {(side // PITCH) ** 2} objects"

        few, all_ = compare(
            lambda: agree(readers, digests=digests),
            lambda: agree(repeated(readers), digests=repeated(digests)),
        )
        name = f"agreement: {n_runs} runs with digests / the {n_distinct} that differ"
        yield name, all_ / few, "<= 1.5", how
        yield f"agreement: {n_distinct} different results, seconds", few, "", how

        few, all_ = compare(lambda: agree(readers), lambda: agree(repeated(readers)))
        name = f"agreement: {n_runs} runs without digests / the {n_distinct} that differ"
        yield name, all_ / few, "", f"{how}; every file is read and digested"


def result(i: int, side: int) -> np.ndarray:
    """A label image: a grid of cells, of which some are moved, missing, merged or cut."""
    generator = np.random.default_rng(i)
    masks = np.zeros((side, side), np.int32)
    n_columns = side // PITCH
    for cell in range(n_columns**2):
        y, x = (place * PITCH for place in divmod(cell, n_columns))
        change = generator.choice(5, p=(0.9, 0.07, 0.01, 0.01, 0.01))
        if change == 2:
            continue
        y += int(change == 1)
        masks[y : y + 24, x : x + (PITCH if change == 3 else 24)] = cell + 1
        if change == 4:
            masks[y : y + 12, x : x + 24] = n_columns**2 + cell + 1
    return masks


def compare(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float]:
    """Median seconds of both, which take turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for call, measured in zip((first, second), times, strict=True):
            started = time.perf_counter()
            call()
            measured.append(time.perf_counter() - started)
    return statistics.median(times[0]), statistics.median(times[1])
