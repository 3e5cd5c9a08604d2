"""How often 95 % intervals from few images hold the truth, for docs/conclusion.md and spread.md.

    python scripts/interval_coverage.py

The first rows are of the effect of a conclusion, for each kind of made-up numbers; both groups
vary, or the control does not, as where B changes nothing in it, or it has more images. The last
ones are of the share of cells without a match: of one pair of results, and of all pairs of three
and of five seeds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from cellrepro.comparison.resampling import Values, interval_of_share, many_draws
from cellrepro.conclusions.effects import effect_of_groups

N_EXPERIMENTS = 600
N_IMAGES = (3, 4, 5, 6, 7, 8)
Draw = Callable[[np.random.Generator, int], Values]
KINDS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda random, n: random.normal(5, 1, n), 5.0),
    "log-normal": (lambda random, n: random.lognormal(1, 0.5, n), float(np.exp(1 + 0.5**2 / 2))),
    "Poisson": (lambda random, n: random.poisson(8, n).astype(float), 8.0),
}
"""What draws the numbers of a group, and their mean."""
EFFECT = 2.0
SHARE = 0.08
"""Of the cells, without a match."""
N_CELLS = 60
"""In an image, about."""
OF_IMAGES = 0.5
OF_SEEDS = 0.3
"""Standard deviation of the logarithm of that share, between images and between seeds."""


def of_effects(draw: Draw, n: int, *, control: Draw) -> float:
    """The share of experiments with ``n`` treated images whose interval holds the effect."""
    random = np.random.default_rng(n)
    n_held = 0
    for _ in range(N_EXPERIMENTS):
        effect = effect_of_groups(control(random, n), draw(random, n) + EFFECT)
        n_held += effect.low <= EFFECT <= effect.high
    return n_held / N_EXPERIMENTS


def of_shares(n: int, n_seeds: int) -> float:
    """The share of comparisons of ``n`` images whose interval holds the share of cells."""
    random = np.random.default_rng([n, n_seeds])
    pairs = np.array([*itertools.combinations(range(n_seeds), 2)])
    n_held = 0
    for _ in range(N_EXPERIMENTS):
        cells = random.poisson(N_CELLS, n) + 5
        image = random.lognormal(-(OF_IMAGES**2) / 2, OF_IMAGES, n)
        seed = random.lognormal(-(OF_SEEDS**2) / 2, OF_SEEDS, n_seeds)
        of_pair = seed[pairs].prod(axis=1) if n_seeds > 2 else np.ones(1)
        shares = np.clip(SHARE * np.outer(of_pair, image), 0, 1)
        changed = random.binomial(cells, shares)
        drawn = many_draws(n, 0)
        resampled = (drawn @ changed.T) / (drawn @ cells)[:, np.newaxis]
        weights = np.ones((1, len(pairs)))
        if n_seeds > 2:
            weights = many_draws(n_seeds, 1)[:, pairs].prod(axis=2)
        with np.errstate(invalid="ignore"):
            means = (resampled * weights).sum(axis=1) / weights.sum(axis=1)
        mean = float((changed.sum(axis=1) / cells.sum()).mean())
        is_crossed = n_seeds > 2
        n_fewest = min(n, n_seeds) if is_crossed else n
        low, high = interval_of_share(mean, means, n_fewest, are_units_crossed=is_crossed)
        n_held += low <= SHARE <= high
    return n_held / N_EXPERIMENTS


def rows() -> Iterator[tuple[str, Iterator[float]]]:
    """Name each kind of interval, with how often it holds for each number of images."""
    for name, (draw, mean) in KINDS.items():
        controls: dict[str, Draw] = {
            "both groups vary": draw,
            "one group varies": lambda _, n, mean=mean: np.full(n, mean),
            "control of 20 images": lambda random, _, draw=draw: draw(random, 20),
        }
        for which, control in controls.items():
            yield (
                f"effect, {name}, {which}",
                (of_effects(draw, n, control=control) for n in N_IMAGES),
            )
    for n_seeds in (2, 3, 5):
        which = "one pair" if n_seeds == 2 else f"pairs of {n_seeds} seeds"
        yield f"share of cells, {which}", (of_shares(n, n_seeds) for n in N_IMAGES)


def main() -> None:
    """Print a table: three to eight images, of a conclusion in each group, in its columns."""
    print("images", *N_IMAGES, sep="\t")
    for name, held in rows():
        print(name, *(f"{100 * share:.1f} %" for share in held), sep="\t")


if __name__ == "__main__":
    main()
