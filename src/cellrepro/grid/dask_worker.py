"""The worker's half of a grid on a Dask cluster: describes the worker, and carries out its jobs.

A worker does one job at a time: it has one of the resource `JOB_RESOURCE`, and each job takes it.
Its machine is a resource, too, so that a job for that machine waits for one of its workers.
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
from cellrepro.process.children import Children
from cellrepro.store import hardware, machine_identity
from cellrepro.version import __version__

JOB_RESOURCE = "cellrepro"
GPU_RESOURCE = "GPU"
"""A worker that its user started with this resource keeps its number."""
_MACHINE_PREFIX = "machine "

_CHILDREN: dict[str, Children] = {}
"""The child processes of each grid, by topic, as a command ends only those of its own grid."""


def machine_resource(identity: str) -> str:
    """Name of the resource of all workers on one machine."""
    return f"{_MACHINE_PREFIX}{identity}"


@dataclass(frozen=True)
class MachineIdentities:
    """The identities of a process, as `cellrepro.store.machine_identity.identity` gives them."""

    processor: str
    """Identity of the machine that computes on its processor."""
    gpu: str | None
    """Identity of the machine that computes on its first GPU; None where it sees none."""

    @classmethod
    def here(cls) -> MachineIdentities:
        """The identities of this process."""
        gpus = hardware.visible_gpus()
        return cls(
            processor=machine_identity.identity(""),
            gpu=machine_identity.identity(gpus[0]) if gpus else None,
        )

    def all(self) -> tuple[str, ...]:
        """One or two identities."""
        return (self.processor,) if self.gpu is None else (self.processor, self.gpu)


def _folder_of(worker: Any, topic: str) -> Path:
    """A worker's folder for one grid, as two grids may have different files of one name."""
    return Path(worker.local_directory) / topic


class WorkerSetup(WorkerPlugin):
    """Plugin of Dask that prepares every worker for a grid, also one that connects later."""

    idempotent = False

    def __init__(self, topic: str, files: Mapping[str, bytes]) -> None:
        self.name = topic
        self.files = files

    async def setup(self, worker: Any) -> None:
        """Write the files, and set the resources of the worker."""
        folder = _folder_of(worker, self.name)
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        resources = {machine_resource(identity): 1 for identity in MachineIdentities.here().all()}
        resources[JOB_RESOURCE] = 1
        if hardware.visible_gpus() and GPU_RESOURCE not in worker.state.total_resources:
            resources[GPU_RESOURCE] = 1
        await worker.set_resources(**resources)  # by Dask's own rule, one argument each

    def teardown(self, worker: Any) -> None:
        """Remove the folder of the grid."""
        shutil.rmtree(_folder_of(worker, self.name), ignore_errors=True)


@dataclass(frozen=True)
class WorkerRecord:
    """A worker, as it describes itself."""

    name: str
    """Name that its user gave it, or Dask."""
    version: str
    """Version of cellrepro there."""
    identities: MachineIdentities
    resources: tuple[str, ...]
    """Names of its resources, without those of its machines."""
    sees_store: bool
    """Whether the driver's store lies at the same path there."""


def describe_worker(area: Path, dask_worker: Any) -> WorkerRecord:
    """Describe this worker."""
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
    """The result of a job on a worker."""

    run: GridRun
    """How the job ended; the folder is relative to the store."""
    files: SentFiles | None
    """The files that were made; None where the worker sees the store."""


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
    """The listener of a job on a worker, which sends everything to the driver.

    Events hold plain values alone, which Dask's own format can carry.
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
    """Kill the processes of one grid on this worker."""
    _children_of(topic).end()


def _children_of(topic: str) -> Children:
    return _CHILDREN.setdefault(topic, Children())
