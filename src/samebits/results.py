"""The base of every answer: a record whose fields are its JSON and whose methods are its words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from inspect import ismethod
from math import isfinite
from typing import TypeVar

from samebits.shown_text import visible
from samebits.words import amount

MOST_ROWS = 40
"""Rows of a table in a notebook; its last line counts the rest."""
MOST_LINES = 12
"""Rows of a table in a terminal; the JSON has all."""

_ALREADY_PLAIN = (str, int, bool, type(None))
_NOT_PRINTED = re.compile("[^\\n -~]")

Row = Mapping[str, object]
"""One row of a table: the words of each column by its heading."""


class derived(property):
    """A property that stands in the JSON after the fields, from which it follows."""


Method = TypeVar("Method")
_IN_JSON = "stands_in_json"


def in_json(method: Method) -> Method:
    """Put what a method without arguments returns, such as ``sentence``, into the JSON."""
    setattr(method, _IN_JSON, True)
    return method


class Result:
    """Something that the lab found out, which says itself.

    Subclasses are frozen dataclasses, or have a ``json_record``. Their fields are what ``--json``
    prints, but for those whose names begin with an underscore; `derived` properties follow them.
    `str` of a result is its sentence; in Jupyter it shows the sentence above its table.
    """

    @property
    def exit_code(self) -> int:
        """The exit code of a command that prints it: 1 for what a script must notice.

        That is so where the result has a true ``differs``: a difference, or nothing to show.
        """
        return int(bool(getattr(self, "differs", False)))

    def sentence(self) -> str:
        """Say in plain words what was found."""
        raise NotImplementedError

    def rows(self) -> Sequence[Row]:
        """Give the rows of its table; none where the sentence says all."""
        return ()

    def lines(self) -> Sequence[str]:
        """Give the lines that a terminal shows."""
        return [*self.sentence().splitlines(), *table_lines(self.rows())]

    def as_json(self) -> str:
        """Give its fields as JSON; NaN and infinities, which JSON lacks, become null."""
        return json_text(self)

    def as_text(self) -> str:
        """Give its lines, each with its end; nothing in them moves a terminal's cursor."""
        return visible("\n".join(self.lines())) + "\n"

    def __str__(self) -> str:
        return self.sentence()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.sentence()}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<p>{escape(self.sentence())}</p>{html_table(self.rows())}"


def json_text(value: object) -> str:
    """Write a value as JSON, by `plain`, in ASCII: every terminal shows it, and moves no cursor."""
    import json

    from pydantic_core import PydanticSerializationError, to_json  # a tenth of json's time

    content = plain(value)
    try:
        text = to_json(content, indent=1).decode()
    except PydanticSerializationError:  # a file name that is no UTF-8, or 255 levels
        text = json.dumps(content, indent=1, allow_nan=False)
    return _NOT_PRINTED.sub(lambda letter: json.dumps(letter[0])[1:-1], text) + "\n"


def plain(value: object) -> object:
    """Convert a value to what JSON has: dataclasses to objects, tuples to lists.

    An object with files and methods is replaced by its ``json_record``.
    """
    if type(value) in _ALREADY_PLAIN:
        return value
    if type(value) is float:
        return value if isfinite(value) else None
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {plain(name): plain(content) for name, content in value.items()}
    value = getattr(value, "json_record", value)
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(_content(getattr(value, name))) for name in json_names(type(value))}
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, inf_nan_mode="null", fallback=lambda array: array.tolist())


def json_names(record: type) -> list[str]:
    """The names of a record's fields in JSON, and of its `derived` properties after them.

    A field with ``repr=False``, such as an array, is kept for computing and stands in neither.
    """
    shown = [field.name for field in fields(record) if field.repr]
    names = [name for name in shown if not name.startswith("_")]
    for base in reversed(record.__mro__):
        names += [name for name, member in vars(base).items() if _stands_in_json(member)]
    return list(dict.fromkeys(names))


def _stands_in_json(member: object) -> bool:
    return isinstance(member, derived) or hasattr(member, _IN_JSON)


def _content(member: object) -> object:
    """The value of a field or property, or the return value of a method."""
    return member() if ismethod(member) else member


def table_lines(
    rows: Sequence[Row], *, indent: int = 2, most: int = MOST_LINES, n_rows: int | None = None
) -> Iterator[str]:
    """Write rows as an aligned table for a terminal, under their headings.

    A column that is empty in every row is left out. ``n_rows`` counts those that exist, where only
    the first ones are given.

    >>> print("\\n".join(table_lines([{"image": "a", "note": "", "cells": 3}], indent=0)))
    image  cells
    a      3
    """
    if not rows:
        return
    headings = _headings(rows)
    texts = [[str(row[heading]) for heading in headings] for row in rows[:most]]
    widths = [max(map(len, column)) for column in zip(headings, *texts, strict=True)]
    for line in (headings, *texts):
        cells = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        yield f"{' ' * indent}{'  '.join(cells)}".rstrip()
    n_left_out = (len(rows) if n_rows is None else n_rows) - len(texts)
    if n_left_out:
        yield f"{' ' * indent}and {n_left_out} more; --json names them all"


def html_table(rows: Sequence[Row], *, most: int = MOST_ROWS) -> str:
    """Write rows as an HTML table, as Jupyter shows those of pandas.

    A column that is empty in every row is left out, and the rest after ``most`` rows is counted.

    >>> html_table([{"image": "a", "weights": "", "cells": 3}])  # doctest: +ELLIPSIS
    '<table>...<tr><td>a</td><td>3</td></tr></tbody></table>'
    >>> html_table([])
    ''
    """
    if not rows:
        return ""
    headings = _headings(rows)
    from html import escape

    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    lines = []
    for row in rows[:most]:
        cells = "".join(f"<td>{escape(str(row[heading]))}</td>" for heading in headings)
        lines.append(f"<tr>{cells}</tr>")
    if len(rows) > most:
        others = amount(len(rows) - most, "more row")
        lines.append(f'<tr><td colspan="{len(headings)}">and {others}</td></tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _headings(rows: Sequence[Row]) -> list[str]:
    return [heading for heading in rows[0] if any(row[heading] != "" for row in rows)]
