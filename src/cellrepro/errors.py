"""The two ways in which the lab refuses work, told apart by exit code.

Every message says what was given, what was expected, where, and what to do.
"""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Collection, Sized
from difflib import get_close_matches
from typing import TYPE_CHECKING, SupportsIndex, cast

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails


_MOST_FIELDS = 10
"""Wrong fields that a message names."""
_LONGEST = 120
"""Characters of a value in a message."""


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


def whole(name: str, value: object, least: int) -> int:
    """Check that a value is a whole number of at least ``least``.

    Parameters
    ----------
    name : str
        Of the value, for the message.
    value : object
        Of Python's or NumPy's types.
    least : int
        The smallest that it may be.

    Returns
    -------
    int
        The value, as Python's.

    Raises
    ------
    BadInput
        If it is no whole number, or a smaller one.
    """
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


def wrong_fields(error: ValidationError, *, known: Collection[str] = ()) -> str:
    """What pydantic found wrong, every field in one sentence a user can act on.

    Parameters
    ----------
    error : ValidationError
        As pydantic raised it.
    known : collection of str
        Names that would have been taken; the nearest one is proposed for a name that is not.

    Returns
    -------
    str
        At most ten of them; what was given is cut where it is long, and left out of a missing
        field's, where it would be the whole document.
    """
    sentences = [_wrong_field(problem, known) for problem in error.errors()]
    n_more = len(sentences) - _MOST_FIELDS
    more = [f"and {n_more} more like these"] if n_more > 0 else []
    return "; ".join([*sentences[:_MOST_FIELDS], *more])


def _wrong_field(problem: ErrorDetails, known: Collection[str]) -> str:
    name = ".".join(str(part) for part in problem["loc"]) or "value"
    if problem["type"] == "missing":
        return f"{name} is missing"
    if problem["type"] == "extra_forbidden":
        near = get_close_matches(name, known, 1)
        proposal = f"; do you mean {near[0]}?" if near else ""
        return f"{name} is {_short(problem['input'])}: there is no such field{proposal}"
    message = problem["msg"].removeprefix("Value error, ")
    if message.startswith(f"{name} is "):
        return message
    return f"{name} is {_short(problem['input'])}: {message}"


def _short(value: object) -> str:
    """A value as Python writes it, its middle left out where it is long."""
    text = reprlib.repr(value) if isinstance(value, Sized) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
