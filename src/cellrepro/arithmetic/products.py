"""Products of matrices that no order of additions can change.

Each row of the left matrix and each column of the right one is rounded to multiples of a power of
two, so few bits long that every partial sum of their products has at most 53 bits. A product in
float64 is then exact, whatever the library, its blocks, threads and fused operations, and it is
rounded to float32 once.

Source: K. Ozaki, T. Ogita, S. Oishi, S. M. Rump, Numerical Algorithms 59, 95-118 (2012), with one
slice of each matrix.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from cellrepro.arithmetic.powers_of_two import n_bits_of_count, power_of_two_below
from cellrepro.arithmetic.workspace import workspace
from cellrepro.errors import BadInput

_BITS_OF_DOUBLE = 53
_BLOCK = 2**20
"""Numbers of a result that are computed at a time: 8 MB of float64."""


class _Bits(NamedTuple):
    """How long the numbers of the two matrices may be, in bits."""

    left: int
    right: int


def bits_of_factors(length: int) -> _Bits:
    """How many bits the numbers of two matrices may have, so that their product is exact.

    >>> bits_of_factors(1024)
    _Bits(left=22, right=21)
    """
    together = _BITS_OF_DOUBLE - n_bits_of_count(length)
    right = together // 2
    return _Bits(left=together - right, right=right)


def product(
    left: torch.Tensor, right: torch.Tensor, *, added: torch.Tensor | None = None
) -> torch.Tensor:
    """The product of two matrices, or of two stacks of them, with equal bits on every machine.

    Infinities and NaN stand where they stand in PyTorch's.
    """
    for matrix in (left, right):
        if matrix.dtype != torch.float32:
            raise BadInput(
                f"a portable product was given numbers of type {matrix.dtype}; expected "
                "torch.float32: train and segment in float32 (profile cpu or cuda)"
            )
    if left.dim() == 2:
        stacked_added = None if added is None else added.expand(left.shape[0], right.shape[1])[None]
        return _stacked(left[None], right[None], stacked_added)[0]
    if added is not None:
        added = added.expand(left.shape[0], left.shape[1], right.shape[2])
    return _stacked(left, right, added)


def _stacked(left: torch.Tensor, right: torch.Tensor, added: torch.Tensor | None) -> torch.Tensor:
    """Products of stacks, shapes (B, M, K) and (B, K, N), block by block."""
    n_stacked, n_rows, length = left.shape
    n_columns = right.shape[2]
    result = torch.empty((n_stacked, n_rows, n_columns), dtype=torch.float32, device=left.device)
    if result.numel() == 0 or length == 0:
        return result.zero_() if added is None else result.copy_(added)
    n_together = max(1, _BLOCK // (n_rows * n_columns))
    n_rows_together = n_rows if n_together > 1 else max(1, min(n_rows, _BLOCK // n_columns))
    for first in range(0, n_stacked, n_together):
        of_stack = slice(first, min(n_stacked, first + n_together))
        columns = _Factor.of_columns(right[of_stack], bits_of_factors(length).right)
        for begin in range(0, n_rows, n_rows_together):
            of_rows = slice(begin, min(n_rows, begin + n_rows_together))
            rows = _Factor.of_rows(left[of_stack, of_rows], bits_of_factors(length).left)
            block = result[of_stack, of_rows]
            _multiply_into(
                block, rows, columns, None if added is None else added[of_stack, of_rows]
            )
            if not (rows.is_finite and columns.is_finite):
                _put_not_finite(block, left[of_stack, of_rows], right[of_stack])
    return result


class _Factor(NamedTuple):
    """A stack of matrices, rounded for an exact product."""

    numbers: torch.Tensor
    """Of the shape of the stack; what is not finite is 0."""
    is_finite: bool
    """Whether all were finite."""

    @classmethod
    def of_rows(cls, matrices: torch.Tensor, n_bits: int) -> _Factor:
        """Round each row of matrices, shape (B, M, K)."""
        return cls._rounded(matrices, n_bits, role="rows")

    @classmethod
    def of_columns(cls, matrices: torch.Tensor, n_bits: int) -> _Factor:
        """Round each column of matrices, shape (B, K, N)."""
        return cls(*(cls._rounded(matrices.transpose(1, 2), n_bits, role="columns"))).transposed()

    def transposed(self) -> _Factor:
        """Rows and columns exchanged."""
        return self._replace(numbers=self.numbers.transpose(1, 2))

    @classmethod
    def _rounded(cls, matrices: torch.Tensor, n_bits: int, *, role: str) -> _Factor:
        """Round each row to multiples of a power of two, at most ``n_bits`` bits long.

        A number plus 1.5 * 2**52 of these multiples is rounded to a whole number of them by the
        addition itself, and the subtraction is exact.
        """
        if len(matrices) > 1 and matrices.stride(0) == 0:  # the same matrix again and again
            once = cls._rounded(matrices[:1], n_bits, role=role)
            return once._replace(numbers=once.numbers.expand(len(matrices), -1, -1))
        largest = matrices.abs().amax(dim=2, keepdim=True)
        is_finite = bool(largest.isfinite().all())
        if not is_finite:
            matrices = torch.where(matrices.isfinite(), matrices, 0.0)
            largest = matrices.abs().amax(dim=2, keepdim=True)
        shifter = power_of_two_below(largest) * (3 * 2.0 ** (_BITS_OF_DOUBLE - 1 - n_bits))
        numbers = workspace.like(matrices, role, dtype=torch.float64)
        numbers.copy_(matrices)
        numbers.add_(shifter)
        numbers.sub_(shifter)
        return cls(numbers, is_finite)


def _multiply_into(
    block: torch.Tensor, rows: _Factor, columns: _Factor, added: torch.Tensor | None
) -> None:
    """Write the product of a block; in float64 it is exact."""
    exact = workspace.take(block.shape, "product", dtype=torch.float64, device=block.device)
    torch.bmm(rows.numbers, columns.numbers, out=exact)
    if added is not None:
        exact.add_(added)
    block.copy_(exact)


def _put_not_finite(block: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """Put infinities and NaN where a product in float64 has them: no order of its sums matters, as
    products of float32 numbers cannot become infinite in float64."""
    plain = torch.bmm(left.double(), right.double())
    is_nan = plain.isnan()
    is_infinite = plain.isinf()
    block.masked_fill_(is_nan, torch.nan)
    block.copy_(torch.where(is_infinite, plain.float(), block))
