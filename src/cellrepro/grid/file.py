"""A grid file: YAML with the fixed and varied parameters of a notebook, parsed and checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cellrepro.errors import BadInput
from cellrepro.wrong_fields import wrong_fields
from cellrepro.yaml_values import read_yaml

Scalar = str | int | float | bool | dict[str, Any] | list[Any] | None
"""A value of a parameter; a mapping or a list where the notebook takes one."""

VARIABLE = re.compile(r"environment\.([A-Za-z_]\w*)")
"""Pattern of a parameter that sets an environment variable beside the profile."""

SETTING = "settings."
"""Prefix of a parameter that is one setting of a segmentation."""

_MOST_VALUES = 200_000
"""Most values of a grid file, with every alias of YAML expanded."""

_SET_BY_GRID = {"repeats", "store"}
"""Parameters of every notebook that the grid sets itself."""


class GridFile(BaseModel):
    """A grid file as it is written; `cellrepro.read_grid` says what each key means."""

    model_config = ConfigDict(extra="forbid")

    notebook: str
    fixed: dict[str, Scalar] = Field(default_factory=dict)
    vary: dict[str, list[Scalar]] = Field(default_factory=dict)
    exclude: list[dict[str, Scalar]] = Field(default_factory=list)
    add: list[dict[str, Scalar]] = Field(default_factory=list)
    on: Literal["all"] | list[str] | None = None
    repeats: int = Field(default=1, ge=1)

    @property
    def parameters(self) -> set[str]:
        """The names of all parameters with a value."""
        return {*self.fixed, *self.vary}.union(*self.add)

    def overridden(self, overrides: Mapping[str, Scalar | list[Scalar]]) -> GridFile:
        """Replace values: a list is an axis, and a parameter that varies stays an axis."""
        fixed = dict(self.fixed)
        vary = dict(self.vary)
        for name, value in overrides.items():
            if isinstance(value, list):
                vary[name] = value
                fixed.pop(name, None)
            elif name in vary:
                vary[name] = [value]
                fixed.pop(name, None)
            else:
                fixed[name] = value
        return self.model_copy(update={"fixed": fixed, "vary": vary})


def read_file(path: Path) -> GridFile:
    """Read a grid file, and check its keys and the types of their values."""
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
        _refuse_endless(content)
        return GridFile.model_validate(content)
    except ValidationError as error:
        raise _no_grid_file(path, wrong_fields(error)) from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise _no_grid_file(path, " ".join(str(error).split())) from None
    except RecursionError:
        raise _no_grid_file(path, "its lists and tables lie too deep in each other") from None


def _refuse_endless(content: object) -> None:
    """Refuse a bomb of nested aliases, of which a few lines of YAML make millions of values."""
    left: list[object] = [content]
    for _ in range(_MOST_VALUES):
        if not left:
            return
        value = left.pop()
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
    raise ValueError(f"it has more than {_MOST_VALUES} values, or one that holds itself")


def _no_grid_file(path: Path, reason: str) -> BadInput:
    return BadInput(
        f"{path} is not a grid file: {reason}; expected YAML with `notebook`, `fixed`, `vary`, "
        "`exclude`, `add`, `on` and `repeats`, where `vary` holds lists"
    )


# -- names ---------------------------------------------------------------------------------


def wrong_names(file: GridFile, notebook: Path, known: Iterable[str]) -> list[str]:
    """Give a sentence for each thing that is wrong with the names in a grid file."""
    known_names = set(known)
    problems = []
    unknown = _unknown(file.parameters, known_names)
    if unknown:
        problems.append(
            f"{notebook.name} takes {_listed(known_names)}, not {_listed(unknown)}"
            f"{_do_you_mean(unknown, known_names)}"
        )
    fixed_and_varied = file.fixed.keys() & file.vary.keys()
    if fixed_and_varied:
        problems.append(f"{_listed(fixed_and_varied)} is both fixed and varied")
    set_by_grid = file.parameters & _SET_BY_GRID
    if set_by_grid:
        problems.append(
            f"{_listed(set_by_grid)} is set by the grid itself: write `repeats: N` at the top of "
            "the file, or give --repeats and --store on the command line"
        )
    excluded_but_fixed = set[str]().union(*file.exclude) - file.vary.keys()
    if excluded_but_fixed:
        problems.append(f"`exclude` names {_listed(excluded_but_fixed)}, which does not vary")
    empty_axes = {name for name, values in file.vary.items() if not values}
    if empty_axes:
        problems.append(f"`vary` has no value for {_listed(empty_axes)}")
    if "data" not in file.parameters:
        problems.append("`data` is missing: the folder of images")
    return problems


def _unknown(names: set[str], known: set[str]) -> set[str]:
    """The names that a notebook does not take, not even as part of ``profile`` or ``settings``."""
    unknown = names - known
    if "profile" in known:
        unknown = {name for name in unknown if not VARIABLE.fullmatch(name)}
    if "settings" in known:
        unknown = {name for name in unknown if not name.startswith(SETTING)}
    return unknown


def _do_you_mean(unknown: set[str], known: set[str]) -> str:
    nearest = [get_close_matches(name, known, n=1) for name in sorted(unknown)]
    return "".join(f" (do you mean {names[0]}?)" for names in nearest if names)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
