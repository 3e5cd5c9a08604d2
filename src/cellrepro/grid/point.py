"""One point of a grid: its parameters, and the plan that they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cellrepro.grid.grid_file import Scalar
from cellrepro.grid.parameter_names import SETTING, VARIABLE
from cellrepro.grid.task_options import options_by_name
from cellrepro.profiles.profiles import ProfileReference
from cellrepro.run.options import SegmentationOptions, TrainingOptions
from cellrepro.run.plan import Plan
from cellrepro.run.plan_sources import PlanInputs
from cellrepro.run.planning import plan_segmentation, plan_training

Parameters = Mapping[str, Any]
"""Values of a notebook's parameters by name, as YAML and the notebook have them."""

_OPTIONS = TrainingOptions.model_fields.keys() | SegmentationOptions.model_fields.keys()
"""Names of parameters that are options of a training or a segmentation."""


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


def plan_point(
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
