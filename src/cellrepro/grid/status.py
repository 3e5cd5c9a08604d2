"""The status of the grids of a store, read from ``STORE/.grids/NAME.json``.

`cellrepro.grid.board_file` writes these files, and explains their locks.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ValidationError

from cellrepro.grid.grid_runs import JobStatus
from cellrepro.store import locks
from cellrepro.store.store import Store

FOLDER = ".grids"
"""Folder of a store."""


class JobProgress(BaseModel):
    """The progress of a job."""

    machine: str = ""
    """Name of the machine that carries it out; empty until it is known."""
    repeat: int = 0
    """Repeats that are stored; so the index of the present one."""
    n_found: int = 0
    """How many of these were stored before."""
    started: float = 0.0
    """Seconds, as `time.time` counts them."""
    done: int = 0
    """Parts of the present repeat, epochs and images, that are finished."""
    total: int = 0
    """All parts of the present repeat."""
    text: str = ""
    """Words on the last part: epoch, loss, learning rate."""
    notebook: str = ""
    """The notebook that is being executed, as papermill writes it; empty between two repeats."""


class JobRow(JobProgress):
    """One job of a grid and its status."""

    key: str
    """Key of its spec."""
    label: str
    """The varied parameters and the machine, for people."""
    n_repeats: int
    """How many repeats it is to have."""
    status: JobStatus = "waiting"
    folder: str = ""
    """Folder of what was finished, or kept of a failure."""
    reason: str = ""
    """Why it failed, or why it is vacuous."""

    @property
    def n_made(self) -> float:
        """Repeats made since the grid was started, with the finished part of the present one."""
        of_this_repeat = self.done / self.total if self.total else 0.0
        return self.repeat - self.n_found + of_this_repeat

    @property
    def n_left(self) -> float:
        """Repeats that are missing, with the missing part of the present one."""
        return self.n_repeats - self.n_found - self.n_made


class GridStatus(BaseModel):
    """A grid and its status."""

    name: str
    """Name of its file."""
    started: float
    """Seconds, as `time.time` counts them."""
    updated: float
    """When this was written; seconds, as `time.time` counts them."""
    dashboard: str = ""
    """Address of Dask's dashboard; empty without one."""
    ended: bool = False
    """Whether its command has ended."""
    lost: bool = False
    """Whether its command was killed."""
    rows: list[JobRow]
    """The jobs in their order."""

    def n(self, *statuses: str) -> int:
        """Number of rows with one of these statuses."""
        return sum(row.status in statuses for row in self.rows)

    @property
    def seconds_left(self) -> float | None:
        """Seconds that are left, at the speed since the start; None at first."""
        n_made = sum(row.n_made for row in self.rows if row.status in ("running", "done"))
        if not n_made:
            return None
        n_left = sum(row.n_left for row in self.rows if row.status in ("running", "waiting"))
        return (self.updated - self.started) / n_made * n_left


def standing(store: Store) -> list[GridStatus]:
    """List the grids of a store that are being carried out, or did not end well."""
    return list(standing_by_file(store).values())


def standing_by_file(store: Store) -> dict[Path, GridStatus]:
    """List them by file: a grid that is carried out again has the same file.

    A grid that has not ended, and whose file is not locked, is lost: its command was killed.
    Nothing is written, so a read-only store can be watched.
    """
    statuses = {}
    for path in sorted((store.root / FOLDER).glob("*.json")):
        try:
            status = GridStatus.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):  # it has just ended
            continue
        status.lost = not status.ended and not locks.is_locked(path)
        statuses[path] = status
    return statuses
