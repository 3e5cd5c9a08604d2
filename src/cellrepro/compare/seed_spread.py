"""How far results lie apart, by what made them differ, and when that is less than seeds do.

Everything that makes results vary is an *axis*: repeats of one spec, seed, data seed, mode, device,
threads and instruction set, precision, machine, versions of libraries. Two stored repeats that
differ along one axis only are a *pair* (`cellrepro.compare.axes`). Per image a pair has three
measures: the share of cells without a counterpart (IoU below 0.5), differing pixels per million,
and 1 - AP.

Intervals
---------
They are percentile bootstrap intervals (Efron and Tibshirani 1993, chapter 13) at 95 % of the mean
over an axis's pairs, from 2000 resamples with a fixed seed. Images are drawn with replacement, the
same ones for all pairs, since all pairs look at the same images. With three or more units on the
other level, these are drawn at the same time and independently (the pigeonhole bootstrap; Owen,
Ann. Appl. Stat. 1, 2007): seeds, data seeds and repeats are draws from many, so the *runs* are
drawn and a pair counts as often as both its runs together; devices, modes, machines and the rest
are what they are, so the surroundings in which they were compared are drawn. Pairs of seeds
share runs, and drawing pairs as if they were independent would promise too much. From fewer than
three images that show an object there is no interval.

The rule of ``within-spread``
-----------------------------
A difference is within the spread of seeds only if it is shown to be *less* than what seeds do; to
be no larger is not enough. With d the mean share of cells changed over the pairs in question, s
that over the pairs of seeds in the same surroundings, and L = log(d / s):

1. At least three seeds in one surrounding, at least three images that show an object, and no
   vacuous pair on either side. Two seeds make one pair, which says nothing of how pairs vary.
   Seeds that found nothing are no yardstick and are left out.
2. s > 0: between equal results there is no spread to be within.
3. The upper end of the one-sided 95 % interval of L lies below 0, that is L + t * sqrt(V) < 0.
   V adds up: *images*, the variance of L over resampled images, the same for d and s (at least
   1/n_d + 1/n_s with the numbers of changed cells, as a count has); *seeds*, the delete-one-seed
   jackknife (Efron and Stein 1981) of s, relative to s; and *the pair itself*, as a pair scatters
   about the mean: n/2 times the former for n seeds, which is exact where seeds act additively
   (of the variance v of one run's effect, s has 4 v / n and a pair 2 v), or more if the pairs in
   question scatter more. t is Student's with Satterthwaite's degrees of freedom.
4. The same holds for differing pixels per million.

Pairs are taken together over what is drawn only, seeds and data seeds, and never over two axes.
What was chosen is judged by itself: each two devices, modes, machines or versions, and repeats in
each setting, are a *contrast*, with the seeds of either side as yardsticks; where neither side has
three, those of all runs on the axis. An axis is within the spread of seeds only if each of its
contrasts that differs is, held against each yardstick; otherwise a device that does more than seeds
would pass in the company of some that do nothing. No claim is made more often by that, as all must
hold at 95 % each.

Counts get half a cell (half a pixel) more, so that nothing changed on few cells is weak evidence.
A bootstrap over images alone is not enough: where an axis does exactly what seeds do and runs
differ among each other, many images leave it certain of whichever mean happens to be smaller, so
it would claim within-spread up to half of the time.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from cellrepro.compare.axes import (
    AXES,
    DRAWN,
    MEASURES,
    Candidate,
    MaskPairs,
    Pair,
    Sample,
    Values,
    choose,
    images_of,
    mean_of,
    n_showing,
    parts_of,
)
from cellrepro.compare.metrics import MaskComparison
from cellrepro.compare.names import Names, place_of
from cellrepro.compare.verdicts import Verdict
from cellrepro.errors import BadInput
from cellrepro.store.spec import PARAMETERS, Spec
from cellrepro.store.store import Repeat, Run
from cellrepro.text import share_text

FEWEST_SEEDS = 3
FEWEST_IMAGES = 3
CONFIDENCE = 0.95

_NOUNS = {
    "repeats": "repeating the same spec",
    "seed": "changing the seed",
    "data_seed": "changing the data seed",
    "mode": "changing the mode",
    "device": "changing the device",
    "threads": "changing threads or instruction set",
    "precision": "changing the precision",
    "profile": "changing several settings of the profile at once",
    "machine": "changing the machine",
    "version": "changing a library's version",
}
_TITLES = {
    "repeats": "repeats of one spec",
    "seed": "seeds",
    "data_seed": "data seeds",
    "mode": "modes",
    "device": "devices",
    "threads": "threads and instruction sets",
    "precision": "precisions",
    "profile": "profiles that differ in several settings",
    "machine": "machines",
    "version": "versions of libraries",
    "model": "models",
    "epochs": "numbers of epochs",
    "batch_size": "batch sizes",
    "learning_rate": "learning rates",
    "images_per_epoch": "images per epoch",
    "ledger": "ledgers",
}
_N_RESAMPLES = 2000
_RANDOM_SEED = 20261101
_FURTHEST = 700.0  # exp of more overflows
_MOST_PAIRS = 150  # of runs along one axis
_MOST_PIXELS = 2e8  # compared along one axis: some 20 seconds


# -- what is told ---------------------------------------------------------------------------
@dataclass(frozen=True)
class Interval:
    """Where the mean of an axis lies, from 95 % of the resamples.

    Attributes
    ----------
    low, high : float
    over : str
        What was resampled: ``images``, or images and something else.
    """

    low: float
    high: float
    over: str


@dataclass(frozen=True, eq=False)
class Distribution:
    """One measure along one axis.

    Attributes
    ----------
    measure : str
        One of `MEASURES`.
    values : ndarray of float64, shape (P,)
        Of each pair that is evidence, over all its images.
    mean : float
        Of the pairs; NaN over none.
    interval : Interval or None
        None from fewer than three images that show an object.
    """

    measure: str
    values: Values
    mean: float
    interval: Interval | None


@dataclass(frozen=True, eq=False)
class Axis:
    """All pairs of repeats that differ along one axis only.

    Attributes
    ----------
    name : str
        One of `AXES`, or another field of a spec.
    pairs : list of Pair
    n_left_out : int
        Pairs that were not compared because there are too many.
    """

    name: str
    pairs: list[Pair]
    n_left_out: int

    @property
    def title(self) -> str:
        """What differs along it, in the plural."""
        return _TITLES[self.name]

    @property
    def told(self) -> list[Pair]:
        """Pairs that found objects, so that their masks say something."""
        return [pair for pair in self.pairs if not pair.vacuous]

    @property
    def evidence(self) -> list[Pair]:
        """What the distributions are over: pairs that are told, for seeds those of working runs.

        A seed with which nothing was found would make the spread of seeds large, and everything
        else small beside it.
        """
        return [p for p in self.told if not (self.name in DRAWN and p.one_sided)]

    @property
    def n_vacuous(self) -> int:
        """Pairs that are no evidence."""
        return len(self.pairs) - len(self.evidence)

    @property
    def differing(self) -> list[Pair]:
        """Pairs that are told and whose masks differ."""
        return [pair for pair in self.told if pair.verdict == Verdict.DIFFERENT]

    @property
    def equal(self) -> bool:
        """Whether all outlines are the same, so that nothing is to be held against seeds."""
        return bool(self.evidence) and not self.differing

    @property
    def largest_ppm(self) -> float:
        """Differing pixels per million of the pair in which most differ."""
        return max((pair.ppm for pair in self.told), default=0.0)

    @property
    def n_images(self) -> int:
        """Images of the pairs that are evidence."""
        return len(images_of(self.evidence))

    @property
    def n_values(self) -> int:
        """Different values on the axis, among the pairs that are evidence."""
        return len({unit for pair in self.evidence for unit in pair.units})

    @property
    def doing(self) -> str:
        """What is done along it: "changing the seed"."""
        return _NOUNS.get(self.name, f"changing the {self.name.replace('_', ' ')}")

    def distribution(self, measure: str = "changed") -> Distribution:
        """One of `MEASURES` over the pairs that are evidence, with its interval."""
        if measure not in MEASURES:
            raise BadInput(f"measure is {measure!r}; expected one of {', '.join(MEASURES)}")
        return self._distributions(measure)

    @cached_property
    def _distributions(self) -> Callable[[str], Distribution]:
        return cache(lambda measure: _distribution(self, measure))


@dataclass(frozen=True)
class Decision:
    """Whether a difference is less than what seeds do, and on what that was decided.

    Attributes
    ----------
    within : bool
        Never without three seeds, three images, and a spread to be within.
    sentence : str
        The decision with its numbers, or why there is none.
    n_seeds, n_seed_pairs, n_pairs, n_images : int
        What it was decided on.
    changed, ppm : tuple of (float, float)
        Share of cells changed, and differing pixels per million: of the pairs, and of seeds.
    changed_ratio, ppm_ratio : float
        How many times what seeds do the difference may be: the upper end of the one-sided 95 %
        interval; NaN where the rule could not be applied.
    contrast : str
        Where several were judged: the one this is about, the least favourable, as in "between cpu
        and cuda".
    """

    within: bool
    sentence: str
    n_seeds: int = 0
    n_seed_pairs: int = 0
    n_pairs: int = 0
    n_images: int = 0
    changed: tuple[float, float] = (math.nan, math.nan)
    ppm: tuple[float, float] = (math.nan, math.nan)
    changed_ratio: float = math.nan
    ppm_ratio: float = math.nan
    contrast: str = ""


@dataclass(frozen=True, eq=False)
class Spread:
    """How far results lie apart along every axis; axes without a pair are left out."""

    axes: tuple[Axis, ...]

    def axis(self, name: str) -> Axis | None:
        """One axis, or none if nothing was compared along it."""
        return next((axis for axis in self.axes if axis.name == name), None)

    @property
    def seeds(self) -> Axis | None:
        """The yardstick."""
        return self.axis("seed")

    @property
    def n_seeds(self) -> int:
        """The most seeds that were compared in one surrounding and found something."""
        return max(
            (len(_levels(p)) for p in _by_surroundings(self._seed_pairs).values()), default=0
        )

    def decide(self, name: str) -> Decision:
        """Whether what an axis does is less than what seeds do; see the rule above.

        Parameters
        ----------
        name : str
            Of an axis with pairs, not ``seed``.

        Returns
        -------
        Decision
            Of its least favourable contrast.
        """
        axis = self.axis(name)
        if axis is None or name == "seed":
            raise BadInput(
                f"{name!r} is no axis to be held against seeds; expected one of "
                f"{', '.join(axis.name for axis in self.axes if axis.name != 'seed') or 'none'}"
            )
        return self._decisions(name)

    @cached_property
    def _decisions(self) -> Callable[[str], Decision]:
        return cache(lambda name: self._decide(name))

    def _decide(self, name: str) -> Decision:
        pairs = [pair for axis in self.axes if axis.name == name for pair in axis.evidence]
        contrasts = list(_grouped(pairs, lambda pair: pair.contrast).values())
        differing = [
            group for group in contrasts if any(p.verdict == Verdict.DIFFERENT for p in group)
        ]
        decided = [
            replace(one, contrast=_contrast(group[0], contrasts) if differing else "")
            for group in differing or [pairs]
            for one in self._decide_contrast(group, pairs)
        ]
        return _named(max(decided, key=_objection))

    def _decide_contrast(self, pairs: Sequence[Pair], axis: Sequence[Pair]) -> list[Decision]:
        """Pairs that differ in draws only, beside each yardstick.

        Those are the seeds of either side; where neither has enough, of all runs on the axis.
        """
        beside = [self._seeds_beside(some) for some in (pairs, axis)]
        enough = [
            [group for group in groups if len(_levels(group)) >= FEWEST_SEEDS] for groups in beside
        ]
        most = sorted(beside[1], key=lambda group: -len(_levels(group)))[:1]
        chosen = enough[0] or enough[1] or most
        yardsticks = _grouped(itertools.chain.from_iterable(chosen), lambda pair: pair.settings)
        return [decide(pairs, seeds) for seeds in yardsticks.values()] or [decide(pairs, [])]

    def _seeds_beside(self, pairs: Sequence[Pair]) -> list[list[Pair]]:
        """Pairs of seeds in surroundings in which some of these runs were."""
        runs = {place_of(repeat) for pair in pairs for repeat in (pair.a, pair.b)}
        return [
            group
            for group in _by_surroundings(self._seed_pairs).values()
            if any(place_of(repeat) in runs for pair in group for repeat in (pair.a, pair.b))
        ]

    @property
    def _seed_pairs(self) -> list[Pair]:
        return self.seeds.evidence if self.seeds else []

    def sentence(self) -> str:
        """What each axis does to the cells, beside what seeds do.

        As in "Changing the device moved 0.4 % of the cells (3 pairs, 12 images), less than seeds
        do; changing the seed moves 6.1 % (6 pairs of 4 seeds, 12 images)."
        """
        clauses = [
            _clause(axis, self.decide(axis.name)) for axis in self.axes if axis.name != "seed"
        ]
        text = "; ".join([clause for clause in clauses if clause] + [_seed_clause(self)])
        return text[:1].upper() + text[1:] + "."


# -- measuring ------------------------------------------------------------------------------


def measure(
    runs: Iterable[Run],
    *,
    axes: Sequence[str] = AXES,
    names: Names | None = None,
    most_pairs: int = _MOST_PAIRS,
    most_pixels: float = _MOST_PIXELS,
) -> Spread:
    """Compare stored runs along every axis.

    Parameters
    ----------
    runs : iterable of Run
        Of one task over the same images, from one store or several.
    axes : sequence of str
        Some of `AXES`, or other fields of a spec.
    names : Names, optional
        Under which the runs are shown; by default of these alone.
    most_pairs : int
        Of each axis. Where there are more, every surrounding and every run in it has its turn
        equally often; which pairs are taken follows from the runs alone.
    most_pixels : float
        Read and compared for each axis; after that its remaining pairs are left out.

    Returns
    -------
    Spread

    Raises
    ------
    BadInput
        If the runs are of two tasks or over two data sets, or masks are missing.
    """
    samples = [Sample(run.spec, repeat) for run in runs for repeat in run.repeats]
    kinds = {(sample.spec.task, sample.spec.data_digest) for sample in samples}
    if len(kinds) > 1:
        raise BadInput(
            f"the runs are of {len(kinds)} kinds, as they have another task or other images; "
            "expected one task and one data set, whose masks can be compared"
        )
    unknown = sorted(set(axes) - set(AXES) - set(PARAMETERS))
    if unknown:
        raise BadInput(f"{', '.join(unknown)} is no axis; expected some of {', '.join(AXES)}")
    names = names or Names.of((sample.spec, sample.repeat) for sample in samples)
    masks = MaskPairs()
    measured = []
    for name in axes:
        chosen, n_pairs = choose(samples, name, most_pairs, names=names)
        pairs = _compare_all(masks, chosen, most_pixels)
        if pairs:
            measured.append(Axis(name, pairs, n_pairs - len(pairs)))
    return Spread(tuple(measured))


def _compare_all(masks: MaskPairs, chosen: Sequence[Candidate], most_pixels: float) -> list[Pair]:
    """What is afforded of these, in the order in which people expect them."""
    enough = masks.n_compared + most_pixels
    found = []
    for candidate in chosen:
        if masks.n_compared >= enough:  # equal ones come free, but they alone would be a choice
            break
        found.append((candidate.order, masks.compare(candidate)))
    return [pair for _, pair in sorted(found, key=lambda entry: entry[0])]


def decide(pairs: Sequence[Pair], seeds: Sequence[Pair]) -> Decision:
    """Whether a difference is less than what seeds do, by the rule in this module's docstring.

    Parameters
    ----------
    pairs : sequence of Pair
        That differ in the same respect; vacuous ones are left out.
    seeds : sequence of Pair
        Of runs that differ in the seed only; vacuous and one-sided ones are left out.

    Returns
    -------
    Decision
    """
    pairs = [pair for pair in pairs if not pair.vacuous]
    seeds = [pair for pair in seeds if not pair.vacuous and not pair.one_sided]
    if not pairs:
        return Decision(False, "no cells were found, so there is nothing to compare")
    images = _common_images([*pairs, *seeds])
    known = Decision(
        within=False,
        sentence="",
        n_seeds=len(_levels(seeds)),
        n_seed_pairs=len(seeds),
        n_pairs=len(pairs),
        n_images=len(images),
        changed=(mean_of(pairs, "changed", images), mean_of(seeds, "changed", images)),
        ppm=(mean_of(pairs, "ppm", images), mean_of(seeds, "ppm", images)),
    )
    why_not = _refusal(known, seeds)
    if why_not:
        return replace(known, sentence=why_not)
    ratios = {name: _largest_ratio(pairs, seeds, name, images) for name in ("changed", "ppm")}
    within = all(ratio < 1 for ratio in ratios.values())
    judged = replace(known, within=within, changed_ratio=ratios["changed"], ppm_ratio=ratios["ppm"])
    return replace(judged, sentence=_decision_sentence(judged))


def decide_between(
    a: tuple[Run, Repeat],
    b: tuple[Run, Repeat],
    runs: Iterable[Run],
    *,
    results: Mapping[str, MaskComparison] | None = None,
) -> Decision:
    """Whether two stored repeats differ by less than seeds make them differ.

    Parameters
    ----------
    a, b : tuple of (Run, Repeat)
    runs : iterable of Run
        Among which the seeds are looked for: runs equal to a's, or to b's, in all but the seed, on
        the same machine with the same libraries. Where both sides have three seeds or more, the
        difference must be within the spread of each.
    results : mapping of str to MaskComparison, optional
        By image, a against b, where the files were compared already; otherwise masks of equal
        digests are taken as equal.

    Returns
    -------
    Decision
        Never within if a and b differ in the seed themselves; the sentence then says how large
        their difference is among seeds.
    """
    first, second = (Sample(run.spec, repeat) for run, repeat in (a, b))
    runs, masks = list(runs), MaskPairs()
    found = masks.compare(Candidate("", "", "", first, second), results)
    yardsticks = [_seed_pairs_beside(side, runs, masks) for side in (first, second)]
    yardsticks.sort(key=lambda seeds: -len(_levels(seeds)))
    if first.spec.seed != second.spec.seed:
        return _among_seeds(found, yardsticks[0])
    enough = [seeds for seeds in yardsticks if len(_levels(seeds)) >= FEWEST_SEEDS]
    decisions = [decide([found], seeds) for seeds in enough or yardsticks[:1]]
    return next((one for one in decisions if not one.within), decisions[0])


def _seed_pairs_beside(side: Sample, runs: Iterable[Run], masks: MaskPairs) -> list[Pair]:
    """Pairs of runs equal to this one in all but the seed."""

    def seedless(run_spec: Spec) -> Spec:
        return run_spec.model_copy(update={"seed": 0})

    asked = seedless(side.spec)
    family = [
        sample
        for run in runs
        if seedless(run.spec) == asked  # before any manifest is read
        for sample in (Sample(run.spec, repeat) for repeat in run.repeats)
        if sample.but("seed") == side.but("seed")
    ]
    chosen, _ = choose(family, "seed", _MOST_PAIRS)
    pairs = _compare_all(masks, chosen, _MOST_PIXELS)
    return [pair for pair in pairs if not pair.vacuous and not pair.one_sided]


# -- distributions --------------------------------------------------------------------------


def _distribution(axis: Axis, measure: str) -> Distribution:
    pairs = axis.evidence
    images = images_of(pairs)
    values = np.array([pair.found.mean(measure) for pair in pairs])
    mean = float(values.mean()) if len(values) else math.nan
    if n_showing(pairs, images) < FEWEST_IMAGES:
        return Distribution(measure, values, mean, None)
    over, weights = _pair_weights(axis)
    means = _resampled_means(pairs, measure, images, weights)
    low, high = np.nanquantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Distribution(measure, values, mean, Interval(float(low), float(high), over))


def _pair_weights(axis: Axis) -> tuple[str, Values | None]:
    """How often each pair counts in each resample, shape (B, P), and what was resampled."""
    pairs = axis.evidence
    one_place = len({pair.surroundings for pair in pairs}) == 1
    by_runs = axis.name in DRAWN or (axis.name == "repeats" and one_place)
    units = [pair.units if by_runs else (pair.surroundings,) for pair in pairs]
    names = sorted({name for unit in units for name in unit})
    if len(names) < FEWEST_SEEDS:
        return "images", None
    drawn = _draws(len(names), 1)
    at = {name: i for i, name in enumerate(names)}
    weights = np.stack([drawn[:, [at[name] for name in unit]].prod(axis=1) for unit in units], 1)
    kind = {"seed": "seeds", "data_seed": "data seeds", "repeats": "repeats"}
    return f"images and {kind[axis.name] if by_runs else 'surroundings'}", weights


def _resampled_means(
    pairs: Sequence[Pair], measure: str, images: Sequence[str], weights: Values | None
) -> Values:
    """The mean over pairs in each resample, shape (B,); NaN where nothing was drawn."""
    over, under = parts_of(pairs, measure, images)
    drawn = _draws(len(images), 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        each = (drawn @ over.T) / (drawn @ under.T)
        counted = np.isfinite(each) * (1.0 if weights is None else weights)
        return (np.nan_to_num(each, posinf=0) * counted).sum(1) / counted.sum(1)


@cache
def _draws(n: int, stream: int) -> Values:
    """How often each of n things is drawn in each resample, shape (B, n)."""
    generator = np.random.default_rng([_RANDOM_SEED, stream])
    return generator.multinomial(n, np.full(n, 1 / n), size=_N_RESAMPLES).astype(np.float64)


def _levels(pairs: Iterable[Pair]) -> list[str]:
    return sorted({unit for pair in pairs for unit in pair.units})


def _by_surroundings(pairs: Iterable[Pair]) -> dict[Hashable, list[Pair]]:
    return _grouped(pairs, lambda pair: pair.surroundings)


def _grouped(pairs: Iterable[Pair], key: Callable[[Pair], Hashable]) -> dict[Hashable, list[Pair]]:
    found: dict[Hashable, list[Pair]] = defaultdict(list)
    for pair in pairs:
        found[key(pair)].append(pair)
    return found


# -- the rule -------------------------------------------------------------------------------


def _objection(found: Decision) -> tuple[bool, bool, float]:
    """How much a decision speaks against within-spread; a ratio says more than no answer."""
    largest = max(found.changed_ratio, found.ppm_ratio)
    return (not found.within, not math.isnan(largest), 0.0 if math.isnan(largest) else largest)


def _refusal(known: Decision, seeds: Sequence[Pair]) -> str:
    """Why nothing can be said, or nothing."""
    if known.n_seeds < FEWEST_SEEDS:
        n = {0: "no other seed", 1: "no other seed"}.get(
            known.n_seeds, f"only {known.n_seeds} seeds"
        )
        return f"{n}: not enough to say whether this is less than seeds do ({FEWEST_SEEDS} are)"
    if known.n_images < FEWEST_IMAGES:
        return (
            f"only {_amount(known.n_images, 'image')} with cells: not enough to say whether this "
            f"is less than seeds do ({FEWEST_IMAGES} are)"
        )
    if not known.changed[1] or not known.ppm[1]:
        same = "masks" if not known.ppm[1] else "cells"
        return f"{_amount(known.n_seeds, 'seed')} gave the same {same}: no spread to be within"
    each = Counter(unit for pair in seeds for unit in pair.units)
    if any(n == len(seeds) for n in each.values()):
        return "every pair of seeds holds the same seed: not enough to say"
    return ""


def _common_images(pairs: Sequence[Pair]) -> list[str]:
    """Images that all of them have, and in which some show an object."""
    common = [name for name in images_of(pairs) if all(name in p.found.images for p in pairs)]
    if not common:
        return []
    shown = parts_of(pairs, "changed", common)[1].sum(axis=0) > 0
    return [name for name, showing in zip(common, shown, strict=True) if showing]


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
    drawn_d = _resampled_means(pairs, measure, images, None)
    drawn_s = _resampled_means(seeds, measure, images, None)
    known = np.isfinite(drawn_d) & np.isfinite(drawn_s)
    logs = np.log((drawn_d[known] + more_d) / (drawn_s[known] + more_s))
    n_images = len(images)
    of_images = float(np.var(logs)) * n_images / (n_images - 1)
    if measure == "changed":
        of_images = max(of_images, 1 / (over_d.sum() + 0.5) + 1 / (over_s.sum() + 0.5))
    of_seeds, n_seeds = _jackknife(over_s.sum(1) / under_s.sum(1), [p.units for p in seeds])
    of_runs = of_seeds + max(of_seeds * n_seeds / 2, _own_variance(over_d.sum(1) / under_d.sum(1)))
    variance = of_images + of_runs
    if not variance:
        return float((d + more_d) / (s + more_s))
    freedom = variance**2 / (of_images**2 / (n_images - 1) + of_runs**2 / (n_seeds - 1))
    furthest = float(stats.t.ppf(CONFIDENCE, freedom)) * math.sqrt(variance)
    return float((d + more_d) / (s + more_s)) * math.exp(min(furthest, _FURTHEST))


def _own_variance(values: Values) -> float:
    """Relative variance of the mean over the pairs in question."""
    n, mean = len(values), values.mean()
    return float(values.var(ddof=1)) / n / mean**2 if n > 1 and mean else 0.0


def _jackknife(values: Values, units: Sequence[tuple[str, str]]) -> tuple[float, int]:
    """Relative variance of the mean over pairs of seeds when one seed at a time is left out."""
    names = sorted({name for unit in units for name in unit})
    means = [values[[name not in unit for unit in units]].mean() / values.mean() for name in names]
    n = len(names)
    return (n - 1) / n * float(((np.array(means) - np.mean(means)) ** 2).sum()), n


def _among_seeds(found: Pair, seeds: Sequence[Pair]) -> Decision:
    """Of two runs with different seeds: how large their difference is among seeds."""
    if found.vacuous:
        return decide([found], seeds)
    head = f"the seeds differ: {share_text(found.changed)} of the cells changed"
    if len(_levels(seeds)) < FEWEST_SEEDS:
        return Decision(False, f"{head}; only {max(2, len(_levels(seeds)))} seeds are known")
    shares = sorted(pair.changed for pair in seeds)
    n_less = sum(share < found.changed for share in shares)
    return Decision(
        False,
        f"{head}; {_amount(len(shares), 'pair')} of {len(_levels(seeds))} seeds changed "
        f"{share_text(shares[0])} to {share_text(shares[-1])}, {n_less} of them less than this one",
        n_seeds=len(_levels(seeds)),
        n_seed_pairs=len(seeds),
        n_pairs=1,
        n_images=found.n_images,
        changed=(found.changed, float(np.mean(shares))),
        ppm=(found.ppm, float(np.mean([pair.ppm for pair in seeds]))),
    )


# -- in words -------------------------------------------------------------------------------


def _decision_sentence(found: Decision) -> str:
    text = (
        f"{share_text(found.changed[0])} of the cells changed, between seeds "
        f"{share_text(found.changed[1])} ({_amount(found.n_seed_pairs, 'pair')} of "
        f"{found.n_seeds} seeds, {_amount(found.n_images, 'image')})"
    )
    if found.within:
        return (
            f"{text}; at most {found.changed_ratio:.2g} times as many cells as between seeds, and "
            f"{found.ppm_ratio:.2g} times as many pixels (95 % confidence)"
        )
    return (
        f"{text}; not shown to be less than seeds do (it may be up to "
        f"{_times(found.changed_ratio)} as many cells and {_times(found.ppm_ratio)} as many pixels)"
    )


def _contrast(one: Pair, contrasts: Sequence[Sequence[Pair]]) -> str:
    """What tells it from the others, as in "between cpu and cuda, for strict"; else nothing."""
    if len(contrasts) == 1:
        return ""
    values = {group[0].contrast[1] for group in contrasts}
    own = [word for word in one.setting if not all(word in c[0].setting for c in contrasts)]
    parts = [f"between {one.name_a} and {one.name_b}"] if len(values) > 1 else []
    return ", ".join([*parts, *([f"for {', '.join(own)}"] if own else [])])


def _named(found: Decision) -> Decision:
    """With the contrast in its sentence."""
    if not found.contrast:
        return found
    told = math.isnan(found.changed_ratio)  # a reason, which is read up to its colon
    text = f"{found.sentence} ({found.contrast})" if told else f"{found.contrast}: {found.sentence}"
    return replace(found, sentence=text)


def _times(ratio: float) -> str:
    return f"{ratio:.2g} times" if ratio < 100 else "over 100 times"


def _clause(axis: Axis, decision: Decision) -> str:
    if not axis.evidence:
        return f"{axis.doing} cannot be judged, as no cells were found"
    over = f"{_amount(len(axis.evidence), 'pair')}, {_amount(axis.n_images, 'image')}"
    if decision.contrast and not math.isnan(decision.changed[0]) and axis.differing:
        over += f"; {share_text(decision.changed[0])} {decision.contrast}"
    text = f"{axis.doing} moved {share_text(axis.distribution().mean)} of the cells ({over})"
    if decision.within:
        return f"{text}, less than seeds do"
    return text


def _seed_clause(spread: Spread) -> str:
    seeds = spread.seeds
    if seeds is None:
        return "no two seeds were compared, so it is not known what seeds do"
    if not seeds.evidence:
        return "what seeds do is not known, as no cells were found with two of them"
    text = (
        f"{seeds.doing} moves {share_text(seeds.distribution().mean)} "
        f"({_amount(len(seeds.evidence), 'pair')} of {seeds.n_values} seeds, "
        f"{_amount(seeds.n_images, 'image')})"
    )
    if spread.n_seeds < FEWEST_SEEDS:
        return f"{text}; only {spread.n_seeds} seeds: not enough to say what is less than that"
    return text


def _amount(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
