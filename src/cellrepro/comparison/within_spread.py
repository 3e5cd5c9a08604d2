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

import numpy as np

from cellrepro.comparison.repeat_pairs import Pair, Values, mean_of, parts_of, units_of
from cellrepro.comparison.resampling import CONFIDENCE, draws
from cellrepro.comparison.verdicts import Verdict
from cellrepro.words import differing_text, share_text
from samebits.results import Result
from samebits.words import amount, joined

FEWEST_SEEDS = 3
FEWEST_IMAGES = 3
SAME_OUTLINES = "every pair has the same outlines: there is no difference to judge by that of seeds"
NO_SEEDS = "segmenting uses no random seed"
LESS_HERE = "less than another random seed does, in these runs"
AS_MUCH_HERE = "as much as another random seed does, in these runs"
"""What is said of a difference that is neither shown to be less than what seeds do, nor more."""
NOTHING_BESIDE = f"nothing to compare with, as {NO_SEEDS}"
_MANY_PPM = 1e4  # more differ than rounding moves
_FURTHEST = 700.0  # exp of more overflows


@dataclass(frozen=True, repr=False)
class Decision(Result):
    """Whether a difference is less than what seeds do, and on what that was decided."""

    within: bool
    """Whether it is less; never without three seeds, three images, and a spread to be within."""
    reason: str
    """The decision with its numbers, or why there is none."""
    n_seeds: int = 0
    """Seeds that were compared."""
    n_seed_pairs: int = 0
    """Pairs of them."""
    n_images: int = 0
    """Images that every pair has, and that show an object."""
    changed: tuple[float, float] = (math.nan, math.nan)
    """Share of cells without a match: of the pairs in question, and of those of seeds."""
    ppm: tuple[float, float] = (math.nan, math.nan)
    """Differing pixels per million, likewise."""
    changed_ratio: float = math.nan
    """Upper end of the one-sided 95 % interval of the ratio of the two shares; NaN without a
    decision by the rule."""
    ppm_ratio: float = math.nan
    """The same of the two ppm."""
    most_between_seeds: float = math.nan
    """The largest share of cells without a match between any two seeds; NaN without any."""
    below_seeds: bool = False
    """Whether every pair in question has a smaller share than any two seeds, shown or not."""
    exceeds_seeds: bool = False
    """Whether a pair in question has a larger share, by the rule's pairs and seeds."""
    contrast: str = ""
    """The least favourable of several contrasts, as in "between cpu and cuda"."""
    refusal: str = ""
    """Why the rule was not applied, in a few words; empty where it was."""
    in_short: str = ""
    """What the rule said, without the shares; empty where it did not decide."""

    @property
    def is_judged(self) -> bool:
        """Whether the rule was applied: enough seeds and images were there."""
        return not math.isnan(self.changed_ratio)

    @property
    def in_these_runs(self) -> str:
        """Say how much it is beside seeds where it is neither shown to be less, nor more."""
        return LESS_HERE if self.below_seeds else AS_MUCH_HERE

    @property
    def remedy(self) -> str:
        """What makes the runs that are missing, to follow a sentence; empty where none are."""
        n_missing = FEWEST_SEEDS - max(1, self.n_seeds)
        if self.refusal in ("", NO_SEEDS) or n_missing <= 0:
            return ""
        values = "another value" if n_missing == 1 else f"{n_missing} other values"
        return f" (to add runs, repeat the command with {values} of the seed)"

    def sentence(self) -> str:
        """Say what was decided, with its numbers, or why nothing was."""
        return self.reason


def decide(pairs: Sequence[Pair], seeds: Sequence[Pair]) -> Decision:
    """Decide whether pairs differ by less than seeds do; of equal ones that is no question."""
    decision = _decided_by_rule(pairs, seeds)
    evidence = [pair for pair in pairs if not pair.vacuous]
    if evidence and not any(pair.verdict == Verdict.DIFFERENT for pair in evidence):
        return replace(decision, reason=SAME_OUTLINES, in_short="")
    is_open = decision.is_judged and not decision.within
    if is_open and not any(pair.changed for pair in evidence):
        return replace(decision, reason=_in_pixels_alone(evidence, decision), in_short="")
    return decision


def every_cell_matches(pairs: Sequence[Pair]) -> str:
    """Say of results in which every cell has a match how much the difference matters.


    The pair that differs in most pixels stands for the others.
    """
    pair = max(pairs, key=lambda pair: pair.ppm)
    how_much = "hardly" if pair.ppm < _MANY_PPM else "in outlines alone"
    differing = differing_text(pair.n_differing, pair.n_pixels)
    return f"{how_much}, every cell has a match and {differing}"


def _in_pixels_alone(pairs: Sequence[Pair], decision: Decision) -> str:
    """What is said in place of a ratio of 0 changed cells to those of seeds, which is never small
    enough to be shown."""
    matches = every_cell_matches(pairs)
    of_seeds = f"{share_text(decision.changed[1])} of the cells have none"
    return f"{matches}; between seeds {of_seeds} ({_of_seeds(decision)})"


def _decided_by_rule(pairs: Sequence[Pair], seeds: Sequence[Pair]) -> Decision:
    pairs = [pair for pair in pairs if not pair.vacuous]
    seeds = [pair for pair in seeds if not pair.vacuous and not pair.one_sided]
    if not pairs:
        return Decision(
            False, "nothing was trained or no cells were found, so there is nothing to compare"
        )
    images = _images_of_all([*pairs, *seeds])
    known = Decision(
        within=False,
        reason="",
        n_seeds=len(units_of(seeds)),
        n_seed_pairs=len(seeds),
        n_images=len(images),
        changed=(mean_of(pairs, "changed", images), mean_of(seeds, "changed", images)),
        ppm=(mean_of(pairs, "ppm", images), mean_of(seeds, "ppm", images)),
        most_between_seeds=max((pair.changed for pair in seeds), default=math.nan),
    )
    refusal = _refusal(known, seeds)
    if refusal:
        known = replace(known, refusal=refusal)
        reason = f"{refusal}: not enough to say whether seeds change more{known.remedy}"
        return replace(known, reason=reason)
    cells = _largest_ratio(pairs, seeds, "changed", images)
    pixels = _largest_ratio(pairs, seeds, "ppm", images)
    within = cells < 1 and pixels < 1
    judged = "less than seeds do, in cells and in pixels (95 % confidence)"
    most_changed = max(pair.changed for pair in pairs)
    exceeds = most_changed > known.most_between_seeds
    known = replace(known, below_seeds=most_changed < min(pair.changed for pair in seeds))
    if exceeds:
        most = share_text(known.most_between_seeds)
        judged = f"more than between any two seeds, which is at most {most}"
    elif not within:
        larger = [
            f"{_as_much(ratio)} in {unit}"
            for unit, ratio in (("cells", cells), ("pixels", pixels))
            if ratio >= 1
        ]
        judged = (
            f"{known.in_these_runs}; not shown beyond them: it may be up to {joined(larger)} "
            "(95 % confidence)"
        )
    reason = (
        f"{share_text(known.changed[0])} of the cells have no match, between seeds "
        f"{share_text(known.changed[1])} ({_of_seeds(known)}); {judged}"
    )
    return replace(
        known,
        within=within,
        reason=reason,
        in_short=judged,
        changed_ratio=cells,
        ppm_ratio=pixels,
        exceeds_seeds=exceeds,
    )


def _of_seeds(decision: Decision) -> str:
    """Say over what the seeds were compared."""
    pairs = amount(decision.n_seed_pairs, "pair")
    return f"{pairs} of {decision.n_seeds} seeds, {amount(decision.n_images, 'image')}"


def _images_of_all(pairs: Sequence[Pair]) -> list[str]:
    """The images that every pair has, and on which at least one has an object."""
    compared = [pair.images for pair in pairs]
    common = [name for name in compared[0] if all(name in images for images in compared)]
    return [name for name in common if any(images[name].n_objects for images in compared)]


def _as_much(ratio: float) -> str:
    times = f"{ratio:.2g}" if ratio < 100 else "over 100"
    return "as much" if times == "1" else f"{times} times as much"


def _refusal(known: Decision, seeds: Sequence[Pair]) -> str:
    """Why nothing can be said beside these pairs of seeds; empty where something can."""
    if known.n_seeds < FEWEST_SEEDS:
        return (
            f"only {amount(known.n_seeds, 'seed')}"
            if known.n_seeds
            else "these runs have one seed only"
        )
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
    """Upper end of the one-sided interval of d / s, in the letters of the top of this file."""
    from scipy import stats

    d = mean_of(pairs, measure, images)
    s = mean_of(seeds, measure, images)
    parts_d, wholes_d = parts_of(pairs, measure, images)
    parts_s, wholes_s = parts_of(seeds, measure, images)
    # Half a cell, or half a pixel, more on each side: no logarithm of 0.
    unit = 1.0 if measure == "changed" else 1e6
    half_d = 0.5 * unit / wholes_d.sum()
    half_s = 0.5 * unit / wholes_s.sum()
    ratio = float((d + half_d) / (s + half_s))

    # V of the images.
    drawn_images = draws(len(images), 0)
    drawn_d = resampled_means(pairs, measure, images, drawn=drawn_images)
    drawn_s = resampled_means(seeds, measure, images, drawn=drawn_images)
    known = np.isfinite(drawn_d) & np.isfinite(drawn_s)
    logs = np.log((drawn_d[known] + half_d) / (drawn_s[known] + half_s))
    n_images = len(images)
    of_images = float(np.var(logs)) * n_images / (n_images - 1)
    if measure == "changed":
        of_images = max(of_images, 1 / (parts_d.sum() + 0.5) + 1 / (parts_s.sum() + 0.5))

    # V of the seeds, and of the pair itself.
    shares_of_seeds = parts_s.sum(1) / wholes_s.sum(1)
    of_seeds, n_seeds = _jackknife(shares_of_seeds, [pair.units for pair in seeds])
    of_pairs = _relative_variance_of_mean(parts_d.sum(1) / wholes_d.sum(1), d)
    of_runs = of_seeds + max(of_seeds * n_seeds / 2, of_pairs)

    variance = of_images + of_runs
    if not variance:
        return ratio
    freedom = variance**2 / (of_images**2 / (n_images - 1) + of_runs**2 / (n_seeds - 1))
    furthest = float(stats.t.ppf(CONFIDENCE, freedom)) * math.sqrt(variance)
    return ratio * math.exp(min(furthest, _FURTHEST))


def _relative_variance_of_mean(shares: Values, mean: float) -> float:
    """How much the shares of the pairs scatter; 0 of a single one, or where nothing changed."""
    if len(shares) < 2 or not mean:
        return 0.0
    return float(np.var(shares, ddof=1)) / len(shares) / mean**2


def _jackknife(values: Values, units: Sequence[tuple[str, str]]) -> tuple[float, int]:
    """Relative variance of the mean over pairs of seeds when one seed at a time is left out."""
    names = sorted({name for unit in units for name in unit})
    means = [values[[name not in unit for unit in units]].mean() / values.mean() for name in names]
    n = len(names)
    return (n - 1) / n * float(((np.array(means) - np.mean(means)) ** 2).sum()), n


# -- resampling ------------------------------------------------------------------------------


def resampled_means(
    pairs: Sequence[Pair],
    measure: str,
    images: Sequence[str],
    *,
    drawn: Values,
    weights: Values | None = None,
) -> Values:
    """The mean over pairs of a measure in each resample of the images; NaN where none was drawn."""
    numerators, denominators = parts_of(pairs, measure, images)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (drawn @ numerators.T) / (drawn @ denominators.T)
        counted = np.isfinite(means) * (1.0 if weights is None else weights)
        return (np.nan_to_num(means, posinf=0) * counted).sum(1) / counted.sum(1)
