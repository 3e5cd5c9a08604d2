"""The effect of a treatment on one readout, with its interval, from a number for each image.

Intervals are expanded percentile bootstrap intervals over images (Hesterberg, The American
Statistician 69, 2015, sections 3.4 and 5.3): images are drawn with replacement within each group,
deviations are stretched by sqrt(n / (n - 1)), and the percentiles are those with which normal data
have the coverage of Student's t with Welch's degrees of freedom. Where the resamples of few images
do not reach those percentiles, the interval is Student's t. ``scripts/interval_coverage.py``
measures how often they hold the true effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.within_spread import CONFIDENCE, draws

FEWEST_IMAGES = 3
"""In a group; with fewer there is no interval."""
FEWEST_ON_A_LINE = 5
"""Images of a dose."""
_N_RESAMPLES = 10_000  # the percentile of three images in a group is the 27th
_STREAMS = {"control": 10, "treated": 11, "dose": 12}
_TIMES_THE_RAREST = 10  # probability of a resample that a tail has at least, to be seen in them
_LEAST_FREEDOM = 1.0

Values = NDArray[np.float64]


@dataclass(frozen=True)
class GroupEffect:
    """What the treatment does to a readout, as the masks of one side say."""

    effect: float
    """Mean of the treated images less that of the control; of a dose, from the lowest to the
    highest along the fitted line."""
    low: float
    """Lower end of its 95 % interval; null from too few images."""
    high: float
    """Upper end."""
    control: float
    """Mean of the control images; of a dose, the line at the lowest one."""
    treated: float
    """Mean of the treated images; of a dose, the line at the highest one."""
    ratio: float | None
    """Treated over control; null where that says nothing."""
    hodges_lehmann: float
    """The median of all differences between a treated and a control image, which single images do
    not move; of a dose Theil and Sen's median slope over the whole range."""
    standard_error: float
    """Of the effect."""


def effect_of_groups(control: Values, treated: Values) -> GroupEffect:
    """Compare two groups of images."""
    effect = float(treated.mean() - control.mean())
    bare = GroupEffect(
        effect=effect,
        low=math.nan,
        high=math.nan,
        control=float(control.mean()),
        treated=float(treated.mean()),
        ratio=_ratio(float(treated.mean()), float(control.mean())),
        hodges_lehmann=float(np.median(treated[:, np.newaxis] - control)),
        standard_error=math.nan,
    )
    if min(len(control), len(treated)) < FEWEST_IMAGES:
        return bare
    variances = [float(np.var(group, ddof=1)) / len(group) for group in (control, treated)]
    variance = sum(variances)
    if not variance:
        return replace(bare, low=effect, high=effect, standard_error=0.0)
    of_groups = zip(variances, (len(control), len(treated)), strict=True)
    freedom = variance**2 / sum(one**2 / (n - 1) for one, n in of_groups)
    furthest = _furthest(freedom)
    error = math.sqrt(variance)
    if _tail(furthest) < _TIMES_THE_RAREST * _rarest(control, treated):
        low, high = effect - furthest * error, effect + furthest * error
        return replace(bare, low=low, high=high, standard_error=error)
    deviations = _deviations(treated, "treated") - _deviations(control, "control")
    low, high = _interval(effect, deviations, furthest)
    return replace(bare, low=low, high=high, standard_error=error)


def effect_along_doses(doses: Values, values: Values) -> GroupEffect:
    """Fit a line through the images of several doses; images are drawn whatever their dose."""
    n = len(doses)
    lowest = float(doses.min())
    span = float(doses.max()) - lowest
    slope = float(_slopes(np.ones((1, n)), doses, values)[0])
    effect = slope * span
    start = float(values.mean() + slope * (lowest - doses.mean()))
    rows, columns = np.triu_indices(n, 1)
    apart = doses[rows] != doses[columns]
    steps = (values[rows] - values[columns])[apart] / (doses[rows] - doses[columns])[apart]
    bare = GroupEffect(
        effect=effect,
        low=math.nan,
        high=math.nan,
        control=start,
        treated=start + effect,
        ratio=_ratio(start + effect, start),
        hodges_lehmann=float(np.median(steps)) * span if len(steps) else math.nan,
        standard_error=math.nan,
    )
    if n < FEWEST_ON_A_LINE:
        return bare
    drawn = draws(n, _STREAMS["dose"], _N_RESAMPLES)
    deviations = (_slopes(drawn, doses, values) - slope) * span * math.sqrt(n / (n - 2))
    deviations = deviations[np.isfinite(deviations)]  # not where one dose alone was drawn
    low, high = _interval(effect, deviations, _furthest(n - 2))
    return replace(bare, low=low, high=high, standard_error=float(deviations.std()))


def _ratio(treated: float, control: float) -> float | None:
    return treated / control if control else None


def _deviations(group: Values, stream: str) -> Values:
    n = len(group)
    means = draws(n, _STREAMS[stream], _N_RESAMPLES) @ group / n
    return (means - group.mean()) * math.sqrt(n / (n - 1))


def _slopes(counts: Values, doses: Values, values: Values) -> Values:
    """The slope of the line through the images of each resample, shape (B, n)."""
    n = counts.sum(axis=1)
    mean_dose = counts @ doses / n
    covariance = counts @ (doses * values) / n - mean_dose * (counts @ values / n)
    variance = counts @ doses**2 / n - mean_dose**2
    with np.errstate(invalid="ignore", divide="ignore"):
        least = 1e-12 * float(np.square(doses).max())
        return np.where(variance > least, covariance / variance, np.nan)


def _furthest(freedom: float) -> float:
    """Standard errors from an effect to the ends of its interval, as Student's t has them."""
    from scipy import stats

    return float(stats.t.ppf((1 + CONFIDENCE) / 2, max(freedom, _LEAST_FREEDOM)))


def _tail(furthest: float) -> float:
    """The share of a normal distribution that lies so many standard errors out, on one side."""
    from scipy import stats

    return float(stats.norm.cdf(-furthest))


def _rarest(control: Values, treated: Values) -> float:
    """The probability of the resample that lies furthest out: beyond it there is none."""
    varying = [group for group in (control, treated) if np.ptp(group)]
    return math.prod(float(len(group)) ** -len(group) for group in varying)


def _interval(
    effect: float, deviations: Sequence[float] | Values, furthest: float
) -> tuple[float, float]:
    """The percentiles of resamples that lie so many standard errors out where they are normal."""
    tail = _tail(furthest)
    low, high = np.quantile(deviations, [tail, 1 - tail])
    return effect + float(low), effect + float(high)
