"""A grid carried out: on the processor's cores and the GPUs of this machine, or on a cluster."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from cellrepro.errors import BadInput, CellreproError
from cellrepro.grid.file import Grid
from cellrepro.grid.point import GridRun, Job, Listener, run_job
from cellrepro.grid.slots import Machine, Queues
from cellrepro.grid.status import Board, board
from cellrepro.progress import progress
from cellrepro.store import this_machine

_STOP_SECONDS = 0.05
"""Between two attempts to end what is at work: a job may just have started another process."""


class Pool(Protocol):
    """Where jobs are carried out."""

    dashboard: str  # where Dask shows what its workers do
    look_seconds: float  # after which `advance` is called although no job has ended

    def jobs(self, grid: Grid, minutes: float | None) -> list[Job]:
        """The points of a grid, each on the machines that are to carry it out."""

    def begin(self, jobs: Sequence[Job], board: Board) -> list[Any]:
        """Take the jobs on, in this order; returns something with ``done`` and ``result`` each."""

    def advance(self) -> None:
        """Begin what there is room for; called when a job has ended, and now and then."""

    def stop(self) -> None:
        """End all work at once."""


def planned(grid: Grid) -> list[GridRun]:
    """What `run_grid` would do on this machine, without doing it."""
    here = grid if grid.on == "all" else replace(grid, on=None)
    return [_planned_job(job) for job in LocalPool().jobs(here, None)]


def _planned_job(job: Job) -> GridRun:
    try:
        machine = job.machine
    except CellreproError as error:
        return job.ended("not-here", reason=str(error))
    store = job.grid.store
    is_stored = all(store.repeat(job.key, machine, index) for index in range(job.grid.repeats))
    notices = "; ".join(job.point.plan.notices)
    return job.ended("present" if is_stored else "planned", machine=machine, reason=notices)


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
    from cellrepro.grid.cluster import cluster_pool

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
        ended: queue.SimpleQueue[Future[GridRun]] = queue.SimpleQueue()
        for future in futures:
            future.add_done_callback(ended.put)
        n_left = len(futures)
        try:
            while n_left:
                pool.advance()
                n_left -= _n_ended(ended, pool.look_seconds)
        finally:
            if n_left:  # interrupted, or the cluster is lost
                rows.stopped = True
                pool.stop()
    return [future.result() for future in futures]


def _n_ended(ended: queue.SimpleQueue[Future[GridRun]], seconds: float) -> int:
    """How many jobs have ended since the last call; waits so long for the first of them."""
    try:
        ended.get(timeout=seconds)
    except queue.Empty:
        return 0
    n_ended = 1
    while not ended.empty():
        ended.get()
        n_ended += 1
    return n_ended


class LocalPool:
    """The cores of the processor and the GPUs of a machine.

    Parameters
    ----------
    workers : int, optional
        Jobs at the same time; by default as many as there are cores, memory and GPUs for.
    machine : Machine, optional
        By default this one.
    """

    dashboard = ""
    look_seconds = 60.0

    def __init__(self, workers: int | None = None, machine: Machine | None = None) -> None:
        machine = machine or Machine.here()
        self._gpus = machine.gpus
        self._slots = machine.by_cores() if workers is None else machine.by_number(workers)
        self._jobs: Sequence[Job] = ()
        self._listeners: list[Listener] = []
        self._futures: list[Future[GridRun]] = []
        self._queues = Queues(self._slots, {})
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()

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
            gpus = self._gpus if point.plan.profile.device == "cuda" else ()
            if grid.on == "all" and len(gpus) > 1:
                found += [replace(job, gpu=gpu, place=f"GPU {i}") for i, gpu in enumerate(gpus)]
            else:
                gpu = _begun_on(job, gpus) if len(gpus) > 1 else None
                found.append(replace(job, gpu=gpu))
        return found

    def begin(self, jobs: Sequence[Job], board: Board) -> list[Future[GridRun]]:
        """See `Pool`."""
        self._jobs = jobs
        self._listeners = [board.listener(number) for number in range(len(jobs))]
        self._futures = [Future() for _ in jobs]
        needs = {number: self._slots.need(job) for number, job in enumerate(jobs)}
        self._queues = Queues(self._slots, needs)
        return list(self._futures)

    def advance(self) -> None:
        """See `Pool`. What does not fit yet is waited for by all that need the same."""
        while not self._ended.empty():
            self._queues.ended(self._ended.get())
        for number, taken in self._queues.begin():
            job = self._jobs[number]
            if len(self._queues.needs[number].slots) > 1:
                job = replace(job, gpu=",".join(taken))
            threading.Thread(target=self._work, args=(number, job), daemon=True).start()

    def stop(self) -> None:
        """See `Pool`."""
        for number in self._queues.waiting():
            self._futures[number].cancel()
        while not all(future.done() for future in self._futures):
            for listener in self._listeners:
                listener.children.end()
            time.sleep(_STOP_SECONDS)

    def _work(self, number: int, job: Job) -> None:
        """The life of a thread: it mostly waits for its child."""
        listener = self._listeners[number]
        try:
            run = run_job(job, listener)
        except BaseException as error:  # SystemExit: else the grid would wait for it for ever
            run = job.ended("failed", reason=repr(error))
            with suppress(Exception):
                listener.changed(status=run.status, reason=run.reason)
        self._ended.put(number)
        self._futures[number].set_result(run)


def _begun_on(job: Job, gpus: Sequence[str]) -> str | None:
    """The GPU on which most repeats of a point were made; none if none was."""
    run = job.grid.store.run(job.key)
    made = Counter(repeat.manifest.machine.identity for repeat in run.repeats) if run else Counter()
    counts = {gpu: made[this_machine.identity(gpu)] for gpu in gpus}
    best = max(counts, key=lambda gpu: counts[gpu])
    return best if counts[best] else None
