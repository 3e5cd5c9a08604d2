"""The worker's half of a grid on a Dask cluster: what it says of itself, and a job carried out.

A worker does one job at a time: it has one of the resource `JOB_RESOURCE`, and each job takes it.
It says as resources, too, which machine it is, so that a job that must be carried out there waits
for one of its workers.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distributed import get_worker
from distributed.diagnostics.plugin import WorkerPlugin

from cellrepro.grid.grid_runs import GridRun
from cellrepro.grid.job import Job
from cellrepro.grid.job_run import run_job
from cellrepro.grid.sending import SentFiles, job_on_worker
from cellrepro.grid.status import JobProgress
from cellrepro.process.calling import Children
from cellrepro.store import this_machine
from cellrepro.version import __version__

JOB_RESOURCE = "cellrepro"
GPU_RESOURCE = "GPU"
"""A worker that was started with one by its user keeps it."""
_MACHINE_PREFIX = "machine "

_CHILDREN: dict[str, Children] = {}
"""The processes of each grid, by its topic: its command ends its own and no other's."""


def machine_resource(identity: str) -> str:
    """The resource of all workers on one machine."""
    return f"{_MACHINE_PREFIX}{identity}"


@dataclass(frozen=True)
class MachineIdentities:
    """Which machines a process is, as `cellrepro.store.this_machine.identity` says it."""

    processor: str
    """Of the machine that computes on its processor."""
    gpu: str | None
    """Of the machine that computes on its first GPU; None where it sees none."""

    @classmethod
    def here(cls) -> MachineIdentities:
        """Those of this process."""
        gpus = this_machine.visible_gpus()
        return cls(
            processor=this_machine.identity(""),
            gpu=this_machine.identity(gpus[0]) if gpus else None,
        )

    def all(self) -> tuple[str, ...]:
        """One or two."""
        return (self.processor,) if self.gpu is None else (self.processor, self.gpu)


def _folder_of(worker: Any, topic: str) -> Path:
    """A worker's folder for one grid: another one may have another notebook of the same name."""
    return Path(worker.local_directory) / topic


class WorkerSetup(WorkerPlugin):
    """Prepares every worker for a grid, also one that comes later."""

    idempotent = False

    def __init__(self, topic: str, files: Mapping[str, bytes]) -> None:
        self.name = topic
        self.files = files

    async def setup(self, worker: Any) -> None:
        """Write the files, and say as resources what the worker is."""
        folder = _folder_of(worker, self.name)
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        resources = {machine_resource(identity): 1 for identity in MachineIdentities.here().all()}
        resources[JOB_RESOURCE] = 1
        if this_machine.visible_gpus() and GPU_RESOURCE not in worker.state.total_resources:
            resources[GPU_RESOURCE] = 1
        await worker.set_resources(**resources)  # by Dask's own rule, one argument each

    def teardown(self, worker: Any) -> None:
        """Remove what was sent for the grid, and what was sent back, at its end."""
        shutil.rmtree(_folder_of(worker, self.name), ignore_errors=True)


@dataclass(frozen=True)
class WorkerRecord:
    """What a worker says of itself."""

    name: str
    """That its user gave it, or Dask."""
    version: str
    """Of cellrepro there."""
    identities: MachineIdentities
    """The machines that it is."""
    resources: tuple[str, ...]
    """Those that its user gave it, by name, and those that every worker has here."""
    sees_store: bool
    """Whether the driver's store lies at the same path there."""


def describe_worker(area: Path, dask_worker: Any) -> WorkerRecord:
    """Say what this worker is."""
    resources = dask_worker.state.total_resources
    return WorkerRecord(
        name=str(dask_worker.name),
        version=__version__,
        identities=MachineIdentities.here(),
        resources=tuple(name for name in resources if not name.startswith(_MACHINE_PREFIX)),
        sees_store=area.is_dir(),
    )


@dataclass(frozen=True)
class WorkerAnswer:
    """What a worker returns of a job."""

    run: GridRun
    """Its folder is relative to the store."""
    files: SentFiles | None
    """What was made; none where the worker sees the store, and has put it there."""


def run_job_on_worker(job: Job, area: Path, topic: str, number: int) -> WorkerAnswer:
    """Carry a job out on this worker, in the store or in a folder of its own."""
    sees_store = area.is_dir()
    if not sees_store:
        job = job_on_worker(job, _folder_of(get_worker(), topic))
    run = run_job(job, _EventSender(topic, number))
    root = job.grid.store.root
    return WorkerAnswer(
        run=replace(run, folder=run.folder.relative_to(root)),
        files=None if sees_store else SentFiles.of(job),
    )


class _EventSender:
    """Tells the driver how a job goes on; see `cellrepro.grid.job.Listener`.

    The events hold plain values alone, which Dask's own format can carry.
    """

    def __init__(self, topic: str, number: int) -> None:
        self.children = _children_of(topic)
        self._topic = topic
        self._number = number
        self._worker = get_worker()

    @property
    def stopped(self) -> bool:
        return self.children.ended

    def changed(self, progress: JobProgress) -> None:
        event = {"number": self._number, "progress": progress.model_dump()}
        self._worker.log_event(self._topic, event)

    def say(self, line: str) -> None:
        self._worker.log_event(self._topic, {"line": line})


def end_jobs(topic: str) -> None:
    """End what this worker does for a grid, and for no other one."""
    _children_of(topic).end()


def _children_of(topic: str) -> Children:
    return _CHILDREN.setdefault(topic, Children())
