"""Lines and tables in the width of a terminal."""

import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TextIO

_LONGEST_WHOLE = 24
"""Letters of a word that a column of a table never breaks."""
_MOST_LINES_OF_ROW = 20

_WORD = re.compile(r"\S+(?: %)?\s*")
_PART = re.compile(r"[^\s_/-]{0,15}[_/-]\s*|[^\s_/-]{1,16}\s*")
_COMMAND = re.compile(r" *(?:[^:`]*: )?(?:cellrepro|python3?|pip|uv) [a-z-]+ | {4,}\S.* -")
_COLUMN = re.compile(r"\S+(?: \S+)*")
_SECOND_COLUMN = re.compile(r" *\S+(?: \S+)* {2,}(?=\S)")


def fitted(text: str, stream: TextIO) -> str:
    """A text that no terminal has to break inside a word; a file gets it as it is."""
    return wrapped(text, shutil.get_terminal_size().columns) if stream.isatty() else text


def wrapped(text: str, width: int) -> str:
    r"""A text in lines of at most that width, broken between words, the next line as far in.

    A cell of a table goes on in its own column, and a row without a heading under its second
    column. A command to copy stays whole, which a terminal breaks only on the screen.

    >>> print(wrapped("  two masks differ in 12 pixels", 20))
      two masks differ
      in 12 pixels
    >>> print(wrapped("0a1b  identical  train nuclei, seed 0", 27))
    0a1b  identical  train
          nuclei, seed 0
    >>> print(wrapped("run   what\n0a1b  train nuclei, seed 0", 20))
    run   what
    0a1b  train nuclei,
          seed 0
    """
    lines = text.split("\n")
    fitted: list[str] = []
    while lines:
        table = _table_at_top(lines)
        n_rows = max(1, len(table))
        if table and max(map(len, lines[:n_rows])) > width:
            indent = " " * min(len(line) - len(line.lstrip()) for line in lines[:2])
            rows = _fitted_table(table, width - len(indent))
            fitted += [f"{indent}{row}" for row in rows]
        else:
            fitted += [_wrapped_line(line, width) for line in lines[:n_rows]]
        del lines[:n_rows]
    return "\n".join(fitted)


def _table_at_top(lines: Sequence[str]) -> list[list[str]]:
    """The cells of the rows that begin a text, the heading's first; none where it is no table."""
    heading = lines[0]
    starts = [column.start() for column in _COLUMN.finditer(heading)]
    if len(starts) < 2:
        return []
    indent = min(len(line) - len(line.lstrip()) for line in lines[:2])
    if indent < starts[0]:  # the first column has no heading
        starts.insert(0, indent)
    table = []
    for content in lines:
        is_above_gaps = any(content[start - 2 : start].strip() for start in starts[1:])
        if is_above_gaps or content[: starts[0]].strip() or not content[starts[1] :]:
            break
        ends = [*starts[1:], None]
        table.append([content[start:end].rstrip() for start, end in zip(starts, ends, strict=True)])
    return table if len(table) > 1 else []


def _fitted_table(table: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """The lines of a table in that width: of each row as few as can be."""
    columns = [[_pieces(cell) for cell in column] for column in zip(*table, strict=True)]
    room = width - 2 * (len(columns) - 1)
    widths: list[int] = []
    for n_lines in range(1, _MOST_LINES_OF_ROW + 1):
        widths = [_width_of(column, n_lines) for column in columns]
        if sum(widths) <= room:
            break
    for rows in (slice(1, None), slice(None)):  # headings are broken before what stands below
        whole = [_width_of(column[rows], 1) for column in columns]
        for n in sorted(range(len(whole)), key=lambda n: whole[n] - widths[n]):
            widths[n] += max(0, min(room - sum(widths), whole[n] - widths[n]))
    for cells in zip(*columns, strict=True):
        lines = [_lines_of(cell, width) for cell, width in zip(cells, widths, strict=True)]
        for parts in zip_longest(*lines, fillvalue=""):
            padded = (part.ljust(width) for part, width in zip(parts, widths, strict=True))
            yield "  ".join(padded).rstrip()


def _pieces(cell: str) -> list[str]:
    """The words of a cell, with the space after them; long ones, as a file's name, in parts."""
    pieces: list[str] = []
    for word in _WORD.findall(cell):
        pieces += _PART.findall(word) if len(word) > _LONGEST_WHOLE else [word]
    return pieces


def _width_of(column: Sequence[Sequence[str]], n_lines: int) -> int:
    """The least width in which no cell takes more lines."""
    width = 1
    for cell in column:
        letters = sum(map(len, cell))
        longest = max((len(piece.rstrip()) for piece in cell), default=0)
        width = max(width, longest, letters // n_lines)
        while len(_lines_of(cell, width)) > n_lines:
            width += 1
    return width


def _lines_of(cell: Sequence[str], width: int) -> list[str]:
    lines = [""]
    for piece in cell:
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def _wrapped_line(content: str, width: int) -> str:
    if len(content) <= width or _COMMAND.match(content):
        return content
    second_column = _SECOND_COLUMN.match(content)
    if second_column is not None and 2 * second_column.end() <= width:
        indent = " " * second_column.end()
    else:
        indent = content[: len(content) - len(content.lstrip())]
    lines = textwrap.wrap(
        content,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        expand_tabs=False,
        replace_whitespace=False,
    )
    return "\n".join(lines)
