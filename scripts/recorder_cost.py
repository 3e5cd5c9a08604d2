"""What recording adds to `eval`: pairs of calls with and without, in any environment with Cellpose.

python scripts/recorder_cost.py WEIGHTS [--size 512] [--pairs 11]
"""

import argparse
import functools
import runpy
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from cellpose.models import CellposeModel

RECORDER = Path(__file__).parents[1] / "src" / "cellrepro" / "record.py"


def nuclei(size):
    """Blurred discs with noise, 16 bit, as bright as a microscope's image."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[:size, :size]
    pixels = random.normal(200, 20, (size, size))
    for _ in range(size * size // 2500):
        (row, column), radius = random.uniform(0, size, 2), random.uniform(6, 14)
        pixels += 1000 * np.exp(-((y - row) ** 2 + (x - column) ** 2) / radius**2)
    return pixels.clip(0, 65535).astype(np.uint16)


class Timed:
    """A function, and how long its latest call took in seconds."""

    def __init__(self, function):
        functools.update_wrapper(self, function)  # its signature, too
        self.function = function
        self.seconds = 0.0

    def __call__(self, *arguments, **named_arguments):
        start = time.perf_counter()
        try:
            return self.function(*arguments, **named_arguments)
        finally:
            self.seconds = time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=11)
    asked = parser.parse_args()
    recorded = runpy.run_path(str(RECORDER))["recorded"]
    model = CellposeModel(pretrained_model=asked.weights)
    image = nuclei(asked.size)
    options = {"diameter": 30}
    if version("cellpose").startswith(("2.", "3.")):
        options["channels"] = [0, 0]
    model.eval = Timed(model.eval)
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        recording = Timed(recorded(model, folder, name="image").eval)
        model.eval(image, **options)  # the first call of a process takes longer
        for _ in range(asked.pairs):
            model.eval(image, **options)
            plain = model.eval.seconds
            recording(image, **options)
            pairs.append((plain, recording.seconds, recording.seconds - model.eval.seconds))
    plain = statistics.median(pair[0] for pair in pairs)
    more = statistics.median(pair[1] - pair[0] for pair in pairs)
    own = statistics.median(pair[2] for pair in pairs)
    print(f"Cellpose {version('cellpose')}, {asked.size} x {asked.size}, {asked.pairs} pairs:")
    print(f"  eval alone {plain:.3f} s, with the recorder {more:+.4f} s ({more / plain:+.2%})")
    print(f"  of that the recorder itself {own:.4f} s ({own / plain:.2%})")


if __name__ == "__main__":
    main()
