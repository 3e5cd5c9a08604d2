"""Products of matrices: exact, in any order, as integers in Python say."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from samebits.arithmetic.kernels.products import bits_of_factors, product
from samebits.errors import BadInput

pytestmark = pytest.mark.usefixtures("one_thread")


def rounded_row(row, n_bits):
    """By its definition: whole multiples of a power of two, the even one of two."""
    largest = max(abs(Fraction(number)) for number in row)
    if largest == 0:
        return [Fraction(0)] * len(row)
    exponent = 0
    while Fraction(2) ** exponent <= largest:
        exponent += 1
    while Fraction(2) ** (exponent - 1) > largest:
        exponent -= 1
    unit = Fraction(2) ** (exponent - n_bits)
    return [round(Fraction(number) / unit) * unit for number in row]


def reference(left, right):
    """In fractions, rounded to float32 once: through float64, in which every such sum is exact."""
    bits = bits_of_factors(left.shape[1])
    rows = [rounded_row(row.tolist(), bits.left) for row in left]
    columns = [rounded_row(column.tolist(), bits.right) for column in right.T]
    exact = [[sum(x * y for x, y in zip(a, b, strict=True)) for b in columns] for a in rows]
    as_double = np.array([[float(number) for number in row] for row in exact])
    assert all(
        Fraction(float(number)) == wanted
        for row, numbers in zip(exact, as_double, strict=True)
        for wanted, number in zip(row, numbers, strict=True)
    )
    with np.errstate(over="ignore"):
        return as_double.astype(np.float32)


def matrices(n_rows, length, n_columns, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(n_rows, length, generator=generator)
    return left, torch.randn(length, n_columns, generator=generator)


def one_huge(left, right):
    left[0, 0] = 1e30
    right[1, 0] = -3e29


def with_zeros(left, right):
    left[1] = 0
    right[:, 2] = 0


def denormal(left, right):
    left *= 2.0**-140
    right *= 2.0**20


def too_large(left, right):
    left *= 2.0**120
    right *= 2.0**100


def powers_of_two(left, right):
    left.copy_(torch.sign(left) * 4)
    right.copy_(torch.sign(right) * 0.25)


@pytest.mark.parametrize("change", [None, one_huge, with_zeros, denormal, too_large, powers_of_two])
@pytest.mark.parametrize("length", [1, 2, 3, 37])
def test_equal_to_fractions(length, change):
    left, right = matrices(3, max(length, 2), 4)
    if change is not None:
        change(left, right)
    left, right = left[:, :length], right[:length]
    np.testing.assert_array_equal(product(left, right).numpy(), reference(left, right))


@pytest.mark.parametrize("length", [64, 1024, 20_000])
def test_no_order_changes_a_bit(length):
    """Also no neighbours: a row alone, in a stack, and laid out along the other axis."""
    left, right = matrices(5, length, 7)
    expected = product(left, right)
    order = torch.randperm(length, generator=torch.Generator().manual_seed(1))
    assert torch.equal(product(left[:, order], right[order]), expected)
    assert torch.equal(product(left[2:3], right)[0], expected[2])
    assert torch.equal(product(left.T.contiguous().T, right.T.contiguous().T), expected)
    stacked = product(left.expand(3, -1, -1), right.expand(3, -1, -1))
    assert torch.equal(stacked, expected.expand(3, -1, -1))


def test_large_results_are_made_block_by_block():
    left, right = matrices(1100, 3, 1000)
    whole = product(left, right, added=right[0])
    assert torch.equal(whole[1090:], product(left[1090:], right, added=right[0]))


@pytest.mark.parametrize("length", [192, 1024])
def test_as_near_as_float32(length):
    left, right = matrices(64, length, 64)
    exact = left.double() @ right.double()
    error = (product(left, right) - exact).abs().max() / exact.abs().mean()
    assert error < 1.5e-5


def test_bias_is_added_before_rounding():
    left, right = matrices(4, 8, 5)
    bias = torch.full((5,), 2.0**-20)
    exact = reference(left, right).astype(np.float64)  # rounded once already
    actual = product(left, right, added=bias).numpy()
    np.testing.assert_allclose(actual, exact + 2.0**-20, rtol=1.3e-7)


def test_not_finite_as_in_pytorch():
    left, right = matrices(6, 9, 5)
    left[0, 0] = torch.inf
    left[1, 1] = -torch.inf
    left[2, 2] = torch.nan
    left[3, 3], left[3, 4] = torch.inf, -torch.inf
    right[0, 1] = 0
    right[5, 4] = torch.inf
    left[5, 5] = 0
    expected = left.double() @ right.double()
    actual = product(left, right)
    finite = expected.isfinite()
    assert torch.equal(actual.isnan(), expected.isnan())
    assert torch.equal(actual[expected.isinf()].double(), expected[expected.isinf()])
    assert torch.allclose(actual[finite], expected[finite].float(), atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (2, 3, 0)])
def test_empty(shape):
    n_rows, length, n_columns = shape
    left, right = torch.ones(n_rows, length), torch.ones(length, n_columns)
    assert torch.equal(product(left, right), left @ right)


def test_other_types_are_refused():
    with pytest.raises(BadInput, match=r"bfloat16.*expected torch\.float32"):
        product(torch.ones(2, 2, dtype=torch.bfloat16), torch.ones(2, 2))
