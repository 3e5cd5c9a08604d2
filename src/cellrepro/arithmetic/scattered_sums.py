"""Sums of numbers that go to the same place, in whatever order they arrive.

The numbers of a place are rounded to multiples of a power of two, so few bits long that every
partial sum has at most 53 bits: sums in float64 are exact, also where threads race. Infinities and
NaN need no order.
"""

from __future__ import annotations

import torch

from cellrepro.arithmetic.powers_of_two import n_bits_of_count, power_of_two_below

_BITS_OF_DOUBLE = 53


def added_at(target: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A row of numbers, with others added to it at places that may repeat.

    >>> added_at(torch.tensor([1.0, 2.0]), torch.tensor([1, 1]), torch.tensor([0.5, 0.25]))
    tensor([1.0000, 2.7500])
    """
    numbers = values.double()
    largest = torch.zeros_like(target, dtype=torch.float64)
    largest.scatter_reduce_(0, places, numbers.abs(), "amax")
    n_bits = _BITS_OF_DOUBLE - n_bits_of_count(len(places))
    shifter = power_of_two_below(largest) * (3 * 2.0 ** (_BITS_OF_DOUBLE - 1 - n_bits))
    of_values = shifter[places]
    rounded = numbers + of_values
    rounded -= of_values
    is_rounded = largest.isfinite()
    rounded = torch.where(is_rounded[places], rounded, numbers)
    sums = torch.zeros_like(largest).index_add_(0, places, rounded)
    return (sums + target.double()).float()
