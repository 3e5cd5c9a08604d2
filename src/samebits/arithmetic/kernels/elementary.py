"""Exponential, logarithm, roots and the like, as fixed sequences of single operations.

Every step is an operation of its own, which IEEE 754 rounds in one way. Polynomials were fitted by
Chebyshev interpolation and, for the error function, by least squares reweighted until the errors
were level; tests compare every function with `mpmath`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_float32
from samebits.arithmetic.memory import IN_DOUBLE, mapped

FORMS = PortableForms()

_ROUNDER = 1.5 * 2.0**23
"""A float32 number of this size has no fraction: what is added to it is rounded to whole numbers,
which stand in its last bits."""
_BIAS = 127
_MANTISSA_BITS = 23
_MANTISSA_BITS_OF_DOUBLE = 52
_BIAS_OF_DOUBLE = 1023
_BITS_OF_SQRT_HALF = np.float64(np.sqrt(0.5)).view(np.int64).item()
_LOG2_OF_E = 1.4426950408889634
_LOG10_OF_E = 0.4342944819032518
LN2 = 0.6931471805599453
_LN2_HIGH = 0.693145751953125
"""The first 16 bits of ln 2: products with whole numbers of up to 8 bits are exact."""
_LN2_LOW = 1.4286068203094173e-06
_NO_EXPONENT = -254.0
"""Two factors of 2**-127, which are 0: for numbers whose exponential is 0."""

_EXPM1_IS_MINUS_ONE = -30.0
_EXP_IS_INFINITE = 89.0
"""Beyond them exp(x) - 1 is -1, and infinite, in float32."""

# (exp(r) - 1 - r) / r**2 for |r| <= ln 2 / 2, from r**4 down; error of exp 1e-9
_EXP = (
    0.0013926250831497611,
    0.008363232883682618,
    0.04166655421298415,
    0.16666576666119928,
    0.5,
)
# (atanh(s) / s - 1) / s**2 in powers of s**2 for s <= 1/3; error of atanh(s) / s 2e-9
_ATANH = (
    0.13428395703293003,
    0.14117943953715217,
    0.20003792436557932,
    0.33333320112915715,
)
# erf(x) = x * P(x**2) / Q(x**2) for |x| <= 4; error 2.2e-8
_ERF_NUMERATOR = (
    1.974805055618738e-06,
    0.00028803819024330837,
    0.004003613542043261,
    0.0534673998994977,
    0.19624854349839327,
    1.128378976678109,
)
_ERF_DENOMINATOR = (
    3.7480424457922817e-05,
    0.0012163467448446322,
    0.0154443705144357,
    0.11647622392688287,
    0.5072519043771496,
    1.0,
)
_ERF_IS_ONE = 4.0
"""From here on the error function is 1 in float32, and the quotient above one unit less."""
_HUGE = 2.0**16
"""From here on it is exactly 1, as its complement may be multiplied by the number."""


def polynomial(numbers: torch.Tensor, coefficients: Sequence[float]) -> torch.Tensor:
    """A polynomial by Horner's scheme, each product and each sum rounded by itself."""
    value = numbers * coefficients[0]
    value += coefficients[1]
    for coefficient in coefficients[2:]:
        value *= numbers
        value += coefficient
    return value


def where_negative(
    signs: torch.Tensor, if_negative: torch.Tensor, otherwise: torch.Tensor
) -> torch.Tensor:
    """Float32 numbers of one tensor where a sign bit is set, of another elsewhere.

    It chooses by bits: ``torch.where`` costs as much as 25 additions (torch 2.15, one processor).
    """
    chosen = otherwise.view(torch.int32)
    mixed = chosen ^ if_negative.view(torch.int32)
    mixed &= signs.view(torch.int32) >> 31
    mixed ^= chosen
    return mixed.view(torch.float32)


def where_positive(
    numbers: torch.Tensor, if_positive: torch.Tensor, otherwise: torch.Tensor
) -> torch.Tensor:
    """The same where a number is above 0: 0 - x then has a sign, which that of no zero has."""
    return where_negative(0.0 - numbers, if_positive, otherwise)


@FORMS.of("exp")
def exp(numbers: torch.Tensor) -> torch.Tensor:
    """The exponential function of float32 numbers, within 1.1 units in the last place."""
    check_float32(numbers)
    return mapped(_exp, numbers)


def exp_at_most_one(numbers: torch.Tensor) -> torch.Tensor:
    """The exponential function of a block of float32 numbers that are 0 or less; denormal results
    are kept, and the block is written over."""
    clamped = numbers.clamp_(min=_NO_EXPONENT / _LOG2_OF_E)
    exponents, power = _exponent_and_power(clamped)
    half = exponents >> 1
    return power.mul_(_two_to(half)).mul_(_two_to(exponents.sub_(half)))


def _exp(numbers: torch.Tensor) -> torch.Tensor:
    clamped = numbers.clamp(min=-120.0, max=120.0)
    exponents, power = _exponent_and_power(clamped)
    half = exponents >> 1  # 2**n in two factors, since results may be smaller than 2**-126
    return power.mul_(_two_to(half)).mul_(_two_to(exponents - half))


def _exponent_and_power(
    numbers: torch.Tensor, *, added: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers as n ln 2 + r: n, int32, and exp(r), or with 0 for ``added`` exp(r) - 1."""
    shifted = numbers * _LOG2_OF_E
    shifted += _ROUNDER
    exponents = shifted.view(torch.int32) - _bits(_ROUNDER)
    shifted -= _ROUNDER
    rest = numbers - shifted * _LN2_HIGH
    rest -= shifted.mul_(_LN2_LOW)
    power = polynomial(rest, _EXP)
    power *= rest
    power *= rest
    power += rest
    if added:
        power += added
    return exponents, power


def _two_to(exponents: torch.Tensor) -> torch.Tensor:
    """Powers of two from -126 to 127, from their exponents in int32; 0 for -127."""
    return ((exponents + _BIAS) << _MANTISSA_BITS).view(torch.float32)


def _bits(number: float) -> int:
    """The bits of a float32 number."""
    return int(np.float32(number).view(np.int32))


@FORMS.of("log")
def log(numbers: torch.Tensor) -> torch.Tensor:
    """The natural logarithm of float32 numbers, within 1.5 units in the last place."""
    check_float32(numbers)
    return mapped(_log, numbers, item_size=IN_DOUBLE)


def _log(numbers: torch.Tensor) -> torch.Tensor:
    return log_of_double(numbers.double()).float()


def log_of_double(numbers: torch.Tensor) -> torch.Tensor:
    """The logarithm of float64 numbers, none of them denormal."""
    exponents, rest = _exponent_and_rest(numbers)
    value = _log1p_of_small(rest)
    value += exponents.double() * LN2
    return _without_logarithm(value, numbers)


def _exponent_and_rest(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Float64 numbers as (1 + y) 2**n, with 1 + y from sqrt(1/2) to sqrt(2): n, int64, and y."""
    bits = numbers.view(torch.int64)
    exponents = (bits - _BITS_OF_SQRT_HALF) >> _MANTISSA_BITS_OF_DOUBLE
    mantissas = (bits - (exponents << _MANTISSA_BITS_OF_DOUBLE)).view(torch.float64)
    return exponents, mantissas.sub_(1.0)


def _without_logarithm(value: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Logarithms of numbers, mended where the number is 0, infinite, negative or NaN."""
    if numbers.numel() and 0 < numbers.amin().item() <= numbers.amax().item() < math.inf:
        return value
    value = torch.where(numbers == 0, -torch.inf, value)
    value = torch.where(numbers == torch.inf, torch.inf, value)
    return torch.where((numbers < 0) | numbers.isnan(), torch.nan, value)


@FORMS.of("log2")
def _log2(numbers: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place; of powers of two exact."""
    check_float32(numbers)
    return mapped(_log2_of_block, numbers, item_size=IN_DOUBLE)


def _log2_of_block(numbers: torch.Tensor) -> torch.Tensor:
    wide = numbers.double()
    exponents, rest = _exponent_and_rest(wide)
    value = _log1p_of_small(rest).mul_(_LOG2_OF_E)
    value += exponents.double()
    return _without_logarithm(value, wide).float()


@FORMS.of("log10")
def _log10(numbers: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place; of powers of ten exact."""
    check_float32(numbers)
    return mapped(_log10_of_block, numbers, item_size=IN_DOUBLE)


def _log10_of_block(numbers: torch.Tensor) -> torch.Tensor:
    return log_of_double(numbers.double()).mul_(_LOG10_OF_E).float()


@FORMS.of("logit")
def _logit(a: torch.Tensor, eps: float | None = None) -> torch.Tensor:
    """log(x / (1 - x)), within 0.51 units in the last place."""
    check_float32(a)
    if eps is not None and eps > 0.5:
        raise NoPortableForm(f"has a portable form for eps up to 0.5, and got {eps}")
    return mapped(
        _logit_of_block, a if eps is None else a.clamp(eps, 1.0 - eps), item_size=IN_DOUBLE
    )


def _logit_of_block(numbers: torch.Tensor) -> torch.Tensor:
    wide = numbers.double()
    return log_of_double(wide / (1.0 - wide)).float()


@FORMS.of("logit_backward")
def _logit_backward(
    gradient: torch.Tensor, a: torch.Tensor, eps: float | None = None
) -> torch.Tensor:
    """0 where a number was moved into its bounds, and NaN where there is no logarithm."""
    check_float32(gradient, a)
    slope = gradient / ((1.0 - a) * a)
    if eps is None:
        return slope.masked_fill((a < 0) | (a > 1), torch.nan)
    return slope.masked_fill((a < eps) | (a > 1.0 - eps), 0.0)


@FORMS.of("log1p")
def log1p(numbers: torch.Tensor) -> torch.Tensor:
    """log(1 + x) of float32 numbers, within 0.51 units in the last place."""
    check_float32(numbers)
    return mapped(_log1p_of_block, numbers, item_size=IN_DOUBLE)


def _log1p_of_block(numbers: torch.Tensor) -> torch.Tensor:
    """Of a small x, x itself stands for what is left of 1 + x after 1."""
    wide = numbers.double()
    above = wide + 1.0
    exponents, rest = _exponent_and_rest(above)
    is_scaled = (exponents | -exponents) >> 63
    mixed = (wide.view(torch.int64) ^ rest.view(torch.int64)) & is_scaled
    rest = (mixed ^ wide.view(torch.int64)).view(torch.float64)
    value = _log1p_of_small(rest)
    value += exponents.double() * LN2
    return torch.copysign(_without_logarithm(value, above).float(), numbers)


_ATANH_OF_DOUBLE = tuple(1.0 / (2 * power + 1) for power in range(9, 0, -1))
"""Taylor's series, for |s| <= 0.18: the next term is 1e-16."""


def _log1p_of_small(numbers: torch.Tensor) -> torch.Tensor:
    """log(1 + y) of float64 numbers from -0.3 to 0.42."""
    return _log1p(numbers, _ATANH_OF_DOUBLE)


def log1p_of_unit(numbers: torch.Tensor) -> torch.Tensor:
    """log(1 + y) of a block of float32 numbers from 0 to 1, within 2 units in the last place."""
    return _log1p(numbers, _ATANH)


def _log1p(numbers: torch.Tensor, atanh: Sequence[float]) -> torch.Tensor:
    """log(1 + y) as 2 atanh(y / (2 + y)), from the coefficients of (atanh(s) / s - 1) / s**2."""
    ratio = numbers / (numbers + 2.0)
    square = ratio * ratio
    series = polynomial(square, atanh)
    series *= square
    series += 1.0
    series *= ratio
    return series.mul_(2.0)


@FORMS.of("erf")
def erf(numbers: torch.Tensor) -> torch.Tensor:
    """The error function of float32 numbers; error at most 3e-7."""
    check_float32(numbers)
    return mapped(erf_of_block, numbers)


def erf_of_block(numbers: torch.Tensor) -> torch.Tensor:
    """The error function of a block of float32 numbers; see `erf`."""
    clamped = numbers.clamp(min=-_ERF_IS_ONE, max=_ERF_IS_ONE)
    square = clamped * clamped
    value = polynomial(square, _ERF_NUMERATOR)
    value *= clamped
    value /= polynomial(square, _ERF_DENOMINATOR)
    value.clamp_(min=-1.0, max=1.0)
    if not _all_below(numbers, _HUGE):
        value = torch.where(numbers.abs() >= _HUGE, numbers.sign(), value)
    return value


def _all_below(numbers: torch.Tensor, bound: float) -> bool:
    """Whether all magnitudes are less than a bound."""
    if numbers.numel() == 0:
        return True
    least, most = torch.aminmax(numbers)
    return least.item() > -bound and most.item() < bound


@FORMS.of("sigmoid")
def sigmoid(numbers: torch.Tensor) -> torch.Tensor:
    """1 / (1 + exp(-x)) of float32 numbers, within 2 units in the last place."""
    check_float32(numbers)
    return mapped(sigmoid_of_block, numbers)


def sigmoid_of_block(numbers: torch.Tensor) -> torch.Tensor:
    """1 / (1 + exp(-x)) of a block of float32 numbers; see `sigmoid`."""
    exponential = exp_at_most_one(numbers.abs().neg_())
    below = exponential + 1.0
    return where_negative(numbers, exponential, torch.ones_like(below)).div_(below)


@FORMS.of("tanh")
def tanh(numbers: torch.Tensor) -> torch.Tensor:
    """The hyperbolic tangent of float32 numbers, within 3 units in the last place."""
    check_float32(numbers)
    return mapped(_tanh, numbers)


def _tanh(numbers: torch.Tensor) -> torch.Tensor:
    """-t / (t + 2), with t = exp(-2 abs(x)) - 1: as near for small numbers."""
    less_one = expm1_at_most_zero(numbers.abs().mul_(-2.0))
    below = less_one + 2.0
    return torch.copysign(less_one.div_(below), numbers)


def expm1_at_most_zero(numbers: torch.Tensor) -> torch.Tensor:
    """exp(x) - 1 of a block of float32 numbers that are 0 or less, within 2 units in the last
    place; the block is written over."""
    clamped = numbers.clamp_(min=_EXPM1_IS_MINUS_ONE)
    exponents, power = _exponent_and_power(clamped, added=0.0)
    factor = _two_to(exponents)
    power *= factor
    factor -= 1.0
    return power.add_(factor)


@FORMS.of("expm1")
def _expm1(numbers: torch.Tensor) -> torch.Tensor:
    """Within 2 units in the last place."""
    check_float32(numbers)
    return mapped(_expm1_of_block, numbers)


def _expm1_of_block(numbers: torch.Tensor) -> torch.Tensor:
    """Of 2**n one factor of 2 is kept apart, for 2**128 is no float32 number."""
    clamped = numbers.clamp(min=_EXPM1_IS_MINUS_ONE, max=_EXP_IS_INFINITE)
    exponents, power = _exponent_and_power(clamped, added=0.0)
    one_if_positive = (exponents > 0).int()
    factor = _two_to(exponents - one_if_positive)
    power *= factor
    factor -= _two_to(-one_if_positive)
    power += factor
    power *= _two_to(one_if_positive)
    return torch.copysign(power, numbers)


@FORMS.of("exp2")
def _exp2(numbers: torch.Tensor) -> torch.Tensor:
    """Within 1.1 units in the last place."""
    check_float32(numbers)
    return mapped(_exp2_of_block, numbers, item_size=IN_DOUBLE)


def _exp2_of_block(numbers: torch.Tensor) -> torch.Tensor:
    return exp_of_double(numbers.double().clamp_(-200.0, 200.0), unit=1.0).float()


@FORMS.of("sqrt")
def square_root(numbers: torch.Tensor) -> torch.Tensor:
    """The correctly rounded square root of float32 or float64 numbers.

    Processors have an instruction for it, which NumPy uses; PyTorch's own may come from MKL, which
    approximates (torch 2.15). On CUDA PyTorch's is correctly rounded.
    """
    if numbers.device.type != "cpu":
        return torch.sqrt(numbers)
    with np.errstate(invalid="ignore"):
        roots = np.sqrt(numbers.detach().resolve_neg().numpy())
    return torch.from_numpy(np.asarray(roots))


@FORMS.of("rsqrt")
def _inverse_square_root(numbers: torch.Tensor) -> torch.Tensor:
    root = square_root(numbers)
    return torch.ones_like(root) / root


@FORMS.of("pow")
def raised(a: Any, exponent: Any) -> torch.Tensor:
    """Products for whole exponents up to 4, roots, else a float64 power rounded once: within 0.51
    units in the last place."""
    if isinstance(a, torch.Tensor) and not isinstance(exponent, torch.Tensor):
        if exponent in range(-4, 5):
            return _product_of_itself(a, int(exponent))
        if exponent == 0.5:
            return square_root(a)
        if exponent == -0.5:
            return _inverse_square_root(a)
    dtype = torch.result_type(a, exponent)
    if dtype != torch.float32:
        raise NoPortableForm(
            "has a portable form for float32, and for the exponents -4 to 4, 0.5 and -0.5 in "
            f"float64; and got {dtype} with the exponent {_shown(exponent)}"
        )
    device = a.device if isinstance(a, torch.Tensor) else exponent.device
    base, power = (
        number if isinstance(number, torch.Tensor) else torch.tensor(number, device=device)
        for number in (a, exponent)
    )
    base, power = torch.broadcast_tensors(base.float(), power.float())
    return mapped(_power_of_block, base, power, item_size=IN_DOUBLE)


def _shown(exponent: Any) -> str:
    return "of a tensor" if isinstance(exponent, torch.Tensor) else repr(exponent)


def _product_of_itself(a: torch.Tensor, exponent: int) -> torch.Tensor:
    power = torch.ones_like(a)
    for _ in range(abs(exponent)):
        power = power * a
    return torch.ones_like(power) / power if exponent < 0 else power


def _power_of_block(base: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
    """exp(y log abs(x)), with the sign that IEEE 754 says."""
    y = exponents.double()
    magnitude = base.abs().double()
    value = exp_of_double(log_of_double(magnitude).mul_(y).clamp_(-200.0, 200.0), unit=LN2)
    if base.amin() > 0 and base.amax() < math.inf and exponents.abs().amax() < math.inf:
        return value.float()
    is_one = (magnitude == 1) | (y == 0)
    value = torch.where(is_one, 1.0, value)
    half = y * 0.5
    is_whole = y.floor() == y
    is_odd = is_whole & (half.floor() != half)
    value = torch.where(is_odd & base.signbit(), -value, value)
    has_none = (base < 0) & ~is_whole & (magnitude != torch.inf)
    is_nan = (base.isnan() & (y != 0)) | (y.isnan() & (base != 1))
    return value.masked_fill_(has_none | is_nan, torch.nan).float()


# -- functions in float64, where one rounding is all that float32 sees ---------------------------

_EXP_OF_DOUBLE = tuple(1.0 / math.factorial(power) for power in range(11, -1, -1))
"""Taylor's series, for |r| <= ln 2 / 2: the next term is 6e-15."""
_LN2_OF_DOUBLE_HIGH = 0.6931471803691238
"""The first 33 bits of ln 2: products with whole numbers of up to 20 bits are exact."""
_LN2_OF_DOUBLE_LOW = 1.9082149292705877e-10


def exp_of_double(numbers: torch.Tensor, *, unit: float) -> torch.Tensor:
    """exp(x), or with 1.0 for ``unit`` 2**x, of float64 numbers from -200 to 200."""
    shift = (numbers / unit).round_()
    if unit == 1.0:
        rest = (numbers - shift).mul_(LN2)
    else:
        rest = numbers - shift * _LN2_OF_DOUBLE_HIGH
        rest -= shift * _LN2_OF_DOUBLE_LOW
    power = polynomial(rest, _EXP_OF_DOUBLE)
    exponents = shift.nan_to_num_(0.0).long()
    factor = ((exponents + _BIAS_OF_DOUBLE) << _MANTISSA_BITS_OF_DOUBLE).view(torch.float64)
    return power.mul_(factor)
