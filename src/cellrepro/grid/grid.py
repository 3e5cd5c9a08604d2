"""Carries out a grid, in a pool: on this machine, or on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.errors import CellreproError
from cellrepro.grid.grid_runs import GridRun, GridRuns
from cellrepro.grid.job import Job
from cellrepro.grid.local_pool import LocalPool
from cellrepro.grid.points import Grid
from cellrepro.grid.status import board_of
from cellrepro.progress import progress
from samebits.errors import BadInput, NotPossibleHere, whole

if TYPE_CHECKING:
    from cellrepro.grid.dask_pool import DaskPool


def planned(grid: Grid) -> GridRuns:
    """Say what `run_grid` would do on this machine, without doing it.

    With the status ``planned``, ``present``, or ``not-here`` where this machine lacks the device.
    """
    on_this_machine = grid if grid.on == "all" else replace(grid, on=None)
    jobs = LocalPool().jobs(on_this_machine, minutes=None)
    return GridRuns(tuple(_planned_run(job) for job in jobs))


def _planned_run(job: Job) -> GridRun:
    try:
        machine = job.machine()
    except CellreproError as error:
        return job.grid_run("not-here", reason=str(error))
    store = job.grid.store
    is_stored = all(store.repeat(job.key, machine, index) for index in range(job.grid.repeats))
    return job.grid_run(
        "present" if is_stored else "planned",
        machine=machine,
        reason="; ".join(job.point.plan.notices),
    )


def run_grid(
    grid: Grid,
    *,
    workers: int | None = None,
    minutes: float | None = None,
    scheduler: str | None = None,
    slurm: str | Path | None = None,
    quiet: bool = False,
) -> GridRuns:
    """Carry out what the store lacks of a grid; a failure is kept, others go on.

    Parameters
    ----------
    grid : Grid
        As `read_grid` returns it.
    workers : int, optional
        Points carried out at the same time on this machine; by default one on each GPU, and on
        the processor as many as it has cores for, by the threads of the profile.
    minutes : float, optional
        That a repeat may take.
    scheduler : str, optional
        Address of a Dask scheduler, ``tcp://HOST:PORT``, whose workers do the work. All see the
        store, the images, the notebook and the network, at the same paths.
    slurm : str or Path, optional
        YAML file with the options of ``dask_jobqueue.SLURMCluster``, and ``jobs``, how many.
    quiet : bool
        Show no progress.

    Returns
    -------
    GridRuns
        A sequence of `GridRun` in the order of the grid's points; with ``on``, one for each
        machine. A repeat that failed is told here and raises nothing. Its ``str`` counts how they
        ended; in a notebook it shows a table.

    Raises
    ------
    BadInput
        If the time is not more than 0, more than one of ``workers``, ``scheduler`` and ``slurm``
        is given, the Slurm file says something else, no scheduler answers, its workers have
        a different version of cellrepro or do not see the store, or the grid's ``on`` names
        workers that are not there.
    NotPossibleHere
        Without Dask or Slurm where they are asked for; if no worker comes, or the scheduler is
        lost.
    """
    refuse_wrong_limits(workers=workers, minutes=minutes)
    with _pool(grid, workers=workers, scheduler=scheduler, slurm=slurm) as pool:
        jobs = pool.jobs(grid, minutes)
        notices = dict.fromkeys(notice for point in grid.points for notice in point.plan.notices)
        n_repeats = len(jobs) * grid.repeats
        with (
            progress(n_repeats, "grid", quiet=quiet) as bar,
            board_of(jobs, bar, dashboard=pool.dashboard) as board,
        ):
            for notice in notices:
                board.say(f"note: {notice}")
            return GridRuns(tuple(pool.run(jobs, board)))


def refuse_wrong_limits(*, workers: int | None, minutes: float | None) -> None:
    """Refuse a number of workers or a time limit with which nothing could be run."""
    if workers is not None:
        whole("workers", workers, least=1)
    if minutes is not None and not minutes > 0:
        raise BadInput(f"minutes (--time-limit) is {minutes:g}; expected a number above 0")


@contextmanager
def _pool(
    grid: Grid, *, workers: int | None, scheduler: str | None, slurm: str | Path | None
) -> Iterator[LocalPool | DaskPool]:
    """Open the pool that the arguments of `run_grid` ask for."""
    if scheduler is None and slurm is None:
        yield LocalPool(workers)
        return
    if workers is not None or (scheduler is not None and slurm is not None):
        raise BadInput(
            "workers counts the points at work on this machine, scheduler and slurm name other "
            "machines; expected at most one of the three"
        )
    try:
        from cellrepro.grid.clusters import pool_of_scheduler, pool_of_slurm
    except ImportError as error:
        raise NotPossibleHere(
            'grids on several machines need Dask: pip install "cellrepro[cluster]", here and on '
            "every worker"
        ) from error

    if slurm is not None:
        with pool_of_slurm(grid, Path(slurm)) as pool:
            yield pool
    elif scheduler is not None:
        with pool_of_scheduler(grid, scheduler) as pool:
            yield pool
