"""Numbers and lists as sentences write them."""

import math
from collections.abc import Sequence


def amount(n: int, noun: str) -> str:
    """A number of things, its digits in threes.

    >>> amount(1, "spec"), amount(0, "repeat"), amount(6800, "time"), amount(9112760, "byte")
    ('1 spec', '0 repeats', '6 800 times', '9 112 760 bytes')
    """
    return f"{grouped(n)} {noun}" if n == 1 else f"{grouped(n)} {noun}s"


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


def joined(parts: Sequence[str]) -> str:
    """Parts of a sentence: "a, b and c".

    >>> joined(["a", "b", "c"]), joined(["a"]), joined([])
    ('a, b and c', 'a', '')
    """
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def some(names: Sequence[str], n_shown: int = 5, *, between: str = ", ") -> str:
    """The first names, and how many more there are; of three and more never "and 1 more".

    >>> some("abcde", 3), some("abcd", 3), some("abc", 2)
    ('a, b, c and 2 more', 'a, b, c, d', 'a, b and 1 more')
    """
    if n_shown > 2 and len(names) == n_shown + 1:
        return between.join(names)
    listed = between.join(names[:n_shown])
    n_more = len(names) - n_shown
    return f"{listed} and {n_more} more" if n_more > 0 else listed
