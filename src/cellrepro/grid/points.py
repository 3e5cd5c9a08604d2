"""A grid and its points: combinations of parameters, all planned and checked before any runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from cellrepro.determinism.profile_reference import ProfileReference
from cellrepro.errors import BadInput, whole
from cellrepro.grid.grid_file import GridFile, Scalar, read_file
from cellrepro.grid.notebook_execution import notebook_parameters
from cellrepro.grid.packaged_files import find_notebook, packaged_folder
from cellrepro.grid.parameter_names import SETTING, VARIABLE, wrong_names
from cellrepro.results import Result, Row
from cellrepro.run.option_names import options_by_name
from cellrepro.run.options import SegmentationOptions, TrainingOptions
from cellrepro.run.plan import Plan
from cellrepro.run.plan_sources import PlanInputs
from cellrepro.run.segmentation_plan import plan_segmentation
from cellrepro.run.training_plan import plan_training
from cellrepro.spec import defaults
from cellrepro.spec.spec import PARAMETERS
from cellrepro.store.store import Store
from cellrepro.words import amount

Parameters = Mapping[str, Any]
"""Values of a notebook's parameters by name, as YAML and the notebook have them."""

_OPTIONS = TrainingOptions.model_fields.keys() | SegmentationOptions.model_fields.keys()
"""Names of parameters that are options of a training or a segmentation."""


Machines = Literal["all"] | tuple[str, ...] | None
"""The machines that carry out each point: all, those of Dask workers by name or resource, or None
for any one."""


_MOST_POINTS = 100_000


def varied_in_words(varied: Mapping[str, Scalar]) -> str:
    """The varied parameters of a point, for people.

    >>> varied_in_words({"seed": 0, "mode": "fast"}), varied_in_words({})
    ('seed 0, mode fast', 'the one spec')
    """
    return ", ".join(f"{name} {value}" for name, value in varied.items()) or "the one spec"


@dataclass(frozen=True)
class Point:
    """One point of a grid: a plan, and the parameters with which the notebook carries it out."""

    parameters: Parameters
    """Parameters of the notebook without ``repeats``; paths are absolute."""
    varied: dict[str, Scalar]
    """The parameters that vary in the grid, as its file has them."""
    plan: Plan
    """The checked spec."""

    @property
    def label(self) -> str:
        """The varied parameters, for people."""
        return varied_in_words(self.varied)


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
        point = _plan_point(parameters, varied, store=store, inputs=inputs)
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


# -- one point -----------------------------------------------------------------------------


def _plan_point(
    parameters: Parameters,
    varied: dict[str, Scalar],
    *,
    store: str | Path,
    inputs: PlanInputs,
) -> Point:
    """Plan one point."""
    gathered = _with_settings_gathered(_with_variables_in_profile(parameters))
    plan = _plan(gathered, store, inputs)
    return Point(_with_absolute_paths(gathered, plan, store), varied, plan)


def _with_variables_in_profile(parameters: Parameters) -> Parameters:
    """Put each ``environment.NAME`` into the name of the profile: ``cpu+NAME=VALUE``."""
    profile = parameters.get("profile")
    variables = []
    remaining = {}
    for name, value in parameters.items():
        variable = VARIABLE.fullmatch(name)
        if variable:
            variables.append(f"{variable[1]}={value}")
        else:
            remaining[name] = value
    if not variables or profile is None:  # which no run takes, so that the plan refuses it
        return parameters
    return {**remaining, "profile": "+".join([str(profile), *variables])}


def _with_settings_gathered(parameters: Parameters) -> Parameters:
    """Put each ``settings.NAME`` into the one table ``settings``."""
    settings = {
        name.removeprefix(SETTING): value
        for name, value in parameters.items()
        if name.startswith(SETTING)
    }
    if not settings:
        return parameters
    remaining = {name: value for name, value in parameters.items() if not name.startswith(SETTING)}
    remaining["settings"] = {**(remaining["settings"] or {}), **settings}
    return remaining


def _plan(parameters: Parameters, store: str | Path, inputs: PlanInputs) -> Plan:
    """Plan a training if there are epochs, else a segmentation."""
    options = {name: parameters[name] for name in _OPTIONS if name in parameters}
    options["data"] = _absolute(parameters["data"])
    options["store"] = store
    if "epochs" in parameters:
        return plan_training(options_by_name(TrainingOptions, options), inputs=inputs)
    return plan_segmentation(options_by_name(SegmentationOptions, options), inputs=inputs)


def _with_absolute_paths(parameters: Parameters, plan: Plan, store: str | Path) -> Parameters:
    """Make all paths absolute: the notebook runs in a folder of its own."""
    paths = {"data": _absolute(parameters["data"]), "store": _absolute(store)}
    model = str(parameters.get("model"))
    if plan.request.model.path is not None and Path(model).is_file():
        paths["model"] = _absolute(model)
    profile = profile_reference(parameters)
    if profile.is_file:
        paths["profile"] = str(replace(profile, source=_absolute(profile.source)))
    return {**parameters, **paths}


def profile_reference(parameters: Parameters) -> ProfileReference:
    """The profile as the parameters name it; an empty name where the notebook takes none."""
    return ProfileReference.parse(str(parameters.get("profile", "")))


def _absolute(path: object) -> str:
    return str(Path(str(path)).resolve())
