"""The two ways in which the lab refuses work, told apart by exit code.

Every message says what was given, what was expected, where, and what to do.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError


class CellreproError(Exception):
    """An answer for the user, never a traceback; see the subclasses."""

    exit_code = 2


class BadInput(CellreproError, ValueError):
    """What was given cannot be used: exit code 2, nothing written."""


class Damaged(BadInput):
    """A stored file is not what was stored: no verdict and no start rests on it."""


class NotPossibleHere(CellreproError, RuntimeError):
    """This machine cannot do it (device, memory, disk): exit code 3, nothing written."""

    exit_code = 3


def whole(name: str, value: Any, least: int) -> int:
    """The value, a whole number of at least ``least``; NumPy's become Python's."""
    is_number = hasattr(value, "__index__") and not isinstance(value, bool)
    if not is_number or operator.index(value) < least:
        raise BadInput(f"{name} must be a whole number of at least {least}, got {value!r}")
    return operator.index(value)


def wrong_fields(error: ValidationError) -> str:
    """What pydantic found wrong, every field in one sentence a user can act on."""
    told = []
    for problem in error.errors():
        given = f"{'.'.join(str(part) for part in problem['loc']) or 'value'} is "
        message = problem["msg"].removeprefix("Value error, ")
        said = message.startswith(given)
        told.append(message if said else f"{given}{problem['input']!r}: {message}")
    return "; ".join(told)
