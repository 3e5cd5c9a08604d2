"""Records that are read from JSON of others: every value of the type that is written here."""

from __future__ import annotations

import json
from typing import ClassVar, TypeVar, cast

from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from cellrepro.wrong_fields import wrong_fields

JsonObject = dict[str, JsonValue]
"""A JSON object."""

Kind = TypeVar("Kind")

_LONGEST_REASON = 400  # characters


class JsonRecord:
    """A dataclass that is a JSON object: of others' documents unknown names are ignored."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="ignore")


class CamelCaseRecord:
    """The same with names in camelCase, as in-toto and SLSA have them."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="ignore", alias_generator=to_camel)


def read_record(kind: type[Kind], document: object) -> Kind:
    """Make a record of a JSON document."""
    # As JSON, whose strict rules know lists and texts alone: a "3" is no 3, but a list is a tuple.
    return _adapter(kind).validate_json(json.dumps(document), strict=True)


def why_not_read(error: Exception) -> str:
    """Say why a document was not read, short enough for a message whatever is in it."""
    why = wrong_fields(error) if isinstance(error, ValidationError) else str(error)
    return why if len(why) <= _LONGEST_REASON else f"{why[: _LONGEST_REASON - 1]}…"


def as_json(record: object) -> JsonObject:
    """Give a record as JSON, without the fields that have their default."""
    document: JsonObject = _adapter(type(record)).dump_python(
        record, mode="json", by_alias=True, exclude_defaults=True
    )
    return document


def _adapter(kind: type[Kind]) -> TypeAdapter[Kind]:
    """What reads and writes records of a type: to make one takes longer than to use it."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return cast("TypeAdapter[Kind]", _adapters[kind])


_adapters: dict[type, TypeAdapter[object]] = {}
