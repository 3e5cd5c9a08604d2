"""Verbs about many runs: grids, what a store holds, the report, and everything once."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Argument, Option

import cellrepro
from cellrepro.asked import defaults
from cellrepro.cli.command import Reply, refuse_idle, verb
from cellrepro.cli.shared_options import (
    DataArgument,
    ModelOption,
    OverwriteOption,
    StoreOption,
    overrides,
    pairs_in,
)


@verb()
def grid(
    context: typer.Context,
    file: Annotated[str, Argument(help="a grid file, YAML")],
    workers: Annotated[
        int | None, Option(help="runs at once; default one per GPU, or as the cores allow")
    ] = None,
    scheduler: Annotated[str | None, Option(help="of Dask: tcp://HOST:PORT")] = None,
    slurm: Annotated[str | None, Option(help="YAML with options of Slurm jobs")] = None,
    time_limit: Annotated[float | None, Option(help="minutes that a repeat may take")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="say what would run")] = False,
    override: Annotated[list[str] | None, Option("--set", help="NAME=VALUE, NAME=[A, B]")] = None,
    repeats: Annotated[
        int | None, Option(help="of every combination; default as in the file")
    ] = None,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Run every combination of a grid file as a notebook; what is finished is not run again."""
    from cellrepro.grid.cost_estimate import with_estimates
    from cellrepro.grid.grid import planned, refuse_wrong_limits
    from cellrepro.show.live import live_table

    refuse_wrong_limits(workers=workers, minutes=time_limit)
    if dry_run:
        refuse_idle(context, ("scheduler", "slurm"), "with --dry-run, which asks no other machine")
    checked = cellrepro.read_grid(file, store=store, overrides=overrides(override), repeats=repeats)
    if dry_run:
        return Reply(with_estimates(checked, planned(checked)))
    with live_table(store) as is_shown:
        runs = cellrepro.run_grid(
            checked,
            minutes=time_limit,
            quiet=is_shown,
            workers=workers,
            scheduler=scheduler,
            slurm=slurm,
        )
    return Reply(runs)


@verb()
def watch(store: StoreOption = defaults.STORE) -> Reply:
    """Show how far the grids of a store are; in a terminal until they end."""
    from cellrepro.show.live import follow

    return Reply(follow(store))


@verb()
def report(
    context: typer.Context,
    output: Annotated[
        str | None, Option(help="a .html file or a folder; default STORE/report/index.html")
    ] = None,
    overwrite: OverwriteOption = False,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Write one page about all runs in the store, across devices and machines."""
    if output is None:
        refuse_idle(context, ("overwrite",), "without --output")
    return Reply(cellrepro.write_report(store, html=output, overwrite=overwrite))


@verb("list")
def list_runs(
    where: Annotated[list[str] | None, Option(help="NAME=VALUE: only runs that have it")] = None,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """List what the store holds: all of it, or what has certain values."""
    from cellrepro.same.stored_runs import stored_runs

    return Reply(stored_runs(cellrepro.Store(store), pairs_in(where, "--where")))


@verb()
def demo(
    data: DataArgument = "data/synthetic",
    model: ModelOption = defaults.MODEL,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Do everything once: a network, the demo grid over it, the report, the notebooks."""
    from cellrepro.demo import run_demo

    return Reply(run_demo(data, store=store, model=model))
