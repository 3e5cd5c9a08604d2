"""Functions of single Python numbers, correctly rounded, from whole numbers alone.

``math.sin``, ``math.cos`` and ``**`` come from the system's library, which differs between systems
and between processors of one system. Here they are computed with whole numbers of some 256 bits,
which Python adds and multiplies exactly, and are rounded once, by a division of whole numbers. For
many numbers at a time see `samebits.arithmetic.kernels.elementary`.
"""

from __future__ import annotations

import functools
import math

_BITS = 256
"""Of a fraction. To round functions of float64 numbers correctly takes about 120 (V. Lefevre,
J.-M. Muller, Proc. 15th IEEE Symposium on Computer Arithmetic, 111-118 (2001))."""
_FEWEST_BITS = -1100
"""A number below 2 to this power is 0 in float64."""
_MOST_BITS = 1100
"""A number above 2 to this power is infinite."""


def sin(angle: float) -> float:
    """The sine, correctly rounded.

    >>> sin(0.0), sin(1.0)
    (0.0, 0.8414709848078965)
    """
    if angle == 0:
        return angle
    sine, _ = _sine_and_cosine(angle)
    return _rounded(sine, -_bits_for(angle))


def cos(angle: float) -> float:
    """The cosine, correctly rounded.

    >>> cos(0.0), cos(1.0)
    (1.0, 0.5403023058681398)
    """
    _, cosine = _sine_and_cosine(angle)
    return _rounded(cosine, -_bits_for(angle))


def power(base: float, exponent: int) -> float:
    """A number multiplied by itself so many times, correctly rounded.

    1 for the exponent 0; infinite where it would be larger than any float64.

    >>> power(0.9, 3), power(0.999, 100_000), power(-2.0, 3)
    (0.7290000000000001, 3.5385276883431275e-44, -8.0)
    """
    if exponent < 0 or exponent != int(exponent):
        raise ValueError(f"exponent is {exponent!r}; expected a whole number of 0 or more")
    numerator, denominator = base.as_integer_ratio()
    factor = abs(numerator)
    scale = 1 - denominator.bit_length()  # the denominator is a power of two
    result = 1
    result_scale = 0
    for bit in bin(int(exponent))[2:]:
        result, result_scale = _shortened(result * result, 2 * result_scale)
        if bit == "1":
            result, result_scale = _shortened(result * factor, result_scale + scale)
    is_negative = numerator < 0 and exponent % 2 == 1
    return _rounded(-result if is_negative else result, result_scale)


def real_power(base: float, exponent: float) -> float:
    """A number to the power of any other, correctly rounded.

    >>> real_power(2.0, 0.5), real_power(0.96, 0.004), real_power(16.0, -0.75)
    (1.4142135623730951, 0.9998367253526753, 0.125)
    """
    if not (math.isfinite(base) and math.isfinite(exponent)):
        return math.pow(base, exponent)  # nothing is rounded: 0, 1, infinite or NaN
    if exponent >= 0 and exponent == int(exponent):
        return power(base, int(exponent))
    if base <= 0:
        raise ValueError(f"the power is {base!r} ** {exponent!r}; expected a base above 0")
    if base == 1:
        return 1.0
    return _power_by_logarithm(base, exponent)


# -- whole numbers that stand for fractions --------------------------------------------------


def _fixed(number: float, n_bits: int) -> int:
    """A number in units of 2**-n_bits, rounded down: exact unless it is tiny."""
    numerator, denominator = number.as_integer_ratio()
    return (numerator << n_bits) // denominator


def _rounded(whole: int, scale: int) -> float:
    """The float64 number nearest to ``whole * 2**scale``; of two, the even one."""
    n_whole_bits = whole.bit_length() + scale
    is_negative = whole < 0
    if whole == 0 or n_whole_bits < _FEWEST_BITS:
        return -0.0 if is_negative else 0.0
    if n_whole_bits > _MOST_BITS:
        return -math.inf if is_negative else math.inf
    numerator = whole << max(0, scale)
    denominator = 1 << max(0, -scale)
    try:
        return numerator / denominator  # Python rounds quotients of whole numbers correctly
    except OverflowError:
        return -math.inf if is_negative else math.inf


def _shortened(whole: int, scale: int) -> tuple[int, int]:
    """A number and its scale with at most ``4 * _BITS`` bits: what has fewer stays exact, so that
    ties between two float64 numbers are seen as such."""
    excess = whole.bit_length() - 4 * _BITS
    if excess <= 0:
        return whole, scale
    return whole >> excess, scale + excess


def _bits_for(angle: float) -> int:
    """How many bits a fraction needs: a large angle loses some, a small one has zeros in front."""
    return _BITS + abs(math.frexp(angle)[1])


@functools.lru_cache(maxsize=64)
def _sine_and_cosine(angle: float) -> tuple[int, int]:
    """Sine and cosine in units of ``2**-_bits_for(angle)``."""
    if not math.isfinite(angle):
        raise ValueError(f"angle is {angle!r}; expected a finite number, in radians")
    n_bits = _bits_for(angle)
    quarter = pi_in_units(n_bits) >> 1
    fixed = _fixed(angle, n_bits)
    n_quarters = (2 * fixed + quarter) // (2 * quarter)
    rest = fixed - n_quarters * quarter
    sine = _alternating_series(rest, rest, 1, n_bits)
    cosine = _alternating_series(1 << n_bits, rest, 0, n_bits)
    turned = ((sine, cosine), (cosine, -sine), (-sine, -cosine), (-cosine, sine))
    return turned[n_quarters % 4]


def _alternating_series(first: int, fixed: int, n_first: int, n_bits: int) -> int:
    """Taylor's series of the sine (from its term 1) or the cosine (from its term 0)."""
    square = (fixed * fixed) >> n_bits
    total = first
    term = abs(first)
    sign = 1 if first >= 0 else -1
    n_factors = n_first
    while term:
        term = ((term * square) >> n_bits) // ((n_factors + 1) * (n_factors + 2))
        n_factors += 2
        sign = -sign
        total += sign * term
    return total


@functools.lru_cache(maxsize=64)
def _power_by_logarithm(base: float, exponent: float) -> float:
    n_bits = _BITS + max(0, math.frexp(exponent)[1])
    numerator, denominator = exponent.as_integer_ratio()
    logarithm = _logarithm(base, n_bits) * numerator // denominator
    if abs(logarithm) >> n_bits > _MOST_BITS:
        return math.inf if logarithm > 0 else 0.0
    of_two = _logarithm(2.0, n_bits)
    n_doublings = (2 * logarithm + of_two) // (2 * of_two)
    return _rounded(_exponential(logarithm - n_doublings * of_two, n_bits), n_doublings - n_bits)


def _logarithm(number: float, n_bits: int) -> int:
    """The natural logarithm in units of ``2**-n_bits``: ``2 artanh((m - 1) / (m + 1))`` of the
    fraction m, and as often that of 2."""
    numerator, denominator = number.as_integer_ratio()
    n_doublings = numerator.bit_length() - denominator.bit_length()
    if n_doublings in (0, 1):  # near 1: without the doublings, which would cancel
        n_doublings = 0
    numerator <<= max(0, -n_doublings)
    denominator <<= max(0, n_doublings)
    n_guard = 16
    term = ((numerator - denominator) << (n_bits + n_guard)) // (numerator + denominator)
    square = (term * term) >> (n_bits + n_guard)
    total = 0
    n_odd = 1
    while term not in (0, -1):
        total += term // n_odd
        term = (term * square) >> (n_bits + n_guard)
        n_odd += 2
    of_fraction = (2 * total) >> n_guard
    return of_fraction + (n_doublings * _logarithm(2.0, n_bits) if n_doublings else 0)


def _exponential(fixed: int, n_bits: int) -> int:
    """Taylor's series of the exponential, in units of ``2**-n_bits``."""
    n_guard = 16
    one = 1 << (n_bits + n_guard)
    term = total = one
    n_factors = 1
    while term not in (0, -1):
        term = ((term * fixed) >> n_bits) // n_factors
        total += term
        n_factors += 1
    return total >> n_guard


@functools.lru_cache(maxsize=16)
def pi_in_units(n_bits: int) -> int:
    """Pi in units of ``2**-n_bits`` by Machin's formula: 16 arctan(1/5) - 4 arctan(1/239)."""
    n_guard = 16
    one = 1 << (n_bits + n_guard)
    return (16 * _arctan_of_inverse(5, one) - 4 * _arctan_of_inverse(239, one)) >> n_guard


def _arctan_of_inverse(number: int, one: int) -> int:
    """The arc tangent of ``1 / number`` in units of ``1 / one``."""
    term = one // number
    total = 0
    n_odd = 1
    sign = 1
    while term:
        total += sign * (term // n_odd)
        term //= number * number
        n_odd += 2
        sign = -sign
    return total
