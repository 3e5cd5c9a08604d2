"""How soon the command line answers: CPU beside that of importing what it stands on."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import tifffile

from benchmarks.label_images import grid_of_cells
from benchmarks.measuring import ROUNDS, Extent, Figure, ratio_of

LAB = (sys.executable, "-m", "cellrepro")
LIBRARIES = (sys.executable, "-c", "import numpy, tifffile, pydantic")


def starting(extent: Extent) -> Iterator[Figure]:
    """Two small files compared, the list of commands, and a page about two large files."""
    rounds = extent.of(1, 2 * ROUNDS)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        compare = ("compare", *_written(folder, size=256, n=100))
        commands = {
            "libraries": LIBRARIES,
            "compare": (*LAB, *compare),
            "help": (*LAB, "--help"),
        }
        seconds = _cpu_in_turns(commands, folder, rounds)
        for name, title, target in (
            ("compare", "compare of two files of 256², 100 cells", "<= 1.6"),
            ("help", "--help", "<= 1.2"),
        ):
            yield ratio_of(
                f"{title} / import numpy, tifffile, pydantic; CPU",
                seconds,
                name,
                "libraries",
                target,
                f"median of {rounds} processes",
            )
        size, n = extent.of((256, 100), (2048, 5000))
        a, b = _written(folder, size=size, n=n)
        image = folder / "image.tif"
        tifffile.imwrite(image, np.where(tifffile.imread(a), 200, 20).astype(np.uint8))
        page = ("--html", str(folder / "page.html"), "--overwrite")
        commands = {
            "compare": (*LAB, "compare", a, b),
            "page": (*LAB, "compare", a, b, "--image", str(image), *page),
        }
        seconds = _cpu_in_turns(commands, folder, extent.of(1, ROUNDS))
        yield ratio_of(
            f"page about two files of {size}², {n} cells / compare; CPU",
            seconds,
            "page",
            "compare",
            "<= 3",
            f"median of {len(seconds['page'])} processes",
        )


def _written(folder: Path, *, size: int, n: int) -> tuple[str, str]:
    files = (folder / f"a{size}_masks.tif", folder / f"b{size}_masks.tif")
    for seed, file in enumerate(files):
        tifffile.imwrite(file, grid_of_cells(size, n, seed, np.uint16))
    return str(files[0]), str(files[1])


def _cpu_in_turns(
    commands: dict[str, Sequence[str]], folder: Path, rounds: int
) -> dict[str, list[float]]:
    """Seconds of the processor, user and system, of each command in every round."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            before = os.times()
            done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
            assert done.returncode in (0, 1), done.stderr.decode()
            after = os.times()
            of_user = after.children_user - before.children_user
            seconds[name].append(of_user + after.children_system - before.children_system)
    return seconds
