"""Reports, lists and choices over stores of many runs."""

from __future__ import annotations

import copy
import itertools
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measuring import ROUNDS, Extent, Figure, seconds_of

if TYPE_CHECKING:
    from made_up_store import GridPoint

    from cellrepro.spec.spec import Spec
    from cellrepro.store.store import Store
    from cellrepro.store.stored_run import Repeat


def report(extent: Extent) -> Iterator[Figure]:
    """Seconds and size of the report over a store of 100 runs of the demo's size."""
    from cellrepro.show.report.build import write_report

    n_seeds, n_profiles, rounds = extent.of((1, 1, 1), (5, 5, 3))
    with tempfile.TemporaryDirectory() as scratch:
        root = _store_of_copies(Path(scratch), n_seeds, n_profiles)
        seconds = []
        busy = []
        for _ in range(rounds):
            started = time.perf_counter()
            worked = time.process_time()
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
    yield Figure(name, min(seconds), "<= 10", how)
    yield Figure("the same, median", statistics.median(seconds), "", how)
    yield Figure("the same, seconds of the processor", min(busy), "", how)
    yield Figure("size of the page, MB", size / 1e6, "", "one file")


def _store_of_copies(scratch: Path, n_seeds: int, n_profiles: int) -> Path:
    """One short training, stored again as what a grid of two modes and two repeats would leave.

    Strict repeats are equal, fast ones are not; seeds lie farther apart than profiles.
    """
    import cellrepro
    from cellrepro.images.synthetic_sets import write_folder
    from cellrepro.spec.new_spec import make_spec
    from cellrepro.store.store import Store

    write_folder(scratch / "synthetic", n_train=1, n_test=3)
    trained = cellrepro.train(
        scratch / "synthetic",
        epochs=2,
        images_per_epoch=1,
        ledger="off",
        repeats=1,
        store=scratch / "first",
        quiet=True,
    )
    store = Store(scratch / "store")
    first = Store(scratch / "first")
    trained_spec = trained.repeats[0].spec
    for seed, profile, deterministic, repeat in np.ndindex(n_seeds, n_profiles, 2, 2):
        settings = {"name": f"p-{profile}", "threads": profile + 1}
        changed = trained_spec.model_copy(
            update={
                "seed": seed,
                "mode": "strict" if deterministic else "fast",
                "profile": settings["name"],
                "profile_settings": settings,
            }
        )
        nuance = _Nuance(seed, profile, race=0 if deterministic else 1 + repeat)
        spec = make_spec(**changed.model_dump())
        _store_copy(store, first, trained.repeats[0], spec, repeat, nuance)
    return store.root


@dataclass(frozen=True)
class _Nuance:
    """What weights and masks of a copy depend on."""

    seed: int
    profile: int
    race: int
    """0 where the mode is strict, else a different number for each repeat."""

    def of_seed(self) -> np.random.Generator:
        """Numbers that all copies of one seed share."""
        return np.random.default_rng(self.seed)

    def of_all(self) -> np.random.Generator:
        """Numbers of this copy."""
        return np.random.default_rng((self.seed, self.profile, self.race))


def _store_copy(
    store: Store, first: Store, trained: Repeat, spec: Spec, repeat: int, nuance: _Nuance
) -> None:
    """One repeat like the trained one, with weights and masks changed by the nuance."""
    import tifffile
    from safetensors.numpy import load_file, save_file

    from cellrepro.comparison.label_numbers import canonical
    from samebits.digests import array_digest, file_digest

    of_seed = nuance.of_seed()
    of_all = nuance.of_all()
    manifest = trained.manifest.model_copy(deep=True)
    assert manifest.weights is not None
    with store.staging() as area:
        folder = area / "repeat"
        shutil.copytree(trained.folder, folder)
        (folder / "data").mkdir(exist_ok=True)
        weights = load_file(folder / "weights.safetensors")
        for name, values in weights.items():
            shape = values.shape
            if values.dtype == np.float32:
                far = np.float32(1e-2) * of_seed.standard_normal(shape, np.float32)
                near = np.float32(1e-6) * of_all.standard_normal(shape, np.float32)
                weights[name] = values + far + near
        save_file(weights, folder / "weights.safetensors")
        manifest.weights.digest = file_digest(folder / "weights.safetensors")
        for name, record in manifest.masks.items():
            truth = first.truth(spec.data_digest, name)
            assert truth is not None
            labels = truth.astype(np.uint16)
            labels[np.isin(labels, of_seed.choice(np.unique(labels[labels > 0]), 4))] = 0
            y = of_all.integers(1, labels.shape[0] - 1, 60)
            x = of_all.integers(1, labels.shape[1] - 1, 60)
            labels[y, x] = labels[y - 1, x]
            tifffile.imwrite(folder / record.file, labels, compression="zlib")
            image = first.image(spec.data_digest, name)
            tifffile.imwrite(folder / "data" / f"{name}.tif", image)
            tifffile.imwrite(folder / "data" / f"{name}_masks.tif", truth)
            record.digest = array_digest(labels.astype(np.uint32))
            record.canonical_digest = array_digest(canonical(labels))
            record.n_objects = len(np.unique(labels[labels > 0]))
        written = manifest.model_copy(
            update={"key": spec.key, "repeat": repeat, "vacuous": [], "files": {}}
        )
        (folder / "manifest.json").write_text(written.model_dump_json())
        store.commit(folder, spec)


def scale(extent: Extent) -> Iterator[Figure]:
    """Storing, listing and reporting on many made-up runs."""
    from made_up_store import make_store, points

    from cellrepro.store.store import Store

    n_repeats = extent.of(20, 900, 10_200)
    added = list(itertools.islice(points(), n_repeats, n_repeats + 21))
    with tempfile.TemporaryDirectory() as scratch:
        full = make_store(Path(scratch, "full"), n_repeats=n_repeats)
        empty = Store(Path(scratch, "few"))
        many = [_seconds_of_storing(full, point) for point in added]
        few = [_seconds_of_storing(empty, point) for point in added]
        how = f"median of {len(added)}, into a store of {n_repeats} repeats"
        yield Figure("storing one repeat, seconds", statistics.median(many), "<= 0.05", how)
        yield Figure(
            "the same / into an empty store",
            statistics.median(many) / statistics.median(few),
            "",
            how,
        )
        listed = min(seconds_of(lambda: _command("list", "--json", full.root)) for _ in range(3))
        yield Figure(f"list --json over {n_repeats} repeats, seconds", listed, "<= 2", "best of 3")
        started = time.perf_counter()
        peak = _command("report", full.root)
        yield Figure("report over these, seconds", time.perf_counter() - started, "<= 60", "")
        yield Figure("peak memory of the report, GB", peak / 1e9, "<= 4", "of its own process")
        size = (full.root / "report" / "index.html").stat().st_size
        yield Figure("size of its page, MB", size / 1e6, "<= 30", "")


def _seconds_of_storing(store: Store, point: GridPoint) -> float:
    """Of the store's own part: sealing, linking what is equal, and moving into place."""
    from made_up_store import add_repeat

    seconds = []

    def timed_commit(staged: Path, spec: Spec) -> Repeat:
        started = time.perf_counter()
        repeat = store.commit(staged, spec)
        seconds.append(time.perf_counter() - started)
        return repeat

    timed_store = copy.copy(store)
    timed_store.commit = timed_commit  # type: ignore[method-assign]  # of this copy alone
    add_repeat(timed_store, point)
    return seconds[0]


# What it says last is the most memory that it held itself: what the system says of processes that
# have ended is the largest so far, or that of the one which started them.
COMMAND = """
import atexit
from cellrepro.cli import main
from cellrepro.store.peak_memory import peak_memory_of_process
atexit.register(lambda: print(peak_memory_of_process()))
main()
"""


def _command(verb: str, *arguments: Any) -> int:
    """Run a command of the lab over a store, the last argument; its peak memory in bytes."""
    *options, root = map(str, arguments)
    command = [sys.executable, "-c", COMMAND, verb, *options, "--store", root]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1])


def choosing(extent: Extent) -> Iterator[Figure]:
    """Finding what to show first of a store of many made-up repeats, without anybody's choice."""
    from made_up_store import make_store

    n_repeats = extent.of(60, 4_000, 10_200)
    with tempfile.TemporaryDirectory() as scratch:
        costs = _costs_of_choosing(make_store(Path(scratch, "many"), n_repeats=n_repeats).root)
    manifests = costs["manifests"]
    where = f"a store of {n_repeats} repeats, in a process of its own"
    yield Figure("reading all manifests, seconds", manifests.seconds, "", where)
    how = f"{where}; reading all manifests takes {manifests.seconds:.2f} s of it"
    most_seconds = f"<= {manifests.seconds + 15:.1f}"
    most_gigabytes = f"<= {manifests.gigabytes + 0.5:.2f}"
    for name, key in (("opening the explorer", "explorer"), ("two repeats to compare", "pair")):
        yield Figure(f"{name}, seconds", costs[key].seconds, most_seconds, how)
        yield Figure(f"{name}, peak memory, GB", costs[key].gigabytes, most_gigabytes, where)


@dataclass(frozen=True)
class _Cost:
    """What a piece of work took."""

    seconds: float
    gigabytes: float
    """Peak memory of its process."""


_CHOOSING = {
    "manifests": "stored_repeats(store)",
    "explorer": "explore_runs(store)",
    "pair": "telling_pair_of(stored_repeats(store))",
}


_CHOOSING_SCRIPT = """
import sys, time
import pandas, torch  # which takes its time and memory, however many repeats there are
from cellrepro.show.telling_pair import telling_pair_of
from cellrepro.show.explorer.stored_runs import explore_runs, stored_repeats
from cellrepro.store.peak_memory import peak_memory_of_process
from cellrepro.store.store import Store
store = Store(sys.argv[1])
started = time.perf_counter()
{work}
print(time.perf_counter() - started, peak_memory_of_process() / 1e9)
"""


def _costs_of_choosing(root: Path) -> dict[str, _Cost]:
    """What each piece of `_CHOOSING` takes in a process of its own."""
    costs = {}
    for name, work in _CHOOSING.items():
        command = [sys.executable, "-c", _CHOOSING_SCRIPT.format(work=work), str(root)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        costs[name] = _Cost(*map(float, printed.split()))
    return costs


def listing(extent: Extent) -> Iterator[Figure]:
    """What `list` takes for each repeat, over made-up ones of a few specs."""
    from made_up_store import make_store

    from cellrepro.show.run_list import stored_runs

    n_repeats = extent.of(20, 400)
    with tempfile.TemporaryDirectory() as scratch:
        store = make_store(Path(scratch), n_repeats=n_repeats)
        seconds = []
        for _ in range(ROUNDS):
            before = time.process_time()
            stored_runs(store).as_json()
            seconds.append(time.process_time() - before)
    how = f"least of {ROUNDS}, processor's time, {n_repeats} repeats; 10,200 within 2 s ask for it"
    yield Figure("listing one repeat, milliseconds", 1000 * min(seconds) / n_repeats, "<= 0.2", how)
