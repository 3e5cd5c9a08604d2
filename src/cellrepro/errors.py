"""Errors of the lab beside those of `samebits.errors`, which are of the same family."""

from __future__ import annotations

from samebits.errors import BadInput, SamebitsError

CellreproError = SamebitsError
"""An answer for the user, never a traceback: every error that the lab raises on purpose."""


class Damaged(BadInput):
    """A stored file is not what was stored: no verdict and no start rests on it."""


def no_such_file(path: object, *, expected: str = "", noun: str = "file") -> BadInput:
    """Give the error for what is not there, in the same words for every command.

    >>> print(no_such_file("a_masks.tif", expected="masks"))
    a_masks.tif: no such file; expected masks: check its spelling and folder
    """
    wanted = f"expected {expected}: " if expected else ""
    return BadInput(f"{path}: no such {noun}; {wanted}check its spelling and folder")
