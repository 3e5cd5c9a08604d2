"""What a grid tells the notebook that makes one of its repeats, and where that leaves its results.

A grid executes a notebook for one repeat of one spec. The notebook's process finds two variables
set; it leaves the finished repeat in a folder instead of storing it, and beside that folder
whatever else the grid must know.
"""

from __future__ import annotations

import os
from pathlib import Path

HANDOVER_FOLDER_VARIABLE = "CELLREPRO_HOLD"
"""Names a folder in which to leave the finished repeat instead of storing it; the grid sets it,
adds the notebook it executed, and stores both together. A process that has it was started with
the profile's environment."""

HANDOVER_REPEAT_VARIABLE = "CELLREPRO_HELD_REPEAT"
"""Names the repeat that the grid holds so, ``KEY/INDEX``; all else that its notebook runs is stored
as any run is."""

_FURTHER_RUNS = "further_runs.txt"
"""Beside that folder: the names of those others, a line each."""


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
