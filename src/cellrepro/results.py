"""What every result of the lab has: a sentence, and in a notebook a table below it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from html import escape

MOST_ROWS = 40
"""Of a table in a notebook; the rest is counted in its last line."""

Row = Mapping[str, object]
"""One row of a table: the words of each column by its heading."""


class Result:
    """Something that the lab found out, which says itself.

    `str` of it is its sentence; in Jupyter it shows the sentence above its table.
    """

    @abstractmethod
    def sentence(self) -> str:
        """Say in plain words what was found."""

    def rows(self) -> Sequence[Row]:
        """Give the rows of its table; none where the sentence says all."""
        return ()

    def __str__(self) -> str:
        return self.sentence()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.sentence()}>"

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.sentence())}</p>{html_table(self.rows())}"


def html_table(rows: Sequence[Row], *, most: int = MOST_ROWS) -> str:
    """Write rows as an HTML table, as Jupyter shows those of pandas.

    A column that is empty in every row is left out.

    Parameters
    ----------
    rows : sequence of mapping of str to object
        All with the same headings, those of the first.
    most : int
        Rows that are shown; of the others only the number is.

    Returns
    -------
    str
        Nothing for no rows.

    Examples
    --------
    >>> html_table([{"image": "a", "weights": "", "cells": 3}])  # doctest: +ELLIPSIS
    '<table>...<tr><td>a</td><td>3</td></tr></tbody></table>'
    >>> html_table([])
    ''
    """
    if not rows:
        return ""
    headings = [heading for heading in rows[0] if any(row[heading] != "" for row in rows)]
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    lines = []
    for row in rows[:most]:
        cells = "".join(f"<td>{escape(str(row[heading]))}</td>" for heading in headings)
        lines.append(f"<tr>{cells}</tr>")
    if len(rows) > most:
        lines.append(
            f'<tr><td colspan="{len(headings)}">and {len(rows) - most} more rows</td></tr>'
        )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
