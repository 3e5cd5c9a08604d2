"""Texts that may come from anybody, as a terminal or a sentence shows them."""

import unicodedata

_LONGEST_LINE = 5000
"""Letters that a terminal shows of a line."""

LONGEST_WORD = 120
"""Letters that a sentence gives to what a file of someone else says."""


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
