"""What recording adds to `eval`, in any environment with Cellpose 2, 3 or 4.

    python scripts/recorder_cost.py WEIGHTS [--size 512] [--calls 11]

Nothing but NumPy and Cellpose is needed beside this file and src/cellrepro/record.py.
"""

from __future__ import annotations

import argparse
import functools
import operator
import runpy
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from cellpose.models import CellposeModel

RECORDER = Path(__file__).parents[1] / "src" / "cellrepro" / "record.py"


class Timed:
    """A function that notes how many seconds each of its calls took."""

    def __init__(self, function):
        functools.update_wrapper(self, function)  # its signature, too, which the recorder reads
        self.function = function
        self.seconds: list[float] = []

    def __call__(self, *arguments, **named_arguments):
        start = time.perf_counter()
        try:
            return self.function(*arguments, **named_arguments)
        finally:
            self.seconds.append(time.perf_counter() - start)


def main() -> None:
    """Print the median of `eval`, and of what the recorder does around it in the same calls."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights")
    parser.add_argument("--size", type=int, default=512, help="pixels along an edge of the image")
    parser.add_argument("--calls", type=int, default=11)
    arguments = parser.parse_args()
    model = CellposeModel(pretrained_model=arguments.weights)
    image = nuclei(arguments.size)
    settings = {"diameter": 30}
    if version("cellpose").startswith(("2.", "3.")):
        settings["channels"] = [0, 0]
    model.eval(image, **settings)  # the first call of a process takes longer
    model.eval = evaluating = Timed(model.eval)
    recorded = runpy.run_path(str(RECORDER))["recorded"]
    with tempfile.TemporaryDirectory() as folder:
        recording = Timed(recorded(model, folder, name="image").eval)
        for _ in range(arguments.calls):
            recording(image, **settings)
    seconds = statistics.median(evaluating.seconds)
    added = statistics.median(map(operator.sub, recording.seconds, evaluating.seconds))
    print(f"Cellpose {version('cellpose')}, {arguments.size} x {arguments.size} pixels:")
    print(f"  eval {seconds:.3f} s, the recorder itself {added:.4f} s ({added / seconds:.2%})")


def nuclei(size: int) -> np.ndarray:
    """Blurred discs with noise, 16 bit, as bright as a microscope's image."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[:size, :size]
    pixels = random.normal(200, 20, (size, size))
    for _ in range(size * size // 2500):
        row, column = random.uniform(0, size, 2)
        radius = random.uniform(6, 14)
        pixels += 1000 * np.exp(-((y - row) ** 2 + (x - column) ** 2) / radius**2)
    return pixels.clip(0, 65535).astype(np.uint16)


if __name__ == "__main__":
    main()
