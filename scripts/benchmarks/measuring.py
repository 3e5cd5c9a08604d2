"""How a figure is measured: in turns, side by side, as the median of the pairs' ratios."""

from __future__ import annotations

import math
import operator
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

ROUNDS = 5


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    A time, a size or a ratio that is 0 or less was not measured, and would meet every upper bound:
    it is refused.
    """

    name: str
    value: float
    target: str
    """``<= 1.05`` or the like; empty for none."""
    how: str
    """How it was measured."""

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

T = TypeVar("T")


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    name: Literal["smallest", "usual", "all"]
    """A moment of each, what is usual, or also what takes long."""
    data: Path | None = None
    """A folder of real images."""

    def of(self, smallest: T, usual: T, everything: T | None = None) -> T:
        """Give the value for this extent; the usual one where there is none for everything."""
        longest = usual if everything is None else everything
        return {"smallest": smallest, "usual": usual, "all": longest}[self.name]


def seconds_of(
    function: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> float:
    """Measure one call."""
    started = clock()
    function()
    return clock() - started


def in_turns(
    functions: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warm_up: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each function in every round.

    They are called in turns, so that a busy machine slows all of them alike; to warm up, each is
    called once before, unmeasured.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values() if warm_up else ():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            seconds[name].append(seconds_of(function, clock))
    return seconds


def ratio_of(
    name: str, seconds: Mapping[str, Sequence[float]], a: str, b: str, target: str, how: str
) -> Figure:
    """Give the median of the ratios of the seconds of `a` to those of `b`, with their range."""
    ratios = [x / y for x, y in zip(seconds[a], seconds[b], strict=True)]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return Figure(name, statistics.median(ratios), target, f"{how}; {spread}")


def small_networks() -> Mapping[str, Callable[[], Any]]:
    """The networks that the tests of `samebits` train, each with its batch and optimizer."""
    return _networks().EXAMPLES


def larger_networks() -> Mapping[str, Callable[[], Any]]:
    """The same ones of a size at which they are of use."""
    return _networks().LARGER


def _networks() -> Any:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/samebits"))
    import networks

    return networks


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
