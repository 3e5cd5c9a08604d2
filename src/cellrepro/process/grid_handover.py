"""The handover between a grid and the notebook that makes one of its repeats.

A grid executes a notebook for one repeat of one spec. Two environment variables tell its process
to leave the finished repeat in a folder instead of storing it. Beside that folder it leaves the
names of further runs, and the status of the error that ended it.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import get_args

from cellrepro.errors import CellreproError
from cellrepro.process.process_ends import RunError, Status

HANDOVER_FOLDER_VARIABLE = "CELLREPRO_HOLD"
"""Folder for the finished repeat: the grid adds the notebook it executed, and stores both together.
A process that has this variable was started with the profile's environment."""

HANDOVER_REPEAT_VARIABLE = "CELLREPRO_HELD_REPEAT"
"""The repeat that is handed over, ``KEY/INDEX``; other runs of the notebook are stored as usual."""

_FURTHER_RUNS = "further_runs.txt"
"""Names of the other runs of the notebook, a line each."""
_ENDING = "ended.json"
"""Status of the error that ended the repeat."""


def handover_folder() -> Path | None:
    """The folder for the repeat, if a grid started this process for a notebook."""
    named = os.environ.get(HANDOVER_FOLDER_VARIABLE)
    return None if named is None else Path(named)


def handover_folder_of(key: str, index: int) -> Path | None:
    """The folder for one repeat; None for all that the grid did not ask for."""
    if os.environ.get(HANDOVER_REPEAT_VARIABLE) != f"{key}/{index}":
        return None
    return handover_folder()


def leave_further_run(name: str) -> None:
    """Leave the name of a further run for the grid, if one started this notebook."""
    folder = handover_folder()
    if folder is None:
        return
    with folder.with_name(_FURTHER_RUNS).open("a", encoding="utf-8") as file:
        file.write(f"{name}\n")


def further_runs(folder: Path) -> list[str]:
    """Read the names of the further runs of a notebook."""
    path = folder.with_name(_FURTHER_RUNS)
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def leave_ending(error: CellreproError) -> None:
    """Leave the status of a `RunError` for the grid, if one started this notebook.

    An error leaves a notebook as text only, which has no status.
    """
    folder = handover_folder()
    if folder is None or not isinstance(error, RunError):
        return
    with suppress(OSError):  # a full disk is what it may be about
        content = json.dumps({"status": error.status})
        folder.with_name(_ENDING).write_text(content, encoding="utf-8")


def read_ending(folder: Path) -> Status:
    """Read the status that a notebook left; ``failed`` where it left none."""
    try:
        status = json.loads(folder.with_name(_ENDING).read_text(encoding="utf-8"))["status"]
    except (OSError, ValueError, LookupError, TypeError):
        return "failed"
    return status if status in get_args(Status) else "failed"
