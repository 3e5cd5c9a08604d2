"""Benchmarks: ratios measured side by side in one run, alternating, medians.

Prints a table and writes a list of {name, value, target, met, how}. On a busy machine the ratios
hold better than the seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

ROUNDS = 5


@dataclass(frozen=True)
class Benchmark:
    """One figure with its target; ``met`` is none where there is no target."""

    name: str
    value: float
    target: str
    met: bool | None
    how: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path("outputs/bench.json"))
    parser.add_argument("--data", type=Path, help="a folder of real images, for the learning goal")
    arguments = parser.parse_args()
    _surroundings()
    results = [import_time(), *loop(), *learning(arguments.data)]
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps([asdict(r) for r in results], indent=1), encoding="utf-8")
    for result in results:
        mark = {True: "met", False: "MISSED", None: "-"}[result.met]
        print(f"{result.name:58} {result.value:8.3f}  {result.target:>10}  {mark:6} {result.how}")
    return 0


def _surroundings() -> None:
    """Start again with the variables of profile ``cpu``, as a worker has them."""
    from cellrepro.control import profiles

    variables = profiles.load("cpu").variables()
    if any(os.environ.get(name) != value for name, value in variables.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **variables})


def import_time() -> Benchmark:
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import cellrepro"], check=True)
        times.append(time.perf_counter() - started)
    value = statistics.median(times)
    return Benchmark(
        "import cellrepro, seconds", value, "<= 0.5", value <= 0.5, f"median of {ROUNDS} processes"
    )


def loop() -> list[Benchmark]:
    """The lab's loop beside Cellpose's own, and strict beside fast, over the same steps."""
    from cellpose.train import train_seg

    from cellrepro.cells.images import read_folder
    from cellrepro.cells.synthetic import write_folder
    from cellrepro.cells.training import train
    from cellrepro.control.determinism import mode_in_force

    n_epochs, draws = 2, 16
    with tempfile.TemporaryDirectory() as scratch:
        write_folder(Path(scratch, "data"))
        images = read_folder(Path(scratch, "data")).train

        def cellpose() -> None:
            train_seg(
                _network(),
                train_data=[image.image for image in images],
                train_labels=[image.masks for image in images],
                n_epochs=n_epochs,
                nimg_per_epoch=draws,
                learning_rate=1e-3,
                weight_decay=0.1,
                save_path=scratch,
                model_name="bench",
            )

        def ours(mode: str) -> Callable[[], None]:
            def run() -> None:
                with mode_in_force(mode):
                    train(
                        _network(),
                        images,
                        (),
                        n_epochs=n_epochs,
                        images_per_epoch=draws,
                        learning_rate=1e-3,
                    )

            return run

        seconds = _alternate({"cellpose": cellpose, "fast": ours("fast"), "strict": ours("strict")})
    how = f"{n_epochs * draws} steps of tiny, {ROUNDS} alternating rounds, medians of the pairs"
    return [
        _ratio(
            "lab's loop, fast / cellpose.train.train_seg", seconds, "fast", "cellpose", 1.05, how
        ),
        _ratio("lab's loop, strict / fast", seconds, "strict", "fast", 1.05, how),
    ]


def _network() -> object:
    import torch

    from cellrepro.cells.network import ModelSource, build

    source = ModelSource("tiny", "tiny")
    return build(source, seed=0, device=torch.device("cpu"), dtype="float32")


def _alternate(functions: dict[str, Callable[[], None]]) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()  # warm up
    for _ in range(ROUNDS):
        for name, function in functions.items():
            started = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def _ratio(
    name: str, seconds: dict[str, list[float]], a: str, b: str, target: float, how: str
) -> Benchmark:
    ratios = [x / y for x, y in zip(seconds[a], seconds[b], strict=True)]
    value = statistics.median(ratios)
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return Benchmark(name, value, f"<= {target}", value <= target, f"{how}; {spread}")


def learning(data: Path | None) -> list[Benchmark]:
    """What `tiny` learns, and in how many seconds of training."""
    import cellrepro
    from cellrepro.cells.synthetic import write_folder

    results = []
    with tempfile.TemporaryDirectory() as scratch:
        write_folder(Path(scratch, "synthetic"))
        goals = [(Path(scratch, "synthetic"), "synthetic", 0.8)]
        if data is not None:
            goals.append((data, data.name, 0.65))
        for folder, name, goal in goals:
            outcome = cellrepro.train(
                folder, epochs=24, repeats=1, quiet=True, store=Path(scratch, "store")
            )
            manifest = outcome.repeats[0].manifest
            how = "cellrepro train DATA --epochs 24 --repeats 1"
            score, seconds = manifest.ap50 or 0.0, manifest.seconds["train"]
            results += [
                Benchmark(f"tiny on {name}: mean AP@0.5", score, f">= {goal}", score >= goal, how),
                Benchmark(
                    f"tiny on {name}: seconds of training", seconds, "<= 90", seconds <= 90, how
                ),
            ]
    return results


if __name__ == "__main__":
    sys.exit(main())
