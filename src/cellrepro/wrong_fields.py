"""Wrong fields of a document, as pydantic finds them, in sentences that a user can act on."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Sized
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_MOST_FIELDS = 10
"""Wrong fields that a message names."""
_LONGEST = 120
"""Characters of a value in a message."""


def wrong_fields(error: ValidationError, *, known: Collection[str] = ()) -> str:
    """Write a sentence for each wrong field, ten at most; long values are cut."""
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
    is_of_several = not problem["loc"] and problem["type"] == "value_error"
    if is_of_several or message.startswith(f"{name} is "):
        return message
    return f"{name} is {_short(problem['input'])}: {message}"


def _short(value: object) -> str:
    """The ``repr`` of a value, cut where it is long."""
    text = reprlib.repr(value) if isinstance(value, Sized) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
