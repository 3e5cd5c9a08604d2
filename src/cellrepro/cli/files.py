"""Verbs that bring something: images, notebooks and grids, the lab itself."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

import cellrepro
from cellrepro.cli.command import Reply, given_options, verb
from cellrepro.cli.lab import ABOUT_THIS_CELLPOSE
from cellrepro.cli.shared_options import FolderArgument
from cellrepro.errors import BadInput
from cellrepro.extras import absent
from cellrepro.show.answers.answer import Answer
from cellrepro.words import joined

if TYPE_CHECKING:
    from cellrepro.process.lab import Lab


@verb()
def data(
    context: typer.Context,
    name: Annotated[str, Argument(help="synthetic, or a public set; none lists them")] = "",
    folder: Annotated[str, Option("--into", help="where data sets are kept")] = "data",
    mirror: Annotated[str | None, Option(help="URL of a folder with the archives")] = None,
    images: Annotated[int | None, Option(help="synthetic: how many, for a benchmark")] = None,
    size: Annotated[int | None, Option(help="synthetic: pixels along an edge")] = None,
    cells: Annotated[int | None, Option(help="synthetic: how many in each image")] = None,
) -> Reply:
    """Make the synthetic images, or fetch a named public set, under data/."""
    from cellrepro.images import public_sets

    if given_options(context) & {"images", "size", "cells"}:
        if name != public_sets.SYNTHETIC or mirror is not None:
            asked_for = f"the set {name}" if name else "no set"
            raise BadInput(
                f"--images, --size and --cells are of synthetic images, and {asked_for} is named: "
                "expected `cellrepro data synthetic`, without --mirror"
            )
        path = public_sets.write_benchmark(Path(folder), images=images, size=size, cells=cells)
        return Reply(Answer({"folder": path}, [str(path)]))
    if not name:
        sets = public_sets.describe_all()
        return Reply(Answer({"sets": sets}, [f"{key}: {text}" for key, text in sets.items()]))
    path = cellrepro.provide_data(name, data_dir=Path(folder), mirror=mirror)
    return Reply(Answer({"folder": path}, [str(path)]))


@verb()
def notebooks(folder: FolderArgument) -> Reply:
    """Copy out the notebooks and grids that the package brings."""
    from cellrepro.grid.notebook_execution import copy_packaged

    files = copy_packaged(Path(folder))
    return Reply(Answer({"files": files}, [str(file) for file in files]))


@verb("setup")
def set_up_lab(
    folder: Annotated[str, Argument(help="a new folder, or one that this command has made")],
    python: Annotated[
        str | None, Option(help="the interpreter to make it with; default the one that runs this")
    ] = None,
    like: Annotated[
        str | None, Option(help="a passport, whose versions of the numeric libraries it gets")
    ] = None,
) -> Reply:
    """Make the full lab in an environment of its own; nothing that is installed changes."""
    from cellrepro.exchange.lab_like import make_lab_like
    from cellrepro.process.lab import make_lab

    if like is None:
        lab = make_lab(folder, python=python)
    else:
        lab = make_lab_like(like, folder, python=python)
    document = {"python": lab.python, "command": lab.command, "version": lab.version}
    if like is not None:
        lines = [
            f"the lab with the versions of {like} is in {lab.folder}, and nothing that was "
            "installed has changed",
            f"compute the run again there: {lab.command} verify {like} --replay --data FOLDER",
        ]
        return Reply(Answer(document, lines))
    lines = [
        f"the lab is in {lab.folder}, and nothing that was installed has changed",
        "commands that need it now run there: cellrepro doctor",
        *_kept_to_this_cellpose(lab),
        f"its notebooks: {lab.command} notebooks FOLDER, then {lab.program('jupyter')} lab FOLDER",
    ]
    return Reply(Answer(document, lines))


def _kept_to_this_cellpose(lab: Lab) -> list[str]:
    """What is not handed to the lab, where a Cellpose is installed that is asked about."""
    if absent(["torch", "cellpose"]):
        return []
    version = metadata.version("cellpose")
    names = joined(ABOUT_THIS_CELLPOSE)
    return [
        f"but {names} keep to Cellpose {version} of this environment; with the lab's own: "
        f"{lab.command} segment …"
    ]
