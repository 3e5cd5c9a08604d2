"""Exponential functions and Gaussian weights with the same bits on every machine, for NumPy."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Context, Decimal

import numpy as np
from numpy.typing import NDArray

_DIGITS = Context(prec=40)
"""Of a decimal number: a float64 number has 17."""


def exponentials(exponents: Iterable[float]) -> NDArray[np.float64]:
    """The exponential function of some numbers.

    NumPy's own has vector code for some processors, with other roundings (NumPy 1.24 to 2.4).
    Decimal arithmetic is slow, and the same everywhere: it is for hundreds of numbers.

    >>> exponentials([0.0, 1.0]).tolist()
    [1.0, 2.718281828459045]
    """
    powers = [float(_DIGITS.exp(Decimal(float(exponent)))) for exponent in exponents]
    return np.array(powers, dtype=np.float64)


def gaussian_weights(positions: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    """The heights of a Gaussian at some positions, which sum to 1."""
    heights = exponentials(-0.5 / (deviation * deviation) * (positions * positions))
    return heights / math.fsum(heights)
