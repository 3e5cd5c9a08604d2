"""A grid carried out, with a table in the terminal of how it stands."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from cellrepro.grid.cost_estimate import with_estimates
from cellrepro.grid.grid import planned, refuse_wrong_limits, run_grid
from cellrepro.grid.grid_runs import GridRuns
from cellrepro.grid.points import read_grid
from cellrepro.show.watched_grids import live_table
from cellrepro.spec import defaults
from cellrepro.stated import refuse_idle
from cellrepro.terminal import FileName
from cellrepro.terminal_values import Overrides


def grid(
    file: FileName,
    /,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    slurm: FileName | None = None,
    time_limit: float | None = None,
    dry_run: bool = False,
    overrides: Annotated[Overrides | None, Parameter(name="--set")] = None,
    repeats: int | None = None,
    store: FileName = defaults.STORE,
) -> GridRuns:
    """Run every combination of a grid file as a notebook; what is finished is not run again.

    Parameters
    ----------
    file : str or Path
        A grid file, YAML.
    workers : int, optional
        Runs at once on this machine; by default one for each GPU, or as the cores allow.
    scheduler : str, optional
        Address of a Dask scheduler: ``tcp://HOST:PORT``.
    slurm : str or Path, optional
        YAML file with the options of Slurm jobs.
    time_limit : float, optional
        Minutes that a repeat may take.
    dry_run : bool
        Say what would run, and how long it would take.
    overrides : mapping, optional
        ``NAME=VALUE`` in place of what the file has, or ``NAME=[A, B]`` in place of an axis.
    repeats : int, optional
        Of every combination; by default as in the file.
    store : str or Path
        Folder of finished runs.

    Returns
    -------
    GridRuns
        Its ``str`` counts how the points ended; a repeat that failed raises nothing.

    Raises
    ------
    BadInput
        If the file cannot be read or names what a run does not take, or limits exclude each other.
    NotPossibleHere
        If this machine lacks what a profile asks for.

    Examples
    --------
    What would run, and how long would it take?

    ``cellrepro grid grids/demo.yaml --dry-run``

    Run it with the random seeds 2 and 3, two processes at once

    ``cellrepro grid grids/demo.yaml --set "seed=[2, 3]" --workers 2``
    """
    refuse_wrong_limits(workers=workers, minutes=time_limit)
    if dry_run:
        refuse_idle(("scheduler", "slurm"), "with --dry-run, which asks no other machine")
    checked = read_grid(file, store=store, overrides=overrides or {}, repeats=repeats)
    if dry_run:
        return with_estimates(checked, planned(checked))
    with live_table(store) as is_shown:
        return run_grid(
            checked,
            minutes=time_limit,
            quiet=is_shown,
            workers=workers,
            scheduler=scheduler,
            slurm=slurm,
        )
