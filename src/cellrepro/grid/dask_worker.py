"""The worker's half of a grid on a Dask cluster: describes the worker, and carries out its jobs.

A worker does one job at a time: it has one of the resource `JOB_RESOURCE`, and each job takes it.
Its machine is a resource, too, so that a job for that machine waits for one of its workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import get_worker
from distributed.diagnostics.plugin import WorkerPlugin

from cellrepro.grid.grid_runs import GridRun
from cellrepro.grid.job import Job
from cellrepro.grid.job_run import run_job
from cellrepro.grid.status import JobReporter
from cellrepro.process.calling import Children
from cellrepro.spec.lab_command import lab_command
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


def not_seen(worker: str, path: Path, store: Path) -> str:
    """Say that a worker does not see what it needs, and what to do."""
    bring_here = lab_command("import", "runs.cellrepro.zip", store=store)
    return (
        f"the worker {worker} does not see {path}; expected store, images, notebook and network "
        "on a file system that all machines share, at the same paths. Where a machine shares none, "
        "give the grid file there by itself, and bring its runs here: `cellrepro export FILE.yaml "
        "runs.cellrepro.zip --weights --images` there, then "
        f"`{bring_here}` here"
    )


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


class WorkerSetup(WorkerPlugin):
    """Plugin of Dask that sets the resources of every worker, also of one that connects later."""

    idempotent = False

    def __init__(self, topic: str) -> None:
        self.name = topic

    async def setup(self, worker: Any) -> None:
        """Set the resources of the worker."""
        resources = {machine_resource(identity): 1 for identity in MachineIdentities.here().all()}
        resources[JOB_RESOURCE] = 1
        if hardware.visible_gpus() and GPU_RESOURCE not in worker.state.total_resources:
            resources[GPU_RESOURCE] = 1
        await worker.set_resources(**resources)  # by Dask's own rule, one argument each


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
    not_seen: tuple[Path, ...]
    """Those of the needed paths that are not there."""


def describe_worker(needed: Sequence[Path], dask_worker: Any) -> WorkerRecord:
    """Describe this worker."""
    resources = dask_worker.state.total_resources
    return WorkerRecord(
        name=str(dask_worker.name),
        version=__version__,
        identities=MachineIdentities.here(),
        resources=tuple(name for name in resources if not name.startswith(_MACHINE_PREFIX)),
        not_seen=tuple(path for path in needed if not path.exists()),
    )


def run_job_on_worker(job: Job, area: Path, topic: str, number: int) -> GridRun:
    """Carry a job out on this worker; ``area`` is a folder of the store that must be seen here."""
    worker = get_worker()
    if not area.is_dir():  # it has connected since all were asked
        reason = not_seen(str(worker.name), job.grid.store.root, job.grid.store.root)
        return job.grid_run("failed", reason=reason)

    def send(message: Mapping[str, Any]) -> None:
        worker.log_event(topic, {"number": number, **message})

    return run_job(job, JobReporter(send, _children_of(topic)))


def end_jobs(topic: str) -> None:
    """Kill the processes of one grid on this worker."""
    _children_of(topic).end()


def _children_of(topic: str) -> Children:
    return _CHILDREN.setdefault(topic, Children())
