"""What carries jobs out, here or on a cluster, as `cellrepro.grid.grid` uses it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from cellrepro.grid.board import Board
from cellrepro.grid.grid_runs import GridRun
from cellrepro.grid.job import Job
from cellrepro.grid.points import Grid


class Pool(Protocol):
    """Where jobs are carried out."""

    dashboard: str
    """The address where Dask shows what its workers do; empty without Dask."""
    look_seconds: float
    """After which `advance` is called although no job has ended."""

    def jobs(self, grid: Grid, minutes: float | None) -> list[Job]:
        """Give the points of a grid, each on the machines that are to carry it out."""

    def begin(self, jobs: Sequence[Job], board: Board) -> list[Future[GridRun]]:
        """Take the jobs on, to be carried out in this order.

        How each job will have ended, in the same order.
        """

    def advance(self) -> None:
        """Begin what there is room for; called when a job has ended, and now and then."""

    def stop(self) -> None:
        """End all work at once."""
