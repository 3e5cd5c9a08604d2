"""Sine, cosine and their like: of float32 numbers computed in float64 and rounded once, of float64
numbers within a few units in the last place."""

from __future__ import annotations

import functools
import math

import torch

from samebits.arithmetic.kernels import doubles
from samebits.arithmetic.kernels.double_angles import cosine_of_doubles, sine_of_doubles
from samebits.arithmetic.kernels.doubles import polynomial
from samebits.arithmetic.kernels.elementary import (
    LN2,
    exp_of_double,
    expm1_of_block,
    half_exp_of_double,
    log_of_double,
    square_root,
)
from samebits.arithmetic.kernels.registry import PortableForms, check_type, is_double
from samebits.arithmetic.memory import IN_DOUBLE, mapped
from samebits.scalars import pi_in_units

FORMS = PortableForms()

_PI_HIGH = 3.1415926534682512
"""The first 33 bits of pi: products with half numbers below 2**18 are exact."""
_PI_LOW = 1.2154201013012384e-10
_LARGE = 2.0**18
"""From here on numbers are reduced with more bits of pi."""
_SINE = tuple((-1) ** power / math.factorial(2 * power + 1) for power in range(8, 0, -1))
"""(sin(r) / r - 1) / r**2 in powers of r**2 by Taylor's series, for |r| <= pi / 2: the next term
is 3e-14."""
_FIRST_LARGE_EXPONENT = 127 + 18
_CHUNK = 26
"""Bits of a part of 1 / pi: its product with the 24 bits of a number is exact."""


@FORMS.of("sin")
def sine(numbers: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place, of every number, and 1 in float64."""
    if is_double(numbers):
        return mapped(sine_of_doubles, numbers, item_size=IN_DOUBLE)
    return mapped(_sine_of_block, numbers, item_size=IN_DOUBLE)


@FORMS.of("cos")
def cosine(numbers: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place, of every number, and 1 in float64."""
    if is_double(numbers):
        return mapped(cosine_of_doubles, numbers, item_size=IN_DOUBLE)
    return mapped(_cosine_of_block, numbers, item_size=IN_DOUBLE)


@FORMS.of("sinc")
def _sinc(numbers: torch.Tensor) -> torch.Tensor:
    """sin(pi x) / (pi x), and 1 at 0."""
    check_type(numbers)
    angles = numbers.double() * math.pi
    ratio = sine(angles) / angles
    return ratio.masked_fill(angles == 0, 1.0).to(numbers.dtype)


@FORMS.of("tan")
def _tan(numbers: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place, of every number, and 3 in float64."""
    if is_double(numbers):
        return mapped(_tangent_of_doubles, numbers, item_size=IN_DOUBLE)
    return mapped(_tangent_of_block, numbers, item_size=IN_DOUBLE)


def _sine_of_block(numbers: torch.Tensor) -> torch.Tensor:
    return sine_of_block(numbers).float()


def _cosine_of_block(numbers: torch.Tensor) -> torch.Tensor:
    return sine_of_block(numbers, quarters=1).float()


def _tangent_of_block(numbers: torch.Tensor) -> torch.Tensor:
    return (sine_of_block(numbers) / sine_of_block(numbers, quarters=1)).float()


def _tangent_of_doubles(numbers: torch.Tensor) -> torch.Tensor:
    return sine_of_doubles(numbers) / cosine_of_doubles(numbers)


def sine_of_block(numbers: torch.Tensor, *, quarters: int = 0) -> torch.Tensor:
    """sin(x), or with 1 for ``quarters`` sin(x + pi / 2), of a row of float32 numbers in float64:
    x = (n - quarters / 2) pi + r, and the result is sin(r) with the sign of (-1)**n."""
    wide = numbers.double()
    turns = wide * (1.0 / math.pi)
    if quarters:
        turns += 0.5
    turns.round_()
    halves = turns - 0.5 if quarters else turns
    rest = wide - halves * _PI_HIGH
    rest -= halves * _PI_LOW
    if not bool(numbers.abs().amax() < _LARGE):  # or NaN, beside which others are not seen
        is_large = (numbers.abs() >= _LARGE) & numbers.isfinite()
        turns[is_large], rest[is_large] = _reduced(numbers[is_large], quarters)
    square = rest * rest
    sine = polynomial(square, _SINE)
    sine *= square
    sine *= rest
    sine += rest
    turns *= 0.5
    turns -= turns.floor()  # 0 where n is even, a half where it is odd
    return sine.mul_(turns.mul_(-4.0).add_(1.0))


def _reduced(numbers: torch.Tensor, quarters: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Large float32 numbers as (n - quarters / 2) pi + r: an n of that parity, and r, in float64.

    Source: M. Payne, R. Hanek, SIGNUM Newsletter 18, 19-24 (1983). A number is a whole number of
    24 bits times a power of two; that power divided by pi, without the multiples of 2, is in a
    table in four parts, and products with them are exact.
    """
    bits = numbers.abs().view(torch.int32).long()
    parts = _powers_by_pi().to(numbers.device)[(bits >> 23) - _FIRST_LARGE_EXPONENT]
    whole = ((bits & 0x7FFFFF) | 0x800000).double()
    first, second, third, fourth = ((whole * part).copysign_(numbers) for part in parts.unbind(1))
    first -= (first * 0.5).round_().mul_(2.0)
    first += second
    if quarters:
        first += 0.5
    turns = first.round()
    rest = first - turns
    rest += third + fourth
    return turns, rest.mul_(math.pi)


@functools.cache
def _powers_by_pi() -> torch.Tensor:
    """2**k / pi modulo 2 for the last bit of every large number: float64, shape (k, 4)."""
    n_bits = 4 * _CHUNK - 1
    precision = 400
    rows = []
    for exponent in range(_FIRST_LARGE_EXPONENT, 255):
        scaled = (1 << (precision + n_bits + exponent - 150)) // pi_in_units(precision)
        whole = scaled & ((1 << (n_bits + 1)) - 1)
        rows.append(
            [
                math.ldexp(
                    (whole >> ((3 - part) * _CHUNK)) & ((1 << _CHUNK) - 1),
                    1 - (part + 1) * _CHUNK,
                )
                for part in range(4)
            ]
        )
    return torch.tensor(rows, dtype=torch.float64)


# -- inverse functions -----------------------------------------------------------------------


_ATAN = tuple((-1) ** power / (2 * power + 1) for power in range(14, 0, -1))
"""(atan(s) / s - 1) / s**2 in powers of s**2 by Taylor's series, for |s| <= tan(pi / 8): the next
term is 1e-13."""
_ATAN_OF_DOUBLE = tuple((-1) ** power / (2 * power + 1) for power in range(21, 0, -1))
"""The same of float64 numbers: the next term is 3e-19."""
_TAN_OF_EIGHTH = 0.41421356237309503


@FORMS.of("atan")
def _atan(numbers: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place, and 3 in float64."""
    check_type(numbers)
    return mapped(_atan_of_block, numbers, item_size=IN_DOUBLE)


def _atan_of_block(numbers: torch.Tensor) -> torch.Tensor:
    wide = numbers.double()
    angle = _atan_of_ratio(wide.abs(), torch.ones_like(wide), numbers.dtype)
    return torch.copysign(angle, wide).to(numbers.dtype)


@FORMS.of("atan2")
def _atan2(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place, and 3 in float64."""
    check_type(y, x)
    return mapped(_atan2_of_block, *torch.broadcast_tensors(y, x), item_size=IN_DOUBLE)


def _atan2_of_block(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    height = y.abs().double()
    width = x.abs().double()
    both_infinite = height.isinf() & width.isinf()
    height.masked_fill_(both_infinite, 1.0)
    width.masked_fill_(both_infinite, 1.0)
    angle = _atan_of_ratio(height, width, x.dtype)
    angle = torch.where((height == 0) & (width == 0), 0.0, angle)
    angle = torch.where(x.signbit(), math.pi - angle, angle)
    return torch.copysign(angle, y).masked_fill_(x.isnan() | y.isnan(), torch.nan).to(x.dtype)


def _atan_of_ratio(height: torch.Tensor, width: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The angle, from 0 to pi / 2, whose tangent is a ratio of float64 numbers of 0 or more; for
    results of a type."""
    is_steep = height > width
    ratio = torch.where(is_steep, width, height) / torch.where(is_steep, height, width)
    is_turned = ratio > _TAN_OF_EIGHTH
    ratio = torch.where(is_turned, (ratio - 1.0) / (ratio + 1.0), ratio)
    square = ratio * ratio
    series = _ATAN_OF_DOUBLE if dtype == torch.float64 else _ATAN
    angle = polynomial(square, series).mul_(square).mul_(ratio).add_(ratio)
    angle = torch.where(is_turned, angle + math.pi / 4, angle)
    return torch.where(is_steep, math.pi / 2 - angle, angle)


@FORMS.of("asin")
def _asin(numbers: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place, and 3 in float64."""
    check_type(numbers)
    return mapped(_asin_of_block, numbers, item_size=IN_DOUBLE)


def _asin_of_block(numbers: torch.Tensor) -> torch.Tensor:
    sine = numbers.double().abs()
    angle = _atan_of_ratio(sine, square_root((1.0 - sine) * (1.0 + sine)), numbers.dtype)
    return torch.copysign(angle, numbers).to(numbers.dtype)


@FORMS.of("acos")
def _acos(numbers: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place, and 3 in float64."""
    check_type(numbers)
    return mapped(_acos_of_block, numbers, item_size=IN_DOUBLE)


def _acos_of_block(numbers: torch.Tensor) -> torch.Tensor:
    cosine = numbers.double().abs()
    angle = _atan_of_ratio(square_root((1.0 - cosine) * (1.0 + cosine)), cosine, numbers.dtype)
    return torch.where(numbers < 0, math.pi - angle, angle).to(numbers.dtype)


# -- hyperbolic functions ----------------------------------------------------------------------


@FORMS.of("cosh")
def _cosh(numbers: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place, and 2 in float64."""
    if is_double(numbers):
        return mapped(_cosh_of_doubles, numbers)
    return mapped(_cosh_of_block, numbers, item_size=IN_DOUBLE)


def _cosh_of_block(numbers: torch.Tensor) -> torch.Tensor:
    power = exp_of_double(numbers.double().abs_().clamp_(max=200.0), unit=LN2)
    return (power + 1.0 / power).mul_(0.5).float()


def _cosh_of_doubles(numbers: torch.Tensor) -> torch.Tensor:
    half = half_exp_of_double(numbers.abs())
    return half + 0.25 / half


@FORMS.of("sinh")
def _sinh(numbers: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place, and 3 in float64."""
    if is_double(numbers):
        return mapped(_sinh_of_doubles, numbers)
    return mapped(_sinh_of_block, numbers, item_size=IN_DOUBLE)


_SINH_OF_SMALL = tuple(1.0 / math.factorial(2 * power + 1) for power in range(3, -1, -1))
"""Taylor's series: at 0.1 the next term is 3e-14."""


def _sinh_of_block(numbers: torch.Tensor) -> torch.Tensor:
    wide = numbers.double()
    power = exp_of_double(wide.abs().clamp_(max=200.0), unit=LN2)
    large = torch.copysign((power - 1.0 / power).mul_(0.5), wide)
    small = polynomial(wide * wide, _SINH_OF_SMALL).mul_(wide)
    return torch.where(wide.abs() < 0.1, small, large).float()


def _sinh_of_doubles(numbers: torch.Tensor) -> torch.Tensor:
    """(t + t / (t + 1)) / 2, with t = exp(x) - 1, and exp(x) / 2 where that is all."""
    size = numbers.abs()
    less_one = expm1_of_block(size)
    value = (less_one + less_one / (less_one + 1.0)).mul_(0.5)
    value = torch.where(size > _SINH_IS_HALF_OF_EXP, half_exp_of_double(size), value)
    return torch.copysign(value, numbers)


_SINH_IS_HALF_OF_EXP = 40.0


@FORMS.of("asinh")
def _asinh(numbers: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place, and 3 in float64."""
    check_type(numbers)
    return mapped(_asinh_of_block, numbers, item_size=IN_DOUBLE)


_LOGARITHM_OF_DOUBLE = 2.0**30
"""From here on asinh(x) and acosh(x) are the logarithm of 2 x in float64."""


def _asinh_of_block(numbers: torch.Tensor) -> torch.Tensor:
    size = numbers.double().abs()
    moderate = size.clamp(max=_LOGARITHM_OF_DOUBLE)
    square = moderate * moderate
    value = doubles.log1p(moderate + square / (square_root(square + 1.0) + 1.0))
    value = torch.where(size > _LOGARITHM_OF_DOUBLE, doubles.log(size) + LN2, value)
    return torch.copysign(value, numbers).to(numbers.dtype)


@FORMS.of("acosh")
def _acosh(numbers: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place, and 3 in float64."""
    check_type(numbers)
    return mapped(_acosh_of_block, numbers, item_size=IN_DOUBLE)


def _acosh_of_block(numbers: torch.Tensor) -> torch.Tensor:
    wide = numbers.double()
    above = wide.clamp(max=_LOGARITHM_OF_DOUBLE) - 1.0
    value = doubles.log1p(above + square_root(above * (above + 2.0)))
    value = torch.where(wide > _LOGARITHM_OF_DOUBLE, doubles.log(wide) + LN2, value)
    return value.masked_fill_(wide < 1, torch.nan).to(numbers.dtype)


@FORMS.of("atanh")
def _atanh(numbers: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place, and 3 in float64."""
    check_type(numbers)
    return mapped(_atanh_of_block, numbers, item_size=IN_DOUBLE)


def _atanh_of_block(numbers: torch.Tensor) -> torch.Tensor:
    size = numbers.double().abs()
    value = doubles.log1p(size * 2.0 / (1.0 - size)).mul_(0.5)
    return torch.copysign(value, numbers).to(numbers.dtype)


# -- the quantile of normal numbers ------------------------------------------------------------

# Ratios of polynomials, from the highest power down, for the middle and two parts of the tails, of
# which float32 numbers reach the first:
# M. J. Wichura, Algorithm AS 241, Applied Statistics 37, 477-484 (1988), of relative error 1e-16.
_MIDDLE = (
    (
        2.5090809287301226727e3,
        3.3430575583588128105e4,
        6.7265770927008700853e4,
        4.5921953931549871457e4,
        1.3731693765509461125e4,
        1.9715909503065514427e3,
        1.3314166789178437745e2,
        3.3871328727963666080,
    ),
    (
        5.2264952788528545610e3,
        2.8729085735721942674e4,
        3.9307895800092710610e4,
        2.1213794301586595867e4,
        5.3941960214247511077e3,
        6.8718700749205790830e2,
        4.2313330701600911252e1,
        1.0,
    ),
)
_TAIL = (
    (
        7.74545014278341407640e-4,
        2.27238449892691845833e-2,
        2.41780725177450611770e-1,
        1.27045825245236838258,
        3.64784832476320460504,
        5.76949722146069140550,
        4.63033784615654529590,
        1.42343711074968357734,
    ),
    (
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        1.51986665636164571966e-2,
        1.48103976427480074590e-1,
        6.89767334985100004550e-1,
        1.67638483018380384940,
        2.05319162663775882187,
        1.0,
    ),
)
_FAR_TAIL = (
    (
        2.01033439929228813265e-7,
        2.71155556874348757815e-5,
        1.24266094738807843860e-3,
        2.65321895265761230930e-2,
        2.96560571828504891230e-1,
        1.78482653991729133580,
        5.46378491116411436990,
        6.65790464350110377720,
    ),
    (
        2.04426310338993978564e-15,
        1.42151175831644588870e-7,
        1.84631831751005468180e-5,
        7.86869131145613259100e-4,
        1.48753612908506148525e-2,
        1.36929880922735805310e-1,
        5.99832206555887937690e-1,
        1.0,
    ),
)
_FAR_TAIL_BEGINS = 5.0
_MIDDLE_ENDS = 0.85
_SQRT_HALF = 0.7071067811865476


@FORMS.of("erfinv")
def _erfinv(numbers: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place, and 10 in float64."""
    check_type(numbers)
    return mapped(_erfinv_of_block, numbers, item_size=IN_DOUBLE)


def _erfinv_of_block(numbers: torch.Tensor) -> torch.Tensor:
    """The quantile of a normal number at (1 + x) / 2, divided by the root of 2. Of float32 numbers
    1 - abs(x) is at least 2**-24, which the polynomials of the first tail reach."""
    wide = numbers.double()
    half = wide * 0.5
    middle = _ratio((half * half).neg_().add_(0.180625), _MIDDLE) * half
    chance = (1.0 - wide.abs()).mul_(0.5)
    distance = square_root(log_of_double(chance).neg_())
    tail = _ratio(distance - 1.6, _TAIL)
    if numbers.dtype == torch.float64:
        far = _ratio(distance - _FAR_TAIL_BEGINS, _FAR_TAIL)
        tail = torch.where(distance > _FAR_TAIL_BEGINS, far, tail)
    tail = torch.copysign(tail, wide)
    value = torch.where(wide.abs() <= _MIDDLE_ENDS, middle, tail).mul_(_SQRT_HALF)
    value = torch.where(wide.abs() == 1, wide * torch.inf, value)
    return value.masked_fill_((wide.abs() > 1) | wide.isnan(), torch.nan).to(numbers.dtype)


def _ratio(
    numbers: torch.Tensor, coefficients: tuple[tuple[float, ...], tuple[float, ...]]
) -> torch.Tensor:
    numerator, denominator = coefficients
    return polynomial(numbers, numerator).div_(polynomial(numbers, denominator))
