"""Grids: a repeat, a job, many specs."""

from __future__ import annotations

import json
import pickle
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measuring import Extent, Figure, seconds_of

if TYPE_CHECKING:
    from cellrepro.grid.grid_runs import GridRun
    from cellrepro.grid.job import Job
    from cellrepro.grid.points import Grid
    from cellrepro.grid.status import JobReporter


def grid(extent: Extent) -> Iterator[Figure]:
    """What a repeat of a grid takes beyond its training and masks, at the demo's size."""
    from cellrepro.grid.grid import run_grid
    from cellrepro.grid.points import read_grid
    from cellrepro.images.image_sets import provide_data

    n_repeats = extent.of(1, 3)
    with tempfile.TemporaryDirectory() as scratch:
        data = provide_data("synthetic", data_dir=Path(scratch, "data"), mirror=None)
        fixed = {"data": str(data), "mode": ["strict"], "seed": [0], "profile": ["cpu"]}
        checked = read_grid("grids/demo.yaml", store=scratch, overrides=fixed, repeats=n_repeats)
        looking = seconds_of(lambda: checked.points[0].plan.machine)  # once for a whole grid
        with _processes_below() as processes:
            seconds = seconds_of(lambda: run_grid(checked, quiet=True)) / n_repeats
        manifests = [
            repeat.manifest.seconds for run in checked.store.runs() for repeat in run.repeats
        ]
        parts = {
            name: statistics.median(seconds[name] for seconds in manifests) for name in manifests[0]
        }
    work = parts["train"] + parts["segment"]
    rest = ", ".join(
        f"{name} {value:.1f}" for name, value in parts.items() if name not in ("train", "segment")
    )
    how = f"mean of {n_repeats}; {work:.1f} s of training and masks; of the rest: {rest}"
    yield Figure("a repeat of a grid, seconds", seconds, f"<= {work + 6:.1f}", how)
    yield Figure("processes that a repeat of a grid starts", len(processes) / n_repeats, "<= 1", "")
    yield Figure("looking at the machine, once for a grid, seconds", looking, "", "")


@contextmanager
def _processes_below() -> Iterator[set[int]]:
    """Collect the process numbers of all that this process starts in a block, and what they do."""
    import psutil

    seen: set[int] = set()
    is_over = threading.Event()

    def look() -> None:
        own = psutil.Process()
        while not is_over.wait(0.05):
            seen.update(process.pid for process in own.children(recursive=True))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        is_over.set()
        looking.join()


def jobs(extent: Extent) -> Iterator[Figure]:
    """What a worker of a cluster is sent for one spec, in a small grid and in a large one."""
    from cellrepro.grid.job import Job
    from cellrepro.grid.points import read_grid
    from cellrepro.images.image_sets import provide_data

    n_few = 20
    n_many = extent.of(100, 1_000)

    def bytes_of_a_job(grid: Grid) -> int:
        return len(pickle.dumps(Job(grid, grid.points[0]).to_send()))

    with tempfile.TemporaryDirectory() as scratch:
        data = provide_data("synthetic", data_dir=Path(scratch, "data"), mirror=None)
        fixed = {"data": str(data), "mode": ["strict"], "profile": ["cpu"]}

        def grid_of(n_seeds: int) -> Grid:
            overrides = {**fixed, "seed": list(range(n_seeds))}
            return read_grid("grids/demo.yaml", store=scratch, overrides=overrides)

        few = grid_of(n_few)
        many = grid_of(n_many)
    name = f"bytes of a pickled job of {n_many:,} specs beside one of {n_few} specs"
    yield Figure(
        name, bytes_of_a_job(many) / bytes_of_a_job(few), "<= 1.1", f"{bytes_of_a_job(few)} bytes"
    )


def many_specs(extent: Extent) -> Iterator[Figure]:
    """A grid of many specs: until it can start, and what its driver takes while they wait."""
    from cellrepro.grid.points import read_grid
    from cellrepro.images.image_sets import write_benchmark

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
        yield Figure(name, reading, "<= 20", f"images of {size} pixels along an edge")
        share = _share_of_the_driver(checked, seconds)
        name = f"share of a core that the driver of a grid takes, {n_specs} specs"
        yield Figure(
            name, share, "<= 0.05", f"two at work, which tell their progress, {seconds:g} s"
        )


def _share_of_the_driver(checked: Grid, seconds: float) -> float:
    """Of a core, while two jobs of a grid are at work and all others wait."""
    from unittest.mock import patch

    from cellrepro.grid import grid, local_pool

    go_on = threading.Event()

    def run_job(job: Job, reporter: JobReporter) -> GridRun:
        """A job that waits, in the place of one that trains."""
        reporter.report(started=time.time(), notebook="notebook.ipynb")
        while not go_on.wait(0.5):
            reporter.report(done=1, total=12, text="epoch 1/12")
        return job.grid_run("done")

    with patch.object(local_pool, "run_job", run_job):
        options = {"workers": 2, "quiet": True}
        running = threading.Thread(target=grid.run_grid, args=(checked,), kwargs=options)
        running.start()
        time.sleep(min(2.0, seconds))  # all have been told what they wait for
        cpu_before = time.process_time()
        before = time.perf_counter()
        time.sleep(seconds)
        share = (time.process_time() - cpu_before) / (time.perf_counter() - before)
        go_on.set()
        running.join()
    return share
