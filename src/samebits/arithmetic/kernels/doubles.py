"""Functions of float64 numbers, and pairs of them that stand for their sum.

What float32 has in float64 and a single rounding, float64 has with a second number that holds what
the first one leaves. Every step is an operation of its own, which IEEE 754 rounds in one way.

Source: T. J. Dekker, Numerische Mathematik 18, 224-242 (1971); polynomials are Taylor's series, or
were fitted by Chebyshev interpolation with 60 digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from samebits.arithmetic.memory import Block


def polynomial(numbers: Block, coefficients: Sequence[float]) -> Block:
    """A polynomial by Horner's scheme, each product and each sum rounded by itself."""
    value = numbers * coefficients[0]
    value += coefficients[1]
    for coefficient in coefficients[2:]:
        value *= numbers
        value += coefficient
    return value


# -- pairs -------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """Two numbers that stand for their sum; the second is at most half a unit of the first."""

    high: torch.Tensor
    low: torch.Tensor


def exact_sum(a: torch.Tensor, b: torch.Tensor | float) -> Pair:
    """A sum and its rounding error."""
    total = a + b
    of_b = total - a
    return Pair(total, (a - (total - of_b)) + (b - of_b))


def exact_product(a: torch.Tensor, b: torch.Tensor) -> Pair:
    """A product and its rounding error, of numbers below 2**996."""
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    total = a * b
    error = ((a_high * b_high - total) + a_high * b_low + a_low * b_high) + a_low * b_low
    return Pair(total, error)


_SPLITTER = 2.0**27 + 1.0


def _halves(a: torch.Tensor) -> Pair:
    """A number as two of 26 bits, whose products are exact."""
    scaled = a * _SPLITTER
    high = scaled - (scaled - a)
    return Pair(high, a - high)


def _sum_of_ordered(a: torch.Tensor, b: torch.Tensor) -> Pair:
    """A sum and its rounding error, where the first number is the larger one."""
    total = a + b
    return Pair(total, b - (total - a))


def pair_product(a: Pair, b: Pair) -> Pair:
    """A product of pairs, within some 2**-104."""
    total, error = exact_product(a.high, b.high)
    return _sum_of_ordered(total, error + (a.high * b.low + a.low * b.high))


def _quotient(a: torch.Tensor, b: Pair) -> Pair:
    """A number divided by a pair, within some 2**-104."""
    quotient = a / b.high
    product, error = exact_product(quotient, b.high)
    rest = ((a - product) - error) - quotient * b.low
    return _sum_of_ordered(quotient, rest / b.high)


# -- logarithms --------------------------------------------------------------------------------

_MANTISSA_BITS = 52
_BITS_OF_SQRT_HALF = 0x3FE6A09E667F3BCD
_TINY = 2.0**-1022
_OUT_OF_TINY = 2.0**54
_LN2_HIGH = 0.6931471803691238
"""The first 33 bits of ln 2: products with whole numbers of up to 20 bits are exact."""
_LN2_LOW = 1.9082149292705877e-10
_THIRD = (0.3333333333333333, 1.850371707708594e-17)
_LOG2_OF_E = (1.4426950408889634, 2.0355273740931033e-17)
_LOG10_OF_E = (0.4342944819032518, 1.098319650216765e-17)
_ATANH = tuple(1.0 / (2 * power + 1) for power in range(10, 0, -1))
"""(atanh(s) / s - 1) / s**2 in powers of s**2 by Taylor's series, for |s| <= 0.172: the next term
is 7e-19."""


class _Parts(NamedTuple):
    """Numbers as (1 + rest) 2**exponent, with 1 + rest from sqrt(1/2) to sqrt(2)."""

    exponent: torch.Tensor
    rest: torch.Tensor
    scale: torch.Tensor
    """2**-exponent; wrong of numbers that are denormal or above 2**1022."""


def _parts(numbers: torch.Tensor) -> _Parts:
    is_tiny = numbers.abs() < _TINY
    bits = torch.where(is_tiny, numbers * _OUT_OF_TINY, numbers).view(torch.int64)
    exponents = (bits - _BITS_OF_SQRT_HALF) >> _MANTISSA_BITS
    mantissas = (bits - (exponents << _MANTISSA_BITS)).view(torch.float64)
    scale = ((1023 - exponents) << _MANTISSA_BITS).view(torch.float64)
    exponents = exponents - is_tiny.long() * 54
    return _Parts(exponents.double(), mantissas.sub_(1.0), scale)


def _without_logarithm(value: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Logarithms of numbers, mended where the number is 0, infinite, negative or NaN."""
    value = torch.where(numbers == 0, -torch.inf, value)
    value = torch.where(numbers == torch.inf, torch.inf, value)
    return value.masked_fill_((numbers < 0) | numbers.isnan(), torch.nan)


def log(numbers: torch.Tensor) -> torch.Tensor:
    """The natural logarithm, within 1 unit in the last place."""
    exponent, rest, _ = _parts(numbers)
    return _without_logarithm(_log(exponent, rest), numbers)


def log1p(numbers: torch.Tensor) -> torch.Tensor:
    """log(1 + x), within 1.5 units in the last place."""
    above, error = exact_sum(torch.ones_like(numbers), numbers)
    exponent, rest, scale = _parts(above)
    rest += error.masked_fill_(~numbers.isfinite(), 0.0).mul_(scale)
    return torch.copysign(_without_logarithm(_log(exponent, rest), above), numbers)


def _log(exponent: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
    """n ln 2 + log(1 + y): with s = y / (2 + y), y - (y**2 / 2 - s (y**2 / 2 + 2 s**2 (1/3 + ...)))
    is the second, of which all but y is small. Source: FreeBSD's ``e_log.c``."""
    ratio = rest / (rest + 2.0)
    square = ratio * ratio
    series = polynomial(square, _ATANH).mul_(square).mul_(2.0)
    half_square = rest * rest * 0.5
    small = ratio * (half_square + series) + exponent * _LN2_LOW
    return exponent * _LN2_HIGH - ((half_square - small) - rest)


def _log_pair(numbers: torch.Tensor) -> Pair:
    """The logarithm of positive finite numbers, within some 2**-65 of itself: 2 atanh(s), of whose
    series two terms are pairs."""
    exponent, rest, _ = _parts(numbers)
    ratio = _quotient(rest, exact_sum(torch.full_like(rest, 2.0), rest))
    square = pair_product(ratio, ratio)
    others = polynomial(square.high, _ATANH[:-1]).mul_(square.high)
    third, error = exact_sum(torch.full_like(others, _THIRD[0]), others)
    above = pair_product(square, Pair(third, error + _THIRD[1]))
    one, error = exact_sum(torch.ones_like(others), above.high)
    of_mantissa = pair_product(
        Pair(ratio.high * 2.0, ratio.low * 2.0), Pair(one, error + above.low)
    )
    total, error = exact_sum(exponent * _LN2_HIGH, of_mantissa.high)
    return _sum_of_ordered(total, error + (of_mantissa.low + exponent * _LN2_LOW))


def log2(numbers: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place; of powers of two exact."""
    return _logarithm_times(numbers, _LOG2_OF_E)


def log10(numbers: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place; of powers of ten exact."""
    return _logarithm_times(numbers, _LOG10_OF_E)


def _logarithm_times(numbers: torch.Tensor, factor: tuple[float, float]) -> torch.Tensor:
    high, low = (torch.full_like(numbers, part) for part in factor)
    value = pair_product(_log_pair(numbers), Pair(high, low))
    return _without_logarithm(value.high + value.low, numbers)


def logit(numbers: torch.Tensor) -> torch.Tensor:
    """log(x / (1 - x)), within 3 units in the last place; near a half as the logarithm of 1 and
    (2 x - 1) / (1 - x), which is small there."""
    rest = 1.0 - numbers
    near = log1p((numbers * 2.0 - 1.0) / rest)
    return torch.where(numbers < 0.25, log(numbers / rest), near)


# -- powers ------------------------------------------------------------------------------------

_LARGEST_EXPONENT = 2.0**70
"""From here on every power of a float64 number is 0, 1 or infinite."""
_LARGEST_LOGARITHM = 800.0
_LARGEST_ERROR = 1e-12
"""More than half a unit in the last place of that."""


def logarithm_of_power(magnitudes: torch.Tensor, exponents: torch.Tensor) -> Pair:
    """y log(x) of positive finite numbers, cut off where the power is 0 or infinite."""
    y = exponents.clamp(-_LARGEST_EXPONENT, _LARGEST_EXPONENT)
    logarithm = _log_pair(magnitudes)
    high, low = exact_product(logarithm.high, y)
    low += logarithm.low * y
    return Pair(
        high.clamp_(-_LARGEST_LOGARITHM, _LARGEST_LOGARITHM),
        low.clamp_(-_LARGEST_ERROR, _LARGEST_ERROR),
    )


# -- the error function ------------------------------------------------------------------------

# erf(x) = x P(x**2) for |x| <= 1; error 2e-17
_ERF = (
    5.957176147748911e-11,
    -1.1372848856791674e-09,
    1.4659775274047436e-08,
    -1.6350312701054695e-07,
    1.6461000484121368e-06,
    -1.4925595266831182e-05,
    0.0001205533111164271,
    -0.000854832698083379,
    0.0052239776248180145,
    -0.026866170645076792,
    0.11283791670954879,
    -0.3761263890318375,
    1.1283791670955126,
)
# exp(x**2) (1 - erf(x)) (1 + 2 x) in powers of (x - 2) / (x + 2) for x from 1 to 6; error 1.1e-16
_ERFC = (
    1.0923519568424602e-05,
    -1.4074763120545216e-05,
    -3.896023943591018e-05,
    -7.732504942759847e-07,
    0.00015138939943308723,
    0.00020622298352353452,
    -0.00045436367347200164,
    -0.0014568013120680693,
    0.0012713396464095273,
    0.008722653320714637,
    -0.008034015088992756,
    -0.054220000980438124,
    0.1640512800334108,
    -0.16603039761538094,
    -0.09276382658574567,
    1.2769783815525289,
)
ERF_IS_ONE = 6.0
"""From here on the error function is 1 in float64."""


def erf_of_small(numbers: torch.Tensor) -> torch.Tensor:
    """The error function of numbers from -1 to 1, within 1.5 units in the last place."""
    return polynomial(numbers * numbers, _ERF).mul_(numbers)


def erf_of_large(magnitudes: torch.Tensor, exponentials: torch.Tensor) -> torch.Tensor:
    """The error function of numbers from 1 to 6, from exp(-x**2)."""
    ratio = (magnitudes - 2.0) / (magnitudes + 2.0)
    tail = polynomial(ratio, _ERFC).mul_(exponentials).div_(magnitudes * 2.0 + 1.0)
    return 1.0 - tail


# The same for x from 1/2 to 28; error 1.6e-16
_ERFC_OF_ALL = (
    1.2375389763979205e-07,
    1.801378923969716e-07,
    -8.887630713647048e-07,
    -1.236204258381866e-06,
    1.6525671861554547e-06,
    5.579490348630243e-06,
    3.5827758439581204e-06,
    -1.3633317083499658e-05,
    -3.636667342243025e-05,
    -1.4747641225579952e-06,
    0.00015102456633264108,
    0.00020636157440967354,
    -0.0004543385746747391,
    -0.0014568133722740306,
    0.0012713387624290287,
    0.008722653840411345,
    -0.008034015072550147,
    -0.05422000099087727,
    0.16405128003322675,
    -0.16603039761530494,
    -0.09276382658574465,
    1.2769783815525289,
)
ERFC_IS_ZERO = 28.0
"""From here on 1 - erf(x) is 0 in float64."""


def scaled_erfc(magnitudes: torch.Tensor) -> torch.Tensor:
    """exp(x**2) (1 - erf(x)) of numbers from 1/2 to 28."""
    ratio = (magnitudes - 2.0) / (magnitudes + 2.0)
    return polynomial(ratio, _ERFC_OF_ALL).div_(magnitudes * 2.0 + 1.0)
