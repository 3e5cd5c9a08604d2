"""The limits of a baseline: what they are of, how they are given, and what is beyond one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from samebits.errors import BadInput
from samebits.words import grouped

Limits = Mapping[str, float]
"""Limits by name; masks are not held to one that is left out.

``max_ppm`` limits the differing pixels per million of any one image, ``max_changed`` the share of
the cells of both sides without a match, and ``max_lost`` the cells that only the baseline has.
"""


def limits_text(limits: Limits) -> str:
    """Say what the limits allow, each with its option.

    >>> limits_text({"max_ppm": 0.0, "max_lost": 2})
    'differing pixels of an image: at most 0 ppm (--max-ppm); cells lost: at most 2 (--max-lost)'
    >>> limits_text({"max_ppm": 100000.0})
    'differing pixels of an image: at most 100 000 ppm (--max-ppm)'
    """
    allowed = [
        f"{_LIMITED[name]}: {_at_most(name, value)} (--{name.replace('_', '-')})"
        for name, value in limits.items()
    ]
    return "; ".join(allowed) or "none"


def _at_most(name: str, limit: float) -> str:
    """A limit with its unit, not rounded."""
    shown = float(f"{limit * _SHOWN_FACTOR.get(name, 1):.15g}")
    number = grouped(shown) if shown.is_integer() else f"{shown:.15g}"
    return f"at most {number}{_UNITS.get(name, '')}"


_LIMITED = {
    "max_ppm": "differing pixels of an image",
    "max_changed": "cells without a match",
    "max_lost": "cells lost",
}
_UNITS = {"max_ppm": " ppm", "max_changed": " %"}
_SHOWN_FACTOR = {"max_changed": 100}
"""From a limit's own unit to that in which people read it."""


def limits_line(limits: Limits, origin: object) -> str:
    """Say what later masks may differ in, and from what these limits were proposed, if they were.

    >>> limits_line({"max_lost": 2}, "3 pairs along seed")
    'limits of later masks: cells lost: at most 2 (--max-lost), proposed from 3 pairs along seed'
    """
    proposed = f", proposed from {origin}" if origin else ""
    return f"limits of later masks: {limits_text(limits)}{proposed}"


def limits_from(
    max_ppm: float | None, max_changed: float | str | None, max_lost: int | None
) -> Limits:
    """Give the limits that were named; the share may be a text, as 5 %."""
    share = _share(max_changed) if isinstance(max_changed, str) else max_changed
    limits = {"max_ppm": max_ppm, "max_changed": share, "max_lost": max_lost}
    return {name: value for name, value in limits.items() if value is not None}


def _share(text: str) -> float:
    """Read a share: 0.05, 5 % or 5%."""
    number = text.strip().removesuffix("%")
    try:
        return float(number) / (100 if number != text.strip() else 1)
    except ValueError as error:
        raise BadInput(f"max_changed is {text!r}; expected {_RANGES['max_changed'][1]}") from error


_RANGES: Mapping[str, tuple[float, str]] = {
    "max_ppm": (1e6, "differing pixels per million, a number from 0 to 1000000"),
    "max_changed": (1, "a share of the cells, a number from 0 to 1 or as in '5 %', which is 0.05"),
    "max_lost": (2**63, "cells, a whole number of at least 0"),
}
"""The largest value of each limit, and what to write."""


def refuse_out_of_range(limits: Limits) -> None:
    """Refuse a limit that nothing reaches, or that is no number of its kind."""
    for name, value in limits.items():
        if name not in _RANGES:
            raise BadInput(f"{name} is no limit; expected {', '.join(_RANGES)}")
        most, expected = _RANGES[name]
        is_in_range = 0 <= value <= most  # which NaN is not
        if not is_in_range or (name == "max_lost" and value != round(value)):
            raise BadInput(f"{name} is {value:.15g}; expected {expected}")


class Measure(NamedTuple):
    """How far masks are from a baseline, in the unit of one limit."""

    limit_name: str
    value: float
    number: str
    """It as people read it, rounded."""
    unit: str
    """What follows that number in a sentence."""

    def beyond(self, limit: float) -> str:
        """Say that it is beyond a limit, with as many decimals as that takes."""
        factor = _SHOWN_FACTOR.get(self.limit_name, 1)
        value = self.value * factor
        shown_limit = limit * factor
        number = self.number
        if not _is_above(number, shown_limit):
            decimals = (f"{value:.{n}f}" for n in range(16))
            number = next((text for text in decimals if float(text) > shown_limit), repr(value))
        return f"{number} {self.unit}, {_at_most(self.limit_name, limit)}"


def _is_above(number: str, limit: float) -> bool:
    """Whether a rounded number is above a limit; one such as "less than 0.01" does not show it."""
    try:
        return float(number.replace(" ", "")) > limit
    except ValueError:
        return False
