"""Numbers of pixels and cells, places and times as sentences and tables write them."""

import math
import re
from collections.abc import Iterable, Sequence

from samebits.words import amount, grouped, verb_of, with_verb

_LEAST_PERCENT = 100  # ppm, which is 0.01 %
_SHA_256 = re.compile(r"[0-9a-f]{64}")
_NUMBER_GAP = re.compile(r"(?<=\d) (?=\d{3}(?!\d)|%|ppm\b|kB\b|MB\b)")


def unbroken(text: str) -> str:
    """A number stays on one line with its digits and its unit.

    >>> unbroken("1 184 cells, 3 %").split(" ")
    ['1\\xa0184', 'cells,', '3\\xa0%']
    """
    return _NUMBER_GAP.sub("\u00a0", text)


def share_text(share: float) -> str:
    """A share to read: in per cent, a tiny one in parts per million; a dash over nothing.

    Never "0 %" or "100 %" for what is not.

    >>> share_text(0), share_text(0.0043), share_text(0.061), share_text(1), share_text(3e-6)
    ('0 %', '0.43 %', '6.1 %', '100 %', '3 ppm')
    >>> share_text(0.994), share_text(0.997), share_text(0.9996), share_text(0.99996)
    ('99 %', '99.7 %', '99.96 %', 'more than 99.99 %')
    """
    ppm = 1e6 * share
    if 0 < ppm < 0.01:
        return "less than 0.01 ppm"
    if 0 < ppm < _LEAST_PERCENT:
        return f"{grouped(ppm)} ppm"
    return percent_text(share)


def percent_text(share: float) -> str:
    """A share in per cent, however small: one unit for all rows of a column.

    >>> percent_text(0.0043), percent_text(7.63e-5), percent_text(1e-9), percent_text(math.nan)
    ('0.43 %', '0.0076 %', 'less than 0.0001 %', '–')
    """
    if math.isnan(share):
        return "–"
    percent = 100 * share
    if 0 < percent < 1e-4:
        return "less than 0.0001 %"
    if 99.99 < percent < 100:
        return "more than 99.99 %"
    if 99.9 <= percent < 100:
        return f"{percent:.2f} %"
    if 99.5 <= percent < 99.9:
        return f"{percent:.1f} %"
    if 0 < percent < 9.95:
        return f"{percent:.2g} %"
    return f"{percent:.0f} %"


def images_in_text(chance: float) -> str:
    """A probability as so many images of a round number, which reads easier than a decimal.

    >>> images_in_text(0.0029), images_in_text(0.6), images_in_text(1)
    ('1 image in 340', '6 images in 10', 'every image')
    >>> images_in_text(1e-9)
    'less than 1 image in 1 000 000'
    """
    if chance < 1e-6:
        return "less than 1 image in 1 000 000"
    if chance > 0.95:
        return "every image"
    if chance > 0.1:
        return f"{amount(round(10 * chance), 'image')} in 10"
    return f"1 image in {grouped(float(f'{1 / chance:.2g}'))}"


def iou_text(iou: float, decimals: int = 2) -> str:
    """An overlap to read, rounded, but cut where it would be shown as the 0.5 or 1 that it misses.

    >>> iou_text(0.7595), iou_text(0.4996), iou_text(1), iou_text(0.9996, 3)
    ('0.76', '0.49', '1.00', '0.999')
    """
    rounded = f"{iou:.{decimals}f}"
    if not (iou < 0.5 <= float(rounded) or iou < 1 <= float(rounded)):
        return rounded
    steps = 10**decimals
    return f"{math.floor(iou * steps) / steps:.{decimals}f}"


def pixels_text(ppm: float, unit: str = "pixels") -> str:
    """A share of the pixels to read, given in parts per million, which stand after a tiny one.

    >>> pixels_text(1234.5), pixels_text(3, "voxels")
    ('0.12 % of the pixels', '0.0003 % of the voxels (3 ppm)')
    """
    share = ppm / 1e6
    text = f"{percent_text(share)} of the {unit}"
    return f"{text} ({share_text(share)})" if 0 < ppm < _LEAST_PERCENT else text


def differing_text(n: int, n_all: int, unit: str = "pixels") -> str:
    """How many pixels of an image differ, as a sentence: a tiny share is read as a number of them.

    >>> differing_text(1234, 10000), differing_text(1, 196608), differing_text(20, 10**6, "voxels")
    ('12 % of the pixels differ', '1 of 196 608 pixels differs', '20 of 1 000 000 voxels differ')
    """
    ppm = 1e6 * n / n_all if n_all else 0.0
    if not 0 < ppm < _LEAST_PERCENT:
        return f"{pixels_text(ppm, unit)} differ"
    return f"{grouped(n)} of {grouped(n_all)} {unit} {verb_of(n, 'differs', 'differ')}"


def place_text(position: Sequence[float], shape: Sequence[int] = ()) -> str:
    """Say where a centroid lies; planes count from 0, as rows and columns do.

    >>> place_text((3, 8.2, 40)), place_text((3, 8.2, 40), (7, 64, 64)), place_text((8.2, 40))
    ('z 3, y 8, x 40', 'z 3 (of 0 to 6), y 8, x 40', 'y 8, x 40')
    """
    *planes, y, x = position
    of_all = f" (of 0 to {shape[0] - 1})" if len(shape) == 3 else ""
    parts = [f"z {round(z)}{of_all}" for z in planes]
    return ", ".join([*parts, f"y {y:.0f}", f"x {x:.0f}"])


def area_text(rows: tuple[int, int], columns: tuple[int, int]) -> str:
    """Say which pixels a part of an image has, from the first and the one after the last.

    >>> area_text((0, 200), (50, 250))
    'rows 0 to 199 and columns 50 to 249'
    """
    (top, below), (left, right) = rows, columns
    return f"rows {top} to {below - 1} and columns {left} to {right - 1}"


def span(low: str, high: str) -> str:
    """Both ends of a range as a sentence has them; the one value where they read alike.

    >>> span("0.80", "0.83"), span("0 %", "0 %")
    ('0.80 to 0.83', '0 %')
    """
    return low if low == high else f"{low} to {high}"


def share_span(low: float, high: float) -> str:
    """Both ends of a range of shares, in one unit; a wide one begins at tenths of a per cent.

    >>> share_span(0.012, 0.034), share_span(5e-5, 0.88), share_span(0, 0), share_span(2e-6, 9e-6)
    ('1.2 % to 3.4 %', '0 % to 88 %', '0 %', '2 ppm to 9 ppm')
    """
    if low < 0.01 and high >= 0.1:
        low = round(low, 3)
    if low > 0 and "ppm" in share_text(low) and "ppm" not in share_text(high):
        return span(percent_text(low), share_text(high))
    return span(share_text(low), share_text(high))


def that_differ(n: int, noun: str) -> str:
    """A number of things, and that they differ: "1 pixel differs", "no cell differs".

    >>> that_differ(0, "pixel"), that_differ(1, "pixel"), that_differ(2, "pixel")
    ('no pixel differs', '1 pixel differs', '2 pixels differ')
    """
    if n == 0:
        return f"no {noun} differs"
    return with_verb(n, noun, "differs", "differ")


def as_sentence(text: str) -> str:
    """A text as a sentence of its own; an empty one stays empty.

    >>> as_sentence("two different networks"), as_sentence("is it?"), as_sentence("")
    ('Two different networks.', 'Is it?', '')
    """
    if not text:
        return ""
    end = "" if text.endswith("?") else "."
    return f"{text[:1].upper()}{text[1:].rstrip('.')}{end}"


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
