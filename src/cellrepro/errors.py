"""The two ways in which the lab refuses work, told apart by exit code.

Every message says what was given, what was expected, where, and what to do.
"""

import operator


class CellreproError(Exception):
    """An answer for the user, never a traceback; see the subclasses."""

    exit_code = 2


class BadInput(CellreproError, ValueError):
    """What was given cannot be used: exit code 2, nothing written."""


class NotPossibleHere(CellreproError, RuntimeError):
    """This machine cannot do it (device, memory, disk): exit code 3, nothing written."""

    exit_code = 3


def whole(name: str, value: object, least: int) -> int:
    """The value, a whole number of at least ``least``; NumPy's become Python's.

    Raises
    ------
    BadInput
        If it is another kind of number, or too small.

    Examples
    --------
    >>> whole("repeats", 3, least=1)
    3
    """
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if number < least:
        raise BadInput(f"{name} must be a whole number of at least {least}, got {value!r}")
    return number
