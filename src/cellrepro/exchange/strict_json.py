"""JSON from elsewhere: parsed if it means the same to every reader, validated as dataclasses."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import ClassVar, TypeVar, cast

from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from cellrepro.errors import BadInput
from cellrepro.wrong_fields import wrong_fields

JsonObject = dict[str, JsonValue]
"""A JSON object."""

Kind = TypeVar("Kind")

MOST_BYTES = 2**24
"""The default limit of a document: 16 MiB."""
MOST_DEPTH = 64
"""The default limit of lists and objects nested in each other."""
_LEAST_INTEGER = -(2**63)
_MOST_INTEGER = 2**63 - 1
_COMMANDS = re.compile(r"[^\t\n\x20-\x7e\xa0-\U0010ffff]")
_LONGEST_REASON = 400  # characters of a validation error in a message
_MOST_DIGITS = 20  # of an integer; Python takes seconds for one of a million digits


class _Refused(ValueError):
    """Raised inside the JSON parser; its text is what the document holds and must not."""


def read_json(
    text: bytes,
    *,
    where: str,
    most_bytes: int = MOST_BYTES,
    most_depth: int = MOST_DEPTH,
    is_shown: bool = False,
) -> object:
    """Parse one JSON document into dict, list, str, int, float, bool and None.

    ``is_shown`` also refuses control characters, for texts that will be printed to a terminal.
    """
    if len(text) > most_bytes:
        raise BadInput(
            f"{where}: {len(text)} bytes of JSON, expected {most_bytes} at most; cellrepro writes "
            "no such file: ask the sender for the file as it was exported"
        )
    try:
        document = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_refuse_constant,
        )
        _check(document, most_depth, is_shown=is_shown)
    except RecursionError:
        problem = f"lists and objects inside each other, deeper than {most_depth}"
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is no UTF-8"
    except json.JSONDecodeError as error:
        problem = f"no JSON ({error})"
    except _Refused as error:
        problem = str(error)
    else:
        return document
    raise BadInput(
        f"{where}: {problem}; expected JSON as cellrepro writes it: ask the sender for the file "
        "as it was exported"
    )


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object, each of whose keys stands once: readers differ in which of two they take."""
    record = dict(pairs)
    if len(record) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in record if names.count(name) > 1)
        raise _Refused(f"the key {_shown(twice)} twice in one object")
    return record


def _integer(text: str) -> int:
    if len(text) <= _MOST_DIGITS and _LEAST_INTEGER <= int(text) <= _MOST_INTEGER:
        return int(text)
    raise _Refused(f"the integer {_shown(text)}, which does not fit into 64 bits")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _Refused(f"the number {_shown(text)}, which is larger than any of 64 bits")
    return number


def _refuse_constant(text: str) -> object:
    raise _Refused(f"{text}, which is no number in JSON")


def _check(document: object, most_depth: int, *, is_shown: bool) -> None:
    """Refuse deep nesting and broken texts, level by level: recursion could overflow the stack."""
    level: list[object] = [document]
    depth = 0
    while level:
        for value in level:
            if isinstance(value, str):
                _check_text(value, is_shown=is_shown)
        inside = [value for value in level if isinstance(value, dict | list)]
        depth += 1 if inside else 0
        if depth > most_depth:
            raise _Refused(f"lists and objects inside each other, deeper than {most_depth}")
        level = [inner for value in inside for inner in _contents(value)]


def _contents(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.keys()
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _check_text(text: str, *, is_shown: bool) -> None:
    if is_shown and _COMMANDS.search(text):
        raise _Refused(f"the text {_shown(text)}, which a terminal takes for commands")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _Refused(f"the text {_shown(text)}, which holds half of a surrogate pair") from error


def _shown(text: str) -> str:
    return ascii(cut(text, 40))


def cut(text: str, most: int) -> str:
    """The text in at most that many letters, the last of which is an ellipsis where it was cut.

    >>> cut("bytes", 5), cut("kilobytes", 5)
    ('bytes', 'kilo…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


# -- dataclasses from JSON and to JSON -----------------------------------------------------


class JsonRecord:
    """A dataclass read from a JSON object, whose unknown names are ignored."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="ignore")


class CamelCaseRecord:
    """The same with names in camelCase, as in-toto and SLSA write them."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="ignore", alias_generator=to_camel)


def read_record(kind: type[Kind], document: object) -> Kind:
    """Validate a JSON document as a dataclass."""
    # Strict validation of Python objects would refuse a list where a tuple is declared; that of
    # JSON text takes it, and still refuses "3" for a number.
    return _adapter(kind).validate_json(json.dumps(document), strict=True)


def why_not_read(error: Exception) -> str:
    """The reason of a failed `read_record`, bounded: the document may have put anything into it."""
    why = wrong_fields(error) if isinstance(error, ValidationError) else str(error)
    return cut(why, _LONGEST_REASON)


def as_json(record: object) -> JsonObject:
    """The JSON object of a dataclass, without the fields that have their default."""
    document: JsonObject = _adapter(type(record)).dump_python(
        record, mode="json", by_alias=True, exclude_defaults=True
    )
    return document


def _adapter(kind: type[Kind]) -> TypeAdapter[Kind]:
    """The cached adapter of a type, since building one takes longer than using it."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return cast("TypeAdapter[Kind]", _adapters[kind])


_adapters: dict[type, TypeAdapter[object]] = {}
