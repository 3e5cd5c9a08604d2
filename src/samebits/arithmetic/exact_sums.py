"""Rounding numbers so that their sum in float64 is exact, in whatever order they are added.

Numbers are rounded to multiples of one power of two, so few bits long that every partial sum has
at most 53 bits. Powers of two are made from the bits of floating-point numbers: never computed, so
never rounded.
"""

from __future__ import annotations

import torch

BITS_OF_DOUBLE = 53
EXPONENT_OF_DOUBLE = 0x7FF0000000000000
"""The bits of a float64 that hold its exponent."""


def n_bits_of_count(count: int) -> int:
    """How many bits a sum of so many numbers may be longer than the longest of them.

    >>> [n_bits_of_count(count) for count in (1, 2, 3, 4, 1024, 1025)]
    [0, 1, 2, 2, 10, 11]
    """
    return max(0, count - 1).bit_length()


def rounder(largest: torch.Tensor, n_bits: int) -> torch.Tensor:
    """Find a number to add to others and subtract again, so that ``n_bits`` bits of them remain.

    It is 1.5 * 2**52 of the multiples: the addition rounds to a whole number of them, and the
    subtraction is exact. ``largest`` is the largest magnitude among the numbers.

    >>> added = rounder(torch.tensor([7.9]), n_bits=3)
    >>> (torch.tensor([7.9, 1.0, 0.3]).double() + added - added).tolist()
    [8.0, 1.0, 0.0]
    """
    return power_of_two_below(largest) * (3 * 2.0 ** (BITS_OF_DOUBLE - 1 - n_bits))


def power_of_two_below(numbers: torch.Tensor) -> torch.Tensor:
    """The largest power of two that is at most each number.

    >>> power_of_two_below(torch.tensor([0.0, 1.0, 1.5, 7.9])).tolist()
    [0.0, 1.0, 1.0, 4.0]
    """
    bits = numbers.double().view(torch.int64)
    return (bits & EXPONENT_OF_DOUBLE).view(torch.float64)
