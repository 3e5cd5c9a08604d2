"""The rule of ``within-spread``: whether a difference is *shown* to be less than what seeds do.

docs/spread.md has the rule and its reasons. With d the mean share of cells changed over the pairs
in question, s that over the pairs of seeds and L = log(d / s), L + t * sqrt(V) < 0 is asked for. V
adds up: *images*, the variance of L over resampled images, the same for d and s (at least
1/n_d + 1/n_s with the numbers of changed cells, as a count has); *seeds*, the delete-one-seed
jackknife (Efron and Stein 1981) of s, relative to s; and *the pair itself*: n/2 times the former
for n seeds, which is exact where seeds act additively, or more if the pairs in question scatter
more. t is Student's with Satterthwaite's degrees of freedom.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from cellrepro.same.pairs import Pair, Values, mean_of, parts_of, units_of
from cellrepro.words import amount, share_text

FEWEST_SEEDS = 3
FEWEST_IMAGES = 3
CONFIDENCE = 0.95
_N_RESAMPLES = 2000
_RANDOM_SEED = 20261101
_FURTHEST = 700.0  # exp of more overflows


@dataclass(frozen=True)
class Decision:
    """Whether a difference is less than what seeds do, and on what that was decided."""

    within: bool  # never without three seeds, three images, and a spread to be within
    sentence: str  # the decision with its numbers, or why there is none
    n_seeds: int = 0
    n_seed_pairs: int = 0
    n_images: int = 0
    changed: tuple[float, float] = (math.nan, math.nan)  # share of cells: of the pairs, of seeds
    ppm: tuple[float, float] = (math.nan, math.nan)  # differing pixels per million: likewise
    changed_ratio: float = math.nan  # upper end of the one-sided 95 % interval; NaN: no rule
    ppm_ratio: float = math.nan
    contrast: str = ""  # of several the least favourable one, as in "between cpu and cuda"


def decide(pairs: Sequence[Pair], seeds: Sequence[Pair]) -> Decision:
    """Whether pairs differ by less than seeds do; vacuous ones are left out, and of pairs of seeds
    those with cells on one side only."""
    pairs = [pair for pair in pairs if not pair.vacuous]
    seeds = [pair for pair in seeds if not pair.vacuous and not pair.one_sided]
    if not pairs:
        return Decision(False, "no cells were found, so there is nothing to compare")
    every = [pair.images for pair in (*pairs, *seeds)]
    common = [name for name in every[0] if all(name in images for images in every)]
    images = [name for name in common if any(one[name].n_objects for one in every)]
    known = Decision(
        within=False,
        sentence="",
        n_seeds=len(units_of(seeds)),
        n_seed_pairs=len(seeds),
        n_images=len(images),
        changed=(mean_of(pairs, "changed", images), mean_of(seeds, "changed", images)),
        ppm=(mean_of(pairs, "ppm", images), mean_of(seeds, "ppm", images)),
    )
    why_not = _refusal(known, seeds)
    if why_not:
        return replace(known, sentence=f"{why_not}: not enough to say whether this is less")
    cells, pixels = (_largest_ratio(pairs, seeds, name, images) for name in ("changed", "ppm"))
    within = cells < 1 and pixels < 1
    times = [f"{ratio:.2g}" if ratio < 100 else "over 100" for ratio in (cells, pixels)]
    text = (
        f"{share_text(known.changed[0])} of the cells changed, between seeds "
        f"{share_text(known.changed[1])} ({amount(known.n_seed_pairs, 'pair')} of "
        f"{known.n_seeds} seeds, {amount(known.n_images, 'image')}); "
        f"{'' if within else 'not shown to be less than seeds do: '}up to {times[0]} times as "
        f"many cells as between seeds, and {times[1]} times as many pixels (95 % confidence)"
    )
    return replace(known, within=within, sentence=text, changed_ratio=cells, ppm_ratio=pixels)


def _refusal(known: Decision, seeds: Sequence[Pair]) -> str:
    if known.n_seeds < FEWEST_SEEDS:
        return f"only {known.n_seeds} seeds" if known.n_seeds else "no other seed"
    if known.n_images < FEWEST_IMAGES:
        return f"only {amount(known.n_images, 'image')} with cells"
    if not known.changed[1] or not known.ppm[1]:
        return f"{known.n_seeds} seeds gave the same cells"
    if len(seeds) in Counter(unit for pair in seeds for unit in pair.units).values():
        return "every pair of seeds holds the same seed"
    return ""


def _largest_ratio(
    pairs: Sequence[Pair], seeds: Sequence[Pair], measure: str, images: Sequence[str]
) -> float:
    """Upper end of the one-sided interval of d / s."""
    from scipy import stats

    over_d, under_d = parts_of(pairs, measure, images)
    over_s, under_s = parts_of(seeds, measure, images)
    unit = 1.0 if measure == "changed" else 1e6
    d, s = mean_of(pairs, measure, images), mean_of(seeds, measure, images)
    more_d, more_s = (0.5 * unit / under.sum() for under in (under_d, under_s))
    drawn_d = resampled_means(pairs, measure, images, None)
    drawn_s = resampled_means(seeds, measure, images, None)
    known = np.isfinite(drawn_d) & np.isfinite(drawn_s)
    logs = np.log((drawn_d[known] + more_d) / (drawn_s[known] + more_s))
    n_images = len(images)
    of_images = float(np.var(logs)) * n_images / (n_images - 1)
    if measure == "changed":
        of_images = max(of_images, 1 / (over_d.sum() + 0.5) + 1 / (over_s.sum() + 0.5))
    of_seeds, n_seeds = _jackknife(over_s.sum(1) / under_s.sum(1), [p.units for p in seeds])
    shares = over_d.sum(1) / under_d.sum(1)  # relative variance of their mean
    own = float(np.var(shares, ddof=1)) / len(shares) / d**2 if len(shares) > 1 and d else 0.0
    of_runs = of_seeds + max(of_seeds * n_seeds / 2, own)
    variance = of_images + of_runs
    if not variance:
        return float((d + more_d) / (s + more_s))
    freedom = variance**2 / (of_images**2 / (n_images - 1) + of_runs**2 / (n_seeds - 1))
    furthest = float(stats.t.ppf(CONFIDENCE, freedom)) * math.sqrt(variance)
    return float((d + more_d) / (s + more_s)) * math.exp(min(furthest, _FURTHEST))


def _jackknife(values: Values, units: Sequence[tuple[str, str]]) -> tuple[float, int]:
    """Relative variance of the mean over pairs of seeds when one seed at a time is left out."""
    names = sorted({name for unit in units for name in unit})
    means = [values[[name not in unit for unit in units]].mean() / values.mean() for name in names]
    n = len(names)
    return (n - 1) / n * float(((np.array(means) - np.mean(means)) ** 2).sum()), n


# -- resampling ------------------------------------------------------------------------------


def resampled_means(
    pairs: Sequence[Pair], measure: str, images: Sequence[str], weights: Values | None
) -> Values:
    """The mean over pairs in each resample, shape (B,); NaN where nothing was drawn."""
    over, under = parts_of(pairs, measure, images)
    drawn = draws(len(images), 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        each = (drawn @ over.T) / (drawn @ under.T)
        counted = np.isfinite(each) * (1.0 if weights is None else weights)
        return (np.nan_to_num(each, posinf=0) * counted).sum(1) / counted.sum(1)


@cache
def draws(n: int, stream: int) -> Values:
    """How often each of n things is drawn in each resample, shape (B, n)."""
    generator = np.random.default_rng([_RANDOM_SEED, stream])
    return generator.multinomial(n, np.full(n, 1 / n), size=_N_RESAMPLES).astype(np.float64)
