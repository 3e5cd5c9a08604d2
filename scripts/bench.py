"""Benchmarks: ratios measured side by side in one run, alternating, medians.

`bench.py [GROUP ...]` prints a table, and after each figure writes all of them as a list of
{name, value, target, met, how}. A group that fails says so, costs no other, and makes the exit
code 1. On a busy machine the ratios hold better than the seconds.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROUNDS = 5

Row = tuple[str, float, str, str]
"""Name, value, target (``<= 1.05``, or nothing) and how it was measured."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--all", action="store_true", help="what takes long, too")
    extent.add_argument(
        "--smallest", action="store_true", help="a moment of each; the figures mean nothing"
    )
    parser.add_argument("--json", type=Path, default=Path("outputs/bench.json"))
    parser.add_argument("--data", type=Path, help="a folder of real images, for the learning goal")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.groups if name not in GROUPS]
    if unknown:
        parser.error(f"there is no group {', '.join(unknown)}; expected {', '.join(GROUPS)}")
    _surroundings()
    chosen = "smallest" if arguments.smallest else "all" if arguments.all else "usual"
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    written: list[dict[str, Any]] = []
    n_failed = 0
    for name in arguments.groups or GROUPS:
        started = time.perf_counter()
        try:
            for row in _measured(name, chosen, arguments.data):
                _add(written, arguments.json, *row)
        except Exception as error:
            n_failed += 1
            reason = f"failed: {type(error).__name__}: {error}"
            _add(written, arguments.json, name, None, "", reason)
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return int(n_failed > 0)


def _measured(name: str, extent: str, data: Path | None) -> Iterator[Row]:
    group = GROUPS[name]
    if isinstance(group, str):
        group = getattr(importlib.import_module(group), name)
    return group(extent, data) if group is learning else group(extent)


def _add(
    written: list[dict[str, Any]],
    file: Path,
    name: str,
    value: float | None,
    target: str,
    how: str,
) -> None:
    """Print one figure, or that its group failed, and write all there are so far."""
    met = _met(value, target)
    written.append({"name": name, "value": value, "target": target, "met": met, "how": how})
    said = "" if value is None else f"{value:.3f}"
    mark = {True: "met", False: "MISSED", None: "-"}[met]
    print(f"{name:58} {said:>8}  {target:>10}  {mark:6} {how}", flush=True)
    file.write_text(json.dumps(written, indent=1), encoding="utf-8")


def _met(value: float | None, target: str) -> bool | None:
    """Whether a figure meets its target; none where there is no target."""
    if value is None:
        return False
    if not target:
        return None
    sign, bound = target.split()
    return {"<": value < float(bound), "<=": value <= float(bound), ">=": value >= float(bound)}[
        sign
    ]


def _surroundings() -> None:
    """Start again with the variables of profile ``cpu``, as a worker has them."""
    from cellrepro.determinism import profiles

    variables = profiles.load("cpu").variables()
    if any(os.environ.get(name) != value for name, value in variables.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **variables})


def import_time(extent: str) -> Iterator[Row]:
    n = 1 if extent == "smallest" else ROUNDS
    command = [sys.executable, "-c", "import cellrepro"]
    times = [_seconds(lambda: subprocess.run(command, check=True)) for _ in range(n)]
    yield (
        "import cellrepro, seconds",
        statistics.median(times),
        "<= 0.5",
        f"median of {n} processes",
    )


def loop(extent: str) -> Iterator[Row]:
    """The lab's loop beside Cellpose's own, and strict beside fast, over the same steps."""
    from cellpose.train import train_seg

    from cellrepro.determinism.modes import mode_in_force
    from cellrepro.images.folder import read_folder
    from cellrepro.images.synthetic import write_folder
    from cellrepro.model.training import train

    n_epochs, draws, n_images, rounds = (2, 1, 1, 1) if extent == "smallest" else (2, 16, 8, ROUNDS)
    with tempfile.TemporaryDirectory() as scratch:
        write_folder(Path(scratch, "data"), n_train=n_images, n_test=0)
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

        variants = {"cellpose": cellpose, "fast": ours("fast"), "strict": ours("strict")}
        seconds = _alternate(variants, rounds)
    how = f"{n_epochs * draws} steps of tiny, {rounds} alternating rounds, medians of the pairs"
    name = "lab's loop, fast / cellpose.train.train_seg"
    yield _ratio(name, seconds, "fast", "cellpose", 1.05, how)
    yield _ratio("lab's loop, strict / fast", seconds, "strict", "fast", 1.05, how)


SIZES = {
    "smallest": (("tiny", 1, 1),),
    "usual": (("tiny", 4, 12),),
    "all": (("tiny", 4, 12), ("vit-b", 2, 3)),
}
"""Encoder, steps a round, rounds."""


def cost(extent: str) -> Iterator[Row]:
    """What determinism costs a step: every mode beside plain ``train_seg``."""
    from cellrepro.lab.cost_of_determinism import measure_cost

    for encoder, steps, rounds in SIZES[extent]:
        measured = measure_cost(encoder=encoder, steps=steps, rounds=rounds, quiet=True)
        over = f"{rounds} alternating rounds of {steps} steps, {measured.threads} threads"
        name = f"{encoder}: seconds a step, plain cellpose.train.train_seg"
        yield name, measured.row("plain").seconds, "", f"median, {over}"
        for row in measured.rows[1:]:
            yield (
                f"{encoder}: {row.name} / plain",
                row.ratio,
                "<= 1.00" if row.name == "strict" else "",
                f"{row.what}; {row.lowest:.2f} to {row.highest:.2f}, {over}",
            )


def substitutes(extent: str) -> Iterator[Row]:
    """The substitutes' speed beside what they replace, forward and backward."""
    import bench_substitutes
    import torch

    device = torch.device("cpu")
    rounds, inner = (1, 1) if extent == "smallest" else (15, 20)
    for what, n_rows, k, width in bench_substitutes.CALLS:
        call = bench_substitutes.rel_pos_call(n_rows, k, width, device)
        original, *_, both = bench_substitutes.compare(call, rounds=rounds, inner=inner, unit=1e3)
        yield (
            f"get_rel_pos, {what.replace('`', '')}: substitutes / original",
            both / original,
            "",
            f"{original:.3f} ms originally, medians of {rounds} rounds of {inner} calls in turns",
        )


def audit_ratio(extent: str) -> Iterator[Row]:
    """What an audited step takes, beside the same steps unaudited."""
    import numpy as np

    from cellrepro.images.folder import LabelledImage
    from cellrepro.images.synthetic import nuclei
    from cellrepro.model.network import seeded_network
    from cellrepro.model.training import Loop
    from cellrepro.trace.flips import audit

    made = nuclei(0)
    images = [LabelledImage("synth", made.image, made.masks.astype(np.int32), Path(), None)]
    sizes = (("tiny", 1),) if extent == "smallest" else (("tiny", 7), ("vit-b", 2))
    for encoder, rounds in sizes[: None if extent == "all" else 1]:
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
        yield (
            f"{encoder}: audited step, 2 replays / plain step",
            statistics.median(ratios),
            "<= 4",
            f"{rounds} alternating rounds; {min(ratios):.2f} to {max(ratios):.2f}",
        )


def digest_speed(extent: str) -> Iterator[Row]:
    """Digesting memory beside reading it."""
    import numpy as np
    import torch

    from cellrepro.store.digests import tensor_digest

    n = 2**16 if extent == "smallest" else 2**26
    tensor = torch.from_numpy(np.random.default_rng(0).standard_normal(n, np.float32))
    words = tensor.numpy().view(np.uint64)
    seconds = _alternate(
        {"digest": lambda: tensor_digest(tensor), "read": lambda: np.bitwise_xor.reduce(words)},
        ROUNDS,
    )
    ratios = [r / d for r, d in zip(seconds["read"], seconds["digest"], strict=True)]
    speed = tensor.nbytes / statistics.median(seconds["digest"]) / 1e9
    yield (
        f"digest of {tensor.nbytes / 2**20:g} MB: speed / speed of reading it",
        statistics.median(ratios),
        ">= 0.5",
        f"{speed:.1f} GB/s; NumPy's xor over the same words; {ROUNDS} rounds",
    )


STEPS_OF_LEDGER = {
    "smallest": (("tiny", None, 1, 1),),
    "usual": (("tiny", None, 1, 25), ("tiny", 8, 2, 9)),
    "all": (("tiny", None, 1, 25), ("tiny", 8, 2, 9), ("vit-b", None, 1, 3)),
}
"""Encoder, patch (pixels), images a step, rounds."""


def ledger_ratio(extent: str) -> Iterator[Row]:
    """What a step costs with its ledger, beside the same steps without."""
    from cellrepro.store.ledger import Ledger
    from cellrepro.trace.training_steps import StepWatch, Watches

    for encoder, patch, batch_size, rounds in STEPS_OF_LEDGER[extent]:
        watch = Watches(())
        _, loop = _ledger_loop(encoder, patch, batch_size, 2 * rounds + 2, watch)
        ratios = []
        for _ in range(rounds):
            watch.watches = ()
            plain = _seconds(loop.step)
            watch.watches = (StepWatch(Ledger()),)
            ratios.append(_seconds(loop.step) / plain)
        yield (
            f"{_called(encoder, patch, batch_size)}: step with its ledger / plain step",
            statistics.median(ratios),
            "<= 1.03",
            f"{rounds} alternating rounds; {min(ratios):.2f} to {max(ratios):.2f}",
        )


def operation_ratio(extent: str) -> Iterator[Row]:
    """What a step costs with every operation written down, beside DebugMode with hashes."""
    from torch.utils._debug_mode import DebugMode

    from cellrepro.trace.operation_ledger import OperationLedger

    for encoder, patch, batch_size, rounds in STEPS_OF_LEDGER[extent]:
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
            called_so = f"{called}: operation ledger / DebugMode, {said}"
            yield _ratio(called_so, seconds, "ours", name, 0.333, how)


def _called(encoder: str, patch: int | None, batch_size: int) -> str:
    return f"{encoder}{'' if patch is None else f', patch {patch}'}, batch {batch_size}"


def _ledger_loop(
    encoder: str, patch: int | None, batch_size: int, n_steps: int, watch: object
) -> tuple[Any, Any]:
    import numpy as np

    from cellrepro.images.folder import LabelledImage
    from cellrepro.images.synthetic import nuclei
    from cellrepro.model.network import seeded_network
    from cellrepro.model.training import Loop

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


def numeric_class_time(extent: str) -> Iterator[Row]:
    from cellrepro.store.numeric import numeric_class

    n = 1 if extent == "smallest" else ROUNDS
    times = [_seconds(numeric_class) for _ in range(n)]
    # The longest is the first one, which is what a run pays.
    how = f"longest of {n}, PyTorch imported; median {statistics.median(times):.2f}"
    yield "numeric class, seconds", max(times), "<= 2", how


def _network() -> object:
    import torch

    from cellrepro.model.network import ModelSource, build

    source = ModelSource("tiny", "tiny")
    return build(source, seed=0, device=torch.device("cpu"), dtype="float32")


def _alternate(functions: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()  # warm up
    for _ in range(rounds):
        for name, function in functions.items():
            seconds[name].append(_seconds(function))
    return seconds


def _ratio(
    name: str, seconds: dict[str, list[float]], a: str, b: str, most: float, how: str
) -> Row:
    ratios = [x / y for x, y in zip(seconds[a], seconds[b], strict=True)]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return name, statistics.median(ratios), f"<= {most}", f"{how}; {spread}"


def learning(extent: str, data: Path | None) -> Iterator[Row]:
    """What `tiny` learns, and in how many seconds of training."""
    import cellrepro
    from cellrepro.images.synthetic import write_folder

    smallest = extent == "smallest"
    asked = {"epochs": 2, "images_per_epoch": 1} if smallest else {"epochs": 24}
    options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in asked.items())
    with tempfile.TemporaryDirectory() as scratch:
        synthetic = Path(scratch, "synthetic")
        write_folder(synthetic, **({"n_train": 1, "n_test": 1} if smallest else {}))
        goals = {synthetic: 0.8} if data is None else {synthetic: 0.8, data: 0.65}
        for folder, goal in goals.items():
            store = Path(scratch, "store")
            outcome = cellrepro.train(folder, repeats=1, quiet=True, store=store, **asked)
            manifest = outcome.repeats[0].manifest
            how = f"cellrepro train DATA {options} --repeats 1"
            yield f"tiny on {folder.name}: mean AP@0.5", manifest.ap50 or 0.0, f">= {goal}", how
            seconds = manifest.seconds["train"]
            yield f"tiny on {folder.name}: seconds of training", seconds, "<= 90", how


GROUPS: dict[str, str | Callable[..., Iterator[Row]]] = {
    "import": import_time,
    "loop": loop,
    "cost": cost,
    "substitutes": substitutes,
    "audit": audit_ratio,
    "digests": digest_speed,
    "ledger": ledger_ratio,
    "operations": operation_ratio,
    "numeric-class": numeric_class_time,
    "learning": learning,
    "masks": "bench_masks",  # the others are beside this file
    "many": "bench_many",
    "weights": "bench_weights",
    "explorer": "bench_explorer",
    "report": "bench_report",
}


if __name__ == "__main__":
    sys.exit(main())
