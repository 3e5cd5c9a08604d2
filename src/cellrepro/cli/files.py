"""Verbs that bring something: images, notebooks and grids, the lab itself."""

from __future__ import annotations

from dataclasses import dataclass
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
from cellrepro.results import Result
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
        return Reply(public_sets.ProvidedData(path))
    if not name:
        return Reply(public_sets.KnownData(public_sets.describe_all()))
    path = cellrepro.provide_data(name, data_dir=Path(folder), mirror=mirror)
    return Reply(public_sets.ProvidedData(path))


@verb()
def notebooks(folder: FolderArgument) -> Reply:
    """Copy out the notebooks and grids that the package brings."""
    from cellrepro.grid.notebook_execution import copy_packaged

    return Reply(copy_packaged(Path(folder)))


@dataclass(frozen=True, repr=False)
class LabMade(Result):
    """The full lab that was made."""

    python: Path
    """Its Python."""
    command: Path
    """Its ``cellrepro``."""
    version: str
    """Of cellrepro there."""
    _lab: Lab
    """Where its programs are."""
    _like: str | None
    """The passport whose versions it has."""

    def sentence(self) -> str:
        """Say where it is."""
        versions = "" if self._like is None else f" with the versions of {self._like}"
        folder = self._lab.folder
        return f"the lab{versions} is in {folder}, and nothing that was installed has changed"

    def lines(self) -> list[str]:
        """Give the sentence, and what to do next."""
        if self._like is not None:
            again = f"{self.command} verify {self._like} --replay --data FOLDER"
            return [self.sentence(), f"compute the run again there: {again}"]
        jupyter = self._lab.program("jupyter")
        return [
            self.sentence(),
            "commands that need it now run there: cellrepro doctor",
            *_kept_to_this_cellpose(self._lab),
            f"its notebooks: {self.command} notebooks FOLDER, then {jupyter} lab FOLDER",
        ]


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
    return Reply(LabMade(lab.python, lab.command, lab.version, lab, like))


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
