"""The pool of this machine: one thread a job, as far as there are cores and GPUs."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace

from cellrepro.errors import BadInput
from cellrepro.grid.board import Board
from cellrepro.grid.grid_runs import GridRun
from cellrepro.grid.job import Job
from cellrepro.grid.job_run import run_job
from cellrepro.grid.point import Point
from cellrepro.grid.points import Grid
from cellrepro.grid.slots import Machine, Queues, Slots
from cellrepro.store import machine_identity

_STOP_SECONDS = 0.05
"""Seconds between attempts to kill the children: a job may just have started another one."""


class LocalPool:
    """The pool (`cellrepro.grid.grid.Pool`) of the cores and GPUs of one machine."""

    def __init__(self, workers: int | None = None, machine: Machine | None = None) -> None:
        self.dashboard = ""
        shared = machine or Machine.here()
        self._gpus = shared.gpus
        self._slots = shared.by_cores() if workers is None else shared.by_number(workers)

    def jobs(self, grid: Grid, minutes: float | None) -> list[Job]:
        """Make a job for each point; with ``on: all``, for each point on each GPU."""
        if isinstance(grid.on, tuple):
            raise BadInput(
                f"on names workers, {', '.join(grid.on)}, and there is only this machine: give "
                "--scheduler or --slurm, or `on: all`"
            )
        jobs: list[Job] = []
        for point in grid.points:
            jobs.extend(self._jobs_of(point, grid, minutes))
        return jobs

    def _jobs_of(self, point: Point, grid: Grid, minutes: float | None) -> list[Job]:
        job = Job(grid, point, minutes=minutes)
        has_choice = point.plan.profile.device == "cuda" and len(self._gpus) > 1
        if not has_choice:
            return [job]
        if grid.on == "all":
            return [
                replace(job, gpu=gpu, machine_label=f"GPU {number}")
                for number, gpu in enumerate(self._gpus)
            ]
        return [replace(job, gpu=_gpu_that_began(job, self._gpus))]

    def begin(self, jobs: Sequence[Job], board: Board) -> LocalWork:
        """Queue the jobs for their slots, in this order."""
        return LocalWork(jobs, board, self._slots)


class LocalWork:
    """The jobs of one grid (`cellrepro.grid.grid.Work`), a thread for each that has begun."""

    def __init__(self, jobs: Sequence[Job], board: Board, slots: Slots) -> None:
        self.look_seconds = 60.0
        self.futures: list[Future[GridRun]] = [Future() for _ in jobs]
        self._jobs = jobs
        self._board = board
        self._queues = Queues(slots, {number: slots.need(job) for number, job in enumerate(jobs)})
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        """Numbers of jobs whose slots are to be given back."""
        self._threads: dict[int, threading.Thread] = {}

    def advance(self) -> None:
        """Begin the jobs that there are slots for."""
        while not self._ended.empty():
            self._queues.ended(self._ended.get())
        for number, taken in self._queues.begin():
            job = self._jobs[number]
            if len(self._queues.needs[number].slots) > 1:
                job = replace(job, gpu=",".join(taken))
            thread = threading.Thread(target=self._carry, args=(number, job), daemon=True)
            self._threads[number] = thread
            try:
                thread.start()
            except RuntimeError as error:  # the system has no thread left
                self._end(number, job.grid_run("failed", reason=str(error)))

    def stop(self) -> None:
        """Kill the children of all jobs, and wait until their threads have ended."""
        for number, future in enumerate(self.futures):
            thread = self._threads.get(number)
            if thread is None or thread.ident is None:  # it never began, so nothing else ends it
                future.cancel()
        while not all(future.done() for future in self.futures):
            self._board.children.end()
            time.sleep(_STOP_SECONDS)

    def _carry(self, number: int, job: Job) -> None:
        """Thread: run one job, mostly waiting for its child."""
        try:
            run = run_job(job, self._board.listener(number))
        except BaseException as error:  # SystemExit, too: the grid would wait for ever
            run = job.grid_run("failed", reason=repr(error))
        self._end(number, run)

    def _end(self, number: int, run: GridRun) -> None:
        with suppress(Exception):  # the board may be what has failed
            self._board.ended(number, run)
        self._ended.put(number)
        self.futures[number].set_result(run)


def _gpu_that_began(job: Job, gpus: Sequence[str]) -> str | None:
    """The GPU on which most repeats of a point were made, if any."""
    run = job.grid.store.run(job.key)
    if run is None:
        return None
    n_made = Counter(repeat.manifest.machine.identity for repeat in run.repeats)
    n_by_gpu = {gpu: n_made[machine_identity.identity(gpu)] for gpu in gpus}
    first = max(gpus, key=lambda gpu: n_by_gpu[gpu])
    return first if n_by_gpu[first] else None
