"""New files of a user: refused where something is there already, or none can be written."""

from __future__ import annotations

import os
from pathlib import Path

from cellrepro.errors import BadInput


def new_file(file: str | Path, *, ending: str, holds: str, overwrite: bool | None = None) -> Path:
    """Check that a user's file can be written, before anything is computed for it.

    >>> new_file("run.tar", ending=".zip", holds="runs")
    Traceback (most recent call last):
        ...
    cellrepro.errors.BadInput: run.tar is to hold runs; expected a name that ends with .zip
    """
    path = Path(file)
    name = path.name.lower()
    if not name.endswith(ending) or name == ending:
        raise BadInput(f"{path} is to hold {holds}; expected a name that ends with {ending}")
    if path.is_dir() or not overwrite:
        refuse_existing(path, can_be_asked_for=overwrite is not None)
    if not path.parent.is_dir():
        raise BadInput(f"{path.parent} is no folder; expected one that is there: make it first")
    return path


def refuse_existing(*paths: Path, can_be_asked_for: bool = False) -> None:
    """Refuse to write where a user has something."""
    for path in paths:
        if os.path.lexists(path):
            raise already_there(path, can_be_asked_for=can_be_asked_for)


def already_there(path: Path, *, can_be_asked_for: bool = False) -> BadInput:
    """Give the error for a name that is taken, with ``--overwrite`` where a command has it."""
    way = ", or replace it with --overwrite" if can_be_asked_for and not path.is_dir() else ""
    return BadInput(
        f"{path} exists, and nothing is overwritten: remove it, or give a different name{way}"
    )
