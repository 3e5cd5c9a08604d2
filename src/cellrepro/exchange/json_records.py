"""Dataclasses from JSON and to JSON, validated by pydantic."""

from __future__ import annotations

import json
from typing import ClassVar, TypeVar, cast

from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from cellrepro.words import cut
from cellrepro.wrong_fields import wrong_fields

JsonObject = dict[str, JsonValue]
"""A JSON object."""

Kind = TypeVar("Kind")

_LONGEST_REASON = 400  # characters of a validation error in a message


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
