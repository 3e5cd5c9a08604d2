"""Sine and cosine of float64 numbers of any size, within 1 unit in the last place.

A number is n pi / 2 + r with r up to pi / 4. That is a pair, for where a number lies near to such a
multiple, most of its bits are those of n.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch

from samebits.arithmetic.kernels.doubles import (
    Pair,
    exact_sum,
    pair_product,
    polynomial,
)
from samebits.scalars import pi_in_units

_QUARTER = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32)
"""Pi / 2: three parts of 33 bits, whose products with whole numbers below 2**20 are exact, and what
is left."""
_QUARTER_AS_PAIR = (1.5707963267948966, 6.123233995736766e-17)
_TWO_BY_PI = 0.6366197723675814
_LARGE = 2.0**20
"""From here on numbers are reduced with more bits of pi."""
_SINE = tuple((-1) ** power / math.factorial(2 * power + 1) for power in range(8, 1, -1))
"""(sin(r) / r - 1 + r**2 / 6) / r**4 in powers of r**2 by Taylor's series, for |r| <= pi / 4: the
next term is 1e-19."""
_COSINE = tuple((-1) ** power / math.factorial(2 * power) for power in range(8, 1, -1))
"""The same of (cos(r) - 1 + r**2 / 2) / r**4: the next term is 2e-18."""


class _Angle(NamedTuple):
    """Numbers as n quarter turns and a rest."""

    quarters: torch.Tensor
    rest: Pair


def sine_of_doubles(numbers: torch.Tensor) -> torch.Tensor:
    """The sine of a row of numbers."""
    sine = _sine_of_turned(_reduced(numbers.abs()), quarters=0)
    return sine * torch.copysign(torch.ones_like(numbers), numbers)


def cosine_of_doubles(numbers: torch.Tensor) -> torch.Tensor:
    """The cosine of a row of numbers."""
    return _sine_of_turned(_reduced(numbers.abs()), quarters=1)


def _sine_of_turned(angle: _Angle, *, quarters: int) -> torch.Tensor:
    """The sine of an angle and so many quarter turns."""
    quarter = angle.quarters + float(quarters)
    quarter -= (quarter * 0.25).floor_().mul_(4.0)
    is_odd = (quarter == 1.0) | (quarter == 3.0)
    value = torch.where(is_odd, _cosine_of_rest(angle.rest), _sine_of_rest(angle.rest))
    return torch.where(quarter >= 2.0, -value, value)


def _sine_of_rest(rest: Pair) -> torch.Tensor:
    """Source of this and the next: FreeBSD's ``k_sin.c`` and ``k_cos.c``."""
    square = rest.high * rest.high
    cube = square * rest.high
    series = polynomial(square, _SINE).mul_(cube)
    small = square * (rest.low * 0.5 - series) - rest.low
    return rest.high - (small + cube * (1.0 / 6.0))


def _cosine_of_rest(rest: Pair) -> torch.Tensor:
    square = rest.high * rest.high
    series = polynomial(square, _COSINE).mul_(square).mul_(square)
    half = square * 0.5
    near_one = 1.0 - half
    return near_one + (((1.0 - near_one) - half) + (series - rest.high * rest.low))


# -- reduction ---------------------------------------------------------------------------------


def _reduced(magnitudes: torch.Tensor) -> _Angle:
    quarters = (magnitudes * _TWO_BY_PI).round_()
    rest = magnitudes - quarters * _QUARTER[0]
    rest, first_error = exact_sum(rest, quarters * -_QUARTER[1])
    rest, second_error = exact_sum(rest, quarters * -_QUARTER[2])
    errors = first_error + second_error - quarters * _QUARTER[3]
    high, low = exact_sum(rest, errors)
    if not bool(magnitudes.amax() < _LARGE):  # or NaN, beside which others are not seen
        is_large = (magnitudes >= _LARGE) & magnitudes.isfinite()
        of_large = _reduced_by_table(magnitudes[is_large])
        quarters[is_large] = of_large.quarters
        high[is_large], low[is_large] = of_large.rest
    return _Angle(quarters, Pair(high, low))


_CHUNK = 26
"""Bits of a part of 2 / pi and of a half of a number: their product is exact."""
_N_PARTS = 7
"""Of a power of two times 2 / pi, modulo 4, to 2**-180: a number has 53 bits, as many may be gone
near a multiple of pi / 2, with 10 more for the worst of all numbers, and as many are kept."""
_FIRST_EXPONENT = 1023 + 20


def _reduced_by_table(numbers: torch.Tensor) -> _Angle:
    """The same of large numbers.

    Source: M. Payne, R. Hanek, SIGNUM Newsletter 18, 19-24 (1983). A number is a whole number of 53
    bits times a power of two; that power times 2 / pi, without the multiples of 4, is in a table.
    """
    bits = numbers.view(torch.int64)
    parts = _powers_by_quarter().to(numbers.device)[(bits >> 52) - _FIRST_EXPONENT]
    whole = (bits & (2**52 - 1)) | 2**52
    low_half = whole & (2**_CHUNK - 1)
    halves = ((whole - low_half).double(), low_half.double())
    terms = []
    for part in parts.unbind(1):
        for half in halves:
            term = half * part
            terms.append(term - (term * 0.25).round_().mul_(4.0))
    first = torch.zeros_like(numbers)  # what is a multiple of 2**-50
    for term in terms[:5]:
        first += term
    quarters = first.round()
    high = first - quarters
    low = torch.zeros_like(high)
    for term in terms[5:]:
        high, error = exact_sum(high, term)
        low += error
    quarter = (torch.full_like(high, part) for part in _QUARTER_AS_PAIR)
    return _Angle(quarters, pair_product(exact_sum(high, low), Pair(*quarter)))


@functools.cache
def _powers_by_quarter() -> torch.Tensor:
    """2**k * 2 / pi modulo 4 for the last bit of every large number: float64, shape (k, 7)."""
    n_bits = _N_PARTS * _CHUNK - 2
    precision = 1300
    pi = pi_in_units(precision)
    rows = []
    for exponent in range(_FIRST_EXPONENT, 2047):
        scaled = (1 << (precision + 1 + n_bits + exponent - 1075)) // pi
        whole = scaled & ((1 << (n_bits + 2)) - 1)
        rows.append(
            [
                math.ldexp(
                    (whole >> ((_N_PARTS - 1 - part) * _CHUNK)) & ((1 << _CHUNK) - 1),
                    2 - (part + 1) * _CHUNK,
                )
                for part in range(_N_PARTS)
            ]
        )
    return torch.tensor(rows, dtype=torch.float64)
