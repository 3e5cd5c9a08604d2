"""Resamples of images, seeds or runs, and the intervals that they give from few of them.

Percentiles of resamples are too short from few units (Hesterberg, The American Statistician 69,
2015, sections 3.4 and 5.3). So deviations are stretched by sqrt(n / (n - 1)), and the percentiles
are those with which normal data have the coverage of Student's t. Where the resamples of few units
do not reach those percentiles, the interval is Student's t. ``scripts/interval_coverage.py``
measures how often such intervals hold the truth.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

CONFIDENCE = 0.95
_N_RESAMPLES = 2000
_MANY_RESAMPLES = 10_000  # the furthest percentile that is asked for is the 27th
_RANDOM_SEED = 20261101
_TIMES_THE_RAREST = 10  # probability of a resample that a tail has at least, to be seen in them
_LEAST_FREEDOM = 1.0


@cache
def draws(n: int, stream: int, n_resamples: int = _N_RESAMPLES) -> Values:
    """How often each of n units is drawn in each of B resamples, shape (B, n).

    The same for equal n and stream in every process; other streams are independent.
    """
    generator = np.random.default_rng([_RANDOM_SEED, stream])
    return generator.multinomial(n, np.full(n, 1 / n), size=n_resamples).astype(np.float64)


def many_draws(n: int, stream: int) -> Values:
    """As many resamples as the percentiles of an interval need, shape (B, n)."""
    return draws(n, stream, _MANY_RESAMPLES)


def stretched(resampled: Values, estimate: float, n: int, n_fitted: int = 1) -> Values:
    """Deviations of resamples from the estimate, as far apart as those of new samples of n.

    ``n_fitted`` numbers were fitted: 1 for a mean, 2 for a line.
    """
    return (resampled - estimate) * math.sqrt(n / (n - n_fitted))


def rarest(n: int) -> float:
    """The probability of a resample of n units that lies furthest out: beyond it there is none."""
    return float(n) ** -n


def expanded_interval(
    estimate: float, deviations: Values, *, freedom: float, rarest: float
) -> tuple[float, float]:
    """The 95 % interval of an estimate, from stretched deviations of its resamples.

    ``rarest`` is the probability of the furthest resample.
    """
    furthest, tail = _furthest(freedom)
    if tail < _TIMES_THE_RAREST * rarest:
        reach = furthest * float(deviations.std())
        return estimate - reach, estimate + reach
    low, high = np.quantile(deviations, [tail, 1 - tail])
    return estimate + float(low), estimate + float(high)


def _furthest(freedom: float) -> tuple[float, float]:
    """The quantile of Student's t at the end of an interval, and what of a normal lies beyond."""
    from scipy import stats

    furthest = float(stats.t.ppf((1 + CONFIDENCE) / 2, max(freedom, _LEAST_FREEDOM)))
    return furthest, float(stats.norm.cdf(-furthest))


def is_students_t(n: int) -> bool:
    """Whether the interval of a mean over n units is Student's t, as resamples are too few.

    >>> is_students_t(5), is_students_t(6)
    (True, False)
    """
    return _furthest(n - 1)[1] < _TIMES_THE_RAREST * rarest(n)


def interval_of_share(
    share: float,
    resampled: Values,
    n: int,
    *,
    most: float = 1.0,
    are_units_crossed: bool = False,
) -> tuple[float, float]:
    """The 95 % interval of a share, or of a rate of at most ``most``, over n units.

    On the scale of square roots, on which counts vary alike whatever their mean (Bartlett, Suppl.
    J. R. Stat. Soc. 3, 1936), so that it ends at 0 only where the share may be 0. Crossed are
    units of two kinds, each drawn by itself, n the fewer of them: such resamples lie far enough
    apart as they are (Owen, Ann. Appl. Stat. 1, 2007).
    """
    roots = np.sqrt(resampled[np.isfinite(resampled)])
    root = math.sqrt(share)
    deviations = roots - root if are_units_crossed else stretched(roots, root, n)
    low, high = expanded_interval(root, deviations, freedom=n - 1, rarest=rarest(n))
    return max(0.0, low) ** 2, min(high**2, most)
