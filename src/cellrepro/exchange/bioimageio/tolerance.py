"""The reproducibility tolerance of bioimage.io: its rule, how it is measured, what it could hide.

An element is mismatched if it differs from the expected one by more than ``absolute + relative *
abs(expected)``; a package passes its test if a limited number of elements per million is mismatched
(``bioimageio.core`` 0.11.0, ``_resource_tests.py``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from samebits.errors import BadInput
from samebits.results import derived

Floats: TypeAlias = NDArray[np.float32]

MOST_RELATIVE = 0.01
"""Limit of the specification (0.5.14) for the relative tolerance, and, times the largest element of
the test output, for the absolute one."""

MOST_PER_MILLION = 30_000
"""Limit of the specification (0.5.14) for mismatched elements per million."""

USUAL_FACTOR = 10.0
"""Safety factor on measured differences, for machines that were not measured."""

_SINGLE_ROUNDING = 2.0**-23
"""Largest relative error of rounding one operation in float32."""


@dataclass(frozen=True)
class Tolerance:
    """The three numbers of ``config.bioimageio.reproducibility_tolerance``."""

    relative_tolerance: float
    """Allowed difference as a part of an element of the test output."""
    absolute_tolerance: float
    """Allowed difference that is added to that."""
    mismatched_elements_per_million: int = 0
    """Elements that may differ by more."""

    def allowed(self, expected: Floats) -> Floats:
        """The allowed difference of each element, in float32 as ``bioimageio.core`` computes it."""
        of_element = self.relative_tolerance * abs(expected.astype(np.float32))
        allowed: Floats = self.absolute_tolerance + of_element
        return allowed

    def n_mismatched(self, actual: Floats, expected: Floats) -> int:
        """Count mismatched elements as ``bioimageio.core`` does."""
        differences = abs(actual.astype(np.float32) - expected.astype(np.float32))
        return int((differences > self.allowed(expected)).sum())

    def is_kept(self, actual: Floats, expected: Floats) -> bool:
        """Whether the test of a package with this tolerance passes."""
        per_million = _per_million(self.n_mismatched(actual, expected), expected)
        return per_million <= self.mismatched_elements_per_million


SPECIFICATION_DEFAULT = Tolerance(1e-3, 1e-3, 100)
"""The default of the specification."""


def largest_difference(outputs: Sequence[Floats], *, scale: float) -> float:
    """Find the smallest ``t`` with which every two outputs lie within ``t * (scale + abs(b))``.

    >>> largest_difference([np.array([0.0, 9.0]), np.array([0.5, 8.0])], scale=1.0)
    0.5
    """
    return max(
        (
            float((abs(a.astype(np.float64) - b) / (scale + abs(b.astype(np.float64)))).max())
            for a, b in _ordered_pairs(outputs)
        ),
        default=0.0,
    )


def measured_tolerance(
    outputs: Sequence[Floats],
    expected: Floats,
    *,
    factor: float = USUAL_FACTOR,
) -> Tolerance:
    """Find the smallest tolerance that holds all outputs, times a factor.

    The share of mismatched elements stays 0, so that no object can hide in it. The absolute
    tolerance is the relative one times the largest element of the test output, since the
    specification limits both to a hundredth on that scale. The remaining number is the largest
    difference of any two outputs on the same scale, times the factor, rounded up to two digits. If
    that is beyond the limits, both tolerances are at their limits, and the share is the largest of
    any two outputs times the factor.
    """
    if not 1 <= factor < math.inf:
        raise BadInput(f"the factor of the tolerance is {factor:g}; expected a number from 1 on")
    scale = scale_of(expected)
    if not all(np.isfinite(output).all() for output in outputs):
        raise BadInput(
            "the network gives numbers that are not finite for the test image, so no tolerance "
            "holds them; look at its training: its loss has probably diverged"
        )
    most_apart = max(largest_difference(outputs, scale=scale), _SINGLE_ROUNDING)
    for level in _levels_from(factor * most_apart):
        tolerance = Tolerance(level, _rounded_up(level * scale))
        if tolerance.absolute_tolerance > _most_absolute(scale):
            break
        if all(tolerance.n_mismatched(a, b) == 0 for a, b in _ordered_pairs(outputs)):
            return tolerance
    return _at_the_limits(outputs, scale, factor)


def scale_of(expected: Floats) -> float:
    """The largest element of the test output, to which the specification's limit is relative."""
    scale = float(expected.max(initial=0.0))
    if not 0 < scale < math.inf:
        raise BadInput(
            "the network gives no number above 0 for the test image, and the specification of "
            "bioimage.io then allows no tolerance; train it longer, or choose another image with "
            "--image"
        )
    return scale


def _most_absolute(scale: float) -> float:
    """A little below the limit, which the specification computes in float32."""
    return MOST_RELATIVE * scale * (1 - 1e-6)


def _at_the_limits(outputs: Sequence[Floats], scale: float, factor: float) -> Tolerance:
    widest = Tolerance(MOST_RELATIVE, _two_digits(_most_absolute(scale), math.floor))
    shares = [_per_million(widest.n_mismatched(a, b), b) for a, b in _ordered_pairs(outputs)]
    per_million = math.ceil(factor * max(shares, default=0.0))
    if per_million > MOST_PER_MILLION:
        raise BadInput(
            f"{max(shares) / 1e4:.2g} % of the numbers that this network gives for the test image "
            "differ between two of the measurements by more than a hundredth, and times "
            f"{factor:g} that is more than the {MOST_PER_MILLION / 1e4:g} % which the "
            "specification of bioimage.io allows; leave out the measurement that is furthest, or "
            "lower --tolerance-factor"
        )
    return replace(widest, mismatched_elements_per_million=per_million)


def _ordered_pairs(
    outputs: Sequence[Floats],
) -> Iterator[tuple[Floats, Floats]]:
    """Every pair in both orders, since the tolerance is not symmetric."""
    return itertools.permutations(outputs, 2)


def _per_million(n_mismatched: int, expected: Floats) -> float:
    return n_mismatched / expected.size * 1e6


def _levels_from(least: float) -> Iterator[float]:
    """Numbers of two digits up to the limit; float32 may round so that the first is too small."""
    level = _rounded_up(least)
    while level < MOST_RELATIVE:
        yield level
        level = _rounded_up(level + 10.0 ** (math.floor(math.log10(level)) - 2))


def _rounded_up(value: float) -> float:
    """Round up to two significant digits.

    >>> _rounded_up(0.00012345), _rounded_up(0.5), _rounded_up(0.00999)
    (0.00013, 0.5, 0.01)
    """
    return _two_digits(value, math.ceil)


def _two_digits(value: float, rounded: Callable[[float], int]) -> float:
    exponent = math.floor(math.log10(value)) - 1
    steps = rounded(round(value / 10.0**exponent, 9))  # 0.5 is 50.00000000000001 steps of 0.01
    return float(f"{steps}e{exponent}")


# -- what could hide in it -----------------------------------------------------------------


@dataclass(frozen=True)
class HiddenObjects:
    """What a tolerance could hide in the test output."""

    n_pixels: int
    """Pixels of the largest object that could be missing altogether."""
    n_uncertain_pixels: int
    """Pixels that the tolerance may move across the threshold of the probability."""
    n_uncertain_objects: int
    """Objects that consist of such pixels alone."""
    smallest_object: int | None
    """Pixels of the smallest object in the masks of the run; null where it found none."""

    @derived
    def diameter(self) -> float:
        """Diameter of a disk with as many pixels as could be missing."""
        return 2 * math.sqrt(self.n_pixels / math.pi)


def hidden_objects(
    tolerance: Tolerance,
    expected: Floats,
    masks: NDArray[np.uint32],
    *,
    threshold: float,
    smallest_object: int | None = None,
) -> HiddenObjects:
    """Find what a tolerance could hide.

    An object can be missing unnoticed if one element of each of its pixels, the probability, is
    mismatched.
    """
    probability = expected[0, 2]
    is_uncertain = abs(probability - threshold) <= tolerance.allowed(probability)
    labels = np.unique(masks[masks > 0])
    certain_labels = np.unique(masks[~is_uncertain])
    n_mismatched = tolerance.mismatched_elements_per_million * expected.size / 1e6
    return HiddenObjects(
        n_pixels=math.floor(n_mismatched),
        n_uncertain_pixels=int(is_uncertain.sum()),
        n_uncertain_objects=len(np.setdiff1d(labels, certain_labels)),
        smallest_object=smallest_object,
    )
