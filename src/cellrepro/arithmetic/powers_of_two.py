"""Powers of two, made from the bits of floating-point numbers: never computed, so never rounded."""

from __future__ import annotations

import torch

_EXPONENT_OF_DOUBLE = 0x7FF0000000000000
"""The bits of a float64 that hold its exponent."""


def power_of_two_below(numbers: torch.Tensor) -> torch.Tensor:
    """The largest power of two that is at most each number.

    >>> power_of_two_below(torch.tensor([0.0, 1.0, 1.5, 7.9])).tolist()
    [0.0, 1.0, 1.0, 4.0]
    """
    bits = numbers.double().view(torch.int64)
    return (bits & _EXPONENT_OF_DOUBLE).view(torch.float64)


def n_bits_of_count(count: int) -> int:
    """How many bits a sum of so many numbers may be longer than the longest of them.

    >>> [n_bits_of_count(count) for count in (1, 2, 3, 4, 1024, 1025)]
    [0, 1, 2, 2, 10, 11]
    """
    return max(0, count - 1).bit_length()
