"""The fields of a record as JSON has them: name, type in words, meaning.

A record is a dataclass, a named tuple or a model of pydantic. What a field means is the docstring
below it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from enum import Enum
from inspect import isclass, isfunction
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from docstring_parser.attrdoc import AttributeDocstrings
from pydantic import BaseModel

from samebits.results import derived, json_names

WORDS = {
    "Count": "integer from 0",
    "AveragePrecision": "number from 0 to 1",
    "Seconds": "number from 0",
    "Digest": "64 hex digits",
    "Data": "text",
    "Scalar": "text, number, true or false",
    "Copy": "text",
    "DescribedKind": "text",
    "Differs": "text",
    "DivergenceJudgement": "text",
    "IntervalOver": "text",
    "Method": "text",
    "NetworkDoubt": "text",
    "Numbering": "text",
    "SideKind": "text",
    "Scores": "list of number",
    "Groups": "list of lists of integers",
    "TwoValues": "[any, any]",
    "TileLine": "[`y` or `x`, integer]",
    "ShellLine": "text",
    "Word": "text",
    "JsonValue": "any",
    "JsonRecord": "any",
    "Result": "object",
    "ReportedSpec": "object",
    "Repeat": "[a repeat](#a-repeat)",
    "Verdict": "[verdict](words.md)",
    "Mode": "[mode](profiles.md#modes)",
    "CheckedMode": "[mode](profiles.md#modes)",
    "Settings": "[settings](settings.md#what-eval-takes)",
}
"""What a reader of JSON calls a type of this package. Others are called by what they are: those of
text with fixed values by these, unless the meanings of their fields say them."""

WORDS_OF_PYTHON: Mapping[object, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    Path: "path",
    object: "any",
    Any: "any",
}


@dataclass(frozen=True)
class Field:
    """A field as a page lists it."""

    name: str
    type: str
    meaning: str


def fields_of(record: type, *, described: Collection[str]) -> Iterator[Field]:
    """The fields of a record in the order of its JSON.

    A class of the names `described` is called by its name in backticks, for a link to its table.
    """
    words = WORDS | {name: f"`{name}`" for name in described}
    sources = sources_of(record)
    for name in names_in_json(record):
        if name not in sources:
            raise ValueError(f"{record.__name__}.{name} has no docstring")
        source = sources[name]
        yield Field(name, type_words(source.annotation, source.names, words), source.meaning)


def names_in_json(record: type) -> list[str]:
    """The names of what the JSON of a record has."""
    if is_dataclass(record):
        return json_names(record)
    fields = record.model_fields if issubclass(record, BaseModel) else record._fields
    return [
        *fields,
        *(name for name, member in vars(record).items() if isinstance(member, derived)),
    ]


# -- what the source says --------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """What the source says of a field, or of a method that stands in the JSON like one."""

    annotation: str
    meaning: str
    names: dict[str, object]
    """Those of the module in which the annotation stands."""


def sources_of(record: type) -> dict[str, Source]:
    """What the source says of each documented field and method of a record."""
    sources = {}
    for base in reversed(record.__mro__):
        if not base.__module__.startswith(("cellrepro.", "samebits.")):
            continue
        names = vars(sys.modules[base.__module__])
        attributes = AttributeDocstrings().get_attr_docs(base)
        for name, (meaning, annotation, _default) in attributes.items():
            sources[name] = Source(annotation, on_one_line(meaning), names)
        for name, member in vars(base).items():
            function = getattr(member, "fget", member)
            annotation = getattr(function, "__annotations__", {}).get("return")
            if isfunction(function) and function.__doc__ and annotation:
                sources[name] = Source(annotation, on_one_line(function.__doc__), names)
    return sources


def on_one_line(text: str) -> str:
    return " ".join(text.split())


# -- types -----------------------------------------------------------------------------------


def type_words(annotation: str, names: dict[str, object], words: Mapping[str, str]) -> str:
    """A type in the words of somebody who reads JSON.

    The `names` are those of its module; what has a word of its own is not looked up there.

    >>> type_words("list[Count] | None", {}, WORDS)
    'list of integer from 0 or null'
    """
    # A type variable may stand in unions and brackets, as the type in whose place it is.
    stand_ins = {name: TypeVar(word) for name, word in words.items()}
    return _in_words(eval(annotation, names, stand_ins))


def _in_words(annotation: Any) -> str:
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is None:
        return _word_of(annotation)
    if origin is Annotated:
        return _in_words(arguments[0])
    if origin is Literal:
        return _one_of(arguments)
    if origin in (Union, UnionType):
        return _alternatives(arguments)
    if issubclass(origin, Mapping):
        return f"{{name: {_in_words(arguments[-1])}}}"
    if origin is tuple and arguments[-1] is not ...:
        return f"[{', '.join(map(_in_words, arguments))}]"
    return f"list of {_in_words(arguments[0])}"


def _alternatives(types: Sequence[Any]) -> str:
    """Types, then fixed values, then null."""
    values = [value for each in types if get_origin(each) is Literal for value in get_args(each)]
    others = [each for each in types if get_origin(each) is not Literal and each is not NoneType]
    words = [_in_words(each) for each in others]
    if values:
        words.append(_one_of(values))
    if NoneType in types:
        words.append("null")
    return " or ".join(words)


def _word_of(single_type: Any) -> str:
    if isinstance(single_type, TypeVar):
        return single_type.__name__
    if isclass(single_type) and issubclass(single_type, Enum):
        return _one_of(member.value for member in single_type)
    if single_type in WORDS_OF_PYTHON:
        return WORDS_OF_PYTHON[single_type]
    raise ValueError(
        f"{single_type} has no word; give it a table in a template of docs/, or a word in "
        f"WORDS of {__file__}"
    )


def _one_of(values: Iterable[object]) -> str:
    *others, last = [f"`{value}`" for value in values]
    return f"{', '.join(others)} or {last}" if others else last
