"""A file that is about to be written for someone else: named as it should be, and not there yet."""

from __future__ import annotations

from pathlib import Path

from cellrepro.errors import BadInput


def new_file(file: str | Path, *, ending: str, holds: str) -> Path:
    """Check that a file can be written, before anything is computed for it.

    Parameters
    ----------
    file : str or Path
        As it was given.
    ending : str
        That its name must have, in lower case: ``.zip``.
    holds : str
        What it is to hold, for the message: "runs", "passports".

    Returns
    -------
    Path

    Raises
    ------
    BadInput
        If it is named otherwise, is there, or its folder is not.

    Examples
    --------
    >>> new_file("run.tar", ending=".zip", holds="runs")
    Traceback (most recent call last):
        ...
    cellrepro.errors.BadInput: run.tar is to hold runs; expected a name that ends with .zip
    """
    path = Path(file)
    name = path.name.lower()
    if not name.endswith(ending) or name == ending:
        raise BadInput(f"{path} is to hold {holds}; expected a name that ends with {ending}")
    if path.exists():
        raise BadInput(
            f"{path} exists, and nothing is overwritten: remove it, or give a different name"
        )
    if not path.parent.is_dir():
        raise BadInput(f"{path.parent} is no folder; expected one that is there: make it first")
    return path
