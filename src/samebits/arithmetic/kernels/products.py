"""Products of matrices that no order of additions can change.

Each row of the left matrix and each column of the right one is rounded so that sums of their
products are exact (`samebits.arithmetic.exact_sums`). A product in float64 then has the same bits
whatever the library, its blocks, threads and fused operations, and it is rounded to float32 once.

One slice of each matrix is enough for most numbers; `samebits.arithmetic.kernels.sliced_products`
finds the others, and says what the error is at most.

Source: K. Ozaki, T. Ogita, S. Oishi, S. M. Rump, Numerical Algorithms 59, 95-118 (2012).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from samebits.arithmetic.exact_sums import BITS_OF_DOUBLE, n_bits_of_count
from samebits.arithmetic.kernels.finite import all_finite
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms
from samebits.arithmetic.kernels.sliced_products import (
    Bits,
    NotFinite,
    Slice,
    doubts,
    is_repeated,
    refine,
)
from samebits.arithmetic.kernels.small_products import SmallColumns, small_product
from samebits.arithmetic.kernels.sums import pairwise_sum
from samebits.arithmetic.memory import workspace
from samebits.errors import BadInput
from samebits.replaced_functions import SharedByBlocks

FORMS = PortableForms()

_BLOCK = 2**18
"""Numbers of a factor that are computed with at a time: 2 MB of float64."""
_BLOCK_OF_GPU = 2**24
"""The same where only memory limits it."""
_MOST_KEPT = 8
"""Blocks of a stack that are rounded at once and kept while the other factor passes."""
_FEWEST_ROWS = 64
"""Rows that are multiplied together at least, and numbers of each: fewer make products slow."""
_MOST_SMALL = 2**22
"""Single products from which on the arithmetic costs more than to call it."""
_MOST_NUMBERS = 2**18
"""The same of numbers of a factor or of the result."""

_FEWEST_COLUMNS = 128
"""Columns of a product from which on its price for each of them does not fall further."""


@functools.lru_cache(maxsize=4096)
def bits_of_factors(length: int) -> Bits:
    """How many bits the numbers of two matrices may have, so that their product is exact.

    >>> bits_of_factors(1024)
    Bits(left=22, right=21, length=1024)
    """
    together = BITS_OF_DOUBLE - n_bits_of_count(length)
    right = together // 2
    return Bits(left=together - right, right=right, length=length)


_one_slice = False


@contextmanager
def one_slice() -> Iterator[None]:
    """Leave products in one slice for one block, in all threads, whatever the numbers are.

    So were all bits of Cellpose that are published (version 1 of its reference). Its products take
    gradients of pixels through unit matrices, where small ones become 0 beside large ones.
    """
    with _ONE_SLICE.in_force():
        yield


@contextmanager
def _in_one_slice() -> Iterator[None]:
    global _one_slice
    _one_slice = True
    try:
        yield
    finally:
        _one_slice = False


_ONE_SLICE = SharedByBlocks(_in_one_slice)


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


def multiplier(right: torch.Tensor) -> Callable[..., torch.Tensor]:
    """What multiplies one matrix after the other with the same one, as `product` does.

    It takes ``left`` and ``added``, and is quicker where the matrices are small.
    """
    if right.dtype == torch.float64:
        return lambda left, added=None: multiplied(left, right, added=added)
    bits = bits_of_factors(len(right))
    is_small = right.device.type == "cpu" and 0 < right.numel() <= _MOST_SMALL
    columns = SmallColumns.of(right[None], bits) if is_small else None
    if columns is not None:
        columns = columns.kept()

    def multiply(left: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        if columns is not None and 0 < len(left) * right.numel() <= _MOST_SMALL:
            result = columns.product(left[None], added, in_one_slice=_one_slice)
            if result is not None:
                return result[0]
        return product(left, right, added=added)

    return multiply


def _stacked(left: torch.Tensor, right: torch.Tensor, added: torch.Tensor | None) -> torch.Tensor:
    """Products of stacks, shapes (B, M, K) and (B, K, N), block by block."""
    n_stacked, n_rows, length = left.shape
    n_columns = right.shape[2]
    n_products = n_stacked * n_rows * length * n_columns
    if n_products == 0:
        result = left.new_zeros((n_stacked, n_rows, n_columns))
        return result if added is None else result.copy_(added)
    bits = bits_of_factors(length)
    largest = max(left.numel(), right.numel(), n_stacked * n_rows * n_columns)
    is_small = n_products <= _MOST_SMALL and largest <= _MOST_NUMBERS
    if left.device.type == "cpu" and is_small:
        small = small_product(left, right, added, bits, in_one_slice=_one_slice)
        if small is not None:
            return small
    if is_repeated(left) and added is None and n_columns < _FEWEST_COLUMNS:
        # many narrow products with one matrix are a single wide one
        together = _stacked(left[:1], right.permute(1, 0, 2).flatten(1)[None], None)
        return together.reshape(n_rows, n_stacked, n_columns).transpose(0, 1).contiguous()
    result = torch.empty((n_stacked, n_rows, n_columns), dtype=torch.float32, device=left.device)
    try:
        _multiply(left, right, added, bits, result)
    except NotFinite:
        finite_left, finite_right = (torch.where(x.isfinite(), x, 0.0) for x in (left, right))
        _multiply(finite_left, finite_right, added, bits, result)
        _put_not_finite(left, right, added, result)
    return result


def _multiply(
    left: torch.Tensor,
    right: torch.Tensor,
    added: torch.Tensor | None,
    bits: Bits,
    result: torch.Tensor,
) -> None:
    """Write products of finite numbers. The factor with fewer numbers is rounded as a whole, the
    other one in blocks that fit the cache together with what is made of them."""
    columns = right.mT
    keeps_rows = _n_distinct(left) <= _n_distinct(columns)
    kept, met = (left, columns) if keeps_rows else (columns, left)
    n_stacked, n_kept, length = kept.shape
    n_met = met.shape[1]
    block = _BLOCK if left.device.type == "cpu" else _BLOCK_OF_GPU
    n_streamed = (n_kept if is_repeated(met) else n_met) * length
    n_together = max(1, min(block // n_streamed, 2 * block // (n_kept * n_met)))
    n_met_together = max(_FEWEST_ROWS, min(block // length, 2 * block // n_kept))
    sliced = functools.partial(Slice.of, bits=bits, block=block, with_look=not _one_slice)
    n_kept_together = n_together
    if is_repeated(kept) or kept.numel() <= _MOST_KEPT * block:
        n_kept_together = n_stacked
    of_kept = numbers = None
    for first in range(0, n_stacked, n_together):
        stack = slice(first, min(n_stacked, first + n_together))
        if of_kept is None or numbers is None or n_kept_together < n_stacked:
            part = kept[first : first + n_kept_together]
            of_kept = sliced(part, is_left=keeps_rows, role="kept")
            numbers = of_kept.numbers(role="kept", block=block)
        beside = slice(None) if len(numbers) == 1 or n_kept_together < n_stacked else stack
        of_part = of_kept.matrices(beside)
        for begin in range(0, n_met, n_met_together):
            of_block = slice(begin, min(n_met, begin + n_met_together))
            of_met = sliced(met[stack, of_block], is_left=not keeps_rows, role="met")
            exact = _exact(
                numbers[beside], of_met, stack.stop - first, keeps_rows=keeps_rows, block=block
            )
            if not _one_slice:
                factors = (of_part, of_met) if keeps_rows else (of_met, of_part)
                found = doubts(*factors, bits)
                if found is not None:
                    refine(exact, found, *factors, bits)
            whole = slice(None)
            place = (stack, whole, of_block) if keeps_rows else (stack, of_block, whole)
            if added is not None:
                exact.add_(added[place])
            result[place].copy_(exact)


def _n_distinct(matrices: torch.Tensor) -> int:
    """Numbers of a stack; of the same matrix again and again, of one."""
    return matrices[:1].numel() if is_repeated(matrices) else matrices.numel()


def _exact(
    kept: torch.Tensor, met: Slice, n_stacked: int, *, keeps_rows: bool, block: int
) -> torch.Tensor:
    """The product of slices in float64. Sums of parts of long rows are exact, too."""
    n_kept, length = kept.shape[1:]
    n_met = met.given.shape[1]
    shape = (n_stacked, n_kept, n_met) if keeps_rows else (n_stacked, n_met, n_kept)
    exact = workspace.take(shape, "product", dtype=torch.float64, device=kept.device)
    n_together = max(_FEWEST_ROWS, block // (len(met.given) * n_met))
    for begin in range(0, length, n_together):
        along = slice(begin, begin + n_together)
        numbers = met.numbers(role="met", block=block, along=along)
        factors = (kept[:, :, along], numbers) if keeps_rows else (numbers, kept[:, :, along])
        rows, columns = (factor.expand(n_stacked, -1, -1) for factor in factors)
        if begin == 0:
            torch.bmm(rows, columns.mT, out=exact)
        else:
            exact.baddbmm_(rows, columns.mT)
    return exact


def _put_not_finite(
    left: torch.Tensor, right: torch.Tensor, added: torch.Tensor | None, result: torch.Tensor
) -> None:
    """Put what is not finite into the product of the finite numbers."""
    n_stacked, n_rows, n_columns = result.shape
    n_together = max(1, _BLOCK // n_columns)
    for place in range(n_stacked):
        for begin in range(0, n_rows, n_together):
            of_rows = slice(begin, begin + n_together)
            (numbers,) = _not_finite(left[place, None, of_rows], right[place, None])
            if added is not None:
                numbers += added[place, of_rows]
            block = result[place, of_rows]
            block.copy_(torch.where(numbers.isfinite(), block, numbers))


def _not_finite(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """A product in float64, which is infinite or NaN where float32's is: no order of its sums
    matters to that, as products of float32 numbers cannot become infinite in float64."""
    return torch.bmm(left.double(), right.double())


# -- other numbers -------------------------------------------------------------------------


def multiplied(
    left: torch.Tensor, right: torch.Tensor, *, added: torch.Tensor | None = None
) -> torch.Tensor:
    """The product of two matrices, or stacks of them, of any type of real numbers.

    In 16 bits it is that of float32, rounded to them; in float64 single products are added in
    halves; whole numbers are exact.
    """
    dtype = left.dtype
    if right.dtype != dtype or (added is not None and added.dtype != dtype):
        raise NoPortableForm(
            f"has a portable form for one type of numbers, and got {dtype} beside another"
        )
    if dtype == torch.float32:
        return product(left, right, added=added)
    if dtype in (torch.float16, torch.bfloat16):
        more = None if added is None else added.float()
        return product(left.float(), right.float(), added=more).to(dtype)
    if dtype == torch.float64:
        result = _product_of_doubles(left, right)
    else:
        result = torch.matmul(left, right)
    return result if added is None else result + added


_MOST_PRODUCTS_OF_DOUBLES = 2**30
_PRODUCTS_TOGETHER = 2**22


def _product_of_doubles(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Every product by itself, then sums in halves: for matrices that are not large."""
    n_products = a.numel() * b.shape[-1]
    if n_products > _MOST_PRODUCTS_OF_DOUBLES:
        raise NoPortableForm(
            f"has a portable form for float64 up to {_MOST_PRODUCTS_OF_DOUBLES} products, and "
            f"would take {n_products}; use float32"
        )
    of_a_row = max(1, n_products // max(1, a.shape[-2]))
    blocks = [
        pairwise_sum(rows[..., :, :, None] * b[..., None, :, :], [-2])
        for rows in a.split(max(1, _PRODUCTS_TOGETHER // of_a_row), dim=-2)
    ]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=-2)


# -- the operations ------------------------------------------------------------------------


@FORMS.of("mm", "bmm", in_any_type=True)
def _mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return multiplied(a, b)


@FORMS.of("addmm", "baddbmm", in_any_type=True)
def _addmm(
    added: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    if not a.is_floating_point():
        beta = int(beta)  # as PyTorch does
        alpha = int(alpha)
    if beta == 1 and alpha == 1:
        return multiplied(a, b, added=added)
    if a.dtype in (torch.float16, torch.bfloat16):
        single = _addmm(added.float(), a.float(), b.float(), beta=beta, alpha=alpha)
        return single.to(a.dtype)
    scaled = multiplied(a, b) * alpha
    if scaled.dtype == torch.float32 and not all_finite(scaled):
        smaller = multiplied(a * _SMALLER, b) * alpha / _SMALLER
        scaled = torch.where(scaled.isfinite(), scaled, smaller)
    return scaled if beta == 0 else scaled + added * beta


_SMALLER = 2.0**-64
"""By which a product is made smaller that is too large before it is multiplied by ``alpha``."""


@FORMS.of("addbmm", in_any_type=True)
def _addbmm(
    added: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    """The sum over a stack is part of the product."""
    rows = a.transpose(0, 1).flatten(1)
    return _addmm(added, rows, b.flatten(0, 1), beta=beta, alpha=alpha)


@FORMS.of("mv", in_any_type=True)
def _mv(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return multiplied(a, b[:, None])[:, 0]


@FORMS.of("addmv", in_any_type=True)
def _addmv(
    added: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    column = added.expand(len(a))[:, None]
    return _addmm(column, a, b[:, None], beta=beta, alpha=alpha)[:, 0]


@FORMS.of("dot", "vdot", in_any_type=True)
def _dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return multiplied(a[None], b[:, None])[0, 0]


@FORMS.of("_trilinear", in_any_type=True)
def _trilinear(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> torch.Tensor:
    """Products of three numbers, of which the first two are rounded, summed over some axes."""
    del unroll_dim  # only saves memory
    given = zip((a, b, c), (expand1, expand2, expand3), strict=True)
    first, second, third = (_with_axes(numbers, axes) for numbers, axes in given)
    at_first = [axis for axis in sumdim if axis in expand3]
    at_last = [axis for axis in sumdim if axis not in expand3]
    total = _contracted(_contracted(first, second, at_first), third, at_last)
    return total.squeeze(tuple(sumdim))


def _with_axes(numbers: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """Numbers with further axes of length 1."""
    for axis in sorted(axes):
        numbers = numbers.unsqueeze(axis)
    return numbers


def _contracted(left: torch.Tensor, right: torch.Tensor, summed: Sequence[int]) -> torch.Tensor:
    """Broadcast products of numbers, summed over axes that stay with a length of 1."""
    shape = torch.broadcast_shapes(left.shape, right.shape)
    others = [axis for axis in range(len(shape)) if axis not in summed]
    of_left = [axis for axis in others if right.shape[axis] == 1]
    of_right = [axis for axis in others if left.shape[axis] == 1 and axis not in of_left]
    of_both = [axis for axis in others if axis not in (*of_left, *of_right)]

    def stacked(numbers: torch.Tensor, *axes: Sequence[int]) -> torch.Tensor:
        length = [n if axis in summed else -1 for axis, n in enumerate(shape)]
        in_order = numbers.expand(length).permute(*(axis for of in axes for axis in of))
        return in_order.reshape([math.prod(shape[axis] for axis in of) for of in axes[:3]])

    rows = stacked(left, of_both, of_left, summed, of_right)
    columns = stacked(right, of_both, summed, of_right, of_left)
    order = [*of_both, *of_left, *of_right, *summed]
    sizes = [1 if axis in summed else shape[axis] for axis in order]
    return (
        multiplied(rows, columns)
        .reshape(sizes)
        .permute([order.index(i) for i in range(len(order))])
    )
