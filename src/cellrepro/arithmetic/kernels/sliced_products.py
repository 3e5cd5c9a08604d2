"""Which numbers of a product one slice leaves too far off, and the same numbers from two slices.

A slice is a matrix rounded row by row (or column by column) for an exact product, see
`cellrepro.arithmetic.kernels.products`. What it leaves out of a number is up to half a unit of the
largest number of the row: too much where large numbers of one matrix meet zeros of the other.

Let A1 and B1 be slices of n bits; of row i of A, d_i the largest number left out, S_i a bound of
the sum of magnitudes, a_i the largest of them and n_i the count of those that are not 0; and
d_j, S_j, b_j, n_j the same of column j of B. By the triangle inequality, and as nothing is left out
of a zero,

    |AB - A1 B1|_ij <= E_ij = d_i min(S_j, n_i b_j) + d_j min(S_i, n_j a_i),
    (|A||B|)_ij >= P_ij - E_ij    with P = |A1||B1|.

Where E <= t P the error is at most t |A||B|, but for its second order, with the tolerance t of
`Bits`: 2**-20 for a length K of 2, 2**-14 for 512, 2**-9 for 400,000, where a sum in float32 may
lose K 2**-24 by itself. (What is lost is less by far, for E takes all roundings to be the largest,
and of one sign.) Elsewhere the second slices, of what the first left out, are taken with it, and E
is made of what both leave out. Where even that is not enough (numbers of one row are 2**30 apart)
the products of single numbers, which are exact in float64, are added in halves: an error of at most
log2(K) 2**-53 |A||B|, whatever the numbers.

All that decides is exact or a fixed sequence of rounded operations, so it decides the same on every
machine; and each number of the result is decided by its own row and column alone.

Source of slices and remainders: K. Ozaki, T. Ogita, S. Oishi, S. M. Rump, Numerical Algorithms 59,
95-118 (2012).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from cellrepro.arithmetic.exact_sums import rounder
from cellrepro.arithmetic.kernels.sums import pairwise_sum
from cellrepro.arithmetic.memory import workspace

Places = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Of numbers in a stack of products: which product, row, column."""

_MOST_STEPS = 4
"""Of a long row, one number in so many is looked at first."""
_FEWEST_SAMPLED = 64
_BITS_OF_SAMPLE = 6
_MOST_IN_FLOAT32 = 2 ** (24 - 2 * _BITS_OF_SAMPLE)
"""Products of samples whose sum is exact in float32."""
_TOLERATED = 2.0**6
"""Units of a slice that are tolerated of each unit of magnitude that is looked at."""
_TOGETHER = 2**22
"""Numbers of rows and columns that are multiplied one by one at a time."""
_DEARER_ALONE = 64
"""Times that a product of a row and a column by itself costs as much as in a matrix."""


class Bits(NamedTuple):
    """How long the numbers of the two matrices may be, in bits, for products of a length."""

    left: int
    right: int
    length: int

    @property
    def step(self) -> int:
        """One number of a row in so many is looked at first."""
        return max(1, min(_MOST_STEPS, self.length // _FEWEST_SAMPLED))

    @property
    def tolerance(self) -> float:
        """The largest error of one slice, relative to the product of the magnitudes."""
        return self.step * _TOLERATED * 2.0**-self.right


class Slice(NamedTuple):
    """A stack of matrices, each row rounded for an exact product."""

    given: torch.Tensor
    """Shape (B, M, K); what is not finite is 0."""
    numbers: torch.Tensor
    """In float64."""
    shift: torch.Tensor
    """What was added and subtracted to round each row, shape (B, M, 1)."""
    is_finite: bool
    """Whether all were finite."""

    def expand(self, n_stacked: int) -> Slice:
        """The same matrix again and again."""
        given, numbers, shift = (part.expand(n_stacked, -1, -1) for part in self[:3])
        return Slice(given, numbers, shift, self.is_finite)


# -- a first look ----------------------------------------------------------------------------


def doubtful(rows: Slice, columns: Slice, bits: Bits) -> torch.Tensor | None:
    """Where a look at some numbers of each row does not show that one slice is enough.

    Below 0 there, shape (B, M, N); none where it shows it everywhere. In units of twice the power
    of two at the largest of a row, each number rounded down to 6 bits, the sum over some of the
    numbers is at most P; and E is at most ``2**(-n - 1) (S_i + S_j)``. So what is not doubtful
    is not too far off by E and P either.
    """
    fits = -(-bits.length // bits.step) <= _MOST_IN_FLOAT32
    dtype = torch.float32 if fits else torch.float64
    of_rows = _Sample.of(rows, bits.left, bits, dtype)
    of_columns = _Sample.of(columns, bits.right, bits, dtype)
    shape = (rows.numbers.shape[0], rows.numbers.shape[1], columns.numbers.shape[1])
    excess = workspace.take(shape, "excess", dtype=dtype, device=rows.numbers.device)
    torch.bmm(of_rows.numbers, of_columns.numbers.mT, out=excess)
    excess.sub_(of_rows.needed).sub_(of_columns.needed.mT)
    return None if excess.amin().item() >= 0 else excess


class _Sample(NamedTuple):
    """Some numbers of each row of a slice as whole numbers, and what they must come to."""

    numbers: torch.Tensor
    needed: torch.Tensor
    """Of the sum of products of samples, so that what is left out of this row is tolerated."""

    @classmethod
    def of(cls, rows: Slice, n_bits: int, bits: Bits, dtype: torch.dtype) -> _Sample:
        """Every so many numbers of each row, rounded down."""
        if len(rows.numbers) > 1 and rows.numbers.stride(0) == 0:
            once = cls.of(
                Slice(*(part[:1] for part in rows[:3]), rows.is_finite), n_bits, bits, dtype
            )
            return cls(*(part.expand(len(rows.numbers), -1, -1) for part in once))
        unit = rows.shift * (2.0 ** (n_bits - 51) / 3)  # twice the power of two: see `rounder`
        is_zero = unit == 0
        inverse = unit.masked_fill_(is_zero, 1.0).reciprocal_()  # of a power of two: exact
        magnitudes = workspace.like(rows.numbers, "magnitudes", dtype=torch.float64)
        torch.abs(rows.numbers, out=magnitudes)
        total = (
            magnitudes.sum(2, keepdim=True).mul_(inverse).add_(bits.length * 2.0 ** -(n_bits + 1))
        )
        largest = 2.0**_BITS_OF_SAMPLE
        needed = total.mul_(largest * largest / (2 * bits.step * _TOLERATED)).ceil_().add_(1)
        needed.masked_fill_(is_zero, -torch.inf)
        sampled = magnitudes[:, :, :: bits.step] * (inverse * largest)
        return cls(sampled.floor_().to(dtype), needed.to(dtype))


# -- number by number ------------------------------------------------------------------------


class _Rows(NamedTuple):
    """The rows of a matrix in a slice and what it left out, with bounds of each row."""

    numbers: torch.Tensor
    """Shape (B, M, K), and so the next two."""
    first: torch.Tensor
    rest: torch.Tensor
    largest: torch.Tensor
    """Shape (B, M), and so the next three."""
    largest_rest: torch.Tensor
    n_numbers: torch.Tensor
    """Those that are not 0."""
    total: torch.Tensor
    """A bound of the sum of magnitudes; the sum over a slice is exact, in whatever order."""

    @classmethod
    def of(cls, rows: Slice) -> _Rows:
        """Of finite numbers and their slice."""
        numbers = rows.given.double()
        rest = numbers - rows.numbers
        largest_rest = _largest(rest)
        n_numbers = (numbers != 0).double().sum(2)
        total = rows.numbers.abs().sum(2) + n_numbers * largest_rest
        return cls(numbers, rows.numbers, rest, _largest(numbers), largest_rest, n_numbers, total)

    def second(self, n_bits: int) -> torch.Tensor:
        """The slice of what the first left out."""
        shift = rounder(self.largest_rest[..., None], n_bits)
        return (self.rest + shift).sub_(shift)


def _largest(rows: torch.Tensor) -> torch.Tensor:
    return rows.abs().amax(2)


def refine(
    exact: torch.Tensor, rows: Slice, columns: Slice, bits: Bits, excess: torch.Tensor
) -> None:
    """Put better numbers into the product of slices, (B, M, N), where one slice is not enough."""
    left = _Rows.of(rows)
    right = _Rows.of(columns)
    places = (excess < 0).nonzero(as_tuple=True)
    magnitude = _exact_products(places, left.first.abs(), right.first.abs())
    error = _error(places, left, right, left.largest_rest, right.largest_rest)
    places, tolerated = _those(
        error > magnitude * bits.tolerance, places, magnitude * bits.tolerance
    )
    if not len(tolerated):
        return
    second_left = left.second(bits.left)
    second_right = right.second(bits.right)
    crossed = _exact_products(places, left.first, second_right)
    crossed += _exact_products(places, second_left, right.first)
    exact[places] += crossed

    of, i, j = places
    error = torch.minimum(left.n_numbers[of, i], right.n_numbers[of, j])
    error *= _largest(second_left)[of, i] * _largest(second_right)[of, j]
    error += _error(
        places, left, right, _largest(left.rest - second_left), _largest(right.rest - second_right)
    )
    places, tolerated = _those(error > tolerated, places, tolerated)
    if len(tolerated):
        exact[places] = _products_in_halves(places, left.numbers, right.numbers)


def _those(
    chosen: torch.Tensor, places: Places, numbers: torch.Tensor
) -> tuple[Places, torch.Tensor]:
    of, i, j = places
    return (of[chosen], i[chosen], j[chosen]), numbers[chosen]


def _error(
    places: Places, left: _Rows, right: _Rows, of_rows: torch.Tensor, of_columns: torch.Tensor
) -> torch.Tensor:
    """E where at most ``of_rows`` and ``of_columns`` is left out of a row and a column."""
    of, i, j = places
    in_rows = torch.minimum(left.total[of, i], right.n_numbers[of, j] * left.largest[of, i])
    in_columns = torch.minimum(right.total[of, j], left.n_numbers[of, i] * right.largest[of, j])
    return of_rows[of, i] * in_columns + of_columns[of, j] * in_rows


def _exact_products(places: Places, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Products of slices, all of them or one by one: their sums are exact, in whatever order."""
    if len(places[0]) * _DEARER_ALONE > len(rows) * rows.shape[1] * columns.shape[1]:
        return torch.bmm(rows, columns.mT)[places]
    return _products_in_halves(places, rows, columns)


def _products_in_halves(places: Places, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Products of single rows and columns, added in halves."""
    sums = [
        pairwise_sum(rows[of, i] * columns[of, j], [1])
        for of, i, j in _in_parts(places, rows.shape[2])
    ]
    return torch.cat(sums)


def _in_parts(places: Places, length: int) -> Iterator[Places]:
    n_together = max(1, _TOGETHER // length)
    of, i, j = (axis.split(n_together) for axis in places)
    yield from zip(of, i, j, strict=True)
