"""The effect of a treatment on one readout, with its interval, from a number for each image.

Intervals are those of `cellrepro.comparison.resampling`: images are drawn with replacement within
each group, and the degrees of freedom are Welch's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cellrepro.comparison.resampling import (
    Values,
    expanded_interval,
    many_draws,
    rarest,
    stretched,
)

FEWEST_IMAGES = 3
"""In a group; with fewer there is no interval."""
FEWEST_ON_A_LINE = 5
"""Images of a dose."""
_STREAMS = {"control": 10, "treated": 11, "dose": 12}


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
    deviations = _deviations(treated, "treated") - _deviations(control, "control")
    furthest = max(rarest(len(group)) for group in (control, treated) if np.ptp(group))
    low, high = expanded_interval(effect, deviations, freedom=freedom, rarest=furthest)
    return replace(bare, low=low, high=high, standard_error=math.sqrt(variance))


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
    slopes = _slopes(many_draws(n, _STREAMS["dose"]), doses, values)
    slopes = slopes[np.isfinite(slopes)]  # not where one dose alone was drawn
    deviations = stretched(slopes * span, effect, n, n_fitted=2)
    low, high = expanded_interval(effect, deviations, freedom=n - 2, rarest=rarest(n))
    return replace(bare, low=low, high=high, standard_error=float(deviations.std()))


def _ratio(treated: float, control: float) -> float | None:
    return treated / control if control else None


def _deviations(group: Values, stream: str) -> Values:
    n = len(group)
    means = many_draws(n, _STREAMS[stream]) @ group / n
    return stretched(means, float(group.mean()), n)


def _slopes(counts: Values, doses: Values, values: Values) -> Values:
    """The slope of the line through the images of each resample, shape (B, n)."""
    n = counts.sum(axis=1)
    mean_dose = counts @ doses / n
    covariance = counts @ (doses * values) / n - mean_dose * (counts @ values / n)
    variance = counts @ doses**2 / n - mean_dose**2
    with np.errstate(invalid="ignore", divide="ignore"):
        least = 1e-12 * float(np.square(doses).max())
        return np.where(variance > least, covariance / variance, np.nan)
