"""Benchmark of the agreement of many runs: 1,000 runs of which 20 differ beside those 20 alone.

Both are measured in one process, in turn; values are medians. On a busy machine the ratio holds
better than the seconds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.compare.many import agree
from cellrepro.record.digests import file_digest

ROUNDS = 3
N_RUNS, N_DISTINCT = 1000, 20
SIDE, PITCH = 2048, 29  # 4,900 cells of 24 pixels across, a few of them changed in each result

Row = tuple[str, float, str, bool | None, str]


def main() -> int:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    for name, value, target, met, how in many():
        mark = {True: "met", False: "MISSED", None: "-"}[met]
        print(f"{name:58} {value:8.3f}  {target:>10}  {mark:6} {how}", flush=True)
    return 0


def many() -> Iterator[Row]:
    """Rows of (name, value, target, met, how)."""
    with tempfile.TemporaryDirectory() as scratch:
        paths = [Path(scratch, f"{i}.npy") for i in range(N_DISTINCT)]
        for i, path in enumerate(paths):
            np.save(path, result(i))
        digests = [file_digest(path) for path in paths]
        readers = [partial(np.load, path) for path in paths]
        how = f"medians of {ROUNDS} rounds, {SIDE}² pixels, {(SIDE // PITCH) ** 2} objects"

        few, all_ = compare(
            lambda: agree(readers, digests=digests),
            lambda: agree(_repeated(readers), digests=_repeated(digests)),
        )
        name = f"agreement: {N_RUNS} runs with digests / the {N_DISTINCT} that differ"
        yield name, all_ / few, "<= 1.5", all_ / few <= 1.5, how
        yield f"agreement: {N_DISTINCT} different results, seconds", few, "", None, how

        few, all_ = compare(lambda: agree(readers), lambda: agree(_repeated(readers)))
        name = f"agreement: {N_RUNS} runs without digests / the {N_DISTINCT} that differ"
        yield name, all_ / few, "", None, f"{how}; every file is read and digested"


def result(i: int) -> np.ndarray:
    """A label image: a grid of cells, of which some are moved, missing, merged or cut."""
    generator = np.random.default_rng(i)
    masks = np.zeros((SIDE, SIDE), np.int32)
    n_columns = SIDE // PITCH
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


def _repeated(items: list[Any]) -> list[Any]:
    return [items[i % N_DISTINCT] for i in range(N_RUNS)]


def compare(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float]:
    """Median seconds of both, which take turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for call, measured in zip((first, second), times, strict=True):
            started = time.perf_counter()
            call()
            measured.append(time.perf_counter() - started)
    return statistics.median(times[0]), statistics.median(times[1])


if __name__ == "__main__":
    raise SystemExit(main())
