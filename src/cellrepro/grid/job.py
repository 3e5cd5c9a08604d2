"""A job: one point of a grid and its machine; and the listener that is told of its progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cellrepro.grid.grid_runs import GridRun, JobStatus
from cellrepro.grid.point import Point
from cellrepro.grid.points import Grid
from cellrepro.grid.status import JobProgress
from cellrepro.process.children import Children
from cellrepro.process.machine_here import machine_here


@dataclass(frozen=True)
class Job:
    """One point of a grid, and the machine that is to carry it out."""

    grid: Grid
    point: Point
    gpu: str | None = None
    """UUIDs of the GPUs that its processes see, with commas; by default the first."""
    minutes: float | None = None
    """Time limit of a repeat."""
    machine_label: str = ""
    """Name for people of the machine that must carry it out; empty for any."""
    machine_identity: str = ""
    """Identity of that machine, see `cellrepro.store.machine_identity.identity`."""
    stored_by_driver: frozenset[str] = frozenset()
    """Repeats in the store of the command that sent the job, ``MACHINE/INDEX``."""

    @property
    def key(self) -> str:
        """Key of its spec."""
        return self.point.plan.spec.key

    @property
    def label(self) -> str:
        """The varied parameters and the machine, for people."""
        if self.machine_label:
            return f"{self.point.label} on {self.machine_label}"
        return self.point.label

    @property
    def machine(self) -> str:
        """The name of this machine as the job computes on it."""
        plan = self.point.plan
        return machine_here(plan.profile, self.gpu, plan.request.setup.cellpose).name

    def grid_run(self, status: JobStatus, *, machine: str = "", reason: str = "") -> GridRun:
        """Make the record of how it ended."""
        return GridRun(
            key=self.key,
            machine=machine,
            status=status,
            folder=self.grid.store.root / "runs" / self.key,
            varied=self.point.varied,
            reason=reason,
        )


class Listener(Protocol):
    """Is told of the progress of a job, and can stop it."""

    children: Children
    """The child processes of its grid."""

    @property
    def stopped(self) -> bool:
        """Whether the grid was stopped, so that a killed child is no failure."""

    def changed(self, progress: JobProgress) -> None:
        """Receive the progress of the job."""

    def say(self, line: str) -> None:
        """Print a line for the user."""


class ProgressReporter:
    """Holds the progress of a job, and passes each change on to its listener."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.progress = JobProgress()

    def report(self, progress: JobProgress) -> None:
        """Replace the progress."""
        self.progress = progress
        self.listener.changed(progress)
