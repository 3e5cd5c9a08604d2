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

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from samebits.arithmetic.exact_sums import BITS_OF_DOUBLE, power_of_two_below, rounder
from samebits.arithmetic.kernels.sums import pairwise_sum
from samebits.arithmetic.memory import workspace

_MOST_STEPS = 4
"""Of a long row, one number in so many is looked at first."""
_FEWEST_SAMPLED = 64
_MOST_IN_FLOAT32 = 2**17
"""Samples whose products are added in float32, which loses at most 2**-7 of such a sum."""
_MORE = 1.125
"""What the first look asks for beyond what it needs, for what it loses by rounding."""
_LARGEST_SCALE = 2.0**126
"""In float32; smaller numbers look smaller than they are."""
_MUCH = 1e30
"""More than any sum that is looked at."""
_FEWEST_ROWS = 64
"""Rows that are rounded together at least."""
_TOLERATED = 2.0**6
"""Units of a slice that are tolerated of each unit of magnitude that is looked at."""
_TOGETHER = 2**22
"""Numbers of rows and columns that are multiplied one by one at a time."""
_REFINED_TOGETHER = 2**17
"""Numbers of a product that are refined at a time."""
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

    @property
    def needed(self) -> float:
        """What the first look asks for of each unit of the sums of a row and of a column."""
        return _MORE / (2 * self.step * _TOLERATED)


class NotFinite(Exception):
    """A number of a factor is infinite or NaN."""


class Slice(NamedTuple):
    """A stack of matrices (B, M, K) and how each row is rounded for an exact product."""

    given: torch.Tensor
    """In float32; of the same matrix again and again, one."""
    shift: torch.Tensor
    """What is added and subtracted to round each row, shape (B, M, 1), in float64."""
    sampled: torch.Tensor
    """For `doubts`; without numbers where it does not look."""

    @classmethod
    def of(
        cls,
        matrices: torch.Tensor,
        *,
        bits: Bits,
        is_left: bool,
        role: str,
        block: int,
        with_look: bool,
    ) -> Slice:
        """Find what rounds each row, at about ``block`` numbers at a time, and with what `doubts`
        looks at them; `NotFinite` where a number is not. The slice lies in memory that the next
        one of this role takes."""
        given = matrices[:1] if is_repeated(matrices) else matrices
        n_stacked, n_rows, length = given.shape
        n_sampled = -(-length // bits.step)
        dtype = torch.float32 if n_sampled <= _MOST_IN_FLOAT32 else torch.float64
        shape = (n_stacked, n_rows, n_sampled + 2 if with_look else 0)
        sampled = workspace.laid_out(given, shape, f"sampled, {role}", dtype=dtype)
        shift = torch.empty((n_stacked, n_rows, 1), dtype=torch.float64, device=given.device)
        for place in _parts(given, block):
            shift[place] = _look(given[place], sampled[place], bits, is_left=is_left)
        return cls(given, shift, sampled)

    def numbers(self, *, role: str, block: int, along: slice = slice(None)) -> torch.Tensor:
        """The rows rounded, in float64; of long ones a part."""
        given = self.given[:, :, along]
        numbers = workspace.like(given, f"slice, {role}", dtype=torch.float64)
        for place in _parts(given, block):
            shift = self.shift[place]
            numbers[place].copy_(given[place]).add_(shift).sub_(shift)
        return numbers

    def matrices(self, stack: slice) -> Slice:
        """Some of the stack."""
        return Slice(*(part[stack] for part in self))


def is_repeated(matrices: torch.Tensor) -> bool:
    """Whether a stack is the same matrix again and again."""
    return len(matrices) > 1 and matrices.stride(0) == 0


def _parts(matrices: torch.Tensor, block: int) -> Iterator[tuple[slice, slice]]:
    """Matrices and rows of a stack that have about so many numbers."""
    n_stacked, n_rows, length = matrices.shape
    n_together = max(1, block // (n_rows * length))
    n_rows_together = max(_FEWEST_ROWS, block // length)
    for first in range(0, n_stacked, n_together):
        for begin in range(0, n_rows, n_rows_together):
            yield slice(first, first + n_together), slice(begin, begin + n_rows_together)


# -- a first look ----------------------------------------------------------------------------


def _look(given: torch.Tensor, sampled: torch.Tensor, bits: Bits, *, is_left: bool) -> torch.Tensor:
    """Return what rounds rows, and write what `doubts` needs of them: some of their magnitudes, in
    units of twice the power of two at the largest, and two numbers with which a product of two such
    rows loses what it has to come to."""
    magnitudes = workspace.like(given, "magnitudes", dtype=torch.float32)
    torch.abs(given, out=magnitudes)
    largest = magnitudes.amax(2, keepdim=True)
    if not math.isfinite(largest.amax().item()):
        raise NotFinite
    power = power_of_two_below(largest)
    if sampled.shape[2]:
        scale = (0.5 / power).clamp_(max=_LARGEST_SCALE)
        n_sampled = sampled.shape[2] - 2
        torch.mul(
            magnitudes[:, :, :: bits.step], scale.to(sampled.dtype), out=sampled[:, :, :n_sampled]
        )
        total = scale.mul_(magnitudes.sum(2, keepdim=True)).masked_fill_(power == 0, -_MUCH)
        place = n_sampled if is_left else n_sampled + 1
        sampled[:, :, place, None] = total
        sampled[:, :, 2 * n_sampled + 1 - place] = -bits.needed
    n_bits = bits.left if is_left else bits.right
    return power.mul_(3 * 2.0 ** (BITS_OF_DOUBLE - 1 - n_bits))


def doubts(rows: Slice, columns: Slice, bits: Bits) -> torch.Tensor | None:
    """Where one slice may not be enough, shape (B, M, N); none where some numbers of each row show
    that it is enough everywhere.

    In units of twice the power of two at the largest number of a row, the sum over some products of
    magnitudes is at most P + E, and E is at most ``2**(-n - 1) (S_i + S_j)``. So what is not
    doubtful is not too far off by E and P either. This look may round as it likes, as it asks for
    an eighth more than it needs, which is more than it loses: `refine` decides, the
    same on every machine.
    """
    n_stacked = max(len(rows.sampled), len(columns.sampled))
    shape = (n_stacked, rows.sampled.shape[1], columns.sampled.shape[1])
    left, right = (factor.sampled.expand(n_stacked, -1, -1) for factor in (rows, columns))
    excess = workspace.take(shape, "excess", dtype=left.dtype, device=left.device)
    torch.bmm(left, right.mT, out=excess)
    of_roundings = bits.needed * bits.length * (2.0**-bits.left + 2.0**-bits.right)
    if excess.amin().item() >= of_roundings:
        return None
    return (excess >= of_roundings).logical_not_()


# -- number by number ------------------------------------------------------------------------


class _Rows(NamedTuple):
    """Rows, shape (M, K), their slice, and what is known of each, (M, 1)."""

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
    def of(cls, rows: Slice, place: int, index: torch.Tensor, n_bits: int) -> _Rows:
        """Some rows of one matrix."""
        place = min(place, len(rows.given) - 1)
        given = rows.given[place][index]
        shift = rows.shift[place][index]
        first = given.double().add_(shift).sub_(shift)
        above = shift * (2.0 ** (n_bits - 51) / 3)  # see `rounder`
        left_out = above * 2.0 ** -(n_bits + 1)
        magnitudes = first.abs()
        total = magnitudes.sum(1, keepdim=True).add_(left_out * given.shape[1])
        return cls(given, first, magnitudes, above, left_out, total)

    def at(self, index: torch.Tensor) -> _Rows:
        """Some rows of them, or all of them without a copy."""
        if len(index) == len(self.given):
            return self
        return _Rows(*(part[index] for part in self))


def refine(
    exact: torch.Tensor, is_doubtful: torch.Tensor, rows: Slice, columns: Slice, bits: Bits
) -> None:
    """Put better numbers into the product of slices, (B, M, N), where one slice is not enough."""
    n_together = max(1, _REFINED_TOGETHER // is_doubtful.shape[2])
    for place in _places(is_doubtful.flatten(1), 1).tolist():
        chosen = is_doubtful[place]
        j = _places(chosen, 0)
        of_columns = _Rows.of(columns, place, j, bits.right)
        for i in _places(chosen, 1).split(n_together):
            of_rows = _Rows.of(rows, place, i, bits.left)
            numbers = _Numbers(_at(chosen, i, j), i, j, of_rows, of_columns)
            _refine_matrix(exact[place], numbers, bits)


class _Numbers(NamedTuple):
    """Numbers of one product, and the rows and columns in which they stand."""

    chosen: torch.Tensor
    """Which ones, shape (rows, columns)."""
    i: torch.Tensor
    """Where the rows stand in the product."""
    j: torch.Tensor
    rows: _Rows
    columns: _Rows

    def only(
        self, chosen: torch.Tensor, *known: torch.Tensor
    ) -> tuple[_Numbers, list[torch.Tensor]]:
        """Those of them that are chosen still, and what is known of each number. Where most rows or
        columns stay, all of them do, which costs less than to copy."""
        i = _places(chosen, 1)
        j = _places(chosen, 0)
        if 2 * len(i) > len(chosen):
            i = torch.arange(len(chosen), device=chosen.device)
        if 2 * len(j) > chosen.shape[1]:
            j = torch.arange(chosen.shape[1], device=chosen.device)
        numbers = _Numbers(
            _at(chosen, i, j), self.i[i], self.j[j], self.rows.at(i), self.columns.at(j)
        )
        return numbers, [_at(each, i, j) for each in known]


def _places(chosen: torch.Tensor, axis: int) -> torch.Tensor:
    """Where rows (axis 1) or columns (axis 0) stand in which a number is chosen."""
    return chosen.view(torch.uint8).amax(axis).nonzero().flatten()


def _is_any(chosen: torch.Tensor) -> bool:
    return bool(chosen.view(torch.uint8).amax().item())


def _at(matrix: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    """Some rows and columns, without a copy of all of them."""
    if len(i) < len(matrix):
        matrix = matrix[i]
    return matrix.index_select(1, j) if len(j) < matrix.shape[1] else matrix


def _refine_matrix(exact: torch.Tensor, numbers: _Numbers, bits: Bits) -> None:
    """Refine the numbers of one product of slices, shape (M, N)."""
    rows = numbers.rows
    columns = numbers.columns
    tolerated = (rows.magnitudes @ columns.magnitudes.T).mul_(bits.tolerance)
    error = rows.left_out * columns.total.T
    error += rows.total * columns.left_out.T
    is_far = numbers.chosen & (error > tolerated)
    if not _is_any(is_far):
        return
    numbers, (tolerated,) = numbers.only(is_far, tolerated)
    n_places = _n_places(numbers)
    error = _error(numbers, n_places, numbers.rows.left_out, numbers.columns.left_out)
    is_far = numbers.chosen & (error > tolerated)
    if not _is_any(is_far):
        return
    numbers, (tolerated, n_places) = numbers.only(is_far, tolerated, n_places)
    rows = numbers.rows
    columns = numbers.columns
    rest_left = rows.given.double().sub_(rows.first)
    rest_right = columns.given.double().sub_(columns.first)
    second_left = _slice(rest_left, bits.left)
    second_right = _slice(rest_right, bits.right)
    _add_crossed(exact, numbers, second_left, second_right)

    left_out = (_largest(rest_left.sub_(second_left)), _largest(rest_right.sub_(second_right)))
    error = _error(numbers, n_places, *left_out)
    error += n_places.mul_(_largest(second_left) * _largest(second_right).T)
    i, j = (numbers.chosen & (error > tolerated)).nonzero(as_tuple=True)
    if len(i):
        halves = _products_in_halves(i, j, rows.given.double(), columns.given.double())
        exact[numbers.i[i], numbers.j[j]] = halves


def _add_crossed(
    exact: torch.Tensor, numbers: _Numbers, left: torch.Tensor, right: torch.Tensor
) -> None:
    """Add products of first and second slices: their sums are exact, in whatever order, so all of
    them are multiplied, or one by one."""
    rows = numbers.rows.first
    columns = numbers.columns.first
    n_numbers = int(numbers.chosen.sum())
    if n_numbers * _DEARER_ALONE <= numbers.chosen.numel():
        i, j = numbers.chosen.nonzero(as_tuple=True)
        crossed = _products_in_halves(i, j, rows, right)
        crossed += _products_in_halves(i, j, left, columns)
        exact[numbers.i[i], numbers.j[j]] += crossed
        return
    crossed = rows @ right.T
    crossed += left @ columns.T
    crossed *= numbers.chosen
    if len(numbers.j) == exact.shape[1]:
        exact[numbers.i] += crossed
    else:
        exact[numbers.i[:, None], numbers.j] += crossed


def _error(
    numbers: _Numbers, n_places: torch.Tensor, of_rows: torch.Tensor, of_columns: torch.Tensor
) -> torch.Tensor:
    """E where at most ``of_rows`` and ``of_columns`` is left out of a row and a column."""
    rows = numbers.rows
    columns = numbers.columns
    error = torch.minimum(columns.total.T, n_places * columns.above.T).mul_(of_rows)
    error += torch.minimum(rows.total, n_places * rows.above).mul_(of_columns.T)
    return error


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


def _products_in_halves(
    i: torch.Tensor, j: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor
) -> torch.Tensor:
    """Products of single rows and columns, added in halves."""
    n_together = max(1, _TOGETHER // rows.shape[1])
    parts = zip(i.split(n_together), j.split(n_together), strict=True)
    return torch.cat([pairwise_sum(rows[a] * columns[b], [1]) for a, b in parts])
