"""What a grid tells the notebook that makes one of its repeats, and where that leaves its results.

A grid executes a notebook for one repeat of one spec. The notebook's process finds two variables
set; it leaves the finished repeat in a folder instead of storing it, and beside that folder
whatever else the grid must know.
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
"""Names a folder in which to leave the finished repeat instead of storing it; the grid sets it,
adds the notebook it executed, and stores both together. A process that has it was started with
the profile's environment."""

HANDOVER_REPEAT_VARIABLE = "CELLREPRO_HELD_REPEAT"
"""Names the repeat that the grid holds so, ``KEY/INDEX``; all else that its notebook runs is stored
as any run is."""

_FURTHER_RUNS = "further_runs.txt"
"""Beside that folder: the names of those others, a line each."""
_ENDING = "ended.json"
"""Beside that folder: the status of the error that ended the repeat."""


def handover_folder() -> Path | None:
    """The folder that the grid named, if a grid started this process for a notebook."""
    named = os.environ.get(HANDOVER_FOLDER_VARIABLE)
    return None if named is None else Path(named)


def handover_folder_of(key: str, index: int) -> Path | None:
    """Where the grid that started this notebook wants a repeat; none for all other runs."""
    if os.environ.get(HANDOVER_REPEAT_VARIABLE) != f"{key}/{index}":
        return None
    return handover_folder()


def leave_further_run(name: str) -> None:
    """Leave the name of a further run for the grid that started this notebook, if one did."""
    folder = handover_folder()
    if folder is None:
        return
    with folder.with_name(_FURTHER_RUNS).open("a", encoding="utf-8") as file:
        file.write(f"{name}\n")


def further_runs(folder: Path) -> list[str]:
    """The names of the further runs that were left beside the folder of a held repeat."""
    path = folder.with_name(_FURTHER_RUNS)
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def leave_ending(error: CellreproError) -> None:
    """Leave the status of an error for the grid that started this notebook, if one did.

    An error leaves a notebook as text; this is how the grid knows of a `RunError` what it was.
    """
    folder = handover_folder()
    if folder is None or not isinstance(error, RunError):
        return
    with suppress(OSError):  # a full disk is what it may be about
        content = json.dumps({"status": error.status})
        folder.with_name(_ENDING).write_text(content, encoding="utf-8")


def read_ending(folder: Path) -> Status:
    """The status that was left beside the folder of a held repeat; ``failed`` where none was."""
    try:
        status = json.loads(folder.with_name(_ENDING).read_text(encoding="utf-8"))["status"]
    except (OSError, ValueError, LookupError, TypeError):
        return "failed"
    return status if status in get_args(Status) else "failed"
