"""Numbers and tables as a text shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import spearmanr, t

from cellrepro.comparison.measured_axis import Distribution
from cellrepro.store.stored_run import Run
from cellrepro.words import share_text


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


class Span(NamedTuple):
    """Median, least and most of some values."""

    median: str
    least: str
    most: str

    @property
    def range(self) -> str:
        """From the least to the most."""
        return self.least if self.least == self.most else f"{self.least} to {self.most}"


def span_of(values: ArrayLike, *, digits: int | None = None) -> Span:
    """Median, least and most of numbers, as they are read.

    Parameters
    ----------
    values : array_like of float
        NaN and infinity stand for what never happened, and are read as "never".
    digits : int, optional
        Significant ones; by default as many as six where there are so many.
    """
    numbers = np.asarray(values, float)
    numbers = np.where(np.isnan(numbers), math.inf, numbers)

    def written(number: float) -> str:
        if not math.isfinite(number):
            return "never"
        return f"{number:g}" if digits is None else f"{number:.{digits}g}"

    return Span(
        median=written(float(np.median(numbers))),
        least=written(numbers.min()),
        most=written(numbers.max()),
    )


class Mean(NamedTuple):
    """A mean with its 95 % interval of Student's t, over seeds."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


def with_t(values: pd.Series) -> Mean:
    """The mean of a few independent values."""
    low, high = t.interval(0.95, len(values) - 1, values.mean(), values.sem())
    return Mean(float(values.mean()), float(low), float(high))


def with_interval(distribution: Distribution) -> str:
    """A mean share with its 95 % interval."""
    interval = distribution.interval
    if interval is None or len(distribution.values) < 2:
        return share_text(distribution.mean)
    ends = f"{share_text(interval.low)} to {share_text(interval.high)}"
    return f"{share_text(distribution.mean)} ({ends})"


def range_of_scores(runs: Sequence[Run]) -> str:
    """AP at IoU 0.5 of all repeats, from the least to the most."""
    scores = [repeat.manifest.ap50 for run in runs for repeat in run.repeats]
    return f"{min(scores):.2f} to {max(scores):.2f}"


def rank_correlation(values: NDArray[np.float64], n: int) -> str:
    """Spearman's correlation of two columns, with a 95 % bootstrap interval over rows.

    Parameters
    ----------
    values : ndarray of float, shape (rows, 2)
    n : int
        Bootstrap samples.
    """
    generator = np.random.default_rng(20261124)
    samples = generator.integers(0, len(values), (n, len(values)))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations = [_correlation_of_ranks(values[rows]) for rows in samples]
    low, high = np.nanquantile(correlations, (0.025, 0.975))
    return f"{spearmanr(*values.T).statistic:.2f} ({low:.2f} to {high:.2f})"


def _correlation_of_ranks(values: NDArray[np.float64]) -> float:
    """NaN where a column has one value throughout."""
    ranked = pd.DataFrame(values).rank().to_numpy()
    if not ranked.std(axis=0).all():
        return math.nan
    return float(np.corrcoef(ranked.T)[0, 1])
