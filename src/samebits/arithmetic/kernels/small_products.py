"""Small products of matrices, as `samebits.arithmetic.kernels.products` makes them, by NumPy.

A call of PyTorch costs more than the arithmetic of a few hundred numbers, and one of NumPy a third
of that. The bits are the same: all is exact, or one rounded operation after the other. Numbers for
which one slice is not enough are found and refined as `samebits.arithmetic.kernels.sliced_products`
says, in all matrices of a stack at a time.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from samebits.arithmetic.exact_sums import BITS_OF_DOUBLE, EXPONENT_OF_DOUBLE
from samebits.arithmetic.kernels.sliced_products import Bits
from samebits.arithmetic.kernels.sums import sum_in_halves
from samebits.arithmetic.memory import workspace

_MOST_OF_ONE_THREAD = 2**18
"""Single products of two matrices above which NumPy's library starts threads of its own."""
_Matrices: TypeAlias = NDArray[Any]
"""A stack of them, in float32 or float64."""

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
    magnitudes: _Matrices
    total: _Matrices
    bits: Bits

    @classmethod
    def of(cls, right: torch.Tensor, bits: Bits) -> SmallColumns | None:
        """None where a number is not finite. It lies in memory that the next one takes."""
        columns = _Slice.of(_array(right), bits.right, axis=1)
        if columns is None:
            return None
        magnitudes = _magnitudes(columns.numbers, "magnitudes of columns")
        return cls(columns, magnitudes, columns.total(magnitudes), bits)

    def kept(self) -> SmallColumns:
        """The same in memory of its own."""
        columns = self.columns._replace(numbers=self.columns.numbers.copy())
        return self._replace(columns=columns, magnitudes=self.magnitudes.copy())

    def product(
        self, left: torch.Tensor, added: torch.Tensor | None, *, in_one_slice: bool
    ) -> torch.Tensor | None:
        """The product of others, shape (B, M, K), with them; see `small_product`."""
        rows = _Slice.of(_array(left), self.bits.left, axis=2)
        if rows is None:
            return None
        exact = _product(rows.numbers, self.columns.numbers, "product")
        if not in_one_slice:
            _refine(exact, rows, self)
        result = torch.from_numpy(exact)
        if len(exact) < len(left):
            result = result.repeat(len(left), 1, 1)
        return result.float() if added is None else result.add_(added).float()


def _array(stack: torch.Tensor) -> _Matrices:
    """A stack of matrices; of the same one again and again, one."""
    array: _Matrices = stack.detach().resolve_neg().numpy()
    return array[:1] if array.strides[0] == 0 else array


class _Slice(NamedTuple):
    """Matrices rounded along an axis for an exact product, and what is known of each row."""

    given: _Matrices
    numbers: _Matrices
    unit: _Matrices
    """The power of two at the largest number, as that below with the length 1 along the axis."""
    left_out: _Matrices
    """Half a unit of the slice: what it leaves out of a number is at most this."""
    axis: int

    @classmethod
    def of(cls, given: _Matrices, n_bits: int, *, axis: int, role: str = "first") -> _Slice | None:
        """Round to numbers that are at most so long; none where one is not finite."""
        largest = _largest(given, axis)
        if not math.isfinite(np.maximum.reduce(largest, axis=None)):
            return None
        unit = (largest.astype(np.float64).view(np.int64) & _EXPONENT).view(np.float64)
        shift = unit * (3 * 2.0 ** (BITS_OF_DOUBLE - 1 - n_bits))
        numbers = workspace.array_like(given, f"{role} slice along {axis}", np.float64)
        np.add(given, shift, out=numbers)
        numbers -= shift
        return cls(given, numbers, unit, unit * 2.0**-n_bits, axis)

    def total(self, magnitudes: _Matrices) -> _Matrices:
        """A bound of the sum of magnitudes, from those of the slice, whose sum is exact."""
        total: _Matrices = np.add.reduce(magnitudes, axis=self.axis, keepdims=True)
        total += self.left_out * magnitudes.shape[self.axis]
        return total

    def second(self, n_bits: int) -> _Slice:
        """The slice of what this one leaves out."""
        rest = workspace.array_like(self.given, f"rest along {self.axis}", np.float64)
        np.subtract(self.given, self.numbers, out=rest)
        second = _Slice.of(rest, n_bits, axis=self.axis, role="second")
        assert second is not None
        return second

    def rest(self) -> _Matrices:
        """The largest number that is left out of each row."""
        rest = workspace.array_like(self.given, "rest", np.float64)
        return _largest(np.subtract(self.given, self.numbers, out=rest), self.axis)


def _refine(exact: _Matrices, rows: _Slice, right: SmallColumns) -> None:
    """Put better numbers into the product of slices where one slice is not enough."""
    columns, of_columns, total_of_columns, bits = right
    of_rows = _magnitudes(rows.numbers, "magnitudes of rows")
    total_of_rows = rows.total(of_rows)
    tolerated = _product(of_rows, of_columns, "tolerated")
    tolerated *= bits.tolerance
    error = workspace.array(exact.shape, "error", np.float64)
    in_rows = workspace.array(exact.shape, "in rows", np.float64)
    np.multiply(rows.left_out, total_of_columns, out=error)
    np.multiply(total_of_rows, columns.left_out, out=in_rows)
    error += in_rows
    if (error <= tolerated).all():
        return
    n_places = _product(_is_there(rows), _is_there(columns), "places")
    in_columns = workspace.array(exact.shape, "in columns", np.float64)
    np.multiply(n_places, 2.0 * columns.unit, out=in_columns)
    np.minimum(in_columns, total_of_columns, out=in_columns)
    np.multiply(n_places, 2.0 * rows.unit, out=in_rows)
    np.minimum(in_rows, total_of_rows, out=in_rows)
    _errors(rows.left_out, in_columns, columns.left_out, in_rows, out=error)
    is_far = error > tolerated
    if not is_far.any():
        return
    second_rows = rows.second(bits.left)
    second_columns = columns.second(bits.right)
    crossed = _product(rows.numbers, second_columns.numbers, "crossed")
    crossed += _product(second_rows.numbers, columns.numbers, "crossed back")
    crossed += exact
    np.copyto(exact, crossed, where=is_far)

    _errors(second_rows.rest(), in_columns, second_columns.rest(), in_rows, out=error)
    of_second = _largest(second_rows.numbers, 2) * _largest(second_columns.numbers, 1)
    error += np.multiply(n_places, of_second, out=of_second)
    is_far &= error > tolerated
    if is_far.any():
        place, i, j = is_far.nonzero()
        given_rows, given_columns = (
            np.broadcast_to(part.given, (len(exact), *part.given.shape[1:]))
            for part in (rows, columns)
        )
        products = given_rows[place, i].astype(np.float64) * given_columns[place, :, j]
        exact[place, i, j] = sum_in_halves(products, 1)[:, 0]


def _errors(
    of_rows: _Matrices,
    in_columns: _Matrices,
    of_columns: _Matrices,
    in_rows: _Matrices,
    *,
    out: _Matrices,
) -> None:
    """What is lost at most of each number where so much is left out of rows and columns."""
    np.multiply(of_rows, in_columns, out=out)
    out += of_columns * in_rows


def _product(left: _Matrices, right: _Matrices, role: str) -> _Matrices:
    """Products of stacks of which one may be a single matrix."""
    shape = (max(len(left), len(right)), left.shape[1], right.shape[2])
    out: _Matrices = workspace.array(shape, role, left.dtype.type)
    if left.shape[2] == 1:
        np.multiply(left, right, out=out)
        out += 0.0  # a sum of one number begins with 0, so that no zero is negative
    elif math.prod(shape[1:]) * left.shape[2] <= _MOST_OF_ONE_THREAD:
        np.matmul(left, right, out=out)
    else:
        stacks = (torch.from_numpy(stack).expand(len(out), -1, -1) for stack in (left, right))
        torch.bmm(*stacks, out=torch.from_numpy(out))
    return out


def _magnitudes(matrices: _Matrices, role: str) -> _Matrices:
    magnitudes: _Matrices = np.abs(matrices, out=workspace.array_like(matrices, role, np.float64))
    return magnitudes


def _is_there(matrices: _Slice) -> _Matrices:
    """1 where a number is not 0: sums of ones are exact up to 2**24."""
    given = matrices.given
    out = workspace.array_like(given, f"there along {matrices.axis}", np.float32)
    is_there: _Matrices = np.not_equal(given, 0, out=out)
    return is_there


def _largest(matrices: _Matrices, axis: int) -> _Matrices:
    magnitudes = workspace.array_like(matrices, "magnitudes", matrices.dtype.type)
    np.abs(matrices, out=magnitudes)
    largest: _Matrices = np.maximum.reduce(magnitudes, axis=axis, keepdims=True)
    return largest
