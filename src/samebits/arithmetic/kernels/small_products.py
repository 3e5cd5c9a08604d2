"""Small products of matrices, as `samebits.arithmetic.kernels.products` makes them, by NumPy.

A call of PyTorch costs more than the arithmetic of a few hundred numbers, and one of NumPy a third
of that. The bits are the same: all is exact, or one rounded operation after the other.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from samebits.arithmetic.exact_sums import BITS_OF_DOUBLE, EXPONENT_OF_DOUBLE
from samebits.arithmetic.kernels.sliced_products import Bits

_EXPONENT = np.int64(EXPONENT_OF_DOUBLE)
_MORE = 1 + 2.0**-20
"""What is said not to be doubtful here is not too far off in any order of its roundings."""


def small_product(
    left: torch.Tensor,
    right: torch.Tensor,
    added: torch.Tensor | None,
    bits: Bits,
    *,
    in_one_slice: bool,
) -> torch.Tensor | None:
    """Products of stacks on a processor, shapes (B, M, K) and (B, K, N), in one slice.

    None where a number is not finite, or one slice may not be enough.
    """
    columns = SmallColumns.of(right, bits)
    return None if columns is None else columns.product(left, added, in_one_slice=in_one_slice)


class SmallColumns(NamedTuple):
    """The right factor of small products, rounded once for all of them."""

    numbers: NDArray[np.float64]
    """Shape (B, K, N)."""
    magnitudes: NDArray[np.float64]
    bounds: _Bounds
    bits: Bits

    @classmethod
    def of(cls, right: torch.Tensor, bits: Bits) -> SmallColumns | None:
        """None where a number is not finite."""
        columns = _Slice.of(_array(right), bits.right, axis=1)
        if columns is None:
            return None
        magnitudes = np.abs(columns.numbers)
        return cls(columns.numbers, magnitudes, columns.bounds(magnitudes, axis=1), bits)

    def product(
        self, left: torch.Tensor, added: torch.Tensor | None, *, in_one_slice: bool
    ) -> torch.Tensor | None:
        """The product of others, shape (B, M, K), with them; see `small_product`."""
        rows = _Slice.of(_array(left), self.bits.left, axis=2)
        if rows is None:
            return None
        exact = np.matmul(rows.numbers, self.numbers)
        if not in_one_slice:
            magnitudes = np.abs(rows.numbers, out=rows.numbers)
            of_rows = rows.bounds(magnitudes, axis=2)
            error = of_rows.left_out * self.bounds.total
            error += of_rows.total * self.bounds.left_out
            tolerated = np.matmul(magnitudes, self.magnitudes)
            tolerated *= self.bits.tolerance
            if (error > tolerated).any():
                return None
        result = torch.from_numpy(exact)
        if added is not None:
            result.add_(added)
        return result.float()


class _Bounds(NamedTuple):
    """Of each row: of what was left out of a number, and of the sum of magnitudes."""

    left_out: NDArray[np.float64]
    total: NDArray[np.float64]


def _array(tensor: torch.Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.detach().resolve_neg().numpy()
    return array


class _Slice(NamedTuple):
    """Matrices rounded along an axis for an exact product."""

    numbers: NDArray[np.float64]
    shift: NDArray[np.float64]

    @classmethod
    def of(cls, matrices: NDArray[np.float32], n_bits: int, *, axis: int) -> _Slice | None:
        """Round to numbers that are at most so long; none where one is not finite."""
        largest = np.abs(matrices).max(axis=axis, keepdims=True)
        if not math.isfinite(largest.max()):
            return None
        powers = (largest.astype(np.float64).view(np.int64) & _EXPONENT).view(np.float64)
        shift = powers * (3 * 2.0 ** (BITS_OF_DOUBLE - 1 - n_bits))
        numbers = matrices + shift
        numbers -= shift
        return cls(numbers, shift)

    def bounds(self, magnitudes: NDArray[np.float64], *, axis: int) -> _Bounds:
        """Bounds along an axis, from the magnitudes of the numbers."""
        left_out = self.shift * (_MORE * 2.0**-BITS_OF_DOUBLE)  # at least half a unit
        total = magnitudes.sum(axis=axis, keepdims=True)
        total += left_out * magnitudes.shape[axis]
        return _Bounds(left_out, total)
