"""The jobs of a grid on a Dask cluster: submitted by the driver, which stores what comes back.

Dask gives a job whose worker is lost to another one. A worker that does not see the store is sent
what it needs, and sends its repeats back.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from distributed import Client

from cellrepro.errors import CellreproError, NotPossibleHere
from cellrepro.grid.board import Board
from cellrepro.grid.dask_worker import (
    GPU_RESOURCE,
    JOB_RESOURCE,
    WorkerAnswer,
    end_jobs,
    machine_resource,
    run_job_on_worker,
)
from cellrepro.grid.grid_runs import GridRun
from cellrepro.grid.job import Job
from cellrepro.grid.sending import job_to_send
from cellrepro.grid.status import JobProgress
from cellrepro.store.stored_run import Run

_SCHEDULER_LOST = (
    "the Dask scheduler is lost; start it and its workers again and give the same command: what is "
    "stored is not made again"
)
_LOST_SECONDS = 10
"""Seconds without an answer of the scheduler after which it counts as lost."""


class DaskWork:
    """The jobs of one grid (`cellrepro.grid.grid.Work`) on the workers of a Dask cluster."""

    def __init__(
        self, client: Client, area: Path, topic: str, jobs: Sequence[Job], board: Board
    ) -> None:
        self.look_seconds = 0.05  # Dask's futures have to be polled
        self.futures: list[Future[GridRun]] = [Future() for _ in jobs]
        self._client = client
        self._area = area
        self._topic = topic
        self._jobs = jobs
        self._board = board
        self._unanswered_since: float | None = None
        self._at_workers: dict[int, Any] = {}
        """Dask's futures of the jobs that have not ended, by number."""

    def submit(self, identities: Collection[str]) -> None:
        """Submit the jobs to the scheduler; a job that one machine has finished ends at once.

        The identities are those of the machines that have workers.
        """
        self._client.subscribe_topic(self._topic, self._hear)
        for number, job in enumerate(self._jobs):
            run = job.grid.store.run(job.key)
            finished_on = None if run is None else _machine_with_all(run, job)
            if finished_on is None:
                self._submit(number, job, run, identities)
            else:
                self._end(number, job.grid_run("present", machine=finished_on))

    def _submit(self, number: int, job: Job, run: Run | None, identities: Collection[str]) -> None:
        """Submit one job."""
        resources = {JOB_RESOURCE: 1.0}
        if job.point.plan.profile.kind == "cuda":
            resources[GPU_RESOURCE] = 1.0
        identity = job.machine_identity
        stored: frozenset[str] = frozenset()
        if run is not None:
            identity = identity or _machine_that_began(run, identities)
            stored = frozenset(f"{repeat.machine}/{repeat.index}" for repeat in run.repeats)
        if identity:
            resources[machine_resource(identity)] = 1.0
        self._at_workers[number] = self._client.submit(
            run_job_on_worker,
            job_to_send(replace(job, stored_by_driver=stored)),
            self._area,
            self._topic,
            number,
            resources=resources,
            pure=False,
            priority=-number,
        )

    def advance(self) -> None:
        """Handle the futures that are done."""
        self._check_scheduler()
        for number, answer in tuple(self._at_workers.items()):
            if answer.done():
                del self._at_workers[number]
                self._end(number, self._ended_run(self._jobs[number], answer))

    def _check_scheduler(self) -> None:
        if self._client.status == "running":
            self._unanswered_since = None
            return
        now = time.monotonic()
        if self._unanswered_since is None:
            self._unanswered_since = now
        if now - self._unanswered_since > _LOST_SECONDS:
            raise NotPossibleHere(_SCHEDULER_LOST)

    def _ended_run(self, job: Job, answer: Any) -> GridRun:
        """Store what a worker sent back; gives how the job ended."""
        try:
            returned: WorkerAnswer = answer.result()
        except CancelledError:
            raise NotPossibleHere(_SCHEDULER_LOST) from None
        except Exception as error:  # of Dask: a worker lost repeatedly, another version of Dask
            return job.grid_run("failed", reason=f"its worker was lost: {error}")
        try:
            if returned.files is not None:
                returned.files.store(job, self._area)
        except (CellreproError, OSError) as error:  # other bytes than are stored, or a full disk
            return job.grid_run("failed", reason=f"it cannot be stored: {error}")
        return replace(returned.run, folder=job.grid.store.root / returned.run.folder)

    def _end(self, number: int, run: GridRun) -> None:
        self._board.ended(number, run)
        self.futures[number].set_result(run)

    def _hear(self, event: tuple[float, dict[str, Any]]) -> None:
        """Pass an event of a worker, which has a time and a content, on to the board."""
        _, content = event
        if "line" in content:
            self._board.say(content["line"])
        elif not self.futures[content["number"]].done():
            self._board.changed(content["number"], JobProgress(**content["progress"]))

    def stop(self) -> None:
        """Cancel the jobs of this grid, and kill their processes."""
        with suppress(OSError, TimeoutError, ValueError):  # the scheduler may be lost
            self._client.cancel(list(self._at_workers.values()), force=True)
            self._client.run(end_jobs, self._topic, on_error="ignore")


def _machine_with_all(run: Run, job: Job) -> str | None:
    """The machine that has made all repeats of a job; None if the job is for one machine."""
    if job.machine_label:
        return None
    return run.machine_with_all(job.grid.repeats)


def _machine_that_began(run: Run, identities: Collection[str]) -> str:
    """The identity of the present machine that made most repeats of a run; empty for none."""
    n_made = Counter(repeat.manifest.machine.identity for repeat in run.repeats)
    for identity, _ in n_made.most_common():
        if identity in identities:
            return identity
    return ""
