"""The values that a search tries of settings that nobody recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cellrepro.explanation.conditions import IMAGE_CHANNELS, IMAGE_DEPTH, PRECISION

_TRIED_NUMBERS: Mapping[str, tuple[float, ...]] = {
    "diameter": (10.0, 12.0, 15.0, 17.0, 20.0, 24.0, 27.0, 35.0, 40.0, 45.0, 50.0, 60.0, 75.0),
    "flow_threshold": (0.0, 0.1, 0.2, 0.3, 0.5, 0.6, 0.8, 1.0),
    "cellprob_threshold": (-6.0, -4.0, -3.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0),
    "niter": (20, 50, 100, 150, 300, 500, 1000),
    "min_size": (-1, 5, 30, 50, 100, 200, 500),
}

USUAL_NUMBERS: Mapping[str, float] = {
    "diameter": 30.0,
    "flow_threshold": 0.4,
    "cellprob_threshold": 0.0,
    "niter": 200,
    "min_size": 15,
}
"""Defaults of Cellpose 4.2.1.1; it scales no image whose diameter is 30."""

TriedValue = float | str | tuple[float, float]

TRIED: Mapping[str, tuple[TriedValue, ...]] = {
    PRECISION: ("bfloat16", "float32"),
    IMAGE_DEPTH: ("8 bit", "8 bit over its range"),
    IMAGE_CHANNELS: ("reversed", "1", "2", "3", "mean", "1 3 2", "2 1 3", "2 3 1", "3 1 2"),
    "flow_threshold": _TRIED_NUMBERS["flow_threshold"],
    "cellprob_threshold": _TRIED_NUMBERS["cellprob_threshold"],
    "niter": _TRIED_NUMBERS["niter"],
    "min_size": _TRIED_NUMBERS["min_size"],
    "max_size_fraction": (0.01, 0.05, 0.1, 0.2, 1.0),
    "normalize.normalize": (False,),
    "diameter": _TRIED_NUMBERS["diameter"],
    "normalize.percentile": (
        (0.0, 100.0),
        (0.1, 99.9),
        (1.0, 99.9),
        (2.0, 98.0),
        (3.0, 97.0),
        (5.0, 95.0),
    ),
    "normalize.sharpen": (2.0, 4.0, 8.0),
    "normalize.smooth_radius": (1.0, 2.0, 4.0),
    "normalize.tile_norm_blocksize": (50, 100, 200),
    "normalize.invert": (True,),
    "augment": (True,),
    "tile_overlap": (0.05, 0.25, 0.5),
}
"""In this order: of two changes that explain as much, the first is believed."""

NUMBERS: Mapping[str, tuple[float, ...]] = {
    name: tuple(sorted((*numbers, USUAL_NUMBERS[name]))) for name, numbers in _TRIED_NUMBERS.items()
}
"""Settings that are tried between these values, too: those of `TRIED`, and the default."""

STEPS: Mapping[str, tuple[float, ...]] = {
    "diameter": (1.0, 0.5, 0.1),
    "flow_threshold": (0.1, 0.05, 0.01),
    "cellprob_threshold": (0.5, 0.1, 0.05, 0.01),
    "niter": (50, 10, 1),
    "min_size": (10, 5, 1),
}
"""Steps from coarse to fine; their multiples are tried, as people choose round numbers."""

PAIRS = (("cellprob_threshold", "flow_threshold"), ("diameter", "cellprob_threshold"))
"""Searched together, as the best value of one depends on the other's."""

COARSE: Mapping[str, tuple[float, ...]] = {
    "cellprob_threshold": NUMBERS["cellprob_threshold"],
    # One that is wrong by two pixels may leave no cell as it is: a coarser grid would miss it.
    "diameter": (*(float(pixels) for pixels in range(10, 61)), 65.0, 70.0, 75.0, 80.0, 90.0, 100.0),
}
"""Values of the first setting of a pair, on the coarse grid."""

FEW: Mapping[str, tuple[float, ...]] = {
    "flow_threshold": (0.0, 0.2, 0.4, 0.6, 1.0),
    "cellprob_threshold": (-3.0, -1.0, 0.0, 1.0, 3.0),
}
"""Values of the second setting of a pair, on the coarse grid."""


def neighbours(name: str, value: float) -> tuple[float, float]:
    """Give the nearest of `NUMBERS` below and above; the value itself where there is none."""
    below = [number for number in NUMBERS[name] if number < value]
    above = [number for number in NUMBERS[name] if number > value]
    return max(below, default=value), min(above, default=value)


def multiples(low: float, high: float, step: float) -> list[float]:
    """Give the multiples of a step between two values, exclusive.

    Multiples of a whole step stay whole numbers.

    >>> multiples(20.0, 22.0, 0.5), multiples(-1, 16, 5)
    ([20.5, 21.0, 21.5], [0, 5, 10, 15])
    """
    first = math.floor(low / step) + 1
    last = math.ceil(high / step) - 1
    values = [round(factor * step, 4) for factor in range(first, last + 1)]
    return [value for value in values if low < value < high]


def around(values: Sequence[float], value: float) -> list[float]:
    """Give a value, its neighbours among others, and the middles between.

    >>> around((0.0, 1.0, 2.0), 1.0)
    [0.0, 0.5, 1.0, 1.5, 2.0]
    """
    nearest = min(range(len(values)), key=lambda index: abs(values[index] - value))
    low = values[max(nearest - 1, 0)]
    high = values[min(nearest + 1, len(values) - 1)]
    return sorted({low, (low + value) / 2, value, (value + high) / 2, high})
