"""Functions of single numbers against arithmetic of 200 digits."""

import math
import random

import mpmath
import pytest

from samebits import scalars

_EDGES = {
    "sin": (0.0, 5e-324, 1e-9, math.pi, -math.pi / 2, 1e22, 1.7976931348623157e308),
    "cos": (0.0, 5e-324, math.pi / 2, 6381956970095103.0 * 2.0**797, -1e22),
}


@pytest.mark.parametrize("name", list(_EDGES))
def test_function_is_correctly_rounded(name):
    """Every bit is that of the exact value, near zeros and the ends of float64, too."""
    drawn = random.Random(5)
    numbers = [*_EDGES[name], *(drawn.uniform(-200, 200) for _ in range(150))]

    with mpmath.workdps(400):
        expected = [_nearest(getattr(mpmath, name)(mpmath.mpf(number))) for number in numbers]

    actual = [getattr(scalars, name)(number) for number in numbers]
    assert [value.hex() for value in actual] == [value.hex() for value in expected]


@pytest.mark.parametrize(
    ("base", "exponent"),
    [
        (0.999, 1),
        (0.9, 20_000),
        (0.999, 740_000),
        (0.9, 7080),
        (1.0 + 2.0**-26, 2),
        (2.0**27 - 1, 2),
        (-1.1, 7),
        (3.0, 1000),
        (0.0, 0),
        (0.0, 3),
    ],
    ids=str,
)
def test_power_is_correctly_rounded(base, exponent):
    """Of a decay after many steps as of exact ties between two float64 numbers."""
    with mpmath.workdps(400):
        expected = _nearest(mpmath.mpf(base) ** exponent)

    assert scalars.power(base, exponent).hex() == expected.hex()


def test_any_power_is_correctly_rounded():
    """Of fractions as of numbers near 1, and to the ends of float64."""
    drawn = random.Random(5)
    cases = [(number, 0.5) for number in (2.0, 4.0, 16.0, 5e-324, 1.7e308)]
    cases += [(0.96, 0.004 * step) for step in range(1, 60)]
    cases += [(1 - 2.0**-53, drawn.uniform(-1e18, 1e18)) for _ in range(20)]
    cases += [(drawn.uniform(0, 3), drawn.uniform(-900, 900)) for _ in range(60)]
    with mpmath.workdps(400):
        expected = [_nearest(mpmath.mpf(base) ** mpmath.mpf(exponent)) for base, exponent in cases]

    actual = [scalars.real_power(base, exponent) for base, exponent in cases]
    assert [value.hex() for value in actual] == [value.hex() for value in expected]


def test_powers_without_an_end_are_the_systems():
    """A weight that has become infinite, or not a number, is no error of the power."""
    assert scalars.real_power(0.96, math.inf) == 0
    assert scalars.real_power(math.inf, 0.75) == math.inf
    assert math.isnan(scalars.real_power(math.nan, 0.75))


def test_power_refuses_fractions():
    """It multiplies: half a multiplication has no meaning."""
    with pytest.raises(ValueError, match=r"exponent is 0.5; expected a whole number"):
        scalars.power(0.9, 0.5)


def _nearest(value: mpmath.mpf) -> float:
    """The float64 number nearest to a number of many digits, by its sign, mantissa and exponent."""
    if not mpmath.isfinite(value):
        return float(value)
    sign, mantissa, exponent, _ = value._mpf_
    numerator = mantissa << max(0, exponent)
    try:
        nearest = numerator / (1 << max(0, -exponent))
    except OverflowError:
        nearest = math.inf
    return -nearest if sign else nearest
