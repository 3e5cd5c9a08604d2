"""Numbers and lists as pictures, pages and sentences write them."""

import math
from collections.abc import Sequence
from typing import Any


def amount(n: int, noun: str) -> str:
    """A number of things: "1 spec", "0 repeats"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def grouped(number: int | float) -> str:
    """A number to read: digits in threes, decimals only of small numbers; a dash for what is none.

    >>> grouped(1234567), grouped(23.81), grouped(0.238)
    ('1 234 567', '23.8', '0.24')
    """
    if not math.isfinite(number):
        return "–"
    decimals = 0 if number == int(number) or number >= 100 else 1 if number >= 10 else 2
    return f"{number:,.{decimals}f}".replace(",", " ")


def ppm_text(ppm: float) -> str:
    """Parts per million to read: never "0" for what is not zero; a dash over nothing.

    >>> ppm_text(0), ppm_text(0.0004), ppm_text(1234.5), ppm_text(math.nan)
    ('0 ppm', 'less than 0.01 ppm', '1 234 ppm', '–')
    """
    if 0 < ppm < 0.01:
        return "less than 0.01 ppm"
    return "–" if math.isnan(ppm) else f"{grouped(ppm)} ppm"


def share_text(share: float) -> str:
    """A share to read, in per cent: never "0 %" for what is not zero; a dash over nothing.

    >>> share_text(0), share_text(0.0043), share_text(0.061), share_text(1), share_text(1e-7)
    ('0 %', '0.43 %', '6.1 %', '100 %', 'less than 0.01 %')
    """
    percent = 100 * share
    if 0 < percent < 0.01:
        return "less than 0.01 %"
    text = f"{percent:.0f} %" if percent >= 9.95 or not percent else f"{percent:.2g} %"
    return "–" if math.isnan(percent) else text


def joined(parts: Sequence[str]) -> str:
    """Parts of a sentence: "a, b and c"."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def some(names: Sequence[str], n_shown: int = 5) -> str:
    """The first names, and how many more there are.

    >>> some(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - n_shown} more" if len(names) > n_shown else ""
    return ", ".join(names[:n_shown]) + more


def setting_in_words(name: str, value: Any) -> str:
    """A field of a spec and its value.

    >>> setting_in_words("weight_decay", 0.2), setting_in_words("train_probs", (("a", 3.0),))
    ('weight decay 0.2', 'train probs a 3')
    >>> setting_in_words("settings.flow_threshold", 0.5)
    'flow_threshold 0.5'
    >>> setting_in_words("settings.normalize.percentile", (2.0, 98.0))
    'normalize.percentile (2, 98)'
    """
    if name == "seed" and value is None:
        return "no seed"
    if isinstance(value, bool):
        value = "on" if value else "off"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, tuple):
        if name == "train_probs":
            value = ", ".join(f"{of} {number:g}" for of, number in value)
        else:
            value = str(value).replace(".0,", ",").replace(".0)", ")")
    setting = name.removeprefix("settings.")
    words = setting if setting != name else name.replace("_", " ")  # Cellpose's own names
    return f"{words} {'default' if value is None else value}"
