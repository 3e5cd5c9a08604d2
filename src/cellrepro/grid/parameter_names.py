"""The names of the parameters in a grid file, and what can be wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from cellrepro.errors import BadInput
from cellrepro.grid.grid_file import GridFile
from cellrepro.run.options import SegmentationOptions, TrainingOptions
from cellrepro.spec.field_marks import field_marks
from cellrepro.spec.new_spec import LEAVE_OUT
from cellrepro.spec.spec import Spec

VARIABLE = re.compile(r"environment\.([A-Za-z_]\w*)")
"""Pattern of a parameter that sets an environment variable beside the profile."""

SETTING = "settings."
"""Prefix of a parameter that is one setting of a segmentation."""
_SET_BY_GRID = {"repeats", "store"}
"""Parameters of every notebook that the grid sets itself."""


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


# -- options of a task, by names that may be wrong -----------------------------------------

Options = TypeVar("Options", TrainingOptions, SegmentationOptions)

_ELSEWHERE = (
    ("train", TrainingOptions.model_fields),
    ("segment", SegmentationOptions.model_fields),
    ("wrap", {name for name, mark in field_marks(Spec).items() if mark.task == "wrap"}),
)
"""The options of each task; an unknown name is said to belong to the first task that has it."""


def options_by_name(kind: type[Options], parameters: Mapping[str, Any]) -> Options:
    """Make options from parameters of a grid, whose names may be wrong."""
    known = list(kind.model_fields)
    unknown = [
        name
        for name, value in parameters.items()
        if name not in known and not _is_usual(name, value)
    ]
    function = "train" if issubclass(kind, TrainingOptions) else "segment"
    refuse_unknown(function, unknown, known)
    return kind.among(parameters)


def _is_usual(name: str, value: Any) -> bool:
    if value is None:
        return True
    field = Spec.model_fields.get(name)
    return field is not None and value == field.get_default(call_default_factory=True)


def refuse_unknown(function: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise `BadInput` with a sentence for each name that a function does not take.

    >>> refuse_unknown("train", ["epochs", "epoch"], ["epochs", "seed"])
    Traceback (most recent call last):
        ...
    cellrepro.errors.BadInput: train has no option epoch; do you mean epochs?
    """
    known_names = list(known)
    problems = [
        _sentence_on_unknown(function, name, known_names)
        for name in names
        if name not in known_names
    ]
    if problems:
        raise BadInput("; ".join(problems))


def _sentence_on_unknown(function: str, name: str, known: list[str]) -> str:
    has_none = f"{function} has no option {name}"
    for other, options in _ELSEWHERE:
        if name in options:
            advice = LEAVE_OUT.get(name, "leave it out") if function == "train" else "leave it out"
            return f"{has_none}, which is one of {other}: {advice}"
    near = get_close_matches(name, known, n=2, cutoff=0.75)
    if near:
        return f"{has_none}; do you mean {' or '.join(near)}?"
    return f"{has_none}; expected {', '.join(known)}"
