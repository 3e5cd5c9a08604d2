"""Many specs: a YAML file of fixed and varied parameters, one headless notebook a repeat."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from cellrepro.asked import defaults
from cellrepro.asked.spec import PARAMETERS
from cellrepro.errors import BadInput, whole, wrong_fields
from cellrepro.grid.notebooks import brought, find_notebook, notebook_parameters
from cellrepro.run.options import SegmentationOptions, TrainingOptions, options_by_name
from cellrepro.run.plan import Plan
from cellrepro.run.plan_inputs import PlanInputs
from cellrepro.run.planning import plan_segmentation, plan_training
from cellrepro.store.store import Store

_VARIABLE = re.compile(r"environment\.([A-Za-z_]\w*)")
"""An environment variable as a parameter."""
_SETTING = "settings."
"""What a setting of a segmentation begins with."""
Scalar = str | int | float | bool | dict[str, Any] | list[Any] | None


class GridFile(BaseModel):
    """A grid file as written; see `read_grid`."""

    model_config = ConfigDict(extra="forbid")

    notebook: str
    fixed: dict[str, Scalar] = Field(default_factory=dict)
    vary: dict[str, list[Scalar]] = Field(default_factory=dict)
    exclude: list[dict[str, Scalar]] = Field(default_factory=list)
    add: list[dict[str, Scalar]] = Field(default_factory=list)
    on: Literal["all"] | list[str] | None = None
    repeats: int = Field(default=1, ge=1)

    @field_validator("fixed", "vary", "exclude", "add", mode="before")
    @classmethod
    def _mode_off(cls, value: Any) -> Any:
        """YAML reads ``off`` as false."""
        if isinstance(value, list):
            return [cls._mode_off(entry) for entry in value]
        if not isinstance(value, dict) or "mode" not in value:
            return value
        mode = value["mode"]
        if isinstance(mode, list):
            return value | {"mode": ["off" if one is False else one for one in mode]}
        return value | {"mode": "off" if mode is False else mode}


@dataclass(frozen=True)
class Point:
    """One point of a grid: a spec, and the parameters that make the notebook carry it out."""

    parameters: dict[str, Any]
    varied: dict[str, Scalar]
    plan: Plan

    @property
    def label(self) -> str:
        """The varied parameters, for people."""
        return ", ".join(f"{name} {value}" for name, value in self.varied.items()) or "the one spec"


@dataclass(frozen=True)
class Grid:
    """A grid file, checked: every point can be carried out as far as can be told beforehand."""

    name: str  # of its file
    notebook: Path
    points: tuple[Point, ...]
    repeats: int
    store: Store
    on: Literal["all"] | tuple[str, ...] | None  # the machines that each point is carried out on


# -- reading -------------------------------------------------------------------------------


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
        beside the profile. Without such a file, ``grids/NAME`` of the package.
    store : str or Path
        Where runs are kept.
    overrides : dict, optional
        Parameters that replace the file's; a list is an axis.
    repeats : int, optional
        Of every spec, in the place of the file's.
    """
    if not Path(path).exists() and (own := brought("grids").parent / path).is_file():
        path = own
    file = _read_file(Path(path))
    _override(file, overrides or {})
    notebook = find_notebook(file.notebook, near=Path(path).parent)
    known = notebook_parameters(notebook)
    problems = _problems(file, notebook, known)
    if problems:
        raise BadInput(f"{path}: {'; '.join(problems)}")
    points: dict[str, Point] = {}
    inputs = PlanInputs()
    for varied in _combinations(file):
        point = _point({**known, **file.fixed, **varied}, varied, store, inputs)
        twin = points.setdefault(point.plan.spec.key, point)
        if twin is not point:
            raise BadInput(
                f"{path}: {twin.label} and {point.label} are the same spec; vary only what is part "
                f"of it: data, {', '.join(PARAMETERS)}"
            )
    if not points:
        raise BadInput(f"{path} leaves no spec to run: `exclude` removes every combination")
    n_repeats = file.repeats if repeats is None else whole("repeats", repeats, least=1)
    on = tuple(file.on) if isinstance(file.on, list) else file.on
    return Grid(Path(path).stem, notebook, tuple(points.values()), n_repeats, Store(store), on=on)


def _read_file(path: Path) -> GridFile:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and True in content:  # as YAML reads ``on``
            content["on"] = content.pop(True)
        return GridFile.model_validate(content)
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = wrong_fields(error) if isinstance(error, ValidationError) else error
    raise BadInput(
        f"{path} is not a grid file: {why}; expected YAML with `notebook`, `fixed`, `vary`, "
        "`exclude`, `add`, `on` and `repeats`, where `vary` holds lists"
    )


def _override(file: GridFile, overrides: Mapping[str, Any]) -> None:
    for name, value in GridFile._mode_off(dict(overrides)).items():
        if isinstance(value, list) or name in file.vary:
            file.fixed.pop(name, None)
            file.vary[name] = value if isinstance(value, list) else [value]
        else:
            file.fixed[name] = value


def _problems(file: GridFile, notebook: Path, known: Mapping[str, Any]) -> list[str]:
    """What of the names in a grid file is wrong, in sentences."""
    given = {*file.fixed, *file.vary}.union(*file.add)
    unknown = given - known.keys()
    if "profile" in known:
        unknown = {name for name in unknown if not _VARIABLE.fullmatch(name)}
    if "settings" in known:
        unknown = {name for name in unknown if not name.startswith(_SETTING)}
    near = {name: get_close_matches(name, known, 1) for name in unknown}
    meant = "".join(f" (do you mean {', '.join(one)}?)" for one in near.values() if one)
    found = {
        f"{notebook.name} takes {', '.join(sorted(known))}, not {{}}{meant}": unknown,
        "{} is both fixed and varied": file.fixed.keys() & file.vary.keys(),
        "{} is set by the grid itself: write `repeats: N` at the top of the file, or give "
        "--repeats and --store on the command line": given & {"repeats", "store"},
        "`exclude` names {}, which does not vary": set().union(*file.exclude) - file.vary.keys(),
        "`vary` has no value for {}": {name for name, values in file.vary.items() if not values},
        "`{}` is missing: the folder of images": {"data"} - given,
    }
    return [text.replace("{}", ", ".join(sorted(of))) for text, of in found.items() if of]


def _combinations(file: GridFile) -> Iterator[dict[str, Scalar]]:
    for values in itertools.product(*file.vary.values()):
        varied = dict(zip(file.vary, values, strict=True))
        if not any(all(varied[name] == entry[name] for name in entry) for entry in file.exclude):
            yield varied
    usual = {name: values[0] for name, values in file.vary.items()}
    yield from (usual | entry for entry in file.add)


def _point(
    parameters: dict[str, Any], varied: dict[str, Scalar], store: str | Path, inputs: PlanInputs
) -> Point:
    """A point; the notebook runs in a folder of its own, so its paths become absolute."""
    data = str(Path(str(parameters["data"])).resolve())
    variables = {name: one for name, one in parameters.items() if _VARIABLE.fullmatch(name)}
    if variables:
        parameters = {name: one for name, one in parameters.items() if name not in variables}
        set_to = (f"+{name.split('.')[1]}={value}" for name, value in variables.items())
        parameters["profile"] = "".join([str(parameters["profile"]), *set_to])
    chosen = {name: one for name, one in parameters.items() if name.startswith(_SETTING)}
    if chosen:
        parameters = {name: one for name, one in parameters.items() if name not in chosen}
        settings = {name.removeprefix(_SETTING): one for name, one in chosen.items()}
        parameters["settings"] = {**(parameters["settings"] or {}), **settings}
    passed_on = (*PARAMETERS, "settings", "checkpoint_every", "keep_checkpoints")
    chosen = {name: parameters[name] for name in passed_on if name in parameters}
    chosen |= {"data": data, "store": store}
    if "epochs" in parameters:
        plan = plan_training(options_by_name(TrainingOptions, chosen), inputs=inputs)
    else:
        plan = plan_segmentation(options_by_name(SegmentationOptions, chosen), inputs=inputs)
    places = {"data": data, "store": str(Path(store).resolve())}
    model = str(parameters.get("model"))
    profile, plus, added = str(parameters.get("profile")).partition("+")
    if plan.request.model.path is not None and Path(model).is_file():
        places["model"] = str(Path(model).resolve())
    if profile.endswith((".yaml", ".yml")):
        places["profile"] = f"{Path(profile).resolve()}{plus}{added}"
    return Point(parameters | places, varied, plan)
