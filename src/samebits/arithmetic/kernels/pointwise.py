"""Operations that PyTorch fuses, taken apart: a factor and a sum, a quotient by a number."""

from __future__ import annotations

import math
from typing import Any

import torch

from samebits.arithmetic.exact_sums import power_of_two_below
from samebits.arithmetic.kernels.elementary import square_root
from samebits.arithmetic.kernels.finite import all_finite
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_type

FORMS = PortableForms()


@FORMS.of("add")
def _add(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return a + (b if alpha == 1 else b * alpha)


@FORMS.of("sub")
def _sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    return a - (b if alpha == 1 else b * alpha)


@FORMS.of("rsub")
def _rsub(a: Any, b: Any, alpha: Any = 1) -> Any:
    return b - (a if alpha == 1 else a * alpha)


@FORMS.of("div")
def _div(a: Any, b: Any, *, rounding_mode: str | None = None) -> torch.Tensor:
    if rounding_mode is not None and not torch.result_type(a, b).is_floating_point:
        return torch.div(a, b, rounding_mode=rounding_mode)  # of whole numbers
    if rounding_mode == "floor":
        return _floor_divided(a, b)
    if not isinstance(b, torch.Tensor) or b.dim() == 0:
        # CUDA multiplies by the reciprocal of a single number
        dtype = torch.result_type(a, b)
        if not dtype.is_floating_point:
            dtype = torch.get_default_dtype()
        number = b.item() if isinstance(b, torch.Tensor) else b
        b = torch.full_like(a, number, dtype=dtype)
    return torch.div(a, b, rounding_mode=rounding_mode)


# -- remainders ----------------------------------------------------------------------------


@FORMS.of("fmod")
def _fmod(a: Any, b: Any) -> torch.Tensor:
    return _truncated_remainder(*_of_one_type(a, b))


@FORMS.of("remainder")
def _remainder(a: Any, b: Any) -> torch.Tensor:
    """It has the sign of the divisor."""
    numbers, divisors = _of_one_type(a, b)
    rest = _truncated_remainder(numbers, divisors)
    is_of_other_sign = (rest != 0) & ((rest < 0) != (divisors < 0))
    return torch.where(is_of_other_sign, rest + divisors, rest)


@FORMS.of("floor_divide")
def _floor_divided(a: Any, b: Any) -> torch.Tensor:
    """The whole number below a quotient, from what is left, so that it is not rounded up."""
    numbers, divisors = _of_one_type(a, b)
    rest = _truncated_remainder(numbers, divisors)
    quotient = (numbers - rest) / divisors
    is_of_other_sign = (rest != 0) & ((rest < 0) != (divisors < 0))
    quotient = torch.where(is_of_other_sign, quotient - 1.0, quotient)
    whole = quotient.floor()
    whole = torch.where(quotient - whole > 0.5, whole + 1.0, whole)
    exact = numbers / divisors
    whole = torch.where(quotient == 0, torch.copysign(torch.zeros_like(whole), exact), whole)
    return torch.where(divisors == 0, exact, whole)


@FORMS.of("frac")
def _frac(a: torch.Tensor) -> torch.Tensor:
    return a - a.trunc()


def _of_one_type(a: Any, b: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Two tensors of one shape and type, of which one may have been a number or of whole ones."""
    dtype = torch.result_type(a, b)
    if dtype not in (torch.float32, torch.float64):
        raise NoPortableForm(f"has a portable form for float32 and float64, and got {dtype}")
    device = a.device if isinstance(a, torch.Tensor) else b.device
    numbers, divisors = (
        number
        if isinstance(number, torch.Tensor)
        else torch.tensor(number, dtype=dtype, device=device)
        for number in (a, b)
    )
    numbers, divisors = torch.broadcast_tensors(numbers.to(dtype), divisors.to(dtype))
    return numbers, divisors


_BITS_AT_ONCE = 28
"""A whole number of so many bits times one of 24 is exact in float64."""
_BITS_OF_DOUBLES_AT_ONCE = 25
"""The same times one of 28, the longer half of a float64 number."""


def _truncated_remainder(numbers: torch.Tensor, divisors: torch.Tensor) -> torch.Tensor:
    """What is left of a number after its divisor was taken from it as often as it goes: exact, by
    long division, 28 bits at a time, or of float64 numbers 25."""
    taken = _taken_from_doubles if numbers.dtype == torch.float64 else _taken
    rest = numbers.abs().double()
    divisor = divisors.abs().double()
    has_none = rest.isinf() | rest.isnan() | (divisor == 0) | divisor.isnan()
    rest.masked_fill_(has_none, 0.0)
    is_left = (rest >= divisor) & ~has_none
    while bool(is_left.any()):
        rest = torch.where(is_left, taken(rest, divisor), rest)
        is_left = (rest >= divisor) & ~has_none
    return torch.copysign(rest.masked_fill_(has_none, torch.nan).to(numbers.dtype), numbers)


def _taken(rest: torch.Tensor, divisor: torch.Tensor) -> torch.Tensor:
    """One step of the long division, of float32 numbers in float64."""
    quotient = (rest / divisor).floor()
    unit = power_of_two_below(quotient) * 2.0 ** (1 - _BITS_AT_ONCE)
    unit.clamp_(min=1.0)
    taken = (quotient / unit).floor_().mul_(unit)
    left = rest - taken * divisor
    return torch.where(left < 0, left + unit * divisor, left)


_LARGE = 2.0**1000
_SMALLER = 2.0**-32
_LOWER_HALF = 2**27 - 1
"""The last bits of a float64 number."""


def _taken_from_doubles(rest: torch.Tensor, divisor: torch.Tensor) -> torch.Tensor:
    """The same of float64 numbers. The divisor is taken in two parts, of which the upper one is
    rounded up: then all that remains on the way is smaller than the divisor, and exact."""
    shift = (_exponents(rest) - _exponents(divisor) + (1 - _BITS_OF_DOUBLES_AT_ONCE)).clamp_(min=0)
    for _ in range(3):  # a power of two of up to 2**2098, in factors that are no infinities
        part = shift.clamp(max=1000)
        divisor = divisor * ((part + 1023) << 52).view(torch.float64)
        shift = shift - part
    scale = torch.where(divisor > _LARGE, _SMALLER, 1.0).to(divisor)
    rest = rest * scale
    divisor = divisor * scale
    quotient = (rest / divisor).floor_()
    upper = ((divisor.view(torch.int64) + _LOWER_HALF) & ~_LOWER_HALF).view(torch.float64)
    left = (rest - quotient * upper) + quotient * (upper - divisor)
    left = torch.where(left < 0, left + divisor, left)
    return left / scale


def _exponents(numbers: torch.Tensor) -> torch.Tensor:
    """Of positive float64 numbers, whole numbers; of denormal ones, too."""
    is_tiny = numbers < _TINY
    normal = torch.where(is_tiny, numbers * 2.0**54, numbers)
    return (normal.view(torch.int64) >> 52) - is_tiny.long() * 54


# -- sums of products, and quotients ---------------------------------------------------------


@FORMS.of("reciprocal")
def _reciprocal(a: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(a) / a


@FORMS.of("addcmul")
def _addcmul(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *, value: Any = 1) -> torch.Tensor:
    return a + (b * c if value == 1 else (b * value) * c)


@FORMS.of("addcdiv")
def _addcdiv(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *, value: Any = 1) -> torch.Tensor:
    return a + (b / c if value == 1 else (b * value) / c)


@FORMS.of("lerp")
def between(a: torch.Tensor, b: torch.Tensor, weight: Any) -> torch.Tensor:
    """A part of the way from one tensor to another: ``lerp``.

    Where that is not finite, the half nearer to the other is counted from there, as PyTorch does.
    """
    way = b - a
    result = a + way * weight
    if all_finite(result):
        return result
    from_b = b - way * (1.0 - weight)
    is_near_a = result.isfinite() | (abs(torch.as_tensor(weight)) < 0.5)
    return torch.where(is_near_a, result, from_b)


@FORMS.of("hypot")
def _hypot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The root of the sum of two squares: exact ones of float32 numbers, and of float64 numbers
    without the power of two of the larger one."""
    check_type(a, b)
    wide = a.double()
    other = b.double()
    if a.dtype == torch.float64:
        unit = power_of_two_below(torch.maximum(wide.abs(), other.abs())).clamp_(min=_TINY)
        wide = wide / unit
        other = other / unit
        value = square_root(wide * wide + other * other).mul_(unit)
    else:
        value = square_root(wide * wide + other * other)
    return value.masked_fill_(a.isinf() | b.isinf(), torch.inf).to(a.dtype)


_TINY = 2.0**-1022


@FORMS.of("deg2rad")
def _radians(a: torch.Tensor) -> torch.Tensor:
    return a * (math.pi / 180.0)


@FORMS.of("rad2deg")
def _degrees(a: torch.Tensor) -> torch.Tensor:
    return a * (180.0 / math.pi)


@FORMS.of("linalg_cross")
def _cross(a: torch.Tensor, b: torch.Tensor, *, dim: int = -1) -> torch.Tensor:
    check_type(a, b)
    a, b = torch.broadcast_tensors(a, b)
    return a.roll(-1, dim) * b.roll(-2, dim) - a.roll(-2, dim) * b.roll(-1, dim)
