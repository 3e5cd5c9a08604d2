"""Weights of many large networks compared: beside the speed of the disk, and in how much memory.

Writes made-up float32 networks, a transformer's layers in shape, that start from one and differ
like trained ones, compares every one with every other in a process of its own, and reads the same
files one after the other, before and after. The files leave the cache before each of these.
"""

from __future__ import annotations

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

N_LAYERS = 24
_READ = 2**23  # bytes at a time
_SPEED = "compared / read from disk, bytes per second"

# What the child does: imports and one small comparison come before the memory is measured.
_CHILD = """
import json, resource, sys, time
from cellrepro.compare import similarity
warm_up, *paths = sys.argv[1:]
similarity([warm_up, warm_up])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
cpu = time.process_time()
started = time.perf_counter()
table = similarity(paths)
seconds = time.perf_counter() - started
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({
    "seconds": seconds,
    "cpu": time.process_time() - cpu,
    "growth": (after - before) * 1024,
    "l2": [float(table.l2[0, 1]), float(table.l2[-2, -1])],
}))
"""


PARAMETERS = {"smallest": 24_000, "usual": 30_000_000, "all": 300_000_000}
"""Float32 parameters of each network; the target is for the last."""


def weights(extent: str) -> Iterator[tuple[str, float, str, str]]:
    """Compare every network with every other one.

    All files are on the disk of the temporary folder at once; where they would fill more than
    half of what is free there, the networks are smaller.
    """
    n_files = 3 if extent == "smallest" else 20
    n_parameters = min(
        PARAMETERS[extent], shutil.disk_usage(tempfile.gettempdir()).free // 2 // (4 * n_files)
    )
    for kind in ("from one start", "other seeds"):
        with tempfile.TemporaryDirectory() as scratch:
            paths = _written(Path(scratch), n_files, n_parameters, kind)
            n_bytes = sum(path.stat().st_size for path in paths)
            small = _written(Path(scratch, "small"), 1, 1000, kind)[0]
            disk = [_seconds_of_reading(paths)]
            _out_of_cache(paths)
            told = subprocess.run(
                [sys.executable, "-c", _CHILD, str(small), *map(str, paths)],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            found = json.loads(told.stdout)
            disk.append(_seconds_of_reading(paths))
        how = (
            f"{n_files} networks of {n_parameters / 1e6:g} M parameters, {kind}: "
            f"{found['seconds']:.1f} s, of the processors {found['cpu']:.1f} s; reading "
            f"{disk[0]:.1f} and {disk[1]:.1f} s ({n_bytes / min(disk) / 1e9:.2f} GB/s)"
        )
        ratio = min(disk) / found["seconds"]
        yield f"{kind}: {_SPEED}", ratio, ">= 0.5", how
        growth = found["growth"] / 1e9
        yield f"{kind}: growth of peak memory, GB", growth, "< 1", how


def _written(folder: Path, n_files: int, n_parameters: int, kind: str) -> list[Path]:
    """Safetensors files, written in pieces; the library would need each as a whole in memory."""
    folder.mkdir(exist_ok=True)
    sizes = [n_parameters // N_LAYERS + (i < n_parameters % N_LAYERS) for i in range(N_LAYERS)]
    header: dict[str, object] = {}
    position = 0
    for i, n in enumerate(sizes):
        header[f"encoder.blocks.{i}.mlp.weight"] = {
            "dtype": "F32",
            "shape": [n],
            "data_offsets": [position, position + 4 * n],
        }
        position += 4 * n
    head = json.dumps(header).encode()
    # One pool of numbers, shifted otherwise for every piece of every file: as good for distances
    # as new ones, and as quick as the disk.
    generator = np.random.default_rng(0)
    piece = 2**20
    pool = generator.standard_normal(2 * piece, np.float32)
    paths = []
    for f in range(n_files):
        paths.append(folder / f"{f:02}.safetensors")
        shifts = np.random.default_rng(f + 1)
        common = np.random.default_rng(0)
        with paths[-1].open("wb") as stream:
            stream.write(len(head).to_bytes(8, "little") + head)
            for done in range(0, n_parameters, piece):
                n = min(piece, n_parameters - done)
                own, start = int(shifts.integers(piece)), int(common.integers(piece))
                values = np.float32(0.02) * pool[own : own + n]
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
    memory = bytearray(_READ)
    started = time.perf_counter()
    for path in paths:
        with path.open("rb", buffering=0) as stream:
            while stream.readinto(memory):
                pass
    return time.perf_counter() - started
