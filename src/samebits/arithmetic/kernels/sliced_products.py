"""Which numbers of a product one slice leaves too far off, and the same numbers from two slices.

A slice is a matrix rounded row by row (or column by column) for an exact product, see
`samebits.arithmetic.kernels.products`. What it leaves out of a number is up to half a unit of the
largest number of the row: too much where large numbers of one matrix meet zeros of the other.

Let A1 and B1 be slices of n bits; of row i of A, d_i half a unit of the slice, S_i a bound of the
sum of magnitudes and a_i one of the largest of them; d_j, S_j, b_j the same of column j of B; and
n_ij in how many places neither of the two is 0. By the triangle inequality, and as nothing is left
out of a zero,

    |AB - A1 B1|_ij <= E_ij = d_i min(S_j, n_ij b_j) + d_j min(S_i, n_ij a_i),
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

from typing import NamedTuple

import torch

from samebits.arithmetic.exact_sums import rounder
from samebits.arithmetic.kernels.sums import pairwise_sum
from samebits.arithmetic.memory import workspace

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


class Doubts(NamedTuple):
    """Where one slice may not be enough, and what is known of the slices."""

    excess: torch.Tensor
    """Below 0 there, shape (B, M, N)."""
    rows: _Rows
    columns: _Rows


def doubts(rows: Slice, columns: Slice, bits: Bits) -> Doubts | None:
    """Look at some numbers of each row: none where they show that one slice is enough everywhere.

    In units of twice the power of two at the largest of a row, each number rounded down to 6 bits,
    the sum over some of the numbers is at most P; and E is at most ``2**(-n - 1) (S_i + S_j)``. So
    what is not doubtful is not too far off by E and P either.
    """
    fits = -(-bits.length // bits.step) <= _MOST_IN_FLOAT32
    dtype = torch.float32 if fits else torch.float64
    left = _Rows.of(rows, bits.left, "magnitudes of rows")
    right = _Rows.of(columns, bits.right, "magnitudes of columns")
    sampled_left = left.sampled(bits.step, dtype)
    sampled_right = right.sampled(bits.step, dtype)
    shape = (left.given.shape[0], left.given.shape[1], right.given.shape[1])
    excess = workspace.take(shape, "excess", dtype=dtype, device=left.given.device)
    torch.bmm(sampled_left, sampled_right.mT, out=excess)
    excess.sub_(left.needed(bits).to(dtype)).sub_(right.needed(bits).to(dtype).mT)
    return None if excess.amin().item() >= 0 else Doubts(excess, left, right)


class _Rows(NamedTuple):
    """Rows, shape (B, M, K) or (M, K), their slice, and what is known of each, (B, M, 1)."""

    given: torch.Tensor
    first: torch.Tensor
    """The slice, in float64."""
    magnitudes: torch.Tensor
    """Of the slice."""
    above: torch.Tensor
    """Twice the power of two at the largest number: all are less."""
    left_out: torch.Tensor
    """Half a unit of the slice: what it leaves out of a number is at most this."""
    total: torch.Tensor
    """A bound of the sum of magnitudes; the sum over a slice is exact, in whatever order."""

    @classmethod
    def of(cls, rows: Slice, n_bits: int, role: str) -> _Rows:
        if len(rows.given) > 1 and rows.given.stride(0) == 0:  # the same matrix again and again
            once = rows._replace(
                given=rows.given[:1], numbers=rows.numbers[:1], shift=rows.shift[:1]
            )
            parts = cls.of(once, n_bits, role)
            return cls(*(part.expand(len(rows.given), -1, -1) for part in parts))
        above = rows.shift * (2.0 ** (n_bits - 51) / 3)  # see `rounder`
        left_out = above * 2.0 ** -(n_bits + 1)
        magnitudes = workspace.like(rows.numbers, role, dtype=torch.float64)
        torch.abs(rows.numbers, out=magnitudes)
        total = magnitudes.sum(2, keepdim=True).add_(left_out * rows.given.shape[2])
        return cls(rows.given, rows.numbers, magnitudes, above, left_out, total)

    def sampled(self, step: int, dtype: torch.dtype) -> torch.Tensor:
        """Every so many numbers as whole ones, rounded down."""
        scale = 2.0**_BITS_OF_SAMPLE / self._divisor()
        return (self.magnitudes[:, :, ::step] * scale).floor_().to(dtype)

    def needed(self, bits: Bits) -> torch.Tensor:
        """What the sum over samples must come to for this row, so that what is left out of the
        numbers that it meets is tolerated."""
        unit = 4.0**_BITS_OF_SAMPLE / (2 * bits.step * _TOLERATED)
        needed = (self.total / self._divisor()).mul_(unit).ceil_().add_(1)
        return needed.masked_fill_(self.above == 0, -torch.inf)

    def _divisor(self) -> torch.Tensor:
        """A power of two, so that quotients are exact."""
        return self.above.masked_fill(self.above == 0, 1.0)

    def at(self, index: torch.Tensor) -> _Rows:
        """Some rows of (M, K), or all of them without a copy."""
        if len(index) == len(self.given):
            return self
        return _Rows(*(part[index] for part in self))


# -- number by number ------------------------------------------------------------------------


def refine(exact: torch.Tensor, found: Doubts, bits: Bits) -> None:
    """Put better numbers into the product of slices, (B, M, N), where one slice is not enough."""
    is_doubtful = found.excess < 0
    for place in is_doubtful.flatten(1).any(1).nonzero().flatten().tolist():
        rows = _Rows(*(part[place] for part in found.rows))
        columns = _Rows(*(part[place] for part in found.columns))
        _refine_matrix(exact[place], _Numbers.of(is_doubtful[place], rows, columns), bits)


class _Numbers(NamedTuple):
    """Numbers of one product, and the rows and columns in which they stand."""

    chosen: torch.Tensor
    """Which ones, shape (rows, columns)."""
    i: torch.Tensor
    """Where the rows stand in the product."""
    j: torch.Tensor
    rows: _Rows
    columns: _Rows

    @classmethod
    def of(cls, chosen: torch.Tensor, rows: _Rows, columns: _Rows) -> _Numbers:
        """Keep the rows and columns in which a number is chosen."""
        i = torch.arange(len(chosen), device=chosen.device)
        j = torch.arange(chosen.shape[1], device=chosen.device)
        return cls(chosen, i, j, rows, columns).only(chosen)

    def only(self, chosen: torch.Tensor) -> _Numbers:
        """Those of them that are chosen still."""
        i = chosen.any(1).nonzero().flatten()
        j = chosen.any(0).nonzero().flatten()
        if len(i) < len(chosen):
            chosen = chosen[i]
        if len(j) < chosen.shape[1]:
            chosen = chosen[:, j]
        return _Numbers(chosen, self.i[i], self.j[j], self.rows.at(i), self.columns.at(j))

    def places(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Row and column of each, among these rows and columns."""
        i, j = self.chosen.nonzero(as_tuple=True)
        return i, j


def _refine_matrix(exact: torch.Tensor, numbers: _Numbers, bits: Bits) -> None:
    """Refine the numbers of one product of slices, shape (M, N)."""
    magnitude = numbers.rows.magnitudes @ numbers.columns.magnitudes.T
    n_places = _n_places(numbers)
    error = _error(numbers, n_places, numbers.rows.left_out, numbers.columns.left_out)
    is_far = numbers.chosen & (error > magnitude * bits.tolerance)
    if not is_far.any():
        return
    numbers = numbers.only(is_far)
    i, j = numbers.places()
    rows = numbers.rows
    columns = numbers.columns
    rest_left = rows.given.double() - rows.first
    rest_right = columns.given.double() - columns.first
    second_left = _slice(rest_left, bits.left)
    second_right = _slice(rest_right, bits.right)
    crossed = _exact_products(i, j, rows.first, second_right)
    crossed += _exact_products(i, j, second_left, columns.first)
    exact[numbers.i[i], numbers.j[j]] += crossed

    n_places = _n_places(numbers)
    left_out = (_largest(rest_left - second_left), _largest(rest_right - second_right))
    error = _error(numbers, n_places, *left_out)
    error += n_places * (_largest(second_left) * _largest(second_right).T)
    magnitude = rows.magnitudes @ columns.magnitudes.T
    is_far = numbers.chosen & (error > magnitude * bits.tolerance)
    i, j = is_far.nonzero(as_tuple=True)
    if len(i):
        halves = _products_in_halves(i, j, rows.given.double(), columns.given.double())
        exact[numbers.i[i], numbers.j[j]] = halves


def _error(
    numbers: _Numbers, n_places: torch.Tensor, of_rows: torch.Tensor, of_columns: torch.Tensor
) -> torch.Tensor:
    """E where at most ``of_rows`` and ``of_columns`` is left out of a row and a column."""
    rows = numbers.rows
    columns = numbers.columns
    in_columns = torch.minimum(columns.total.T, n_places * columns.above.T)
    in_rows = torch.minimum(rows.total, n_places * rows.above)
    return of_rows * in_columns + of_columns.T * in_rows


def _n_places(numbers: _Numbers) -> torch.Tensor:
    """In how many places neither row nor column is 0: exact in float32 up to 2**24."""
    dtype = torch.float32 if numbers.rows.given.shape[1] < 2**24 else torch.float64
    rows = (numbers.rows.given != 0).to(dtype)
    columns = (numbers.columns.given != 0).to(dtype)
    return (rows @ columns.T).double()


def _largest(rows: torch.Tensor) -> torch.Tensor:
    return rows.abs().amax(1, keepdim=True)


def _slice(rows: torch.Tensor, n_bits: int) -> torch.Tensor:
    shift = rounder(_largest(rows), n_bits)
    return (rows + shift).sub_(shift)


def _exact_products(
    i: torch.Tensor, j: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor
) -> torch.Tensor:
    """Products of slices, all of them or one by one: their sums are exact, in whatever order."""
    if len(i) * _DEARER_ALONE > len(rows) * len(columns):
        return (rows @ columns.T)[i, j]
    return _products_in_halves(i, j, rows, columns)


def _products_in_halves(
    i: torch.Tensor, j: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor
) -> torch.Tensor:
    """Products of single rows and columns, added in halves."""
    n_together = max(1, _TOGETHER // rows.shape[1])
    parts = zip(i.split(n_together), j.split(n_together), strict=True)
    return torch.cat([pairwise_sum(rows[a] * columns[b], [1]) for a, b in parts])
