"""Exponential, logarithm, roots and the like, as fixed sequences of single operations.

Every step is an operation of its own, which IEEE 754 rounds in one way. Polynomials were fitted by
Chebyshev interpolation and, for the error function, by least squares reweighted until the errors
were level; tests compare every function with `mpmath`. Functions of float32 and float64 numbers are
the same ones where float32 does without float64; those that take more than a type has are in
`samebits.arithmetic.kernels.doubles`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from samebits.arithmetic.kernels import doubles
from samebits.arithmetic.kernels.blocks import (
    all_within,
    clamp,
    clamp_,
    copy_sign,
    double,
    ones_like,
    single,
    where,
)
from samebits.arithmetic.kernels.doubles import polynomial
from samebits.arithmetic.kernels.registry import (
    NoPortableForm,
    PortableForms,
    check_type,
    is_double,
)
from samebits.arithmetic.memory import IN_DOUBLE, Block, mapped, of_either

FORMS = PortableForms()

_MANTISSA_BITS_OF_DOUBLE = 52
_BIAS_OF_DOUBLE = 1023
_BITS_OF_SQRT_HALF = np.float64(np.sqrt(0.5)).view(np.int64).item()
_LOG2_OF_E = 1.4426950408889634
_LOG10_OF_E = 0.4342944819032518
LN2 = 0.6931471805599453


@dataclass(frozen=True)
class _Format:
    """A type of floating-point numbers, and what its exponential function is made of."""

    fractions: Any
    """The type, of PyTorch or of NumPy."""
    whole: Any
    """That of whole numbers of the same length."""
    mantissa_bits: int
    bias: int
    rounder: float
    """A number of this size has no fraction: what is added to it is rounded to whole numbers, which
    stand in its last bits."""
    bits_of_rounder: int
    ln2_high: float
    """The first bits of ln 2: products with exponents are exact."""
    ln2_low: float
    exp: Sequence[float]
    """(exp(r) - 1 - r) / r**2 for |r| <= ln 2 / 2, from the highest power down."""
    largest: float
    """Beyond it exp(x) is infinite, and below its negative 0."""
    no_exponent: float
    """Two factors of the power of two that is written as 0: for numbers whose exponential is 0."""
    expm1_is_minus_one: float
    expm1_is_infinite: float
    """Beyond them exp(x) - 1 is -1, and infinite."""


_SINGLE = _Format(
    fractions=torch.float32,
    whole=torch.int32,
    mantissa_bits=23,
    bias=127,
    rounder=1.5 * 2.0**23,
    bits_of_rounder=int(np.float32(1.5 * 2.0**23).view(np.int32)),
    ln2_high=0.693145751953125,  # 16 bits
    ln2_low=1.4286068203094173e-06,
    exp=(  # error of exp 1e-9
        0.0013926250831497611,
        0.008363232883682618,
        0.04166655421298415,
        0.16666576666119928,
        0.5,
    ),
    largest=120.0,
    no_exponent=-254.0,
    expm1_is_minus_one=-30.0,
    expm1_is_infinite=89.0,
)
_DOUBLE = _Format(
    fractions=torch.float64,
    whole=torch.int64,
    mantissa_bits=_MANTISSA_BITS_OF_DOUBLE,
    bias=_BIAS_OF_DOUBLE,
    rounder=1.5 * 2.0**52,
    bits_of_rounder=int(np.float64(1.5 * 2.0**52).view(np.int64)),
    ln2_high=0.6931471803691238,  # 33 bits
    ln2_low=1.9082149292705877e-10,
    exp=tuple(1.0 / math.factorial(power) for power in range(14, 1, -1)),  # error of exp 2e-19
    largest=800.0,
    no_exponent=-2046.0,
    expm1_is_minus_one=-50.0,
    expm1_is_infinite=710.0,
)
_FORMATS: dict[Any, _Format] = {
    torch.float32: _SINGLE,
    torch.float64: _DOUBLE,
    np.dtype(np.float32): replace(_SINGLE, fractions=np.float32, whole=np.dtype(np.int32)),
    np.dtype(np.float64): replace(_DOUBLE, fractions=np.float64, whole=np.dtype(np.int64)),
}

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


def where_negative(signs: Block, if_negative: Block, otherwise: Block) -> Block:
    """Numbers of one tensor where a sign bit is set, of another elsewhere.

    It chooses by bits: ``torch.where`` costs as much as 25 additions (torch 2.15, one processor).
    """
    dtype = otherwise.dtype
    whole = _FORMATS[dtype].whole
    chosen = otherwise.view(whole)
    mixed = chosen ^ if_negative.view(whole)
    mixed &= signs.view(whole) >> (whole.itemsize * 8 - 1)
    mixed ^= chosen
    return mixed.view(dtype)


def where_positive(numbers: Block, if_positive: Block, otherwise: Block) -> Block:
    """The same where a number is above 0: 0 - x then has a sign, which that of no zero has."""
    return where_negative(0.0 - numbers, if_positive, otherwise)


@FORMS.of("exp")
def exp(numbers: torch.Tensor) -> torch.Tensor:
    """The exponential function, within 1.1 units in the last place."""
    check_type(numbers)
    return mapped(_exp, numbers)


@of_either
def exp_at_most_one(numbers: Block) -> Block:
    """The exponential function of a block of numbers that are 0 or less; denormal results are kept,
    and the block is written over."""
    kind = _FORMATS[numbers.dtype]
    clamped = clamp_(numbers, low=kind.no_exponent / _LOG2_OF_E)
    exponents, power = _exponent_and_power(clamped, kind)
    return _times_power_of_two(power, exponents, kind)


@of_either
def _exp(numbers: Block) -> Block:
    kind = _FORMATS[numbers.dtype]
    clamped = clamp(numbers, low=-kind.largest, high=kind.largest)
    exponents, power = _exponent_and_power(clamped, kind)
    return _times_power_of_two(power, exponents, kind)


def half_exp_of_double(numbers: torch.Tensor) -> torch.Tensor:
    """exp(x) / 2 of a block of float64 numbers."""
    clamped = numbers.clamp(min=-_DOUBLE.largest, max=_DOUBLE.largest)
    exponents, power = _exponent_and_power(clamped, _DOUBLE)
    return _times_power_of_two(power, exponents.sub_(1), _DOUBLE)


def _exponent_and_power(
    numbers: Block, kind: _Format, *, added: float = 1.0, error: Block | None = None
) -> tuple[Block, Block]:
    """Numbers as n ln 2 + r: n, a whole number, and exp(r), or with 0 for ``added`` exp(r) - 1.

    ``error`` is what is to be added to the numbers, and is smaller than their last bits.
    """
    shifted = numbers * _LOG2_OF_E
    shifted += kind.rounder
    exponents = shifted.view(kind.whole) - kind.bits_of_rounder
    shifted -= kind.rounder
    rest = numbers - shifted * kind.ln2_high
    shifted *= kind.ln2_low
    rest -= shifted
    if error is not None:
        rest += error
    return exponents, _power_of_rest(rest, kind, added=added)


def _power_of_rest(rest: Block, kind: _Format, *, added: float = 1.0) -> Block:
    """exp(r), or with 0 for ``added`` exp(r) - 1, of numbers up to ln 2 / 2."""
    power = polynomial(rest, kind.exp)
    power *= rest
    power *= rest
    power += rest
    if added:
        power += added
    return power


def _times_power_of_two(numbers: Block, exponents: Block, kind: _Format) -> Block:
    """In two factors, since results may be smaller than the least power with all bits."""
    half = exponents >> 1
    numbers *= _two_to(half, kind)
    exponents -= half
    numbers *= _two_to(exponents, kind)
    return numbers


def _two_to(exponents: Block, kind: _Format) -> Block:
    """Powers of two from the least with all bits up, from their exponents; 0 for one less."""
    bits = exponents + kind.bias
    bits <<= kind.mantissa_bits
    return bits.view(kind.fractions)


@FORMS.of("log")
def log(numbers: torch.Tensor) -> torch.Tensor:
    """The natural logarithm, within 1 unit in the last place."""
    if is_double(numbers):
        return mapped(doubles.log, numbers, item_size=IN_DOUBLE)
    return mapped(_log, numbers, item_size=IN_DOUBLE)


@of_either
def _log(numbers: Block) -> Block:
    return single(log_of_double(double(numbers)))


def log_of_double(numbers: Block) -> Block:
    """The logarithm of float64 numbers, none of them denormal, for results in float32."""
    exponents, rest = _exponent_and_rest(numbers)
    value = _log1p_of_small(rest)
    value += double(exponents) * LN2
    return _without_logarithm(value, numbers)


def _exponent_and_rest(numbers: Block) -> tuple[Block, Block]:
    """Float64 numbers as (1 + y) 2**n, with 1 + y from sqrt(1/2) to sqrt(2): n, int64, and y."""
    kind = _FORMATS[numbers.dtype]
    bits = numbers.view(kind.whole)
    exponents = (bits - _BITS_OF_SQRT_HALF) >> _MANTISSA_BITS_OF_DOUBLE
    mantissas = (bits - (exponents << _MANTISSA_BITS_OF_DOUBLE)).view(kind.fractions)
    mantissas -= 1.0
    return exponents, mantissas


def _without_logarithm(value: Block, numbers: Block) -> Block:
    """Logarithms of numbers, mended where the number is 0, infinite, negative or NaN."""
    if all_within(numbers, 0.0, math.inf):
        return value
    value = where(numbers == 0, -math.inf, value)
    value = where(numbers == math.inf, math.inf, value)
    return where((numbers < 0) | (numbers != numbers), math.nan, value)


@FORMS.of("log2")
def _log2(numbers: torch.Tensor) -> torch.Tensor:
    """Within 0.51 units in the last place; of powers of two exact."""
    if is_double(numbers):
        return mapped(doubles.log2, numbers, item_size=IN_DOUBLE)
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
    if is_double(numbers):
        return mapped(doubles.log10, numbers, item_size=IN_DOUBLE)
    return mapped(_log10_of_block, numbers, item_size=IN_DOUBLE)


def _log10_of_block(numbers: torch.Tensor) -> torch.Tensor:
    return log_of_double(numbers.double()).mul_(_LOG10_OF_E).float()


@FORMS.of("logit")
def _logit(a: torch.Tensor, eps: float | None = None) -> torch.Tensor:
    """log(x / (1 - x)), within 0.51 units in the last place, and 3 in float64."""
    if eps is not None and eps > 0.5:
        raise NoPortableForm(f"has a portable form for eps up to 0.5, and got {eps}")
    clamped = a if eps is None else a.clamp(eps, 1.0 - eps)
    if is_double(a):
        return mapped(doubles.logit, clamped, item_size=IN_DOUBLE)
    return mapped(_logit_of_block, clamped, item_size=IN_DOUBLE)


def _logit_of_block(numbers: torch.Tensor) -> torch.Tensor:
    wide = numbers.double()
    return log_of_double(wide / (1.0 - wide)).float()


@FORMS.of("logit_backward")
def _logit_backward(
    gradient: torch.Tensor, a: torch.Tensor, eps: float | None = None
) -> torch.Tensor:
    """0 where a number was moved into its bounds, and NaN where there is no logarithm."""
    check_type(gradient, a)
    slope = gradient / ((1.0 - a) * a)
    if eps is None:
        return slope.masked_fill((a < 0) | (a > 1), torch.nan)
    return slope.masked_fill((a < eps) | (a > 1.0 - eps), 0.0)


@FORMS.of("log1p")
def log1p(numbers: torch.Tensor) -> torch.Tensor:
    """log(1 + x), within 0.51 units in the last place, and 1.5 in float64."""
    if is_double(numbers):
        return mapped(doubles.log1p, numbers, item_size=IN_DOUBLE)
    return mapped(_log1p_of_block, numbers, item_size=IN_DOUBLE)


@of_either
def _log1p_of_block(numbers: Block) -> Block:
    """Of a small x, x itself stands for what is left of 1 + x after 1."""
    wide = double(numbers)
    kind = _FORMATS[wide.dtype]
    above = wide + 1.0
    exponents, rest = _exponent_and_rest(above)
    is_scaled = (exponents | -exponents) >> 63
    mixed = (wide.view(kind.whole) ^ rest.view(kind.whole)) & is_scaled
    rest = (mixed ^ wide.view(kind.whole)).view(kind.fractions)
    value = _log1p_of_small(rest)
    value += double(exponents) * LN2
    return copy_sign(single(_without_logarithm(value, above)), numbers)


_ATANH_OF_DOUBLE = tuple(1.0 / (2 * power + 1) for power in range(9, 0, -1))
"""Taylor's series, for |s| <= 0.18: the next term is 1e-16."""


def _log1p_of_small(numbers: Block) -> Block:
    """log(1 + y) of float64 numbers from -0.3 to 0.42."""
    return _log1p(numbers, _ATANH_OF_DOUBLE)


@of_either
def log1p_of_unit(numbers: Block) -> Block:
    """log(1 + y) of a block of numbers from 0 to 1, within 2 units in the last place."""
    if not isinstance(numbers, np.ndarray) and numbers.dtype == torch.float64:
        return doubles.log1p(numbers)
    return _log1p(numbers, _ATANH)


def _log1p(numbers: Block, atanh: Sequence[float]) -> Block:
    """log(1 + y) as 2 atanh(y / (2 + y)), from the coefficients of (atanh(s) / s - 1) / s**2."""
    ratio = numbers / (numbers + 2.0)
    square = ratio * ratio
    series = polynomial(square, atanh)
    series *= square
    series += 1.0
    series *= ratio
    series *= 2.0
    return series


@FORMS.of("erf")
def erf(numbers: torch.Tensor) -> torch.Tensor:
    """The error function; error at most 3e-7, and 2e-16 in float64."""
    check_type(numbers)
    return mapped(erf_of_block, numbers)


@of_either
def erf_of_block(numbers: Block) -> Block:
    """The error function of a block of numbers; see `erf`."""
    if not isinstance(numbers, np.ndarray) and numbers.dtype == torch.float64:
        return _erf_of_doubles(numbers)
    clamped = clamp(numbers, low=-_ERF_IS_ONE, high=_ERF_IS_ONE)
    square = clamped * clamped
    value = polynomial(square, _ERF_NUMERATOR)
    value *= clamped
    value /= polynomial(square, _ERF_DENOMINATOR)
    clamp_(value, low=-1.0, high=1.0)
    if not all_within(numbers, -_HUGE, _HUGE):
        value = where(abs(numbers) >= _HUGE, clamp(numbers, low=-1.0, high=1.0), value)
    return value


def _erf_of_doubles(numbers: torch.Tensor) -> torch.Tensor:
    size = numbers.abs().clamp_(max=doubles.ERF_IS_ONE)
    large = doubles.erf_of_large(size, exp_at_most_one((size * size).neg_()))
    small = doubles.erf_of_small(numbers)
    return torch.where(size > 1.0, torch.copysign(large, numbers), small)


@FORMS.of("erfc")
def _erfc(numbers: torch.Tensor) -> torch.Tensor:
    """1 - erf(x), within 0.51 units in the last place, and 5 in float64."""
    check_type(numbers)
    return mapped(_erfc_of_block, numbers, item_size=IN_DOUBLE)


def _erfc_of_block(numbers: torch.Tensor) -> torch.Tensor:
    wide = numbers.double()
    size = wide.abs().clamp_(max=doubles.ERFC_IS_ZERO)
    square, error = doubles.exact_product(size, size)
    tail = doubles.scaled_erfc(size).mul_(1.0 - error).mul_(exp_at_most_one(square.neg_()))
    large = torch.where(wide < 0, 2.0 - tail, tail)
    small = 1.0 - doubles.erf_of_small(wide)
    return torch.where(size < 0.5, small, large).to(numbers.dtype)


@FORMS.of("sigmoid")
def sigmoid(numbers: torch.Tensor) -> torch.Tensor:
    """1 / (1 + exp(-x)), within 2 units in the last place."""
    check_type(numbers)
    return mapped(sigmoid_of_block, numbers)


@of_either
def sigmoid_of_block(numbers: Block) -> Block:
    """1 / (1 + exp(-x)) of a block of numbers; see `sigmoid`."""
    exponential = exp_at_most_one(-abs(numbers))
    below = exponential + 1.0
    value = where_negative(numbers, exponential, ones_like(below))
    value /= below
    return value


@FORMS.of("tanh")
def tanh(numbers: torch.Tensor) -> torch.Tensor:
    """The hyperbolic tangent, within 3 units in the last place."""
    check_type(numbers)
    return mapped(_tanh, numbers)


@of_either
def _tanh(numbers: Block) -> Block:
    """-t / (t + 2), with t = exp(-2 abs(x)) - 1: as near for small numbers."""
    less_one = expm1_at_most_zero(abs(numbers) * -2.0)
    below = less_one + 2.0
    less_one /= below
    return copy_sign(less_one, numbers)


@of_either
def expm1_at_most_zero(numbers: Block) -> Block:
    """exp(x) - 1 of a block of numbers that are 0 or less, within 2 units in the last place; the
    block is written over."""
    kind = _FORMATS[numbers.dtype]
    clamped = clamp_(numbers, low=kind.expm1_is_minus_one)
    exponents, power = _exponent_and_power(clamped, kind, added=0.0)
    factor = _two_to(exponents, kind)
    power *= factor
    factor -= 1.0
    power += factor
    return power


@FORMS.of("expm1")
def _expm1(numbers: torch.Tensor) -> torch.Tensor:
    """Within 2 units in the last place."""
    check_type(numbers)
    return mapped(expm1_of_block, numbers)


def expm1_of_block(numbers: torch.Tensor) -> torch.Tensor:
    """Of 2**n one factor of 2 is kept apart, for the power above the largest is no number."""
    kind = _FORMATS[numbers.dtype]
    clamped = numbers.clamp(min=kind.expm1_is_minus_one, max=kind.expm1_is_infinite)
    exponents, power = _exponent_and_power(clamped, kind, added=0.0)
    one_if_positive = (exponents > 0).to(kind.whole)
    factor = _two_to(exponents - one_if_positive, kind)
    power *= factor
    factor -= _two_to(-one_if_positive, kind)
    power += factor
    power *= _two_to(one_if_positive, kind)
    return torch.copysign(power, numbers)


@FORMS.of("exp2")
def _exp2(numbers: torch.Tensor) -> torch.Tensor:
    """Within 1.1 units in the last place."""
    if is_double(numbers):
        return mapped(_exp2_of_doubles, numbers)
    return mapped(_exp2_of_block, numbers, item_size=IN_DOUBLE)


def _exp2_of_block(numbers: torch.Tensor) -> torch.Tensor:
    return exp_of_double(numbers.double().clamp_(-200.0, 200.0), unit=1.0).float()


def _exp2_of_doubles(numbers: torch.Tensor) -> torch.Tensor:
    clamped = numbers.clamp(-2000.0, 2000.0)
    whole = clamped.round()
    power = _power_of_rest((clamped - whole).mul_(LN2), _DOUBLE)
    return _times_power_of_two(power, whole.nan_to_num_(0.0).long(), _DOUBLE)


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


def root(numbers: Block) -> Block:
    """The same of a tensor or an array; NumPy may warn of negative numbers."""
    return np.sqrt(numbers) if isinstance(numbers, np.ndarray) else square_root(numbers)


@FORMS.of("rsqrt")
def _inverse_square_root(numbers: torch.Tensor) -> torch.Tensor:
    root = square_root(numbers)
    return torch.ones_like(root) / root


@FORMS.of("pow")
def raised(a: Any, exponent: Any) -> torch.Tensor:
    """Products for whole exponents up to 4, roots, else a float64 power rounded once: within 0.51
    units in the last place, and 1 in float64."""
    if isinstance(a, torch.Tensor) and not isinstance(exponent, torch.Tensor):
        if exponent in range(-4, 5):
            return _product_of_itself(a, int(exponent))
        if exponent == 0.5:
            return square_root(a)
        if exponent == -0.5:
            return _inverse_square_root(a)
    dtype = torch.result_type(a, exponent)
    if dtype not in _FORMATS:
        raise NoPortableForm(f"has a portable form for float32 and float64, and got {dtype}")
    device = a.device if isinstance(a, torch.Tensor) else exponent.device
    base, power = (
        number
        if isinstance(number, torch.Tensor)
        else torch.tensor(number, dtype=dtype, device=device)
        for number in (a, exponent)
    )
    base, power = torch.broadcast_tensors(base.to(dtype), power.to(dtype))
    return mapped(_power_of_block, base, power, item_size=IN_DOUBLE)


def _product_of_itself(a: torch.Tensor, exponent: int) -> torch.Tensor:
    power = torch.ones_like(a)
    for _ in range(abs(exponent)):
        power = power * a
    return torch.ones_like(power) / power if exponent < 0 else power


def _power_of_block(base: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
    """exp(y log abs(x)), with the sign that IEEE 754 says."""
    y = exponents.double()
    magnitude = base.abs().double()
    if base.dtype == torch.float64:
        value = _power_of_doubles(magnitude, y)
    else:
        value = exp_of_double(log_of_double(magnitude).mul_(y).clamp_(-200.0, 200.0), unit=LN2)
    if base.amin() > 0 and base.amax() < math.inf and exponents.abs().amax() < math.inf:
        return value.to(base.dtype)
    is_one = (magnitude == 1) | (y == 0)
    value = torch.where(is_one, 1.0, value)
    half = y * 0.5
    is_whole = y.floor() == y
    is_odd = is_whole & (half.floor() != half)
    value = torch.where(is_odd & base.signbit(), -value, value)
    has_none = (base < 0) & ~is_whole & (magnitude != torch.inf)
    is_nan = (base.isnan() & (y != 0)) | (y.isnan() & (base != 1))
    return value.masked_fill_(has_none | is_nan, torch.nan).to(base.dtype)


def _power_of_doubles(magnitudes: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
    """Within 1 unit in the last place, from the logarithm as a pair."""
    high, low = doubles.logarithm_of_power(magnitudes, exponents)
    whole, power = _exponent_and_power(high, _DOUBLE, error=low)
    value = _times_power_of_two(power, whole, _DOUBLE)
    is_none = (magnitudes == 0) | magnitudes.isinf()
    grows = (magnitudes == 0) == (exponents < 0)
    return torch.where(is_none, torch.where(grows, torch.inf, 0.0), value)


# -- functions in float64 for results in float32, which sees no more than their rounding ---------

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
