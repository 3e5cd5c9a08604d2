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

_EXPECTED = {
    "float": "a number",
    "int": "a whole number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "tuple": "a list",
    "dict": "fields with values",
    "model": "fields with values",
    "none_required": "nothing",
    "finite_number": "a finite number",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "literal_error": "one of {expected}",
    "enum": "one of {expected}",
    "too_short": "at least {min_length} values in it",
    "too_long": "at most {max_length} values in it",
    "json_invalid": "JSON ({error})",
}
"""What was expected where pydantic 2 found an error, by its type or the first word of that."""

_FORMS = {
    "^[0-9a-f]{64}$": "a SHA-256 digest: 64 of the digits 0 to 9 and a to f",
    r"^\d+(\.\d+)+\w*$": "a version: numbers with dots between, such as 4.2.1.1",
    r"^(cpu|mps|cuda|cuda:\d+)$": "cpu, mps, cuda, or one GPU by its number, such as cuda:1",
}
"""The patterns of texts, in words."""


def wrong_fields(error: ValidationError, *, known: Collection[str] = ()) -> str:
    """Write a sentence for each wrong field, ten at most; long values are cut."""
    sentences = list(dict.fromkeys(_wrong_field(problem, known) for problem in error.errors()))
    n_more = len(sentences) - _MOST_FIELDS
    more = [f"and {n_more} more like these"] if n_more > 0 else []
    return "; ".join([*sentences[:_MOST_FIELDS], *more])


def _wrong_field(problem: ErrorDetails, known: Collection[str]) -> str:
    parts = [str(part) for part in problem["loc"]]
    name = ".".join(part for part in parts if "[" not in part) or "value"  # no types of a union
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
    if problem["type"] in {"value_error", "assertion_error"}:
        return f"{name} is {_short(problem['input'])}: {message}"
    return not_expected(name, problem["input"], _expected(problem))


def not_expected(name: str, value: object, expected: str) -> str:
    """Say what was given, and what was expected."""
    return f"{name} is {_short(value)}; expected {expected}"


def _expected(problem: ErrorDetails) -> str:
    kind = problem["type"]
    if kind == "string_pattern_mismatch":
        return _FORMS[problem["ctx"]["pattern"]]
    known = _EXPECTED.get(kind, _EXPECTED.get(kind.partition("_")[0]))
    if known is not None:
        return known.format(**problem.get("ctx", {})).removesuffix(".0")
    return problem["msg"].removeprefix("Input should be ")


def _short(value: object) -> str:
    """The ``repr`` of a value, cut where it is long."""
    text = reprlib.repr(value) if isinstance(value, Sized) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
