"""JSON from elsewhere, parsed if it means the same to every reader.

Python's parser takes what others read in another way, or not at all: a key twice, NaN, integers of
any size. All of that is refused, and what is too large or too deep.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator

from cellrepro.words import cut
from samebits.errors import BadInput

MOST_BYTES = 2**24
"""The default limit of a document: 16 MiB."""
MOST_DEPTH = 64
"""The default limit of lists and objects nested in each other."""
_LEAST_INTEGER = -(2**63)
_MOST_INTEGER = 2**63 - 1
_COMMANDS = re.compile(r"[^\t\n\x20-\x7e\xa0-\U0010ffff]")
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
