"""The median of some measurements, and how far they reach."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.words import span

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class MedianRange:
    """The median of some measurements, the lowest and the highest."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def over(cls, values: Sequence[float]) -> Self:
        """Sum up some measurements."""
        return cls(statistics.median(values), min(values), max(values))

    def text(self, written: Callable[[float], str]) -> str:
        """The median, with the range where this is written otherwise.

        >>> MedianRange.over([1, 2, 4]).text("{:.1f}".format)
        '2.0 (1.0 to 4.0)'
        """
        middle = written(self.median)
        reach = span(written(self.lowest), written(self.highest))
        return middle if reach == middle else f"{middle} ({reach})"
