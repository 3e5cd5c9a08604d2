"""Texts that may come from anybody, as a terminal or a sentence shows them."""

import re
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import zip_longest

_LONGEST_LINE = 5000
"""Letters that a terminal shows of a line."""

LONGEST_WORD = 120
"""Letters that a sentence gives to what a file of someone else says."""

_LONGEST_WHOLE = 24
"""Letters of a word that a column of a table never breaks."""
_MOST_LINES_OF_ROW = 20

_WORD = re.compile(r"\S+\s*")
_PART = re.compile(r"[^\s_/-]{0,15}[_/-]\s*|[^\s_/-]{1,16}\s*")
_COLUMN = re.compile(r"\S+(?: \S+)*")
_SECOND_COLUMN = re.compile(r" *\S+(?: \S+)* {2,}(?=\S)")


def visible(text: str) -> str:
    r"""A text for a terminal: what moves its cursor, or cannot be seen, is written as an escape.

    Line feeds and tabs stay, and a line longer than any of the lab's own is cut. Names and messages
    may come from a file that someone else sent.

    >>> print(visible("a\x1b[2J\u202etxt.exe"), visible("ä 1 000"))
    a\x1b[2J\u202etxt.exe ä 1 000
    """
    lines = text.split("\n") if len(text) > _LONGEST_LINE else [text]
    bounded = "\n".join(map(_bounded, lines))
    if bounded.isprintable():
        return bounded
    return "".join(_escaped(letter) if _is_hidden(letter) else letter for letter in bounded)


def _bounded(line: str) -> str:
    if len(line) <= _LONGEST_LINE:
        return line
    return f"{line[:_LONGEST_LINE]}… ({len(line)} letters)"


def wrapped(text: str, width: int) -> str:
    r"""A text in lines of at most that width, broken between words, the next line as far in.

    A cell of a table goes on in its own column, and a row without a heading under its second
    column. A line with options stays whole: it may be a command to copy, which a terminal breaks
    only on the screen.

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
            indent = " " * (len(lines[0]) - len(lines[0].lstrip()))
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
    table = []
    for content in lines:
        is_above_gaps = any(content[start - 2 : start].strip() for start in starts[1:])
        if is_above_gaps or content[: starts[0]].strip() or not content[starts[1] :]:
            break
        ends = [*starts[1:], None]
        table.append(
            [content[start:end].rstrip() for start, end in zip(starts, ends, strict=True)]
        )
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
    whole = [_width_of(column, 1) for column in columns]
    left = room - sum(widths)
    for n in sorted(range(len(whole)), key=lambda n: whole[n] - widths[n]):
        given = max(0, min(left, whole[n] - widths[n]))
        widths[n] += given
        left -= given
    for cells in zip(*columns, strict=True):
        lines = [_lines_of(cell, width) for cell, width in zip(cells, widths, strict=True)]
        for parts in zip_longest(*lines, fillvalue=""):
            padded = (part.ljust(width) for part, width in zip(parts, widths, strict=True))
            yield "  ".join(padded).rstrip()


def _pieces(cell: str) -> list[str]:
    """The words of a cell, each with the space after it, and parts of a long one, as of a file's name."""
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
    if len(content) <= width or " -" in content:
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


def short(text: str, most: int = LONGEST_WORD) -> str:
    r"""A text of someone else's as a sentence has it: `visible`, in one line, of bounded length.

    >>> short("cells"), short("a\nb"), short(1000 * "a", 12)
    ('cells', 'a\\nb', 'aaaaaaaa… (1000 letters)')
    """
    if len(text) <= most and text.isprintable():
        return text
    kept = text if len(text) <= most else text[: most - 4]
    line = visible(kept).replace("\n", "\\n").replace("\t", "\\t")
    return line if len(text) <= most else f"{line}… ({len(text)} letters)"


def _is_hidden(letter: str) -> bool:
    is_layout = letter in "\n\t"
    return not is_layout and unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
