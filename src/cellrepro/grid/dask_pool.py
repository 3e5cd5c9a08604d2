"""The pool of the workers of a Dask cluster, all of which see the store: what its driver does.

Dask gives a job whose worker is lost to another one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from distributed import Client
from distributed import TimeoutError as DaskTimeout  # up to Python 3.10 not the builtin

from cellrepro.grid.arrival import JobQueue, wait_for_workers
from cellrepro.grid.dask_worker import (
    GPU_RESOURCE,
    JOB_RESOURCE,
    WorkerRecord,
    WorkerSetup,
    describe_worker,
    end_jobs,
    machine_resource,
    not_seen,
    run_job_on_worker,
)
from cellrepro.grid.grid_runs import GridRun
from cellrepro.grid.job import Job
from cellrepro.grid.point import profile_reference
from cellrepro.grid.points import Grid, Machines
from cellrepro.grid.status import Board
from cellrepro.store.stored_run import Run
from cellrepro.version import __version__
from samebits.errors import BadInput, NotPossibleHere

_SCHEDULER_LOST = (
    "the Dask scheduler is lost; start it and its workers again and give the same command: what is "
    "stored is not made again"
)
_LOST_SECONDS = 10
"""Seconds without an answer of the scheduler after which it counts as lost."""
_LOOK_SECONDS = 0.1
"""Seconds between two looks at Dask's futures, which have to be polled."""


class DaskPool:
    """The workers of a Dask cluster, for the jobs of a grid."""

    def __init__(self, client: Client, area: Path, n_expected: int, queue: JobQueue) -> None:
        self._client = client
        self._area = area
        """A folder of the store: a worker that sees it sees the store."""
        self._topic = f"cellrepro-{area.name}"
        client.register_plugin(WorkerSetup(self._topic))
        wait_for_workers(self._n_workers, n_expected=n_expected, queue=queue)
        self.dashboard = self._dashboard()
        self._identities: set[str] = set()
        """Identities of the machines that have workers."""

    def _n_workers(self) -> int:
        return len(self._client.scheduler_info(n_workers=-1)["workers"])

    def _dashboard(self) -> str:
        has_one = "dashboard" in self._client.scheduler_info(n_workers=0)["services"]
        return str(self._client.dashboard_link) if has_one else ""

    def jobs(self, grid: Grid, minutes: float | None) -> list[Job]:
        """Make a job for each point; with ``on``, for each point on each machine that it names."""
        workers = self._workers(grid)
        self._identities = {name for worker in workers for name in worker.identities.all()}
        jobs: list[Job] = []
        for point in grid.points:
            job = Job(grid, point, minutes=minutes)
            if grid.on is None:
                jobs.append(job)
            else:
                jobs.extend(_one_for_each_machine(job, grid.on, workers))
        return jobs

    def _workers(self, grid: Grid) -> list[WorkerRecord]:
        """The records of all workers, each of which can carry out the grid."""
        needed = _needed_paths(grid, self._area)
        answers = self._client.run(describe_worker, needed, on_error="return")
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
        for worker in workers:
            for path in worker.not_seen[:1]:
                seen = grid.store.root if path == self._area else path
                raise BadInput(not_seen(worker.name, seen, grid.store.root))
        return workers

    def run(self, jobs: Sequence[Job], board: Board) -> list[GridRun]:
        """Have the workers run the jobs; gives how each ended.

        Where this is left early (Ctrl-C, or the scheduler is lost), the jobs of this grid are
        cancelled, and their processes killed.
        """

        def hear(event: tuple[float, dict[str, Any]]) -> None:
            _, message = event  # of Dask: a time and a content
            board.hear(message["number"], message)

        self._client.subscribe_topic(self._topic, hear)
        runs: dict[int, GridRun] = {}
        at_workers: dict[int, Any] = {}
        try:
            for number, job in enumerate(jobs):
                run = job.grid.store.run(job.key)
                present = None if run is None else _stored_before(run, job)
                if present is None:
                    at_workers[number] = self._submit(number, job, run)
                else:
                    runs[number] = present
                    board.ended(number, present)
            scheduler = _Answering(self._client)
            while at_workers:
                scheduler.refuse_lost()
                for number, answer in tuple(at_workers.items()):
                    if answer.done():
                        runs[number] = _ended_run(jobs[number], answer)
                        del at_workers[number]
                        board.ended(number, runs[number])
                time.sleep(_LOOK_SECONDS)
        except BaseException:
            board.children.end()
            with suppress(OSError, DaskTimeout, ValueError):  # the scheduler may be lost
                self._client.cancel(list(at_workers.values()), force=True)
                self._client.run(end_jobs, self._topic, on_error="ignore")
            raise
        return [runs[number] for number in range(len(jobs))]

    def _submit(self, number: int, job: Job, run: Run | None) -> Any:
        """Submit one job to the scheduler; gives Dask's future."""
        resources = {JOB_RESOURCE: 1.0}
        if job.point.plan.profile.kind == "cuda":
            resources[GPU_RESOURCE] = 1.0
        identity = job.machine_identity
        if run is not None:
            identity = identity or _machine_that_began(run, self._identities)
        if identity:
            resources[machine_resource(identity)] = 1.0
        return self._client.submit(
            run_job_on_worker,
            job.to_send(),
            self._area,
            self._topic,
            number,
            resources=resources,
            pure=False,
            priority=-number,
        )

    def close(self) -> None:
        """Remove the plugin from the workers."""
        if self._client.status != "running":
            return
        with suppress(OSError, DaskTimeout, ValueError):  # the scheduler may be lost
            self._client.unregister_worker_plugin(self._topic)


class _Answering:
    """Whether the scheduler answers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._last = time.monotonic()

    def refuse_lost(self) -> None:
        """Raise if it has not answered for some time."""
        now = time.monotonic()
        if self._client.status == "running":
            self._last = now
        if now - self._last > _LOST_SECONDS:
            raise NotPossibleHere(_SCHEDULER_LOST)


def _ended_run(job: Job, answer: Any) -> GridRun:
    """How a job ended, by Dask's future of it; with the path of the store as it was given here."""
    try:
        run: GridRun = answer.result()
    except CancelledError:
        raise NotPossibleHere(_SCHEDULER_LOST) from None
    except Exception as error:  # of Dask: a worker lost repeatedly, another version of Dask
        return job.grid_run("failed", reason=f"its worker was lost: {error}")
    root = job.grid.store.root
    return replace(run, folder=root / run.folder.relative_to(root.resolve()))


def _needed_paths(grid: Grid, area: Path) -> list[Path]:
    """What a worker must see: the store, and all that the points name by an absolute path."""
    needed = {area: None, grid.notebook: None}
    for point in grid.points:
        profile = profile_reference(point.parameters)
        named = (point.parameters["data"], point.parameters.get("model"), profile.source)
        needed.update(
            dict.fromkeys(path for path in map(Path, map(str, named)) if path.is_absolute())
        )
    return list(needed)


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


def _stored_before(run: Run, job: Job) -> GridRun | None:
    """The record of a job whose repeats one machine has made; None if it is for one machine."""
    machine = None if job.machine_label else run.machine_with_all(job.grid.repeats)
    if machine is None:
        return None
    last = run.machines[machine][job.grid.repeats - 1]
    return job.grid_run("present", machine=machine, reason="; ".join(last.manifest.vacuous))


def _machine_that_began(run: Run, identities: Collection[str]) -> str:
    """The identity of the present machine that made most repeats of a run; empty for none."""
    n_made = Counter(repeat.manifest.machine.identity for repeat in run.repeats)
    for identity, _ in n_made.most_common():
        if identity in identities:
            return identity
    return ""
