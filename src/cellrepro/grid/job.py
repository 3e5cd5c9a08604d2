"""A job: one point of a grid, and the machine that is to carry it out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cellrepro.grid.grid_runs import GridRun, JobStatus
from cellrepro.grid.point import Point
from cellrepro.grid.points import Grid
from cellrepro.process.calling import Children
from cellrepro.process.machine_here import machine_here
from cellrepro.store.store import Store


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

    def machine(self, children: Children | None = None) -> str:
        """Find out the name of this machine as the job computes on it."""
        plan = self.point.plan
        cellpose = plan.request.setup.cellpose
        return machine_here(plan.profile, self.gpu, cellpose, children=children).name

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

    def to_send(self) -> Job:
        """Copy it for a worker, without the other points of its grid, so that it stays small.

        The path of the store becomes absolute, as a worker has another current folder.
        """
        store = Store(self.grid.store.root.resolve())
        return replace(self, grid=replace(self.grid, points=(), store=store))
