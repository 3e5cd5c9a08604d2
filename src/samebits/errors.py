"""Errors that end in a message for the user, told apart by exit code.

Every message says what was given, what was expected, where, and what to do.
"""

from __future__ import annotations

import operator
import re
from typing import SupportsIndex, cast

_NUMBER = re.compile(r"\[(?:Errno|WinError) -?\d+\] ")


def without_number(error: object) -> str:
    """What an error says, without the number that Python puts before the system's words.

    >>> without_number(FileNotFoundError(2, "No such file or directory", "grid.yaml"))
    "No such file or directory: 'grid.yaml'"
    """
    return _NUMBER.sub("", str(error))


class SamebitsError(Exception):
    """An answer for the user, never a traceback; see the subclasses."""

    exit_code = 2

    def __str__(self) -> str:
        return without_number(super().__str__())


class BadInput(SamebitsError, ValueError):
    """What was given cannot be used: exit code 2, nothing written."""


class NotPossibleHere(SamebitsError, RuntimeError):
    """This machine cannot do it (device, memory, disk): exit code 3, nothing written."""

    exit_code = 3


def whole(name: str, value: object, least: int) -> int:
    """Check that a value is a whole number of at least ``least``."""
    number = whole_number(value)
    if number is None or number < least:
        raise BadInput(f"{name} must be a whole number of at least {least}, got {value!r}")
    return number


def whole_number(value: object) -> int | None:
    """The whole number that a value is, NumPy's among them; none for a bool, a float, an array.

    >>> whole_number(3), whole_number(True), whole_number(3.0), whole_number("3")
    (3, None, None, None)
    """
    if isinstance(value, bool):
        return None
    try:
        return operator.index(cast("SupportsIndex", value))
    except TypeError:
        return None
