"""A grid and its points: combinations of parameters, all planned and checked before any runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cellrepro.grid.grid_file import GridFile, Scalar, read_file
from cellrepro.grid.notebook_execution import notebook_parameters
from cellrepro.grid.packaged_files import find_notebook, packaged_folder
from cellrepro.grid.parameter_names import wrong_names
from cellrepro.grid.point import Parameters, Point, plan_point
from cellrepro.run.plan_sources import PlanInputs
from cellrepro.spec import defaults
from cellrepro.spec.spec import PARAMETERS
from cellrepro.store.store import Store
from samebits.errors import BadInput, whole
from samebits.results import Result, Row
from samebits.words import amount

Machines = Literal["all"] | tuple[str, ...] | None
"""The machines that carry out each point: all, those of Dask workers by name or resource, or None
for any one."""

_MOST_POINTS = 100_000


@dataclass(frozen=True, repr=False)
class Grid(Result):
    """A grid file, checked: every point can be carried out as far as can be told beforehand."""

    name: str
    """Name of its file, without the extension."""
    notebook: Path
    """The notebook that carries a point out."""
    points: tuple[Point, ...]
    """The points in the order of the file; no two have the same spec."""
    repeats: int
    """Number of repeats of every point."""
    store: Store
    """Store of the runs."""
    on: Machines
    """The machines that carry out each point; None for any one."""

    def sentence(self) -> str:
        """Say how many specs it has, and how often each is carried out."""
        specs = amount(len(self.points), "spec")
        return f"{self.name}: {specs} with {amount(self.repeats, 'repeat')} each"

    def rows(self) -> list[Row]:
        """Give the values that each point varies."""
        return [{"key": point.plan.spec.key, **point.varied} for point in self.points]


def read_grid(
    path: str | Path,
    *,
    store: str | Path = defaults.STORE,
    overrides: Mapping[str, Scalar | list[Scalar]] | None = None,
    repeats: int | None = None,
) -> Grid:
    """Read a grid file and check everything in it before anything runs.

    Parameters
    ----------
    path : str or Path
        YAML with ``notebook`` (a name under ``notebooks/`` or a path), ``fixed``, ``vary``,
        ``exclude``, ``add`` (points beside the combinations; an axis that one does not name has
        its first value), ``repeats``, and ``on``: all machines, or a list of Dask workers, each of
        which carries every point out; else one machine does. ``environment.NAME`` sets a variable
        beside the profile, ``settings.NAME`` a setting of a segmentation. Without such a file,
        ``grids/NAME`` of the package.
    store : str or Path
        Where runs are kept.
    overrides : mapping of str to value or list, optional
        Parameters that replace the file's; a list is an axis.
    repeats : int, optional
        Of every spec, in the place of the file's.

    Returns
    -------
    Grid
        For `run_grid`.

    Raises
    ------
    BadInput
        If the file is no grid file, names a parameter that its notebook does not take, has a value
        that a run refuses, or leaves no spec; or if two points are the same spec.
    """
    grid_path = _grid_path(path)
    file = read_file(grid_path).overridden(overrides or {})
    notebook = find_notebook(file.notebook, near=grid_path.parent)
    usual = notebook_parameters(notebook)
    problems = wrong_names(file, notebook, usual)
    if problems:
        raise BadInput(f"{grid_path}: {'; '.join(problems)}")
    return Grid(
        name=grid_path.stem,
        notebook=notebook,
        points=_points(file, usual, grid_path, store),
        repeats=file.repeats if repeats is None else whole("repeats", repeats, least=1),
        store=Store(store),
        on=tuple(file.on) if isinstance(file.on, list) else file.on,
    )


def _grid_path(path: str | Path) -> Path:
    """Find the grid file: a path, else a grid of the package."""
    packaged = packaged_folder("grids").parent / path
    if not Path(path).exists() and packaged.is_file():
        return packaged
    return Path(path)


def _points(
    file: GridFile, usual: Parameters, grid_path: Path, store: str | Path
) -> tuple[Point, ...]:
    """Plan all points of a grid file; images are read once for all of them."""
    inputs = PlanInputs()
    by_key: dict[str, Point] = {}
    for varied in combinations(file):
        parameters = {**usual, **file.fixed, **varied}
        point = plan_point(parameters, varied, store=store, inputs=inputs)
        key = point.plan.spec.key
        if key in by_key:
            raise BadInput(
                f"{grid_path}: {by_key[key].label} and {point.label} are the same spec; vary only "
                f"what is part of it: data, {', '.join(PARAMETERS)}"
            )
        by_key[key] = point
    if not by_key:
        raise BadInput(f"{grid_path} leaves no spec to run: `exclude` removes every combination")
    return tuple(by_key.values())


def combinations(file: GridFile) -> Iterator[dict[str, Scalar]]:
    """Give the varied parameters of each point: the combinations, then what the file adds.

    An entry of ``exclude`` leaves out the combinations that have all of its values.
    """
    n_points = math.prod(map(len, file.vary.values()))
    if n_points > _MOST_POINTS:
        sizes = " × ".join(f"{len(values)} of {name}" for name, values in file.vary.items())
        raise BadInput(
            f"`vary` has {n_points} points ({sizes}); expected {_MOST_POINTS} at most: vary less, "
            "or in several grid files"
        )
    for values in itertools.product(*file.vary.values()):
        varied = dict(zip(file.vary, values, strict=True))
        if not any(_has_all(varied, entry) for entry in file.exclude):
            yield varied
    first_values = {name: values[0] for name, values in file.vary.items()}
    for entry in file.add:
        yield {**first_values, **entry}


def _has_all(varied: Mapping[str, Scalar], entry: Mapping[str, Scalar]) -> bool:
    return all(varied[name] == value for name, value in entry.items())
