"""How a figure is measured: in turns, side by side, as the median of the pairs' ratios."""

from __future__ import annotations

import math
import operator
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROUNDS = 5


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Attributes
    ----------
    name : str
    value : float
        Above 0: a time, a size or a ratio that is 0 or less was not measured, and would meet every
        upper bound.
    target : str
        ``<= 1.05`` or the like; empty for none.
    how : str
        How it was measured.

    Raises
    ------
    ValueError
        If the value is none that can be measured.
    """

    name: str
    value: float
    target: str
    how: str

    def __post_init__(self) -> None:
        if not 0 < self.value < math.inf:
            raise ValueError(
                f"{self.name} is {self.value:.3g}, which measures nothing: expected a number above "
                f"0 ({self.how})"
            )

    @property
    def met(self) -> bool | None:
        """Whether it meets its target; None where there is none."""
        if not self.target:
            return None
        sign, bound = self.target.split()
        return COMPARISONS[sign](self.value, float(bound))


COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Extent:
    """How much is measured.

    Attributes
    ----------
    name : {"smallest", "usual", "all"}
        A moment of each, what is usual, or also what takes long.
    data : Path or None
        A folder of real images.
    """

    name: str
    data: Path | None = None

    def of(self, smallest: Any, usual: Any, everything: Any = None) -> Any:
        """Give the value for this extent; the usual one where there is none for everything."""
        longest = usual if everything is None else everything
        return {"smallest": smallest, "usual": usual, "all": longest}[self.name]


def seconds_of(function: Callable[[], object]) -> float:
    """Measure one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def in_turns(
    functions: Mapping[str, Callable[[], object]], rounds: int, *, warm_up: bool = True
) -> dict[str, list[float]]:
    """Measure functions in turns, so that a busy machine slows all of them alike.

    Parameters
    ----------
    functions : mapping of str to callable
    rounds : int
        How often each is called.
    warm_up : bool
        Call each once before, unmeasured.

    Returns
    -------
    dict of str to list of float
        Seconds of each function in every round.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values() if warm_up else ():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            seconds[name].append(seconds_of(function))
    return seconds


def ratio_of(
    name: str, seconds: dict[str, list[float]], a: str, b: str, target: str, how: str
) -> Figure:
    """Give the median of the pairs' ratios, with their range.

    Parameters
    ----------
    name : str
        Of the figure.
    seconds : dict of str to list of float
        As from `in_turns`.
    a, b : str
        Whose seconds are divided by whose.
    target, how : str
        As of a `Figure`; the range of the ratios is added.
    """
    ratios = [x / y for x, y in zip(seconds[a], seconds[b], strict=True)]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return Figure(name, statistics.median(ratios), target, f"{how}; {spread}")


def warm_loop(
    encoder: str, n_steps: int, *, batch_size: int = 1, watch: Any = None
) -> tuple[Any, Any]:
    """A network and its training on one image, two steps old."""
    from cellrepro.images.synthetic_sets import labelled_nuclei
    from cellrepro.model.network import seeded_network
    from cellrepro.model.training_loop import TrainingLoop

    network = seeded_network(encoder, seed=0)
    loop = TrainingLoop(
        network,
        labelled_nuclei(1),
        (),
        n_epochs=n_steps + 2,
        learning_rate=1e-5,
        batch_size=batch_size,
        images_per_epoch=batch_size,
        watch=watch,
    )
    loop.step()
    loop.step()
    return network, loop
