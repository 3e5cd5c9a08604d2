"""The pool of the workers of a Dask cluster, as the driver of a grid sees them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from distributed import Client

from cellrepro.errors import BadInput
from cellrepro.grid.arrival import JobQueue, wait_for_workers
from cellrepro.grid.board import Board
from cellrepro.grid.dask_work import DaskWork
from cellrepro.grid.dask_worker import WorkerRecord, WorkerSetup, describe_worker
from cellrepro.grid.job import Job
from cellrepro.grid.points import Grid, Machines
from cellrepro.grid.sending import files_for_workers
from cellrepro.version import __version__


class DaskPool:
    """The pool (`cellrepro.grid.grid.Pool`) of the workers of a Dask cluster."""

    def __init__(self, client: Client, area: Path, n_expected: int, queue: JobQueue) -> None:
        self._client = client
        self._area = area
        self._topic = f"cellrepro-{area.name}"
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

    def begin(self, jobs: Sequence[Job], board: Board) -> DaskWork:
        """Submit the jobs to the scheduler."""
        work = DaskWork(self._client, self._area, self._topic, jobs, board)
        identities = {
            identity for worker in self._workers() for identity in worker.identities.all()
        }
        work.submit(identities)
        return work

    def close(self) -> None:
        """Remove the plugin, and the files of the grid, from the workers."""
        if self._client.status != "running":
            return
        with suppress(OSError, TimeoutError, ValueError):  # the scheduler may be lost
            self._client.unregister_worker_plugin(self._topic)


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
