"""Exponential, logarithm, roots and the like, as fixed sequences of single operations.

Every step is an operation of its own, which IEEE 754 rounds in one way. Polynomials were fitted by
Chebyshev interpolation and, for the error function, by least squares reweighted until the errors
were level; tests compare every function with `mpmath`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_float32
from samebits.arithmetic.memory import mapped

FORMS = PortableForms()

_ROUNDER = 1.5 * 2.0**23
"""A float32 number of this size has no fraction: what is added to it is rounded to whole numbers,
which stand in its last bits."""
_BIAS = 127
_MANTISSA_BITS = 23
_LOG2_OF_E = 1.4426950408889634
_LN2_HIGH = 0.693145751953125
"""The first 16 bits of ln 2: products with whole numbers of up to 8 bits are exact."""
_LN2_LOW = 1.4286068203094173e-06
_SMALLEST_EXPONENT = -127.0

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
"""From here on the error function is 1 in float32."""


def polynomial(numbers: torch.Tensor, coefficients: Sequence[float]) -> torch.Tensor:
    """A polynomial by Horner's scheme, each product and each sum rounded by itself."""
    value = numbers * coefficients[0]
    value += coefficients[1]
    for coefficient in coefficients[2:]:
        value *= numbers
        value += coefficient
    return value


@FORMS.of("exp")
def exp(numbers: torch.Tensor) -> torch.Tensor:
    """The exponential function of float32 numbers, within 1.1 units in the last place."""
    check_float32(numbers)
    return mapped(_exp, numbers)


def exp_at_most_one(numbers: torch.Tensor) -> torch.Tensor:
    """The exponential function of a block of float32 numbers that are 0 or less."""
    clamped = numbers.clamp_(min=_SMALLEST_EXPONENT / _LOG2_OF_E)
    exponents, power = _exponent_and_power(clamped)
    return power.mul_(_two_to(exponents))


def _exp(numbers: torch.Tensor) -> torch.Tensor:
    clamped = numbers.clamp(min=-120.0, max=120.0)
    exponents, power = _exponent_and_power(clamped)
    half = exponents >> 1  # 2**n in two factors, since results may be smaller than 2**-126
    return power.mul_(_two_to(half)).mul_(_two_to(exponents - half))


def _exponent_and_power(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers as n ln 2 + r: n, int32, and exp(r)."""
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
    power += 1.0
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
    return mapped(_log, numbers)


def _log(numbers: torch.Tensor) -> torch.Tensor:
    """Numbers as m 2**n, m from sqrt(1/2) to sqrt(2), in float64, where none is denormal."""
    wide = numbers.double()
    bits = wide.view(torch.int64)
    above_half = bits - np.float64(np.sqrt(0.5)).view(np.int64).item()
    exponents = above_half >> 52
    mantissas = (bits - (exponents << 52)).view(torch.float64)
    value = _log1p_of_small(mantissas - 1.0)
    value += exponents.double() * 0.6931471805599453
    value = torch.where(wide == 0, -torch.inf, value)
    value = torch.where(wide == torch.inf, torch.inf, value)
    return torch.where((wide < 0) | wide.isnan(), torch.nan, value).float()


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
    return value.clamp_(min=-1.0, max=1.0)


@FORMS.of("sigmoid")
def sigmoid(numbers: torch.Tensor) -> torch.Tensor:
    """1 / (1 + exp(-x)) of float32 numbers, within 2 units in the last place."""
    check_float32(numbers)
    return mapped(_sigmoid, numbers)


def _sigmoid(numbers: torch.Tensor) -> torch.Tensor:
    exponential = exp_at_most_one(numbers.abs().neg_())
    below = exponential + 1.0
    positive = torch.ones_like(below) / below
    return torch.where(numbers < 0, exponential.div_(below), positive)


@FORMS.of("tanh")
def tanh(numbers: torch.Tensor) -> torch.Tensor:
    """The hyperbolic tangent of float32 numbers; error at most 2e-7."""
    check_float32(numbers)
    return mapped(_tanh, numbers)


def _tanh(numbers: torch.Tensor) -> torch.Tensor:
    doubled = _sigmoid(numbers * 2.0)
    return doubled.mul_(2.0).sub_(1.0)


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
def _pow(a: Any, exponent: Any) -> torch.Tensor:
    if not isinstance(a, torch.Tensor) or isinstance(exponent, torch.Tensor):
        raise NoPortableForm("has a portable form for exponents that are numbers only")
    if exponent == 0.5:
        return square_root(a)
    if exponent == -0.5:
        return _inverse_square_root(a)
    if exponent not in range(-4, 5):
        raise NoPortableForm(
            f"has a portable form for the exponents -4 to 4, 0.5 and -0.5, and got {exponent}"
        )
    power = torch.ones_like(a)
    for _ in range(abs(int(exponent))):
        power = power * a
    return torch.ones_like(power) / power if exponent < 0 else power
