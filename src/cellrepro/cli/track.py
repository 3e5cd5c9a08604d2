"""The verb that hands finished runs to a tracker of experiments."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

import cellrepro
from cellrepro.asked import defaults
from cellrepro.cli.command import Reply, verb
from cellrepro.cli.shared_options import StoreOption, pairs_in


@verb()
def track(
    runs: Annotated[
        list[str] | None,
        Argument(help="KEY, KEY/MACHINE, KEY/REPEAT, KEY/MACHINE/REPEAT, or a grid file"),
    ] = None,
    where: Annotated[list[str] | None, Option(help="NAME=VALUE: only runs that have it")] = None,
    tracking_uri: Annotated[
        str | None, Option(help="address of the tracker; default MLFLOW_TRACKING_URI")
    ] = None,
    experiment: Annotated[
        str | None, Option(help="its name; default MLFLOW_EXPERIMENT_NAME, else cellrepro")
    ] = None,
    weights: Annotated[bool, Option("--weights", help="upload the trained weights, too")] = False,
    notebook: Annotated[
        bool, Option("--notebook", help="upload the executed notebook, too")
    ] = False,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Log finished runs in MLflow: what was asked for, losses, scores, files, the verdict."""
    tracking = cellrepro.track(
        runs or [],
        where=pairs_in(where, "--where"),
        store=store,
        tracking_uri=tracking_uri,
        experiment=experiment,
        weights=weights,
        notebook=notebook,
    )
    return Reply(tracking)
