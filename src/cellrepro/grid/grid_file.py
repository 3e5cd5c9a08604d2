"""A grid file: YAML with the fixed and varied parameters of a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cellrepro.errors import no_such_file
from cellrepro.wrong_fields import wrong_fields
from cellrepro.yaml_values import read_yaml
from samebits.errors import BadInput

Scalar = str | int | float | bool | dict[str, Any] | list[Any] | None
"""A value of a parameter; a mapping or a list where the notebook takes one."""

_MOST_VALUES = 200_000
"""Most values of a grid file, with every alias of YAML expanded."""


class GridFile(BaseModel):
    """A grid file as it is written; `cellrepro.read_grid` says what each key means."""

    model_config = ConfigDict(extra="forbid")

    notebook: str
    """A name under ``notebooks/``, or a path."""
    fixed: dict[str, Scalar] = Field(default_factory=dict)
    """Parameters with one value."""
    vary: dict[str, list[Scalar]] = Field(default_factory=dict)
    """Parameters with the values that are combined with each other."""
    exclude: list[dict[str, Scalar]] = Field(default_factory=list)
    """Values of the combinations that are left out."""
    add: list[dict[str, Scalar]] = Field(default_factory=list)
    """Points beside the combinations."""
    on: Literal["all"] | list[str] | None = None
    """The machines that carry out each point; None for any one."""
    repeats: int = Field(default=1, ge=1)
    """Number of repeats of every point."""

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
    except FileNotFoundError:
        raise no_such_file(path, expected="a grid file (YAML)") from None
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
