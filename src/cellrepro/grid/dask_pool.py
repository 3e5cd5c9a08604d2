"""The driver's half of a grid on a Dask cluster: submits jobs, and stores what comes back.

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

from cellrepro.errors import BadInput, CellreproError, NotPossibleHere
from cellrepro.grid.arrival import JobQueue, wait_for_workers
from cellrepro.grid.board import Board
from cellrepro.grid.dask_worker import (
    GPU_RESOURCE,
    JOB_RESOURCE,
    WorkerAnswer,
    WorkerRecord,
    WorkerSetup,
    describe_worker,
    end_jobs,
    machine_resource,
    run_job_on_worker,
)
from cellrepro.grid.grid_runs import GridRun
from cellrepro.grid.job import Job
from cellrepro.grid.points import Grid, Machines
from cellrepro.grid.sending import files_for_workers, job_to_send
from cellrepro.grid.status import JobProgress
from cellrepro.store.store import Run
from cellrepro.version import __version__

_SCHEDULER_LOST = (
    "the Dask scheduler is lost; start it and its workers again and give the same command: what is "
    "stored is not made again"
)
_LOST_SECONDS = 10
"""Seconds without an answer of the scheduler after which it counts as lost."""


class DaskPool:
    """The pool (`cellrepro.grid.grid.Pool`) of the workers of a Dask cluster."""

    def __init__(self, client: Client, area: Path, n_expected: int, queue: JobQueue) -> None:
        self.look_seconds = 0.05  # Dask's futures have to be polled
        self._client = client
        self._area = area
        self._topic = f"cellrepro-{area.name}"
        self._unanswered_since: float | None = None
        self._at_workers: dict[int, Any] = {}
        """Dask's futures of the jobs that have not ended, by number."""
        self._jobs: Sequence[Job] = ()
        self._futures: list[Future[GridRun]] = []
        client.register_plugin(WorkerSetup(self._topic, files={}))
        wait_for_workers(self._n_workers, n_expected=n_expected, queue=queue)
        self.dashboard = self._dashboard()

    def _n_workers(self) -> int:
        return len(self._client.scheduler_info(n_workers=-1)["workers"])

    def _dashboard(self) -> str:
        has_one = "dashboard" in self._client.scheduler_info(n_workers=0)["services"]
        return str(self._client.dashboard_link) if has_one else ""

    def jobs(self, grid: Grid, minutes: float | None) -> list[Job]:
        """Make a job for each point; with ``on``, for each point on each machine that it names."""
        workers = self._workers()
        if not all(worker.sees_store for worker in workers):
            self._client.register_plugin(WorkerSetup(self._topic, files_for_workers(grid)))
        jobs: list[Job] = []
        for point in grid.points:
            job = Job(grid, point, minutes=minutes)
            if grid.on is None:
                jobs.append(job)
            else:
                jobs.extend(_one_for_each_machine(job, grid.on, workers))
        return jobs

    def _workers(self) -> list[WorkerRecord]:
        """The records of all workers."""
        answers = self._client.run(describe_worker, self._area, on_error="return")
        for address, answer in answers.items():
            if isinstance(answer, BaseException):
                raise BadInput(
                    f"the worker at {address} cannot say what it is ({answer!r}); expected "
                    f"cellrepro {__version__} there, as here: install it, or end that worker"
                )
        workers: list[WorkerRecord] = list(answers.values())
        if not workers or any(worker.version != __version__ for worker in workers):
            versions = ", ".join(sorted({worker.version for worker in workers})) or "none"
            raise BadInput(
                f"the workers have cellrepro {versions}, expected {__version__} as here: "
                "install the same there"
            )
        return workers

    def begin(self, jobs: Sequence[Job], board: Board) -> list[Future[GridRun]]:
        """Submit the jobs to the scheduler; a job that one machine has finished ends at once."""
        self._jobs = jobs
        self._board = board
        self._futures = [Future() for _ in jobs]
        self._client.subscribe_topic(self._topic, self._hear)
        identities = {
            identity for worker in self._workers() for identity in worker.identities.all()
        }
        for number, job in enumerate(jobs):
            run = job.grid.store.run(job.key)
            finished_on = None if run is None else _machine_with_all(run, job)
            if finished_on is None:
                self._submit(number, job, run, identities)
            else:
                self._end(number, job.grid_run("present", machine=finished_on))
        return self._futures

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
        self._futures[number].set_result(run)

    def _hear(self, event: tuple[float, dict[str, Any]]) -> None:
        """Pass an event of a worker, which has a time and a content, on to the board."""
        _, content = event
        if "line" in content:
            self._board.say(content["line"])
        elif not self._futures[content["number"]].done():
            self._board.changed(content["number"], JobProgress(**content["progress"]))

    def stop(self) -> None:
        """Cancel the jobs of this grid, and kill their processes."""
        with suppress(OSError, TimeoutError, ValueError):  # the scheduler may be lost
            self._client.cancel(list(self._at_workers.values()), force=True)
            self._client.run(end_jobs, self._topic, on_error="ignore")

    def close(self) -> None:
        """Remove the plugin, and the files of the grid, from the workers."""
        if self._client.status != "running":
            return
        with suppress(OSError, TimeoutError, ValueError):  # the scheduler may be lost
            self._client.unregister_worker_plugin(self._topic)


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


def _one_for_each_machine(job: Job, on: Machines, workers: Sequence[WorkerRecord]) -> list[Job]:
    """Make a job for each machine that ``on`` names, each machine once."""
    needs_gpu = job.point.plan.profile.kind == "cuda"
    names: dict[str, str] = {}
    for worker in workers:
        if on != "all" and not {worker.name, *worker.resources} & set(on or ()):
            continue
        identity = worker.identities.gpu if needs_gpu else worker.identities.processor
        if identity is not None:
            names.setdefault(identity, worker.name)
    if not names:
        known = sorted({name for worker in workers for name in (worker.name, *worker.resources)})
        with_gpu = " has a GPU" if needs_gpu else ""
        requested = on if on == "all" else list(on or ())
        raise BadInput(
            f"on is {requested!r}, and no worker of that name{with_gpu}; "
            f"expected all, or some of {', '.join(known)}"
        )
    return [
        replace(job, machine_label=name, machine_identity=identity)
        for identity, name in names.items()
    ]
