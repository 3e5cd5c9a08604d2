"""Benchmarks: ratios measured side by side in one run, alternating, medians.

Prints a table and writes a list of {name, value, target, met, how}. On a busy machine the ratios
hold better than the seconds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
    parser.add_argument(
        "--only", nargs="+", choices=list(GROUPS), default=list(GROUPS), help="groups to measure"
    )
    arguments = parser.parse_args()
    _surroundings()
    results: list[Benchmark] = []
    for name in GROUPS:
        if name in arguments.only:
            for result in GROUPS[name](arguments.data):
                results.append(result)
                mark = {True: "met", False: "MISSED", None: "-"}[result.met]
                print(
                    f"{result.name:58} {result.value:8.3f}  {result.target:>10}  {mark:6} "
                    f"{result.how}",
                    flush=True,
                )
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps([asdict(r) for r in results], indent=1), encoding="utf-8")
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


def cost() -> Iterator[Benchmark]:
    """What determinism costs a step: every mode beside plain ``train_seg``."""
    from cellrepro.cost import measure_cost

    for encoder, steps, rounds in (("tiny", 4, 12), ("vit-b", 2, 3)):
        measured = measure_cost(encoder=encoder, steps=steps, rounds=rounds, quiet=True)
        over = f"{rounds} alternating rounds of {steps} steps, {measured.threads} threads"
        yield Benchmark(
            f"{encoder}: seconds a step, plain cellpose.train.train_seg",
            measured.row("plain").seconds,
            "",
            None,
            f"median, {over}",
        )
        for row in measured.rows[1:]:
            target = 1.0 if row.name == "strict" else None
            yield Benchmark(
                f"{encoder}: {row.name} / plain",
                row.ratio,
                f"<= {target:.2f}" if target else "",
                row.ratio <= target if target else None,
                f"{row.what}; {row.lowest:.2f} to {row.highest:.2f}, {over}",
            )


def substitutes() -> Iterator[Benchmark]:
    """The substitutes' speed beside what they replace, forward and backward."""
    import bench_substitutes
    import torch

    device = torch.device("cpu")
    for what, n_rows, k, width in bench_substitutes.CALLS:
        call = bench_substitutes.rel_pos_call(n_rows, k, width, device)
        original, *_, both = bench_substitutes.compare(call, rounds=15, inner=20, unit=1e3)
        yield Benchmark(
            f"get_rel_pos, {what.replace('`', '')}: substitutes / original",
            both / original,
            "",
            None,
            f"{original:.3f} ms originally, medians of 15 alternating rounds of 20 calls",
        )


def audit_ratio() -> Iterator[Benchmark]:
    """What an audited step takes, beside the same steps unaudited."""
    import numpy as np

    from cellrepro.cells.images import LabelledImage
    from cellrepro.cells.network import seeded_network
    from cellrepro.cells.synthetic import nuclei
    from cellrepro.cells.training import Loop
    from cellrepro.record.audit import audit

    made = nuclei(0)
    images = [LabelledImage("synth", made.image, made.masks.astype(np.int32), Path(), None)]
    for encoder, rounds in (("tiny", 7), ("vit-b", 2)):
        network = seeded_network(encoder, seed=0)
        loop = Loop(network, images, (), n_epochs=2 * rounds + 2, learning_rate=1e-5)
        loop.step()
        loop.step()
        ratios = []
        for _ in range(rounds):
            started = time.perf_counter()
            loop.step()
            plain = time.perf_counter() - started
            ratios.append(
                audit(loop.step, steps=1, replays=2, suspects=0, model=network).seconds / plain
            )
        value = statistics.median(ratios)
        yield Benchmark(
            f"{encoder}: audited step, 2 replays / plain step",
            value,
            "<= 4",
            value <= 4,
            f"{rounds} alternating rounds; {min(ratios):.2f} to {max(ratios):.2f}",
        )


def digest_speed() -> Iterator[Benchmark]:
    """Digesting memory beside reading it."""
    import numpy as np
    import torch

    from cellrepro.record.digests import tensor_digest

    tensor = torch.from_numpy(np.random.default_rng(0).standard_normal(2**26, np.float32))
    words = tensor.numpy().view(np.uint64)
    seconds = _alternate(
        {"digest": lambda: tensor_digest(tensor), "read": lambda: np.bitwise_xor.reduce(words)}
    )
    ratios = [r / d for r, d in zip(seconds["read"], seconds["digest"], strict=True)]
    value = statistics.median(ratios)
    speed = tensor.nbytes / statistics.median(seconds["digest"]) / 1e9
    yield Benchmark(
        "digest of 256 MB: speed / speed of reading it",
        value,
        ">= 0.5",
        value >= 0.5,
        f"{speed:.1f} GB/s; NumPy's xor over the same words; {ROUNDS} rounds",
    )


STEPS_OF_LEDGER = (("tiny", None, 1, 25), ("tiny", 8, 2, 9), ("vit-b", None, 1, 3))
"""Encoder, patch (pixels), images a step, rounds."""


def ledger_ratio() -> Iterator[Benchmark]:
    """What a step costs with its ledger, beside the same steps without."""
    from cellrepro.record.ledger import Ledger
    from cellrepro.record.watching import StepWatch, Watches

    for encoder, patch, batch_size, rounds in STEPS_OF_LEDGER:
        watch = Watches(())
        _, loop = _ledger_loop(encoder, patch, batch_size, 2 * rounds + 2, watch)
        ratios = []
        for _ in range(rounds):
            watch.watches = ()
            plain = _seconds(loop.step)
            watch.watches = (StepWatch(Ledger()),)
            ratios.append(_seconds(loop.step) / plain)
        value = statistics.median(ratios)
        yield Benchmark(
            f"{_called(encoder, patch, batch_size)}: step with its ledger / plain step",
            value,
            "<= 1.03",
            value <= 1.03,
            f"{rounds} alternating rounds; {min(ratios):.2f} to {max(ratios):.2f}",
        )


def operation_ratio() -> Iterator[Benchmark]:
    """What a step costs with every operation written down, beside DebugMode with hashes."""
    from torch.utils._debug_mode import DebugMode

    from cellrepro.record.operation_ledger import OperationLedger

    for encoder, patch, batch_size, rounds in STEPS_OF_LEDGER:
        n_steps = 5 * rounds + 2
        network, loop = _ledger_loop(encoder, patch, batch_size, n_steps, None)
        seconds: dict[str, list[float]] = {
            name: [] for name in ("plain", "ours", "no norms", "theirs", "theirs, as much")
        }
        for _ in range(rounds):
            seconds["plain"].append(_seconds(loop.step))
            for name, norms in (("ours", True), ("no norms", False)):
                with OperationLedger(network, norms=norms):
                    seconds[name].append(_seconds(loop.step))
            with DebugMode(), DebugMode.log_tensor_hashes("hash_tensor"):
                seconds["theirs"].append(_seconds(loop.step))
            with (
                DebugMode(record_nn_module=True, record_stack_trace=True),
                DebugMode.log_tensor_hashes("hash_tensor", hash_inputs=True),
            ):
                seconds["theirs, as much"].append(_seconds(loop.step))
        called = _called(encoder, patch, batch_size)
        how = f"{rounds} alternating rounds"
        for name, said in (("ours", "operation ledger"), ("no norms", "the same without norms")):
            yield _ratio(f"{called}: {said} / plain step", seconds, name, "plain", 1.5, how)
        for name, said in (
            ("theirs", "hashes of outputs"),
            ("theirs, as much", "modules, lines, hashes of inputs and outputs"),
        ):
            yield _ratio(
                f"{called}: operation ledger / DebugMode, {said}",
                seconds,
                "ours",
                name,
                0.333,
                how,
            )


def _called(encoder: str, patch: int | None, batch_size: int) -> str:
    return f"{encoder}{'' if patch is None else f', patch {patch}'}, batch {batch_size}"


def _ledger_loop(
    encoder: str, patch: int | None, batch_size: int, n_steps: int, watch: object
) -> tuple[Any, Any]:
    import numpy as np

    from cellrepro.cells.images import LabelledImage
    from cellrepro.cells.network import seeded_network
    from cellrepro.cells.synthetic import nuclei
    from cellrepro.cells.training import Loop

    made = nuclei(0)
    image = LabelledImage("synth", made.image, made.masks.astype(np.int32), Path(), None)
    network = seeded_network(encoder, seed=0, patch=patch)
    loop = Loop(
        network,
        [image],
        (),
        n_epochs=n_steps,
        learning_rate=1e-5,
        batch_size=batch_size,
        images_per_epoch=batch_size,
        watch=watch,
    )
    loop.step()
    loop.step()
    return network, loop


def _seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def numeric_class_time() -> Benchmark:
    from cellrepro.record.numeric import numeric_class

    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        numeric_class()
        times.append(time.perf_counter() - started)
    value = max(times)  # the first one is what a run pays
    return Benchmark(
        "numeric class, seconds",
        value,
        "<= 2",
        value <= 2,
        f"longest of {ROUNDS}, PyTorch imported; median {statistics.median(times):.2f}",
    )


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


def _beside(module: str, function: str) -> Callable[[Path | None], Iterator[Benchmark]]:
    """The benchmarks of a script of its own, beside this one."""

    def measured(data: Path | None) -> Iterator[Benchmark]:
        for row in getattr(importlib.import_module(module), function)():
            yield Benchmark(*row)

    return measured


GROUPS: dict[str, Callable[[Path | None], Iterable[Benchmark]]] = {
    "import": lambda data: [import_time()],
    "loop": lambda data: loop(),
    "cost": lambda data: cost(),
    "substitutes": lambda data: substitutes(),
    "audit": lambda data: audit_ratio(),
    "digests": lambda data: digest_speed(),
    "ledger": lambda data: ledger_ratio(),
    "operations": lambda data: operation_ratio(),
    "numeric-class": lambda data: [numeric_class_time()],
    "learning": learning,
    "masks": _beside("bench_masks", "masks"),
    "many": _beside("bench_many", "many"),
    "weights": _beside("bench_weights", "weights"),
    "explorer": _beside("bench_explorer", "explorer_steps"),
    "report": _beside("bench_report", "report_seconds"),
}


if __name__ == "__main__":
    sys.exit(main())
