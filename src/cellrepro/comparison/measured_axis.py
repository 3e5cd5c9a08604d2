"""The pairs of repeats along one axis, and how far they lie apart.

Intervals are percentile bootstrap intervals (Efron and Tibshirani 1993, chapter 13) at 95 % of the
mean over an axis's pairs. Images are drawn with replacement, the same ones for all pairs, and from
three on also the runs where these are draws from many (seeds, data seeds, repeats), else the
surroundings (the pigeonhole bootstrap; Owen, Ann. Appl. Stat. 1, 2007).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cellrepro.comparison.repeat_pairs import MEASURES, Pair, Values, images_of, parts_of, units_of
from cellrepro.comparison.spread_axes import DRAWN, RANKS_DIFFER, words_of
from cellrepro.comparison.verdicts import Verdict
from cellrepro.comparison.within_spread import (
    CONFIDENCE,
    FEWEST_IMAGES,
    FEWEST_SEEDS,
    draws,
    resampled_means,
)
from cellrepro.errors import BadInput


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
        words = words_of(name)
        self.title = words.title
        self.doing = words.doing
        self.note = RANKS_DIFFER if name == "ranks" else ""
        self.not_vacuous = [pair for pair in pairs if not pair.vacuous]
        self.differing = [pair for pair in self.not_vacuous if pair.verdict == Verdict.DIFFERENT]
        self.largest_ppm = max((pair.ppm for pair in self.not_vacuous), default=0.0)
        # A seed with which nothing was found would make the spread of seeds large, and everything
        # else small beside it.
        self.evidence = [p for p in self.not_vacuous if not (name in DRAWN and p.one_sided)]
        self.equal = bool(self.evidence) and not self.differing
        self.n_images = len(images_of(self.evidence))
        self.n_values = len(units_of(self.evidence))
        self._distributions: dict[str, Distribution] = {}

    def distribution(self, measure: str = "changed") -> Distribution:
        """Get one measure over the pairs that are evidence, with an interval from enough images."""
        if measure not in MEASURES:
            raise BadInput(f"measure is {measure!r}; expected one of {', '.join(MEASURES)}")
        if measure not in self._distributions:  # resampling takes up to a second
            values = np.array([pair.mean(measure) for pair in self.evidence])
            mean = float(values.mean()) if len(values) else math.nan
            self._distributions[measure] = Distribution(values, mean, self._interval(measure))
        return self._distributions[measure]

    def _interval(self, measure: str) -> Interval | None:
        pairs = self.evidence
        images = images_of(pairs)
        _, cells = parts_of(pairs, "changed", images)
        n_cells = cells.sum(axis=0)
        if np.count_nonzero(n_cells) < FEWEST_IMAGES:
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
        weights = None
        over = "images"
        if len({name for unit in units for name in unit}) >= FEWEST_SEEDS:
            weights = _pair_counts(units)
            over = f"images and {drawn_units}"
        means = resampled_means(pairs, measure, images, weights)
        low, high = np.nanquantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        return Interval(float(low), float(high), over)


def _pair_counts(units: Sequence[tuple[str, ...]]) -> Values:
    """How often each of P pairs counts in each of B resamples of their units, shape (B, P)."""
    names = sorted({name for unit in units for name in unit})
    drawn = draws(len(names), 1)
    columns = [[names.index(name) for name in unit] for unit in units]
    return np.stack([drawn[:, column].prod(axis=1) for column in columns], 1)
