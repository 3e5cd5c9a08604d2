"""Comparing networks, beside reading their files."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.measuring import Extent, Figure

# What the child does: imports and one small comparison come before the memory is measured.
COMPARE_WEIGHTS = """
import json, sys, time
from cellrepro.comparison.weight_similarity import similarity
from cellrepro.store.peak_memory import peak_memory_of_process
warm_up, *paths = sys.argv[1:]
similarity([warm_up, warm_up])
before = peak_memory_of_process()
cpu, started = time.process_time(), time.perf_counter()
similarity(paths)
seconds = time.perf_counter() - started
cpu = time.process_time() - cpu
peak = peak_memory_of_process()
print(json.dumps({"seconds": seconds, "cpu": cpu, "before": before, "peak": peak}))
"""


def weights(extent: Extent) -> Iterator[Figure]:
    """20 networks, every one compared with every other, beside reading the files from disk.

    The files leave the cache before each; where they would fill more than half of what is free
    on the disk, the networks are smaller.
    """
    n_files, n_parameters = extent.of((3, 24_000), (20, 30_000_000), (20, 300_000_000))
    free = shutil.disk_usage(tempfile.gettempdir()).free
    n_parameters = min(n_parameters, free // 2 // (4 * n_files))
    for kind in ("from one start", "other seeds"):
        with tempfile.TemporaryDirectory() as scratch:
            paths = _networks(Path(scratch), n_files, n_parameters, kind)
            n_bytes = sum(path.stat().st_size for path in paths)
            small = _networks(Path(scratch, "small"), 1, 1000, kind)[0]
            disk = [_seconds_of_reading(paths)]
            _out_of_cache(paths)
            command = [sys.executable, "-c", COMPARE_WEIGHTS, str(small), *map(str, paths)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            measured = json.loads(done.stdout)
            disk.append(_seconds_of_reading(paths))
        how = (
            f"{n_files} networks of {n_parameters / 1e6:g} M parameters, {kind}: "
            f"{measured['seconds']:.1f} s, of the processors {measured['cpu']:.1f} s; reading "
            f"{disk[0]:.1f} and {disk[1]:.1f} s ({n_bytes / min(disk) / 1e9:.2f} GB/s)"
        )
        name = f"{kind}: compared / read from disk, bytes per second"
        yield Figure(name, min(disk) / measured["seconds"], ">= 0.5", how)
        most = f"< {measured['before'] / 1e9 + 1:.2f}"
        how += "; a gigabyte more than one small comparison takes"
        yield Figure(f"{kind}: peak memory, GB", measured["peak"] / 1e9, most, how)


def _networks(folder: Path, n_files: int, n_parameters: int, kind: str) -> list[Path]:
    """Safetensors files with a transformer's layers, written in pieces to keep memory small."""
    folder.mkdir(exist_ok=True)
    n_layers = 24
    piece = 2**20
    bounds = np.linspace(0, n_parameters, n_layers + 1).astype(int).tolist()
    header = {
        f"encoder.blocks.{i}.mlp.weight": {
            "dtype": "F32",
            "shape": [high - low],
            "data_offsets": [4 * low, 4 * high],
        }
        for i, (low, high) in enumerate(itertools.pairwise(bounds))
    }
    head = json.dumps(header).encode()
    # One pool of numbers, shifted otherwise for every piece of every file: as good for distances
    # as new ones, and as quick as the disk.
    pool = np.random.default_rng(0).standard_normal(2 * piece, np.float32)
    paths = [folder / f"{f:02}.safetensors" for f in range(n_files)]
    for f, path in enumerate(paths):
        shifts = np.random.default_rng(f + 1)
        common = np.random.default_rng(0)
        with path.open("wb") as stream:
            stream.write(len(head).to_bytes(8, "little") + head)
            for done in range(0, n_parameters, piece):
                n = min(piece, n_parameters - done)
                start_of_file = int(shifts.integers(piece))
                start = int(common.integers(piece))
                values = np.float32(0.02) * pool[start_of_file : start_of_file + n]
                if kind == "from one start":
                    values = np.float32(0.02) * pool[start : start + n] + np.float32(0.01) * values
                stream.write(values.tobytes())
            stream.flush()
            os.fsync(stream.fileno())
    return paths


def _out_of_cache(paths: list[Path]) -> None:
    for path in paths:
        with path.open("rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _seconds_of_reading(paths: list[Path]) -> float:
    """Every byte from the disk into memory, one file after the other."""
    _out_of_cache(paths)
    memory = bytearray(2**23)
    started = time.perf_counter()
    for path in paths:
        with path.open("rb", buffering=0) as stream:
            while stream.readinto(memory):
                pass
    return time.perf_counter() - started
