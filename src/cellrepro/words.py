"""Numbers and lists as sentences and tables write them."""

import math
import re
from collections.abc import Iterable, Sequence

_FEWEST_GROUPED = 10_000
_SHA_256 = re.compile(r"[0-9a-f]{64}")


def amount(n: int, noun: str) -> str:
    """A number of things; from five digits on in threes.

    >>> amount(1, "spec"), amount(0, "repeat"), amount(6800, "time"), amount(9112760, "byte")
    ('1 spec', '0 repeats', '6800 times', '9 112 760 bytes')
    """
    number = grouped(n) if n >= _FEWEST_GROUPED else str(n)
    return f"{number} {noun}" if n == 1 else f"{number} {noun}s"


def any_of(n: int, noun: str) -> str:
    """Any of several things, or the one that there is.

    >>> any_of(3, "image"), any_of(1, "image")
    ('any of the 3 images', 'the only image')
    """
    return f"the only {noun}" if n == 1 else f"any of the {amount(n, noun)}"


def with_verb(n: int, noun: str, singular: str, plural: str) -> str:
    """A number of things and what they do.

    >>> with_verb(1, "label", "is", "are"), with_verb(2, "label", "is", "are")
    ('1 label is', '2 labels are')
    """
    return f"{amount(n, noun)} {verb_of(n, singular, plural)}"


def verb_of(n: int, singular: str, plural: str) -> str:
    """The verb of a number of things.

    >>> [f"{n} of 9 cells {verb_of(n, 'depends', 'depend')}" for n in (1, 2)]
    ['1 of 9 cells depends', '2 of 9 cells depend']
    """
    return singular if n == 1 else plural


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
    """Say where a centroid lies; planes count from 0, as rows and columns do.

    >>> place_text((3, 8.2, 40)), place_text((3, 8.2, 40), (7, 64, 64)), place_text((8.2, 40))
    ('z 3, y 8, x 40', 'z 3 (of 0 to 6), y 8, x 40', 'y 8, x 40')
    """
    *planes, y, x = position
    of_all = f" (of 0 to {shape[0] - 1})" if len(shape) == 3 else ""
    parts = [f"z {round(z)}{of_all}" for z in planes]
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
    return with_verb(n, noun, "differs", "differ")


def joined(parts: Sequence[str]) -> str:
    """Parts of a sentence: "a, b and c".

    >>> joined(["a", "b", "c"]), joined(["a"]), joined([])
    ('a, b and c', 'a', '')
    """
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def as_sentence(text: str) -> str:
    """A text as a sentence of its own; an empty one stays empty.

    >>> as_sentence("two different networks"), as_sentence("")
    ('Two different networks.', '')
    """
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def some(names: Sequence[str], n_shown: int = 5, *, between: str = ", ") -> str:
    """The first names, and how many more there are.

    >>> some(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    listed = between.join(names[:n_shown])
    n_more = len(names) - n_shown
    return f"{listed} and {n_more} more" if n_more > 0 else listed


def name_of_all(names: Iterable[str]) -> str:
    """What a row over all names is called: "all", in parentheses where one of them is called so.

    >>> name_of_all(["a", "b"]), name_of_all(["a", "all"])
    ('all', '(all)')
    """
    taken = set(names)
    name = "all"
    while name in taken:
        name = f"({name})"
    return name


def short_digest(text: str) -> str:
    """A SHA-256 as a sentence has it, its first twelve digits; any other text as it is.

    >>> short_digest("b411e13f4873" + 52 * "0"), short_digest("uint16")
    ('b411e13f4873…', 'uint16')
    """
    return f"{text[:12]}…" if _SHA_256.fullmatch(text) else text


def cut(text: str, most: int) -> str:
    """The text in at most that many letters, the last of which is an ellipsis where it was cut.

    >>> cut("bytes", 5), cut("kilobytes", 5)
    ('bytes', 'kilo…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def minutes(seconds: float) -> str:
    """A time to read, to the second, of more than an hour to the minute.

    >>> minutes(34.2), minutes(59.7), minutes(125), minutes(12_000)
    ('34 s', '1:00 min', '2:05 min', '3:20 h')
    """
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
    if whole >= 60:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole} s"
