"""The names of the parameters in a grid file, and what can be wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from cellrepro.grid.grid_file import GridFile

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
