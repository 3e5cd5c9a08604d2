"""Numbers and tables as a text shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import spearmanr, t

from cellrepro.same.seed_spread import Distribution
from cellrepro.store.store import Run
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


def spans(values: Any, *, digits: bool = False) -> Span:
    """Of numbers, as they are read; what never happened is "never"."""
    values = np.asarray(values, float)
    values = np.where(np.isnan(values), math.inf, values)
    told = (np.median(values), values.min(), values.max())

    def said(value: float) -> str:
        if not math.isfinite(value):
            return "never"
        return f"{value:.2g}" if digits else f"{value:g}"

    return Span(*map(said, told))


class Mean(NamedTuple):
    """A mean with its 95 % interval of Student's t, over seeds."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


def with_t(values: pd.Series) -> Mean:
    """Of a few independent values."""
    low, high = t.interval(0.95, len(values) - 1, values.mean(), values.sem())
    return Mean(float(values.mean()), float(low), float(high))


def with_interval(found: Distribution) -> str:
    """A mean share with its 95 % interval."""
    if found.interval is None or len(found.values) < 2:
        return share_text(found.mean)
    low, high = share_text(found.interval.low), share_text(found.interval.high)
    return f"{share_text(found.mean)} ({low} to {high})"


def range_of_scores(runs: Sequence[Run]) -> str:
    """AP at IoU 0.5 of all repeats, from the least to the most."""
    aps = [repeat.manifest.ap50 for run in runs for repeat in run.repeats]
    return f"{min(aps):.2f} to {max(aps):.2f}"


def rank_correlation(values: np.ndarray, n: int) -> str:
    """Spearman's, with a 95 % bootstrap interval over rows."""
    generator = np.random.default_rng(20261124)
    drawn = generator.integers(0, len(values), (n, len(values)))
    with np.errstate(invalid="ignore", divide="ignore"):
        every = [ranks_of(values[rows]) for rows in drawn]
    low, high = np.nanquantile(every, (0.025, 0.975))
    return f"{spearmanr(*values.T).statistic:.2f} ({low:.2f} to {high:.2f})"


def ranks_of(values: np.ndarray) -> float:
    """Spearman's correlation of two columns."""
    ranked = pd.DataFrame(values).rank().to_numpy()
    if not ranked.std(axis=0).all():
        return math.nan
    return float(np.corrcoef(ranked.T)[0, 1])
