"""Small products of matrices, as `samebits.arithmetic.kernels.products` makes them, by NumPy.

A call of PyTorch costs more than the arithmetic of a few hundred numbers, and one of NumPy a third
of that. The bits are the same: all is exact, or one rounded operation after the other. Numbers for
which one slice is not enough are found and refined as `samebits.arithmetic.kernels.sliced_products`
says, in all matrices of a stack at a time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from samebits.arithmetic.exact_sums import BITS_OF_DOUBLE, EXPONENT_OF_DOUBLE
from samebits.arithmetic.kernels.sliced_products import Bits
from samebits.arithmetic.kernels.sums import sum_in_halves

_EXPONENT = np.int64(EXPONENT_OF_DOUBLE)


def small_product(
    left: torch.Tensor,
    right: torch.Tensor,
    added: torch.Tensor | None,
    bits: Bits,
    *,
    in_one_slice: bool,
) -> torch.Tensor | None:
    """Products of stacks on a processor, shapes (B, M, K) and (B, K, N).

    None where a number is not finite.
    """
    columns = SmallColumns.of(right, bits)
    return None if columns is None else columns.product(left, added, in_one_slice=in_one_slice)


class SmallColumns(NamedTuple):
    """The right factor of small products, rounded once for all of them."""

    columns: _Slice
    bits: Bits

    @classmethod
    def of(cls, right: torch.Tensor, bits: Bits) -> SmallColumns | None:
        """None where a number is not finite."""
        columns = _Slice.of(_array(right), bits.right, axis=1)
        return None if columns is None else cls(columns, bits)

    def product(
        self, left: torch.Tensor, added: torch.Tensor | None, *, in_one_slice: bool
    ) -> torch.Tensor | None:
        """The product of others, shape (B, M, K), with them; see `small_product`."""
        rows = _Slice.of(_array(left), self.bits.left, axis=2)
        if rows is None:
            return None
        exact = np.matmul(rows.numbers, self.columns.numbers)
        if not in_one_slice:
            _refine(exact, rows, self.columns, self.bits)
        if len(exact) < len(left):
            exact = exact.repeat(len(left), 0)
        result = torch.from_numpy(exact)
        if added is not None:
            result.add_(added)
        return result.float()


def _array(stack: torch.Tensor) -> NDArray[np.float32]:
    """A stack of matrices; of the same one again and again, one."""
    array: NDArray[np.float32] = stack.detach().resolve_neg().numpy()
    return array[:1] if array.strides[0] == 0 else array


class _Slice(NamedTuple):
    """Matrices rounded along an axis for an exact product, and what is known of each row."""

    given: NDArray[np.float32 | np.float64]
    numbers: NDArray[np.float64]
    unit: NDArray[np.float64]
    """The power of two at the largest number, as the two below with the length 1 along the axis."""
    left_out: NDArray[np.float64]
    """Half a unit of the slice: what it leaves out of a number is at most this."""
    axis: int

    @classmethod
    def of(cls, given: NDArray[np.float32 | np.float64], n_bits: int, *, axis: int) -> _Slice | None:
        """Round to numbers that are at most so long; none where one is not finite."""
        largest = np.abs(given).max(axis=axis, keepdims=True)
        if not math.isfinite(largest.max()):
            return None
        unit = (largest.astype(np.float64).view(np.int64) & _EXPONENT).view(np.float64)
        shift = unit * (3 * 2.0 ** (BITS_OF_DOUBLE - 1 - n_bits))
        numbers = given + shift
        numbers -= shift
        return cls(given, numbers, unit, unit * 2.0**-n_bits, axis)

    def total(self, magnitudes: NDArray[np.float64]) -> NDArray[np.float64]:
        """A bound of the sum of magnitudes, from those of the slice, whose sum is exact."""
        total: NDArray[np.float64] = magnitudes.sum(axis=self.axis, keepdims=True)
        total += self.left_out * magnitudes.shape[self.axis]
        return total

    def rest(self, n_bits: int) -> _Slice:
        """The second slice: of what this one leaves out."""
        rest = self.given - self.numbers
        second = _Slice.of(rest, n_bits, axis=self.axis)
        assert second is not None
        return second


def _refine(exact: NDArray[np.float64], rows: _Slice, columns: _Slice, bits: Bits) -> None:
    """Put better numbers into the product of slices where one slice is not enough."""
    of_rows = np.abs(rows.numbers)
    of_columns = np.abs(columns.numbers)
    total_of_rows = rows.total(of_rows)
    total_of_columns = columns.total(of_columns)
    error = rows.left_out * total_of_columns
    error += total_of_rows * columns.left_out
    tolerated = np.matmul(of_rows, of_columns)
    tolerated *= bits.tolerance
    is_far = error > tolerated
    if not is_far.any():
        return
    n_places = np.matmul(_is_there(rows), _is_there(columns)).astype(np.float64)
    in_columns = np.minimum(total_of_columns, n_places * (2.0 * columns.unit))
    in_rows = np.minimum(total_of_rows, n_places * (2.0 * rows.unit))
    is_far = rows.left_out * in_columns + columns.left_out * in_rows > tolerated
    if not is_far.any():
        return
    second_rows = rows.rest(bits.left)
    second_columns = columns.rest(bits.right)
    crossed = np.matmul(rows.numbers, second_columns.numbers)
    crossed += np.matmul(second_rows.numbers, columns.numbers)
    np.add(exact, crossed, out=exact, where=is_far)

    error = _largest(second_rows.given - second_rows.numbers, rows.axis) * in_columns
    error += _largest(second_columns.given - second_columns.numbers, columns.axis) * in_rows
    of_second = _largest(second_rows.numbers, rows.axis)
    error += n_places * (of_second * _largest(second_columns.numbers, columns.axis))
    is_far &= error > tolerated
    if is_far.any():
        place, i, j = is_far.nonzero()
        of_rows, of_columns = (
            np.broadcast_to(part.given, (len(exact), *part.given.shape[1:]))
            for part in (rows, columns)
        )
        products = of_rows[place, i].astype(np.float64) * of_columns[place, :, j]
        exact[place, i, j] = sum_in_halves(products, 1)[:, 0]


def _is_there(matrices: _Slice) -> NDArray[np.float32]:
    """1 where a number is not 0: sums of ones are exact up to 2**24."""
    is_there: NDArray[np.float32] = (matrices.given != 0).astype(np.float32)
    return is_there


def _largest(matrices: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    largest: NDArray[np.float64] = np.abs(matrices).max(axis=axis, keepdims=True)
    return largest
