"""The first draw of random numbers in which two runs differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from samebits.trace.generator_positions import BLOCK
from samebits.trace.random_draws import UNSEEN, Draw

_AHEAD = 64  # draws that are searched for where two runs agree again


@dataclass(frozen=True)
class DrawDifference:
    """The first draw in which two runs differ."""

    side: str
    """``a`` or ``b``, the only one that made it; ``both`` if both drew, but not the same."""
    draw: Draw
    """The draw; that of a if both drew."""
    other: Draw | None = None
    """The draw that b made in its place, if both drew."""

    def sentence(self) -> str:
        """Say which run drew, and from where."""
        if self.other is None:
            return f"only {self.side} {_drew(self.draw)}"
        return f"a and b drew otherwise: a {_drew(self.draw)}; b {_drew(self.other)}"


def _drew(draw: Draw) -> str:
    moved = f"set {draw.generator}'s generator"
    if draw.n is not None:
        moved = f"drew from {draw.generator}'s generator, moving it by {draw.n}"
    where = draw.source or draw.module or "no known line"
    return f"{moved} ({draw.what}{'' if draw.what == UNSEEN else ' at'} {where})"


def first_draw_difference(a: Sequence[Draw], b: Sequence[Draw]) -> DrawDifference | None:
    """The first draw that only one of two runs made, or that drew another amount; none if none.

    Draws of one call in one function of one file can be each other's. Where its lines are others
    in both runs, the file was edited, and lines say nothing. To which values a seed set a generator
    is not part of a draw.
    """
    sites_a, sites_b = _sites(a, b)
    at = 0
    while at < min(len(a), len(b)) and sites_a[at] == sites_b[at]:
        if _amount(a[at]) != _amount(b[at]):
            return DrawDifference("both", a[at], b[at])
        at += 1
    more_in_a = at < len(a)
    more_in_b = at < len(b)
    if more_in_a and more_in_b:
        for ahead in range(at + 1, at + _AHEAD):
            more_in_a = sites_a[ahead : ahead + 1] == [sites_b[at]]
            more_in_b = sites_b[ahead : ahead + 1] == [sites_a[at]]
            if more_in_a or more_in_b:
                break
        if more_in_a == more_in_b:
            return DrawDifference("both", a[at], b[at])
    if more_in_a:
        return DrawDifference("a", a[at])
    return DrawDifference("b", b[at]) if more_in_b else None


def _sites(a: Sequence[Draw], b: Sequence[Draw]) -> list[list[tuple[str, ...]]]:
    """Name generator, call and function of each draw, and its line where that says anything."""
    sites_a = [_site(draw) for draw in a]
    sites_b = [_site(draw) for draw in b]
    only_in_a = {site[:3] for site in set(sites_a) - set(sites_b)}
    only_in_b = {site[:3] for site in set(sites_b) - set(sites_a)}
    edited = only_in_a & only_in_b
    return [
        [site[:3] if site[:3] in edited else site for site in sites] for sites in (sites_a, sites_b)
    ]


def _site(draw: Draw) -> tuple[str, ...]:
    if draw.source is None or draw.what == UNSEEN:
        return draw.generator, draw.what, "", ""
    function = re.sub(r":\d+(?= in |$)", "", draw.source, count=1)
    return draw.generator, draw.what, function, draw.source


def _amount(draw: Draw) -> int | None:
    """How many numbers it drew; ledgers of earlier versions counted whole blocks, too."""
    if draw.n is None or draw.generator.startswith("cuda"):
        return draw.n
    return draw.n % BLOCK
