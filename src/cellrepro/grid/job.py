"""A job: one point of a grid and where it is to be carried out; and who hears how it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cellrepro.grid.grid_runs import GridRun, JobStatus
from cellrepro.grid.points import Grid, Point
from cellrepro.grid.status import JobProgress
from cellrepro.process.calling import Children
from cellrepro.process.machine_here import machine_here


@dataclass(frozen=True)
class Job:
    """A point of a grid, and where it is to be carried out."""

    grid: Grid
    point: Point
    """Of that grid."""
    gpu: str | None = None
    """The UUID of the one that its processes see, several with commas; by default the first."""
    minutes: float | None = None
    """That a repeat may take."""
    machine_label: str = ""
    """The machine that must do it, for people; empty for any."""
    machine_identity: str = ""
    """Of that machine, as `cellrepro.store.this_machine.identity` tells it."""
    stored_by_driver: frozenset[str] = frozenset()
    """Repeats in the store of the command that sent the job, ``MACHINE/INDEX``."""

    @property
    def key(self) -> str:
        """Of its spec."""
        return self.point.plan.spec.key

    @property
    def label(self) -> str:
        """The varied parameters and the machine, for people."""
        if self.machine_label:
            return f"{self.point.label} on {self.machine_label}"
        return self.point.label

    @property
    def machine(self) -> str:
        """The name of this machine as this job computes on it; found out once."""
        plan = self.point.plan
        return machine_here(plan.profile, self.gpu, plan.request.setup.cellpose).name

    def grid_run(self, status: JobStatus, *, machine: str = "", reason: str = "") -> GridRun:
        """Say how it ended."""
        return GridRun(
            key=self.key,
            machine=machine,
            status=status,
            folder=self.grid.store.root / "runs" / self.key,
            varied=self.point.varied,
            reason=reason,
        )


class Listener(Protocol):
    """Who hears how a job goes on, and can end it."""

    children: Children
    """The processes of the job, and of others of its grid."""

    @property
    def stopped(self) -> bool:
        """Whether all work is to end: a child that was killed is then nobody's fault."""

    def changed(self, progress: JobProgress) -> None:
        """Hear that the job has come so far."""

    def say(self, line: str) -> None:
        """Print one line that stays."""


class ProgressReporter:
    """Remembers how far a job is, and tells its listener whenever that changes."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.progress = JobProgress()

    def report(self, progress: JobProgress) -> None:
        """Tell how far the job is now."""
        self.progress = progress
        self.listener.changed(progress)
