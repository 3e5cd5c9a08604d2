"""How often the interval of a conclusion holds the true effect, for docs/conclusion.md.

    python scripts/interval_coverage.py

A row for each kind of made-up numbers; both groups vary, or the control does not, as where B
changes nothing in it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cellrepro.conclusions.effects import Values, effect_of_groups

N_EXPERIMENTS = 600
GROUP_SIZES = (3, 4, 5, 6, 7, 8)
Draw = Callable[[np.random.Generator, int], Values]
KINDS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda random, n: random.normal(5, 1, n), 5.0),
    "log-normal": (lambda random, n: random.lognormal(1, 0.5, n), float(np.exp(1 + 0.5**2 / 2))),
    "Poisson": (lambda random, n: random.poisson(8, n).astype(float), 8.0),
}
"""What draws the numbers of a group, and their mean."""
EFFECT = 2.0


def coverage(draw: Draw, mean: float, n: int, *, does_control_vary: bool) -> float:
    """The share of experiments with ``n`` images in a group whose interval holds the effect."""
    random = np.random.default_rng(n)
    n_held = 0
    for _ in range(N_EXPERIMENTS):
        control = draw(random, n) if does_control_vary else np.full(n, mean)
        effect = effect_of_groups(control, draw(random, n) + EFFECT)
        n_held += effect.low <= EFFECT <= effect.high
    return n_held / N_EXPERIMENTS


def main() -> None:
    """Print a table: groups of three to eight images in its columns."""
    print("images in a group", *GROUP_SIZES, sep="\t")
    for name, (draw, mean) in KINDS.items():
        for does_control_vary in (True, False):
            which = "both vary" if does_control_vary else "one varies"
            shares = (
                coverage(draw, mean, n, does_control_vary=does_control_vary) for n in GROUP_SIZES
            )
            print(f"{name}, {which}", *(f"{100 * share:.1f} %" for share in shares), sep="\t")


if __name__ == "__main__":
    main()
