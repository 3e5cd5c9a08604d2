"""Numbers, lists and texts as sentences, pages and terminals write them."""

import math
import re
import shlex
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence

_LONGEST_LINE = 5000
"""Letters that a terminal shows of a line."""
_SHA_256 = re.compile(r"[0-9a-f]{64}")


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
    """A text in lines of at most that width, broken between words, the next line as far in.

    A line with options stays whole: it may be a command to copy, which a terminal breaks only on
    the screen.

    >>> print(wrapped("  two masks differ in 12 pixels", 20))
      two masks differ
      in 12 pixels
    """
    return "".join(_wrapped_line(line, width) for line in text.splitlines(keepends=True))


def _wrapped_line(line: str, width: int) -> str:
    content = line.rstrip("\n")
    if len(content) <= width or " -" in content:
        return line
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
    return "\n".join(lines) + line[len(content) :]


LONGEST_WORD = 120
"""Letters that a sentence gives to what a file of someone else says."""


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


def amount(n: int, noun: str) -> str:
    """A number of things: "1 spec", "0 repeats"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def with_verb(n: int, noun: str, singular: str, plural: str) -> str:
    """A number of things and what they do.

    >>> with_verb(1, "label", "is", "are"), with_verb(2, "label", "is", "are")
    ('1 label is', '2 labels are')
    """
    return f"{amount(n, noun)} {singular if n == 1 else plural}"


def grouped(number: int | float) -> str:
    """A number to read: digits in threes, decimals only of small numbers; a dash for what is none.

    >>> grouped(1234567), grouped(23.81), grouped(0.238), grouped(0.004), grouped(0)
    ('1 234 567', '23.8', '0.24', '0.004', '0')
    """
    if not math.isfinite(number):
        return "–"
    if 0 < abs(number) < 0.01:  # never "0.00" for what is not zero
        return f"{number:.2g}"
    if number == int(number) or number >= 100:
        decimals = 0
    elif number >= 10:
        decimals = 1
    else:
        decimals = 2
    return f"{number:,.{decimals}f}".replace(",", " ")


def ppm_text(ppm: float) -> str:
    """Parts per million to read: never "0" or all for what is not; a dash over nothing.

    >>> ppm_text(0), ppm_text(0.0004), ppm_text(1234.5), ppm_text(999_999.8), ppm_text(math.nan)
    ('0 ppm', 'less than 0.01 ppm', '1 234 ppm', 'more than 999 999 ppm', '–')
    """
    if math.isnan(ppm):
        return "–"
    if 0 < ppm < 0.01:
        return "less than 0.01 ppm"
    if 999_999 < ppm < 1_000_000:
        return "more than 999 999 ppm"
    return f"{grouped(ppm)} ppm"


def share_text(share: float) -> str:
    """A share to read, in per cent: never "0 %" or "100 %" for what is not; a dash over nothing.

    >>> share_text(0), share_text(0.0043), share_text(0.061), share_text(1), share_text(1e-7)
    ('0 %', '0.43 %', '6.1 %', '100 %', 'less than 0.01 %')
    >>> share_text(0.994), share_text(0.997), share_text(0.9996), share_text(0.99996)
    ('99 %', '99.7 %', '99.96 %', 'more than 99.99 %')
    """
    if math.isnan(share):
        return "–"
    percent = 100 * share
    if 0 < percent < 0.01:
        return "less than 0.01 %"
    if 99.99 < percent < 100:
        return "more than 99.99 %"
    if 99.9 <= percent < 100:
        return f"{percent:.2f} %"
    if 99.5 <= percent < 99.9:
        return f"{percent:.1f} %"
    if 0 < percent < 9.95:
        return f"{percent:.2g} %"
    return f"{percent:.0f} %"


def pixels_text(ppm: float) -> str:
    """A share of the pixels to read: in per cent, and in parts per million.

    >>> pixels_text(1234.5), pixels_text(3)
    ('0.12 % of the pixels (1 234 ppm)', 'less than 0.01 % of the pixels (3 ppm)')
    """
    return f"{share_text(ppm / 1e6)} of the pixels ({ppm_text(ppm)})"


def place_text(position: Sequence[float], shape: Sequence[int] = ()) -> str:
    """Say where a centroid lies, as it is found in a viewer: planes count from 1."""
    *planes, y, x = position
    of_all = f" of {shape[0]}" if len(shape) == 3 else ""
    parts = [f"plane {round(z) + 1}{of_all}" for z in planes]
    return ", ".join([*parts, f"y {y:.0f}", f"x {x:.0f}"])


def span(low: str, high: str) -> str:
    """Both ends of a range as a sentence has them; the one value where they read alike.

    >>> span("0.80", "0.83"), span("0 %", "0 %")
    ('0.80 to 0.83', '0 %')
    """
    return low if low == high else f"{low} to {high}"


def that_differ(n: int, noun: str) -> str:
    """A number of things, and that they differ: "1 pixel differs", "no cell differs".

    >>> that_differ(0, "pixel"), that_differ(1, "pixel"), that_differ(2, "pixel")
    ('no pixel differs', '1 pixel differs', '2 pixels differ')
    """
    if n == 0:
        return f"no {noun} differs"
    verb = "differs" if n == 1 else "differ"
    return f"{amount(n, noun)} {verb}"


def joined(parts: Sequence[str]) -> str:
    """Parts of a sentence: "a, b and c".

    >>> joined(["a", "b", "c"]), joined(["a"]), joined([])
    ('a, b and c', 'a', '')
    """
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def some(names: Sequence[str], n_shown: int = 5) -> str:
    """The first names, and how many more there are.

    >>> some(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    listed = ", ".join(names[:n_shown])
    n_more = len(names) - n_shown
    return f"{listed} and {n_more} more" if n_more > 0 else listed


def short_digest(text: str) -> str:
    """A SHA-256 as a sentence has it, its first twelve digits; any other text as it is.

    >>> short_digest("b411e13f4873" + 52 * "0"), short_digest("uint16")
    ('b411e13f4873…', 'uint16')
    """
    return f"{text[:12]}…" if _SHA_256.fullmatch(text) else text


def with_variables(variables: Mapping[str, str], command: str, *, windows: bool) -> str:
    """A command with environment variables before it, as one writes it in a shell.

    >>> with_variables({"A": "1", "B": "x y"}, "python …", windows=False)
    "A=1 B='x y' python …"
    >>> with_variables({"A": "1", "B": "it's"}, "python …", windows=True)
    "$env:A='1'; $env:B='it''s'; python …"
    """
    if not windows:
        set_for_it = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        return " ".join([*set_for_it, command])
    doubled = {name: value.replace("'", "''") for name, value in variables.items()}
    return "; ".join([*(f"$env:{name}='{value}'" for name, value in doubled.items()), command])


def words_of(command: str, *, windows: bool) -> list[str]:
    r"""The words of a command line, as a shell divides them.

    >>> words_of("python 'my script.py' {image}", windows=False)
    ['python', 'my script.py', '{image}']
    >>> words_of(r'C:\py\python.exe "C:\my files\a.py" {image}', windows=True)
    ['C:\\py\\python.exe', 'C:\\my files\\a.py', '{image}']
    """
    divided = shlex.shlex(command, posix=True, punctuation_chars=False)
    divided.whitespace_split = True
    divided.commenters = ""
    if windows:
        divided.escape = ""
    return list(divided)
