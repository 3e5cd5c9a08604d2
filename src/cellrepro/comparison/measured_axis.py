"""The pairs of repeats along one axis, and how far they lie apart.

Intervals are bootstrap intervals at 95 % of the mean over an axis's pairs (`resampling`). Images
are drawn with replacement, the same ones for all pairs, and from three on also the runs where these
are draws from many (seeds, data seeds, repeats), else the surroundings (the pigeonhole bootstrap;
Owen, Ann. Appl. Stat. 1, 2007).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cellrepro.comparison.repeat_pairs import MEASURES, Pair, Values, images_of, parts_of, units_of
from cellrepro.comparison.resampling import interval_of_share, many_draws
from cellrepro.comparison.run_names import START
from cellrepro.comparison.spread_axes import (
    DRAWN,
    ONLY_THREADS,
    RANKS_DIFFER,
    AxisWords,
    words_of,
)
from cellrepro.comparison.verdicts import Verdict
from cellrepro.comparison.within_spread import FEWEST_IMAGES, FEWEST_SEEDS, resampled_means
from samebits.errors import BadInput

_MILLION = 1e6


class Interval(NamedTuple):
    """The interval in which the mean of an axis lies in 95 % of the resamples."""

    low: float
    """Lower end."""
    high: float
    """Upper end."""
    over: str
    """The things that were resampled, in words."""


class Distribution(NamedTuple):
    """One of `MEASURES` along one axis."""

    values: Values
    """The measure of each pair that is evidence, over all its images."""
    mean: float
    """Mean over the pairs; NaN over none."""
    interval: Interval | None
    """None from fewer than three images that show an object."""


class Axis:
    """All pairs of repeats that differ along one axis only."""

    def __init__(self, name: str, pairs: list[Pair], n_left_out: int = 0):
        self.name = name
        self.pairs = pairs
        self.n_left_out = n_left_out
        """Pairs for the comparison of which there was no time."""
        self._distributions: dict[str, Distribution] = {}

    @property
    def title(self) -> str:
        """The things that differ along it."""
        return self._words.title

    @property
    def doing(self) -> str:
        """The change that is made."""
        return self._words.doing

    @cached_property
    def _words(self) -> AxisWords:
        is_threads = self.name == "threads" and bool(self.pairs)
        if is_threads and all(pair.differs_in_threads_alone for pair in self.pairs):
            return words_of(ONLY_THREADS)
        return words_of(self.name)

    @property
    def note(self) -> str:
        """A remark that every table of this axis needs; mostly empty."""
        if self.name == "ranks":
            return RANKS_DIFFER
        of_start = (pair.context.startswith(START) for pair in self.evidence)
        if self.name != "repeats" or not any(of_start):
            return ""
        return "these are repeats of the network that others began with"

    @cached_property
    def not_vacuous(self) -> list[Pair]:
        """Pairs in which something was found."""
        return [pair for pair in self.pairs if not pair.vacuous]

    @cached_property
    def differing(self) -> list[Pair]:
        """Pairs whose masks differ."""
        return [pair for pair in self.not_vacuous if pair.verdict == Verdict.DIFFERENT]

    @cached_property
    def evidence(self) -> list[Pair]:
        """Pairs that say how far results lie apart.

        A seed with which nothing was found would make the spread of seeds large, and everything
        else small beside it.
        """
        is_drawn = self.name in DRAWN
        return [pair for pair in self.not_vacuous if not (is_drawn and pair.one_sided)]

    @property
    def largest_ppm(self) -> float:
        """The most pixels in which a pair differs, per million."""
        return max((pair.ppm for pair in self.not_vacuous), default=0.0)

    @property
    def equal(self) -> bool:
        """Whether something was compared, and nothing differs."""
        return bool(self.evidence) and not self.differing

    @property
    def n_images(self) -> int:
        """Images of the pairs that are evidence."""
        return len(images_of(self.evidence))

    @property
    def n_values(self) -> int:
        """Different values of the axis in these pairs."""
        return len(units_of(self.evidence))

    def distribution(self, measure: str = "changed") -> Distribution:
        """Get one measure over the pairs that are evidence, with an interval from enough images."""
        if measure not in MEASURES:
            raise BadInput(f"measure is {measure!r}; expected one of {', '.join(MEASURES)}")
        if measure not in self._distributions:  # resampling takes up to a second
            values = np.array([pair.mean(measure) for pair in self.evidence])
            mean = float(values.mean()) if len(values) else math.nan
            self._distributions[measure] = Distribution(values, mean, self._interval(measure, mean))
        return self._distributions[measure]

    def _interval(self, measure: str, mean: float) -> Interval | None:
        pairs = self.evidence
        images = images_of(pairs)
        _, cells = parts_of(pairs, "changed", images)
        n_with_cells = int(np.count_nonzero(cells.sum(axis=0)))
        if n_with_cells < FEWEST_IMAGES:
            return None
        in_one_surrounding = len({pair.surroundings for pair in pairs}) == 1
        if self.name in DRAWN:
            drawn_units = self.title
        elif self.name == "repeats" and in_one_surrounding:
            drawn_units = "repeats"
        else:
            drawn_units = "surroundings"
        by_surroundings = drawn_units == "surroundings"
        units = [(pair.surroundings,) if by_surroundings else pair.units for pair in pairs]
        most = _MILLION if measure == "ppm" else 1.0
        drawn = many_draws(len(images), 0)
        n_units = len({name for unit in units for name in unit})
        if n_units < FEWEST_SEEDS:
            means = resampled_means(pairs, measure, images, drawn=drawn)
            return Interval(*interval_of_share(mean, means, n_with_cells, most=most), "images")
        weights = _pair_counts(units)
        means = resampled_means(pairs, measure, images, drawn=drawn, weights=weights)
        n_fewest = min(n_with_cells, n_units)
        ends = interval_of_share(mean, means, n_fewest, most=most, are_units_crossed=True)
        return Interval(*ends, f"images and {drawn_units}")


def _pair_counts(units: Sequence[tuple[str, ...]]) -> Values:
    """How often each of P pairs counts in each of B resamples of their units, shape (B, P)."""
    names = sorted({name for unit in units for name in unit})
    drawn = many_draws(len(names), 1)
    columns = [[names.index(name) for name in unit] for unit in units]
    return np.stack([drawn[:, column].prod(axis=1) for column in columns], 1)
