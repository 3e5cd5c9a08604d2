"""The environment variables with which a process must have started, and whether it has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.command_lines import with_variables
from samebits.errors import BadInput
from samebits.modes import environment
from samebits.seeds import check_seed

if TYPE_CHECKING:
    from samebits.mode_names import Mode


def startup_variables(seed: int | None, *, mode: Mode = "fast") -> dict[str, str]:
    """The variables to start a process with, beside seeding inside it.

    ``PYTHONHASHSEED`` is "0", so that sets come in one order whatever the seed, and is not there in
    mode ``off``, which fixes nothing.
    """
    seeds = {} if seed is None else {"TCNN_SEED": str(check_seed(seed))}
    hashes = {} if mode == "off" else {"PYTHONHASHSEED": "0"}
    return hashes | seeds | environment(mode)


def variables_at_start(kept: Path = Path("/proc/self/environ")) -> dict[str, str]:
    """The environment with which this process started; the present one where no system keeps it."""
    entries = kept.read_bytes().rstrip(b"\0").split(b"\0") if kept.exists() else []
    if entries and all(b"=" in entry for entry in entries):
        return dict(os.fsdecode(entry).split("=", 1) for entry in entries)
    return dict(os.environ)


def require_at_startup(variables: Mapping[str, str], *, what: str = "this") -> None:
    """Raise unless this process was started with these variables and still has them."""
    started = variables_at_start()
    problems = [
        f"{name} was {started.get(name, 'not set')} at the start and is "
        f"{os.environ.get(name, 'not set')} now, expected {expected}"
        for name, expected in variables.items()
        if not started.get(name) == os.environ.get(name) == expected
    ]
    if problems:
        command = with_variables(variables, "python ...", windows=os.name == "nt")
        raise BadInput(
            f"{what} needs variables that must be set before the process starts, but here "
            f"{'; '.join(problems)}; start it again as `{command}` (a notebook's "
            "Jupyter likewise: in a cell it is too late), or through `cellrepro train` or "
            "cellrepro.train, which start a process of their own with their profile's variables"
        )
