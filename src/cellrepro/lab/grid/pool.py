"""A grid carried out: on the processor's cores and the GPUs of this machine, or on a cluster."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import psutil

from cellrepro.errors import BadInput, NotPossibleHere, whole
from cellrepro.lab.grid.file import Grid
from cellrepro.lab.grid.point import GridRun, Job, Listener, run_job
from cellrepro.lab.grid.status import Board, board
from cellrepro.lab.process import RUNNING
from cellrepro.model.network import SMALL
from cellrepro.progress import progress
from cellrepro.store import platform

_MEMORY = {True: 2e9, False: 14e9}
"""Bytes that a training on the processor may need: of a small network, of Cellpose's own."""
_POLL_SECONDS = 0.05


class Pool(Protocol):
    """Where jobs are carried out."""

    dashboard: str  # where Dask shows what its workers do

    def jobs(self, grid: Grid, minutes: float | None) -> list[Job]:
        """The points of a grid, each on the machines that are to carry it out."""

    def begin(self, jobs: Sequence[Job], board: Board) -> list[Any]:
        """Take the jobs on, in this order; returns something with ``done`` and ``result`` each."""

    def advance(self) -> None:
        """Begin what there is room for; called all the time."""

    def stop(self) -> None:
        """End all work at once."""


def planned(grid: Grid) -> list[GridRun]:
    """What `run_grid` would do on this machine, without doing it."""
    runs = []
    here = grid if grid.on == "all" else replace(grid, on=None)
    for job in LocalPool().jobs(here, None):
        try:
            machine, notices = job.machine, "; ".join(job.point.plan.notices)
        except NotPossibleHere as error:
            runs.append(job.ended("not-here", reason=str(error)))
            continue
        stored = (grid.store.repeat(job.key, machine, index) for index in range(grid.repeats))
        status: Any = "present" if all(stored) else "planned"
        runs.append(job.ended(status, machine=machine, reason=notices))
    return runs


def run_grid(
    grid: Grid,
    *,
    workers: int | None = None,
    minutes: float | None = None,
    scheduler: str | None = None,
    slurm: str | Path | None = None,
    quiet: bool = False,
) -> list[GridRun]:
    """Carry out what the store lacks of a grid; a failure is kept, others go on.

    Parameters
    ----------
    grid : Grid
    workers : int, optional
        Points carried out at the same time on this machine; by default one on each GPU, and on
        the processor as many as it has cores for, by the threads of the profile.
    minutes : float, optional
        That a repeat may take.
    scheduler : str, optional
        Address of a Dask scheduler, ``tcp://HOST:PORT``, whose workers do the work.
    slurm : str or Path, optional
        YAML file with the options of ``dask_jobqueue.SLURMCluster``, and ``jobs``, how many.
    quiet : bool
        Show no progress.

    Returns
    -------
    list of GridRun
        In the order of the grid's points; with ``on``, one for each machine.
    """
    if minutes is not None and not minutes > 0:
        raise BadInput(f"--time-limit is {minutes:g}; expected minutes, more than 0")
    if scheduler is None and slurm is None:
        return _run(grid, LocalPool(workers), minutes, quiet=quiet)
    if workers is not None or None not in (scheduler, slurm):
        raise BadInput(
            "expected one of --workers, which is of this machine, --scheduler and --slurm"
        )
    from cellrepro.lab.grid.cluster import cluster_pool

    with cluster_pool(grid, scheduler=scheduler, slurm=slurm) as pool:
        return _run(grid, pool, minutes, quiet=quiet)


def _run(grid: Grid, pool: Pool, minutes: float | None, *, quiet: bool) -> list[GridRun]:
    jobs = pool.jobs(grid, minutes)
    with (
        progress(len(jobs) * grid.repeats, "grid", quiet=quiet) as bar,
        board(jobs, bar, dashboard=pool.dashboard) as rows,
    ):
        for text in dict.fromkeys(text for point in grid.points for text in point.plan.notices):
            rows.say(f"note: {text}")
        futures = pool.begin(jobs, rows)
        try:
            while not all(future.done() for future in futures):
                pool.advance()
                time.sleep(_POLL_SECONDS)
        finally:
            if not all(future.done() for future in futures):  # interrupted, or the cluster is lost
                rows.stopped = True
                pool.stop()
    return [future.result() for future in futures]


class LocalPool:
    """The cores of the processor and the GPUs of this machine."""

    dashboard = ""

    def __init__(self, workers: int | None = None) -> None:
        self._gpus = platform.visible_gpus()
        if workers is None:
            cores: float = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
            self._cores = cores or os.cpu_count() or 1
            self._most, of_each = float("inf"), 1
        else:
            self._most = whole("workers", workers, least=1)
            self._cores, of_each = float("inf"), -(-workers // max(1, len(self._gpus)))
        self._free: dict[str, float] = {"cpu": self._cores, "mps": of_each, "cuda": of_each}
        self._free.update(dict.fromkeys(self._gpus, of_each))
        self._waiting: list[tuple[Job, Any, Future[GridRun]]] = []
        self._at_work: dict[Future[GridRun], tuple[list[str], float]] = {}

    def jobs(self, grid: Grid, minutes: float | None) -> list[Job]:
        """See `Pool`: of several GPUs the one that has repeats of a point already goes on."""
        if isinstance(grid.on, tuple):
            raise BadInput(
                f"on names workers, {', '.join(grid.on)}, and there is only this machine: give "
                "--scheduler or --slurm, or `on: all`"
            )
        found: list[Job] = []
        for point in grid.points:
            job = Job(grid, point, minutes=minutes)
            gpus = self._gpus if point.plan.profile.device == "cuda" else []
            if grid.on == "all" and len(gpus) > 1:
                found += [replace(job, gpu=gpu, place=f"GPU {i}") for i, gpu in enumerate(gpus)]
            else:
                found.append(replace(job, gpu=_begun_on(job, gpus) if len(gpus) > 1 else None))
        return found

    def begin(self, jobs: Sequence[Job], board: Board) -> list[Future[GridRun]]:
        """See `Pool`."""
        self._waiting = [(job, board.listener(i), Future()) for i, job in enumerate(jobs)]
        return [future for _, _, future in self._waiting]

    def advance(self) -> None:
        """See `Pool`. What does not fit yet is waited for by all that need the same."""
        for future in [one for one in self._at_work if one.done()]:
            taken, need = self._at_work.pop(future)
            for slot in taken:
                self._free[slot] += need
        full = set()
        for entry in tuple(self._waiting):
            job, listener, future = entry
            slots, need = self._wanted(job)
            n = min(len(slots), job.point.plan.spec.ranks)  # each rank has a GPU of its own
            taken = [slot for slot in slots if self._free[slot] >= need][:n]
            if len(self._at_work) >= self._most or slots in full or len(taken) < n:
                full.add(slots)
                continue
            self._waiting.remove(entry)
            for slot in taken:
                self._free[slot] -= need
            self._at_work[future] = taken, need
            if len(slots) > 1:
                job = replace(job, gpu=",".join(taken))
            threading.Thread(target=_work, args=(job, listener, future), daemon=True).start()

    def stop(self) -> None:
        """See `Pool`."""
        for _, _, future in self._waiting:
            future.cancel()
        while not all(future.done() for future in self._at_work):
            kill_children()
            time.sleep(_POLL_SECONDS)

    def _wanted(self, job: Job) -> tuple[tuple[str, ...], float]:
        """The slots of which a job needs one, and how much of it: cores, or 1."""
        plan = job.point.plan
        if plan.profile.kind == "mps":
            return ("mps",), 1
        if plan.profile.kind == "cpu":
            if self._cores == float("inf"):
                return ("cpu",), 1
            memory = _MEMORY[plan.request.model.architecture in SMALL]
            share = memory / psutil.virtual_memory().total
            cores = max(plan.profile.threads or self._cores, share * self._cores) * plan.spec.ranks
            return ("cpu",), min(cores, self._cores)
        _, _, number = plan.profile.device.partition(":")
        if number:
            return tuple(self._gpus[int(number) :][:1]) or ("cuda",), 1
        return (job.gpu,) if job.gpu else tuple(self._gpus) or ("cuda",), 1


def _work(job: Job, listener: Listener, future: Future[GridRun]) -> None:
    """The life of a thread: it mostly waits for its child."""
    try:
        future.set_result(run_job(job, listener))
    except BaseException as error:
        future.set_exception(error)


def kill_children() -> None:
    """End what `run_job` has running in this process."""
    for child in tuple(RUNNING):
        child.kill()


def _begun_on(job: Job, gpus: Sequence[str]) -> str | None:
    """The GPU on which most repeats of a point were made; none if none was."""
    run = job.grid.store.run(job.key)
    made = Counter(repeat.manifest.machine.identity for repeat in run.repeats) if run else Counter()
    counts = {gpu: made[platform.identity(gpu)] for gpu in gpus}
    best = max(counts, key=lambda gpu: counts[gpu])
    return best if counts[best] else None
