"""Benchmarks: ratios measured side by side in one run, in turns, medians.

`bench.py [GROUP ...]` prints a table, and after each figure writes all of them as a list of
{name, value, target, met, how}. A group that fails says so, costs no other, and makes the exit
code 1. On a busy machine the ratios hold better than the seconds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pickle
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np

ROUNDS = 5

# What watching may cost beside a plain step, by what it cannot do without (docs/benchmarks.md).
OF_AN_AUDIT = "<= 5.5"  # every operation is executed three times, and its results are compared
OF_A_STEP = "<= 1.12"  # 36 MB of weights, gradients and moments are read
# A thousand operations are seen and placed, and 163 MB digested: 1.4 at least.
OF_OPERATIONS = "<= 2.8"
# A plane of the stack, milliseconds: at eight a second there are 125 for each, and one that was
# not fetched ahead is packed, sent, unpacked and counted.
OF_A_PLANE = "<= 80"

Row = tuple[str, float, str, str]
"""Name, value, target (``<= 1.05``, or nothing) and how it was measured."""


@dataclass(frozen=True)
class Extent:
    """How much is measured: a moment of each, the usual, or what takes long, too."""

    name: str
    data: Path | None = None

    def of(self, smallest: Any, usual: Any, everything: Any = None) -> Any:
        """The one of three that fits; the usual one where there is no longer one."""
        longest = usual if everything is None else everything
        return {"smallest": smallest, "usual": usual, "all": longest}[self.name]


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
    parser.add_argument("--peak-memory", nargs=3, help=argparse.SUPPRESS)  # of a child
    arguments = parser.parse_args()
    if arguments.peak_memory:
        return _print_peak_memory(*arguments.peak_memory)
    unknown = [name for name in arguments.groups if name not in GROUPS]
    if unknown:
        parser.error(f"there is no group {', '.join(unknown)}; expected {', '.join(GROUPS)}")
    _environment()
    name = "smallest" if arguments.smallest else "all" if arguments.all else "usual"
    chosen = Extent(name, arguments.data)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    written: list[dict[str, Any]] = []
    n_failed = 0
    for name in arguments.groups or GROUPS:
        started = time.perf_counter()
        try:
            for row in GROUPS[name](chosen):
                _add(written, arguments.json, *row)
        except Exception as error:
            n_failed += 1
            reason = f"failed: {type(error).__name__}: {error}"
            _add(written, arguments.json, name, None, "", reason)
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return int(n_failed > 0)


def _add(written: list, file: Path, name: str, value: float | None, target: str, how: str) -> None:
    """Print one figure, or that its group failed, and write all there are so far."""
    met = _met(value, target)
    written.append({"name": name, "value": value, "target": target, "met": met, "how": how})
    shown = "" if value is None else f"{value:.3f}"
    mark = {True: "met", False: "MISSED", None: "-"}[met]
    print(f"{name:58} {shown:>8}  {target:>10}  {mark:6} {how}", flush=True)
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


def _environment() -> None:
    """Start again with the variables of profile ``cpu``, as a worker has them."""
    from cellrepro.determinism import profiles

    variables = profiles.load("cpu").variables()
    if any(os.environ.get(name) != value for name, value in variables.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **variables})


# -- measuring -----------------------------------------------------------------------------


def _seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def _in_turns(
    functions: Mapping[str, Callable[[], object]], rounds: int, *, warm_up: bool = True
) -> dict[str, list[float]]:
    """Seconds of each function in every round; a busy machine slows all of them alike."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values() if warm_up else ():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            seconds[name].append(_seconds(function))
    return seconds


def _ratio(
    name: str, seconds: dict[str, list[float]], a: str, b: str, target: str, how: str
) -> Row:
    """The median of the pairs' ratios, with their range."""
    ratios = [x / y for x, y in zip(seconds[a], seconds[b], strict=True)]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return name, statistics.median(ratios), target, f"{how}; {spread}"


def _warm_loop(
    encoder: str, n_steps: int, *, batch_size: int = 1, watch: Any = None
) -> tuple[Any, Any]:
    """A network and its training on one image, two steps old."""
    from cellrepro.images.nuclei import labelled_nuclei
    from cellrepro.model.network import seeded_network
    from cellrepro.model.training_loop import Loop

    network = seeded_network(encoder, seed=0)
    loop = Loop(
        network,
        labelled_nuclei(1),
        (),
        n_epochs=n_steps + 2,
        learning_rate=1e-5,
        batch_size=batch_size,
        images_per_epoch=batch_size,
        watch=watch,
    )
    loop.step()
    loop.step()
    return network, loop


# -- training and watching it --------------------------------------------------------------


def import_time(extent: Extent) -> Iterator[Row]:
    n = extent.of(1, ROUNDS)
    command = [sys.executable, "-c", "import cellrepro"]
    times = [_seconds(lambda: subprocess.run(command, check=True)) for _ in range(n)]
    median = statistics.median(times)
    yield "import cellrepro, seconds", median, "<= 0.5", f"median of {n} processes"


def loop(extent: Extent) -> Iterator[Row]:
    """The lab's loop beside Cellpose's own, and strict beside fast, over the same steps."""
    from cellpose.train import train_seg

    from cellrepro.determinism.modes import mode_in_force
    from cellrepro.images.nuclei import labelled_nuclei
    from cellrepro.model.network import seeded_network
    from cellrepro.model.training_loop import train

    draws, n_images, rounds = extent.of((1, 1, 1), (16, 8, ROUNDS))
    images = labelled_nuclei(n_images)
    with tempfile.TemporaryDirectory() as scratch:

        def cellpose() -> None:
            train_seg(
                seeded_network("tiny", seed=0),
                train_data=[image.image for image in images],
                train_labels=[image.masks for image in images],
                n_epochs=2,
                nimg_per_epoch=draws,
                learning_rate=1e-3,
                weight_decay=0.1,
                save_path=scratch,
                model_name="bench",
            )

        def ours(mode: str) -> None:
            network = seeded_network("tiny", seed=0)
            with mode_in_force(mode):
                train(network, images, (), n_epochs=2, images_per_epoch=draws, learning_rate=1e-3)

        variants = {
            "cellpose": cellpose,
            "fast": partial(ours, "fast"),
            "strict": partial(ours, "strict"),
        }
        seconds = _in_turns(variants, rounds)
    how = f"{2 * draws} steps of tiny, {rounds} alternating rounds, medians of the pairs"
    name = "lab's loop, fast / cellpose.train.train_seg"
    yield _ratio(name, seconds, "fast", "cellpose", "<= 1.05", how)
    yield _ratio("lab's loop, strict / fast", seconds, "strict", "fast", "<= 1.05", how)


def cost(extent: Extent) -> Iterator[Row]:
    """What determinism costs a step: every mode beside plain ``train_seg``."""
    from cellrepro.audits.cost import measure_cost

    for encoder, steps, rounds in extent.of(
        [("tiny", 1, 1)], [("tiny", 4, 12)], [("tiny", 4, 12), ("vit-b", 2, 3)]
    ):
        measured = measure_cost(encoder=encoder, steps=steps, rounds=rounds, quiet=True)
        over = f"{rounds} alternating rounds of {steps} steps, {measured.threads} threads"
        name = f"{encoder}: seconds a step, plain cellpose.train.train_seg"
        yield name, measured.rows[0].seconds, "", f"median, {over}"
        for row in measured.rows[1:]:
            how = f"{row.what}; {row.lowest:.2f} to {row.highest:.2f}, {over}"
            target = "<= 1.00" if row.name == "strict" else ""
            yield f"{encoder}: {row.name} / plain", row.ratio, target, how


REL_POS_CALLS = (
    ("CPSAM, 20 of 24 blocks", 27, 32, 64),
    ("CPSAM, 4 of 24 blocks", 127, 32, 64),
    ("tiny, first block", 27, 16, 192),
    ("tiny, last block", 127, 16, 192),
)
"""What is called, rows stored, positions along an axis, width of a head."""


def substitutes(extent: Extent) -> Iterator[Row]:
    """Each substitute and both together beside what they replace, forward and backward."""
    import torch
    from segment_anything.modeling import image_encoder

    from cellrepro.determinism.substitutes import applied

    rounds, inner = extent.of((1, 1), (15, 20))
    gather, interpolation = ("upsample_linear1d_backward",), ("index_put",)
    left_out = {
        "original": gather + interpolation,
        "gather": gather,
        "interpolation": interpolation,
        "both": (),
    }
    for what, n_rows, k, width in REL_POS_CALLS:
        generator = torch.Generator().manual_seed(0)
        rel = torch.randn(n_rows, width, generator=generator).requires_grad_()
        upstream = torch.randn(k, k, width, generator=generator)

        def call(without: tuple[str, ...], rel: Any, upstream: Any, k: int) -> None:
            with applied(without=without):
                for _ in range(inner):
                    rel.grad = None
                    image_encoder.get_rel_pos(k, k, rel).backward(upstream)

        calls = {
            name: partial(call, without, rel, upstream, k) for name, without in left_out.items()
        }
        seconds = _in_turns(calls, rounds)
        original = 1e3 * statistics.median(seconds["original"]) / inner
        how = f"{original:.3f} ms originally, medians of {rounds} rounds of {inner} calls in turns"
        for name in ("gather", "interpolation", "both"):
            shown = "substitutes" if name == "both" else f"substitute {name}"
            title = f"get_rel_pos, {what}: {shown} / original"
            yield _ratio(title, seconds, name, "original", "", how)


def audit_ratio(extent: Extent) -> Iterator[Row]:
    """What an audited step takes, beside the same steps unaudited."""
    from cellrepro.trace.operation_audit import audit

    for encoder, rounds in extent.of([("tiny", 1)], [("tiny", 7)], [("tiny", 7), ("vit-b", 2)]):
        network, training = _warm_loop(encoder, 2 * rounds)
        audited = partial(audit, training.step, steps=1, replays=2, suspects=0, model=network)
        seconds = _in_turns({"plain": training.step, "audited": audited}, rounds, warm_up=False)
        name = f"{encoder}: audited step, 2 replays / plain step"
        yield _ratio(name, seconds, "audited", "plain", OF_AN_AUDIT, f"{rounds} alternating rounds")


def digest_speed(extent: Extent) -> Iterator[Row]:
    """Digesting memory beside reading it."""
    import torch

    from cellrepro.bits.digests import tensor_digest

    n = extent.of(2**16, 2**26)
    tensor = torch.from_numpy(np.random.default_rng(0).standard_normal(n, np.float32))
    words = tensor.numpy().view(np.uint64)
    seconds = _in_turns(
        {"digest": lambda: tensor_digest(tensor), "read": lambda: np.bitwise_xor.reduce(words)},
        ROUNDS,
    )
    speed = tensor.nbytes / statistics.median(seconds["digest"]) / 1e9
    name = f"digest of {tensor.nbytes / 2**20:g} MB: speed / speed of reading it"
    how = f"{speed:.1f} GB/s; NumPy's xor over the same words; {ROUNDS} rounds"
    yield _ratio(name, seconds, "read", "digest", ">= 0.5", how)


WATCHED = (("tiny", 1, 25), ("tiny", 2, 9), ("vit-b", 1, 3))
"""Encoder, images a step, rounds."""


def _watched(extent: Extent) -> Iterator[tuple[str, str, int, int]]:
    for encoder, batch_size, rounds in extent.of([("tiny", 1, 1)], WATCHED[:2], WATCHED):
        yield f"{encoder}, batch {batch_size}", encoder, batch_size, rounds


def ledger_ratio(extent: Extent) -> Iterator[Row]:
    """What a step costs with its ledger, beside the same steps without."""
    from cellrepro.store.ledger import Ledger
    from cellrepro.trace.watches import StepWatch, Watches

    for called, encoder, batch_size, rounds in _watched(extent):
        watch = Watches(())
        _, training = _warm_loop(encoder, 2 * rounds, batch_size=batch_size, watch=watch)
        seconds: dict[str, list[float]] = {"plain": [], "ledger": []}
        for _ in range(rounds):
            watch.watches = ()
            seconds["plain"].append(_seconds(training.step))
            watch.watches = (StepWatch(Ledger()),)
            seconds["ledger"].append(_seconds(training.step))
        name = f"{called}: step with its ledger / plain step"
        yield _ratio(name, seconds, "ledger", "plain", OF_A_STEP, f"{rounds} alternating rounds")


def operation_ratio(extent: Extent) -> Iterator[Row]:
    """What a step costs with every operation written down, beside DebugMode with hashes."""
    from torch.utils._debug_mode import DebugMode

    from cellrepro.trace.operation_ledger import OperationLedger

    for called, encoder, batch_size, rounds in _watched(extent):
        network, training = _warm_loop(encoder, 5 * rounds, batch_size=batch_size)

        def ours(network: Any, step: Callable[[], Any], *, norms: bool) -> None:
            with OperationLedger(network, norms=norms):
                step()

        def theirs(step: Callable[[], Any], *, inputs: bool, **options: bool) -> None:
            hashes = DebugMode.log_tensor_hashes("hash_tensor", hash_inputs=inputs)
            with DebugMode(**options), hashes:
                step()

        as_much = {"inputs": True, "record_nn_module": True, "record_stack_trace": True}
        variants = {
            "plain": training.step,
            "ours": partial(ours, network, training.step, norms=True),
            "no norms": partial(ours, network, training.step, norms=False),
            "theirs": partial(theirs, training.step, inputs=False),
            "theirs, as much": partial(theirs, training.step, **as_much),
        }
        seconds = _in_turns(variants, rounds, warm_up=False)
        how = f"{rounds} alternating rounds"
        for name, shown in (("ours", "operation ledger"), ("no norms", "the same without norms")):
            title = f"{called}: {shown} / plain step"
            yield _ratio(title, seconds, name, "plain", OF_OPERATIONS, how)
        for name, shown, target in (
            ("theirs", "hashes of outputs", "<= 0.85"),
            ("theirs, as much", "modules, lines, hashes of inputs and outputs", "<= 0.4"),
        ):
            title = f"{called}: operation ledger / DebugMode, {shown}"
            yield _ratio(title, seconds, "ours", name, target, how)


def numeric_class_time(extent: Extent) -> Iterator[Row]:
    from cellrepro.store.this_machine import numeric_class

    n = extent.of(1, ROUNDS)
    times = [_seconds(numeric_class) for _ in range(n)]
    # The longest is the first one, which is what a run pays.
    how = f"longest of {n}, PyTorch imported; median {statistics.median(times):.2f}"
    yield "numeric class, seconds", max(times), "<= 2", how


def learning(extent: Extent) -> Iterator[Row]:
    """What `tiny` learns, and in how many seconds of training."""
    import cellrepro
    from cellrepro.images.nuclei import write_folder

    settings = extent.of({"epochs": 2, "images_per_epoch": 1}, {"epochs": 24})
    options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in settings.items())
    with tempfile.TemporaryDirectory() as scratch:
        synthetic = Path(scratch, "synthetic")
        write_folder(synthetic, **extent.of({"n_train": 1, "n_test": 1}, {}))
        goals = {synthetic: 0.8} if extent.data is None else {synthetic: 0.8, extent.data: 0.65}
        for folder, goal in goals.items():
            store = Path(scratch, "store")
            outcome = cellrepro.train(folder, repeats=1, quiet=True, store=store, **settings)
            manifest = outcome.repeats[0].manifest
            how = f"cellrepro train DATA {options} --repeats 1"
            yield f"tiny on {folder.name}: mean AP@0.5", manifest.ap50 or 0.0, f">= {goal}", how
            seconds = manifest.seconds["train"]
            yield f"tiny on {folder.name}: seconds of training", seconds, "<= 90", how


# -- comparing -----------------------------------------------------------------------------


def grid_of_cells(size: int, n: int, seed: int, dtype: type = np.int32) -> np.ndarray:
    """A label image of about n discs on a grid, shape (size, size); 0 is background.

    Seeds jitter radius and place, leave some out, and cut some in two.
    """
    random = np.random.default_rng(seed)
    per_side = int(np.ceil(np.sqrt(n)))
    step = size // per_side
    labels = np.zeros((size, size), dtype)
    y, x = np.mgrid[:step, :step]
    for label, (i, j) in enumerate(np.ndindex(per_side, per_side), start=1):
        if random.random() < 0.02:
            continue
        radius = step * (0.35 + 0.12 * random.random())
        centre = step / 2 + random.normal(0, 0.5, 2)
        inside = (y - centre[0]) ** 2 + (x - centre[1]) ** 2 < radius**2
        if random.random() < 0.02:
            inside &= abs(x - centre[1]) > 1
        labels[i * step : (i + 1) * step, j * step : (j + 1) * step][inside] = label
    return labels


THRESHOLDS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


def masks(extent: Extent) -> Iterator[Row]:
    """Beside Cellpose's and StarDist's scores; with `--all` the memory for large images, too."""
    from cellpose import metrics
    from stardist.matching import matching

    from cellrepro.same.metrics import average_precision, compare_masks

    size, n = extent.of((128, 20), (2048, 5000))
    a, b = grid_of_cells(size, n, 0), grid_of_cells(size, n, 1)
    functions: dict[str, Callable[[], object]] = {
        "full": lambda: compare_masks(a, b),
        "ap": lambda: average_precision(a, b, THRESHOLDS),
        "cellpose": lambda: metrics.average_precision(a, b, threshold=list(THRESHOLDS))[0],
        "stardist": lambda: [m.accuracy for m in matching(a, b, thresh=THRESHOLDS)],
    }
    matching(a[:64, :64], b[:64, :64])  # its compiler runs at the first call
    ours = average_precision(a, b, THRESHOLDS)
    for name in ("cellpose", "stardist"):
        furthest = float(np.abs(np.asarray(functions[name]()) - ours).max())
        assert furthest < 1e-6, f"{name} scores otherwise, by up to {furthest}"
    seconds = _in_turns(functions, ROUNDS, warm_up=False)
    for name, called in (("full", "full comparison"), ("ap", "AP at ten thresholds")):
        for other in ("cellpose", "stardist"):
            theirs, mine = (statistics.median(seconds[which]) for which in (other, name))
            how = f"median of {ROUNDS}, {theirs:.2f} s and {mine:.3f} s; the same figures"
            title = f"{other} AP / {called}, {size}², {n} objects"
            yield _ratio(title, seconds, other, name, ">= 15", how)
    if extent.name != "usual":
        yield from _memory_of_large_masks(extent.of(512, None, 16384))


def _memory_of_large_masks(size: int) -> Iterator[Row]:
    """Peak memory of a process that compares two large images."""
    for dtype, most, mapped in ((np.uint16, 60_000, False), (np.int32, 300_000, True)):
        n = int(most * (size / 16384) ** 2)
        with tempfile.TemporaryDirectory() as scratch:
            paths = [Path(scratch, f"{side}.npy") for side in "ab"]
            for seed, path in enumerate(paths):
                np.save(path, grid_of_cells(size, n, seed, dtype))
            command = [sys.executable, __file__, "--peak-memory", "r" if mapped else "-"]
            done = subprocess.run([*command, *paths], check=True, capture_output=True, text=True)
        peak, seconds, n_objects = (float(word) for word in done.stdout.split())
        where = "mapped from files" if mapped else "in memory"
        how = f"peak of the whole process, {n_objects:.0f} objects, {seconds:.1f} s"
        how += "; without pages of the files" if mapped else ""
        name = f"memory for {size}² {np.dtype(dtype).name}, GB, {where}"
        yield name, peak / 1e9, "< 2", how


def _print_peak_memory(mode: str, *paths: str) -> int:
    """Compare two arrays; print peak memory in bytes, seconds, and objects."""
    from cellrepro.same.metrics import compare_masks

    compare_masks(np.eye(3, dtype=int), np.eye(3, dtype=int))
    a, b = (np.load(path, mmap_mode=None if mode == "-" else "r") for path in paths)
    field = "RssAnon:" if mode == "r" else "VmRSS:"
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            text = Path("/proc/self/status").read_text()
            peak = max(peak, int(text.split(field)[1].split()[0]) * 1024)

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    result = compare_masks(a, b)
    seconds = time.perf_counter() - started
    done.set()
    watcher.join()
    print(peak, seconds, result.n_objects_a)
    return 0


def many(extent: Extent) -> Iterator[Row]:
    """Agreement of 1,000 runs of which 20 differ, beside those 20 alone; digests known, or not."""
    from cellrepro.bits.digests import file_digest
    from cellrepro.same.consensus import agree

    n_runs, n_distinct, side = extent.of((6, 2, 128), (1000, 20, 2048))
    n_objects = (side // 29) ** 2

    def repeated(items: list[Any]) -> list[Any]:
        return [items[i % n_distinct] for i in range(n_runs)]

    with tempfile.TemporaryDirectory() as scratch:
        paths = [Path(scratch, f"{i}.npy") for i in range(n_distinct)]
        for i, path in enumerate(paths):
            np.save(path, grid_of_cells(side, n_objects, i))
        digests = [file_digest(path) for path in paths]
        readers = [partial(np.load, path) for path in paths]
        seconds = _in_turns(
            {
                "few": lambda: agree(readers, digests=digests),
                "all": lambda: agree(repeated(readers), digests=repeated(digests)),
                "few, no digests": lambda: agree(readers),
                "all, no digests": lambda: agree(repeated(readers)),
            },
            3,
            warm_up=False,
        )
    how = f"3 rounds, {side}² pixels, {n_objects} objects"
    name = f"agreement: {n_runs} runs with digests / the {n_distinct} that differ"
    yield _ratio(name, seconds, "all", "few", "<= 1.5", how)
    few = statistics.median(seconds["few"])
    yield f"agreement: {n_distinct} different results, seconds", few, "", f"median, {how}"
    name = f"agreement: {n_runs} runs without digests / the {n_distinct} that differ"
    how += "; every file is read and digested"
    yield _ratio(name, seconds, "all, no digests", "few, no digests", "", how)


# What the child does: imports and one small comparison come before the memory is measured.
COMPARE_WEIGHTS = """
import json, sys, time
from cellrepro.same.weight_similarity import similarity
from cellrepro.store.this_machine import peak_memory_of_process
warm_up, *paths = sys.argv[1:]
similarity([warm_up, warm_up])
before = peak_memory_of_process()
cpu, started = time.process_time(), time.perf_counter()
similarity(paths)
seconds = time.perf_counter() - started
growth = peak_memory_of_process() - before
print(json.dumps({"seconds": seconds, "cpu": time.process_time() - cpu, "growth": growth}))
"""


def weights(extent: Extent) -> Iterator[Row]:
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
            found = json.loads(done.stdout)
            disk.append(_seconds_of_reading(paths))
        how = (
            f"{n_files} networks of {n_parameters / 1e6:g} M parameters, {kind}: "
            f"{found['seconds']:.1f} s, of the processors {found['cpu']:.1f} s; reading "
            f"{disk[0]:.1f} and {disk[1]:.1f} s ({n_bytes / min(disk) / 1e9:.2f} GB/s)"
        )
        name = f"{kind}: compared / read from disk, bytes per second"
        yield name, min(disk) / found["seconds"], ">= 0.5", how
        yield f"{kind}: growth of peak memory, GB", found["growth"] / 1e9, "< 1", how


def _networks(folder: Path, n_files: int, n_parameters: int, kind: str) -> list[Path]:
    """Safetensors files with a transformer's layers, written in pieces to keep memory small."""
    folder.mkdir(exist_ok=True)
    n_layers, piece = 24, 2**20
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
        shifts, common = np.random.default_rng(f + 1), np.random.default_rng(0)
        with path.open("wb") as stream:
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
    memory = bytearray(2**23)
    started = time.perf_counter()
    for path in paths:
        with path.open("rb", buffering=0) as stream:
            while stream.readinto(memory):
                pass
    return time.perf_counter() - started


# -- looking -------------------------------------------------------------------------------


def report(extent: Extent) -> Iterator[Row]:
    """Seconds and size of the report over a store of 100 runs of the demo's size."""
    from cellrepro.show.report.build import write_report

    n_seeds, n_profiles, rounds = extent.of((1, 1, 1), (5, 5, 3))
    with tempfile.TemporaryDirectory() as scratch:
        root = _store_of_copies(Path(scratch), n_seeds, n_profiles)
        seconds, busy = [], []
        for _ in range(rounds):
            started, worked = time.perf_counter(), time.process_time()
            written = write_report(root)
            seconds.append(time.perf_counter() - started)
            busy.append(time.process_time() - worked)
        size = written.html.stat().st_size
    n_runs = sum(len(run["repeats"]) for run in written.runs)
    n_results = sum("weights" in group for group in written.groups)
    how = (
        f"best of {rounds} in one process, {n_runs} runs, {n_results} different networks of 2.3 M "
        "parameters, 3 images of 256² pixels"
    )
    name = f"report over {n_runs} runs of the demo's size, seconds"
    yield name, min(seconds), "<= 10", how
    yield "the same, median", statistics.median(seconds), "", how
    yield "the same, seconds of the processor", min(busy), "", how
    yield "size of the page, MB", size / 1e6, "", "one file"


def _store_of_copies(scratch: Path, n_seeds: int, n_profiles: int) -> Path:
    """One short training, stored again as what a grid of two modes and two repeats would leave.

    Strict repeats are equal, fast ones are not; seeds lie farther apart than profiles.
    """
    import cellrepro
    from cellrepro.asked.spec import make_spec
    from cellrepro.images.nuclei import write_folder
    from cellrepro.store.store import Store

    write_folder(scratch / "synthetic", n_train=1, n_test=3)
    options = {"epochs": 2, "images_per_epoch": 1, "repeats": 1, "quiet": True, "ledger": "off"}
    trained = cellrepro.train(scratch / "synthetic", store=scratch / "first", **options)
    (model,) = trained.repeats
    store = Store(scratch / "store")
    first = Store(scratch / "first")
    for seed, profile, deterministic, repeat in np.ndindex(n_seeds, n_profiles, 2, 2):
        settings = {"name": f"p-{profile}", "threads": profile + 1}
        spec = first.find_run(trained.key).spec.model_copy(
            update={
                "seed": seed,
                "mode": "strict" if deterministic else "fast",
                "profile": settings["name"],
                "profile_settings": settings,
            }
        )
        nuance = (seed, profile, 0 if deterministic else 1 + repeat)
        _store_copy(store, first, model, make_spec(**spec.model_dump()), repeat, nuance)
    return store.root


def _store_copy(store: Any, first: Any, model: Any, spec: Any, repeat: int, nuance: tuple) -> None:
    """One repeat like the trained one, with weights and masks changed by the nuance."""
    import tifffile
    from safetensors.numpy import load_file, save_file

    from cellrepro.bits.digests import array_digest, file_digest
    from cellrepro.same.labels import canonical

    seeds, rest = np.random.default_rng(nuance[0]), np.random.default_rng(nuance)
    manifest = model.manifest.model_copy(deep=True)
    with store.staging() as area:
        folder = area / "repeat"
        shutil.copytree(model.folder, folder)
        weights = load_file(model.weights)
        for name, values in weights.items():
            shape = values.shape
            if values.dtype == np.float32:
                weights[name] = values + np.float32(1e-2) * seeds.standard_normal(shape, np.float32)
                weights[name] += np.float32(1e-6) * rest.standard_normal(shape, np.float32)
        save_file(weights, folder / "weights.safetensors")
        manifest.weights.digest = file_digest(folder / "weights.safetensors")
        for name, record in manifest.masks.items():
            labels = first.truth(spec.data_digest, name).astype(np.uint16)
            labels[np.isin(labels, seeds.choice(np.unique(labels[labels > 0]), 4))] = 0
            y, x = (rest.integers(1, size - 1, 60) for size in labels.shape)
            labels[y, x] = labels[y - 1, x]
            tifffile.imwrite(folder / record.file, labels, compression="zlib")
            image = first.image(spec.data_digest, name)
            for suffix, pixels in (("", image), ("_masks", first.truth(spec.data_digest, name))):
                (folder / "data").mkdir(exist_ok=True)
                tifffile.imwrite(folder / "data" / f"{name}{suffix}.tif", pixels)
            record.digest = array_digest(labels.astype(np.uint32))
            record.canonical_digest = array_digest(canonical(labels))
            record.n_objects = len(np.unique(labels[labels > 0]))
        written = manifest.model_copy(
            update={"key": spec.key, "repeat": repeat, "vacuous": [], "files": {}}
        )
        (folder / "manifest.json").write_text(written.model_dump_json())
        store.commit(folder, spec)


def grid(extent: Extent) -> Iterator[Row]:
    """What a repeat of a grid takes beyond its training and masks, at the demo's size."""
    from cellrepro.grid.file import read_grid
    from cellrepro.grid.pool import run_grid
    from cellrepro.images.public_sets import provide

    n_repeats = extent.of(1, 3)
    with tempfile.TemporaryDirectory() as scratch:
        data = provide("synthetic", data_dir=Path(scratch, "data"), mirror=None)
        fixed = {"data": str(data), "mode": ["strict"], "seed": [0], "profile": ["cpu"]}
        checked = read_grid("grids/demo.yaml", store=scratch, overrides=fixed, repeats=n_repeats)
        told = _seconds(lambda: checked.points[0].plan.machine)  # once for a whole grid
        seconds = _seconds(lambda: run_grid(checked, quiet=True)) / n_repeats
        manifests = [
            repeat.manifest.seconds for run in checked.store.runs() for repeat in run.repeats
        ]
        parts = {name: statistics.median(one[name] for one in manifests) for name in manifests[0]}
    work = parts["train"] + parts["segment"]
    rest = ", ".join(
        f"{name} {value:.1f}" for name, value in parts.items() if name not in ("train", "segment")
    )
    how = f"mean of {n_repeats}; {work:.1f} s of training and masks; of the rest: {rest}"
    yield "a repeat of a grid beyond training and masks, seconds", seconds - work, "<= 8", how
    ratio = (600 + seconds - work) / 600
    yield "the same added to ten minutes of training, ratio", ratio, "<= 1.02", "computed"
    yield "looking at the machine, once for a grid, seconds", told, "", ""


def jobs(extent: Extent) -> Iterator[Row]:
    """What a worker of a cluster is sent for one spec, in a small grid and in a large one."""
    from cellrepro.grid.file import Grid, read_grid
    from cellrepro.grid.point import Job
    from cellrepro.grid.sending import travelling
    from cellrepro.images.public_sets import provide

    n_few = 20
    n_many = extent.of(100, 1_000)

    def bytes_of_a_job(grid: Grid) -> int:
        return len(pickle.dumps(travelling(Job(grid, grid.points[0]))))

    with tempfile.TemporaryDirectory() as scratch:
        data = provide("synthetic", data_dir=Path(scratch, "data"), mirror=None)
        fixed = {"data": str(data), "mode": ["strict"], "profile": ["cpu"]}
        few, many = (
            read_grid("grids/demo.yaml", store=scratch, overrides={**fixed, "seed": seeds})
            for seeds in (list(range(n_few)), list(range(n_many)))
        )
    name = f"bytes of a pickled job of {n_many:,} specs beside one of {n_few} specs"
    yield name, bytes_of_a_job(many) / bytes_of_a_job(few), "<= 1.1", f"{bytes_of_a_job(few)} bytes"


def many_specs(extent: Extent) -> Iterator[Row]:
    """A grid of many specs: until it can start, and what its driver takes while they wait."""
    from cellrepro.grid.file import read_grid
    from cellrepro.images.public_sets import write_benchmark

    n_specs, n_images, size, seconds = extent.of((10, 1, 64, 0.5), (1000, 24, 512, 10.0))
    with tempfile.TemporaryDirectory() as scratch:
        data = write_benchmark(Path(scratch), images=n_images, size=size)
        path = Path(scratch, "grid.yaml")
        # What YAML reads, JSON writes.
        content = {
            "notebook": "01_seeded_training",
            "fixed": {"data": str(data)},
            "vary": {"seed": list(range(n_specs))},
        }
        path.write_text(json.dumps(content), encoding="utf-8")
        read_grid(path, store=scratch, overrides={"seed": [0]})  # imports papermill
        started = time.perf_counter()
        checked = read_grid(path, store=scratch)
        reading = time.perf_counter() - started
        name = f"reading a grid of {n_specs} specs over {n_images} images, seconds"
        yield name, reading, "<= 20", f"images of {size} pixels along an edge"
        share = _share_of_the_driver(checked, seconds)
        name = f"share of a core that the driver of a grid takes, {n_specs} specs"
        yield name, share, "<= 0.05", f"two at work, which tell their progress, {seconds:g} s"


def _share_of_the_driver(grid: Any, seconds: float) -> float:
    """Of a core, while two jobs of a grid are at work and all others wait."""
    from unittest.mock import patch

    from cellrepro.grid import pool

    go_on = threading.Event()

    def run_job(job: Any, listener: Any) -> Any:
        """A job that waits, in the place of one that trains."""
        listener.changed(status="running", started=time.time(), notebook="notebook.ipynb")
        while not go_on.wait(0.5):
            listener.changed(done=1, total=12, text="epoch 1/12")
        return job.ended("done")

    with patch.object(pool, "run_job", run_job):
        options = {"workers": 2, "quiet": True}
        running = threading.Thread(target=pool.run_grid, args=(grid,), kwargs=options)
        running.start()
        time.sleep(min(2.0, seconds))  # all have been told what they wait for
        cpu_before = time.process_time()
        before = time.perf_counter()
        time.sleep(seconds)
        share = (time.process_time() - cpu_before) / (time.perf_counter() - before)
        go_on.set()
        running.join()
    return share


def scale(extent: Extent) -> Iterator[Row]:
    """Storing, listing and reporting on many made-up runs."""
    from made_up_store import add_repeat, make_store, points

    from cellrepro.store.store import Store

    n_repeats = extent.of(20, 900, 10_200)
    *added, last = itertools.islice(points(), n_repeats, n_repeats + 21)
    with tempfile.TemporaryDirectory() as scratch:
        full = make_store(Path(scratch, "full"), n_repeats=n_repeats)
        many, few = (
            [_seconds_of_storing(add_repeat, store, point) for point in added]
            for store in (full, Store(Path(scratch, "few")))
        )
        how = f"median of {len(added)}, into a store of {n_repeats} repeats"
        yield "storing one repeat, seconds", statistics.median(many), "<= 0.05", how
        yield (
            "the same / into an empty store",
            statistics.median(many) / statistics.median(few),
            "",
            how,
        )
        shutil.rmtree(full.root / ".digests")
        once = _seconds_of_storing(add_repeat, full, last)
        yield "storing the first without the index of digests", once, "", "reads every manifest"
        listed = min(_seconds(lambda: _command("list", "--json", full.root)) for _ in range(3))
        yield f"list --json over {n_repeats} repeats, seconds", listed, "<= 2", "best of 3"
        started = time.perf_counter()
        peak = _command("report", full.root)
        yield "report over these, seconds", time.perf_counter() - started, "<= 60", ""
        yield "peak memory of the report, GB", peak / 1e9, "<= 4", "of its own process"
        size = (full.root / "report" / "index.html").stat().st_size
        yield "size of its page, MB", size / 1e6, "<= 30", ""


def choosing(extent: Extent) -> Iterator[Row]:
    """Finding what to show first of a store of many made-up repeats, without anybody's choice."""
    from made_up_store import make_store

    n_repeats = extent.of(60, 4_000, 10_200)
    how = f"a store of {n_repeats} repeats, in a process of its own, beyond reading all manifests"
    with tempfile.TemporaryDirectory() as scratch:
        costs = _costs_of_choosing(make_store(Path(scratch, "many"), n_repeats=n_repeats).root)
    manifests = costs["manifests"]
    yield "reading all manifests, seconds", manifests.seconds, "", how.partition(", beyond")[0]
    for name, key in (("opening the explorer", "explorer"), ("two repeats to compare", "pair")):
        yield f"{name}, seconds", costs[key].seconds - manifests.seconds, "<= 15", how
        yield f"{name}, memory, GB", costs[key].gigabytes - manifests.gigabytes, "<= 0.5", how


@dataclass(frozen=True)
class _Cost:
    """What a piece of work took."""

    seconds: float
    gigabytes: float  # peak memory of its process


_CHOOSING = {
    "manifests": "stored_repeats(store)",
    "explorer": "explore_runs(store)",
    "pair": "telling_pair_of(stored_repeats(store))",
}
_CHOOSING_SCRIPT = """
import resource, sys, time
import pandas, torch  # which takes its time and memory, however many repeats there are
from cellrepro.show.telling_pair import telling_pair_of
from cellrepro.show.explorer.widget import explore_runs, stored_repeats
from cellrepro.store.store import Store
store = Store(sys.argv[1])
started = time.perf_counter()
{work}
print(time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""


def _costs_of_choosing(root: Path) -> dict[str, _Cost]:
    """What each piece of `_CHOOSING` takes in a process of its own."""
    costs = {}
    for name, work in _CHOOSING.items():
        command = [sys.executable, "-c", _CHOOSING_SCRIPT.format(work=work), str(root)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        costs[name] = _Cost(*map(float, printed.split()))
    return costs


def segmentation(extent: Extent) -> Iterator[Row]:
    """What the lab adds to Cellpose's eval, passes shared between settings, and batches."""
    import torch

    import cellrepro
    from cellrepro.images.folder import read_folder
    from cellrepro.images.public_sets import write_benchmark
    from cellrepro.model.inference import evaluator
    from cellrepro.model.network import build, find_model
    from cellrepro.trace.batch_invariance import batch_invariance

    size, n_variants, epochs = extent.of((256, 3, 2), (512, 30, 12), (1024, 30, 12))
    with tempfile.TemporaryDirectory() as scratch:
        store, folder = Path(scratch, "store"), write_benchmark(Path(scratch), images=4, size=size)
        trained = cellrepro.train(folder, epochs=epochs, repeats=1, store=store, quiet=True)
        model = f"{trained.key}/0"
        alone, ours = [], []
        for i in range(extent.of(1, 9, 9)):  # nothing watches the first of each pair
            given = {"model": str(trained.repeats[0].weights), "store": Path(scratch, f"of {i}")}
            off, steps = (
                cellrepro.segment(folder, repeats=1, ledger=ledger, quiet=True, **given).repeats[0]
                for ledger in ("off", "steps")
            )
            alone.append(sum(record.seconds for record in off.manifest.masks.values()))
            ours.append(steps.manifest.seconds["segment"])
        ratio = statistics.median(ours) / statistics.median(alone)
        how = f"4 images of {size}², ledger steps, masks written; {len(ours)} pairs of processes"
        yield "segmenting / CellposeModel.eval alone", ratio, "<= 1.05", how
        source = find_model(model, cellrepro.Store(store))
        network = build(source, seed=0, device=torch.device("cpu"), dtype="float32")
        image = read_folder(folder).train[0].image
    variants = [{"cellprob_threshold": 0.05 * i} for i in range(n_variants)]
    plain, sharing = evaluator(network), evaluator(network, sharing=True)
    each = [_seconds(lambda v=v: plain(image, **v)) for v in variants]
    one_pass = statistics.median(_seconds(lambda: _only_network(plain, image)) for _ in range(5))
    together = sum(_seconds(lambda v=v: sharing(image, **v)) for v in variants)
    ratio = together / (sum(each) - (n_variants - 1) * one_pass)
    how = f"{n_variants} thresholds, {size}²; one pass of the network takes {one_pass:.2f} s"
    yield "variants that share a pass / one pass and their reconstructions", ratio, "<= 1.1", how
    tiles = torch.rand(8, 1, 256, 256)
    with torch.no_grad():
        network(tiles)
        passes = statistics.median(_seconds(lambda: network(tiles)) for _ in range(5))
    compared = _seconds(lambda: batch_invariance(network, tiles, model=network))
    yield "batch invariance of 8 tiles, in passes", compared / passes, "<= 6", "median of 5 passes"


def _only_network(evaluate: Any, image: Any) -> None:
    evaluate.model.eval(image, channel_axis=None, compute_masks=False)


def _seconds_of_storing(add_repeat: Callable[..., Any], store: Any, point: tuple) -> float:
    """Of the store's own part: sealing, linking what is equal, and moving into place."""
    commit, seconds = store.commit, []

    def timed(*arguments: Any) -> Any:
        started = time.perf_counter()
        repeat = commit(*arguments)
        seconds.append(time.perf_counter() - started)
        return repeat

    store.commit = timed
    add_repeat(store, *point, {})
    del store.commit
    return seconds[0]


# What it says last is the most memory that it held itself: what the system says of processes that
# have ended is the largest so far, or that of the one which started them.
COMMAND = """
import atexit
from cellrepro.cli import main
from cellrepro.store.this_machine import peak_memory_of_process
atexit.register(lambda: print(peak_memory_of_process()))
main()
"""


def _command(verb: str, *arguments: Any) -> int:
    """Run a command of the lab over a store, the last argument; its peak memory in bytes."""
    *options, root = map(str, arguments)
    command = [sys.executable, "-c", COMMAND, verb, *options, "--store", root]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1])


EXPLORER_NOTEBOOK = """
import numpy as np
from cellrepro.show.explorer.planes import View
from cellrepro.show.explorer.widget import Explorer

arrays = np.load("arrays.npz")
masks = [arrays[name] for name in ("a", "b", "c")]
truth = masks[0] if masks[0].ndim == 2 else None
Explorer([View("made up", masks, arrays["image"], truth)], ["A", "B", "C"], height=640)
"""

# From the event to the end of the frame that shows it: the explorer draws in the frame after the
# event, and the second frame begins when that one is handed over.
MEASURE = """
async ([selector, kind, values]) => {
  const element = document.querySelector(selector);
  const { dataset } = document.querySelector(".cellrepro-explorer");
  const frame = () => new Promise(requestAnimationFrame);
  const times = [];
  const pause = selector === "input.cre-z" ? 100 : 30;
  for (const value of values) {
    await frame();
    await new Promise((resolve) => setTimeout(resolve, pause));
    const started = performance.now();
    if (kind === "key") {
      element.dispatchEvent(new KeyboardEvent("keydown", { key: value, bubbles: true }));
    } else {
      element.value = String(value);
      element.dispatchEvent(new Event(kind, { bubbles: true }));
    }
    await frame();
    while (selector === "input.cre-z" && dataset.z !== String(value)) await frame();
    await frame();
    times.push(performance.now() - started);
  }
  return times;
}
"""
PICTURE = "canvas => canvas.toDataURL()"


def explorer(extent: Extent) -> Iterator[Row]:
    """Milliseconds from a step to its paint, in Chromium, for every slider, view and key."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise RuntimeError("Chromium is not installed; install it (apt-get install chromium)")
    size, n_objects, n_steps = extent.of((256, 80, 5), (2048, 5000, 25))
    how = f"{n_steps} steps at {size}², {n_objects} objects, Chromium, Voila"
    yield from _steps_in(chromium, (size, n_objects, 1), _explorer_steps(n_steps), how)
    stacks = [(512, 40), (1024, 40)]
    for side, n_planes in extent.of([(64, 5)], stacks, [*stacks, (2048, 40)]):
        steps = [("plane slider", [], ["input.cre-z", "input", list(range(1, n_planes))])]
        how = f"stack of {n_planes} planes of {side}², {n_objects} objects, about 8 planes a second"
        yield from _steps_in(chromium, (side, n_objects, n_planes), steps, how)


def _steps_in(
    chromium: str, sizes: tuple[int, int, int], steps: Iterable[Any], how: str
) -> Iterator[Row]:
    from playwright.sync_api import sync_playwright

    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with tempfile.TemporaryDirectory() as scratch:
        _write_notebook(Path(scratch), *sizes)
        with _voila(Path(scratch)) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=flags)
            page = browser.new_page(viewport={"width": 1280, "height": 1000})
            page.goto(address, timeout=300_000)
            page.locator('.cellrepro-explorer[data-ready="1"]').wait_for(timeout=300_000)
            for name, before, step in steps:
                for selector in before:
                    page.locator(selector).click()
                    page.wait_for_timeout(400)
                painted = page.locator("canvas.cre-canvas").evaluate(PICTURE)
                times = page.evaluate(MEASURE, step)
                same = page.locator("canvas.cre-canvas").evaluate(PICTURE) == painted
                if same and name != "speed slider":
                    raise RuntimeError(f"{name}: the picture stayed as it was")
                yield f"explorer: {name}, median, ms", statistics.median(times), "<= 60", how
                slowest = float(np.percentile(times, 95))
                target = OF_A_PLANE if name == "plane slider" else "<= 60"
                yield f"explorer: {name}, 95th percentile, ms", slowest, target, how
            browser.close()


def _explorer_steps(n: int) -> Iterator[tuple[str, list[str], list]]:
    """What is called how, what is clicked before, and selector, kind and values of the steps."""

    def mode(name: str) -> str:
        return f'[data-choose="{name}"]'

    def values(low: float, high: float) -> list[int]:
        return np.linspace(low, high, n).round().astype(int).tolist()

    fit = ".cre-slider:has(.cre-zoom) .cre-small"
    key, canvas = "key", "canvas.cre-canvas"
    curtain, opacity, zoom = "input.cre-curtain", "input.cre-opacity", "input.cre-zoom"
    yield "curtain slider", [mode("curtain")], [curtain, "input", values(0, 1000)]
    yield "opacity, outlines", [mode("outlines")], [opacity, "input", values(0, 95)]
    yield "opacity, difference", [mode("categories")], [opacity, "input", values(0, 95)]
    yield "opacity, agreement", [mode("agreement")], [opacity, "input", values(0, 80)]
    yield "zoom slider, outlines", [mode("outlines")], [zoom, "input", values(0, 900)]
    yield "zoom slider, difference", [fit, mode("categories")], [zoom, "input", values(0, 900)]
    yield "zoom slider, agreement", [fit, mode("agreement")], [zoom, "input", values(0, 900)]
    yield "speed slider", [fit, mode("blink")], ["input.cre-speed", "input", values(2, 30)]
    yield "blink, other run", [], [canvas, key, [" "] * n]
    yield "views in turn", [], [canvas, key, [str(1 + i % 5) for i in range(n)]]
    yield "next changed cell", [mode("outlines")], [canvas, key, ["n"] * n]
    yield "pan", [], [canvas, key, ["ArrowLeft", "ArrowUp"] * (n // 2)]
    yield "patterns", [fit, mode("categories")], [canvas, key, ["h"] * n]


def _write_notebook(folder: Path, size: int, n_objects: int, n_planes: int) -> None:
    import nbformat

    labels = {}
    for seed, name in enumerate("abc"):
        n = n_objects // -(-n_planes // 8)  # a cell of a stack goes through eight planes
        cells = grid_of_cells(size, n, seed, np.uint16)
        stack = [np.where(cells > 0, cells + z // 8 * 2 * n, 0) for z in range(n_planes)]
        labels[name] = np.array(stack, np.uint16) if n_planes > 1 else cells
    drawn = labels["a"] > 0
    light = np.random.default_rng(0).poisson(30, drawn.shape) + 60 * drawn
    np.savez(folder / "arrays.npz", image=light.astype(np.uint8), **labels)
    cells = [nbformat.v4.new_code_cell(EXPLORER_NOTEBOOK)]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), folder / "bench.ipynb")


@contextmanager
def _voila(folder: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*(sys.executable, "-m", "voila", "bench.ipynb", "--no-browser")]
    command += [f"--port={port}", "--Voila.ip=127.0.0.1"]
    with (folder / "voila.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            _wait_for(f"http://127.0.0.1:{port}/static/voila.js", server)
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()
            server.wait(timeout=30)


def _wait_for(address: str, server: subprocess.Popen) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and server.poll() is None:
        try:
            with urlopen(address, timeout=5):
                return
        except OSError as error:
            if getattr(error, "code", None):  # it answers
                return
            time.sleep(0.1)
    raise RuntimeError(f"Voila does not answer (exit code {server.poll()})")


def listing(extent: Extent) -> Iterator[Row]:
    """What `list` takes for each repeat, over made-up ones of a few specs."""
    from made_up_store import make_store

    from cellrepro.show.answers.stored_runs import stored_runs_answer

    n_repeats = extent.of(20, 400)
    with tempfile.TemporaryDirectory() as scratch:
        store = make_store(Path(scratch), n_repeats=n_repeats)
        seconds = []
        for _ in range(ROUNDS):
            before = time.process_time()
            stored_runs_answer(store)
            seconds.append(time.process_time() - before)
    how = f"least of {ROUNDS}, processor's time, {n_repeats} repeats; 10,200 within 2 s ask for it"
    yield "listing one repeat, milliseconds", 1000 * min(seconds) / n_repeats, "<= 0.2", how


GROUPS: dict[str, Callable[[Extent], Iterator[Row]]] = {
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
    "masks": masks,
    "many": many,
    "weights": weights,
    "explorer": explorer,
    "report": report,
    "listing": listing,
    "grid": grid,
    "jobs": jobs,
    "many-specs": many_specs,
    "scale": scale,
    "choosing": choosing,
    "segmentation": segmentation,
}


if __name__ == "__main__":
    sys.exit(main())
