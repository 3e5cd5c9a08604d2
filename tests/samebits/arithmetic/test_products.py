"""Products of matrices: exact, in any order, as integers in Python say."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from samebits.arithmetic.kernels import products, sliced_products
from samebits.arithmetic.kernels.products import bits_of_factors, one_slice, product
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
    with one_slice():
        actual = product(left, right)
    np.testing.assert_array_equal(actual.numpy(), reference(left, right))


# -- the error, whatever the numbers ---------------------------------------------------------


def usual(draw, *shape):
    return draw(*shape)


def of_every_size(draw, *shape):
    return draw(*shape) * 10.0 ** (draw(*shape) * 12).clamp(-36, 36)


def smallest(draw, *shape):
    return draw(*shape) * 2.0**-130 * 10.0 ** (draw(*shape) * 4).clamp(-9, 9)


def with_few(draw, *shape):
    return torch.where(draw(*shape) > 1, draw(*shape), 0.0)


def with_outliers(draw, *shape):
    return torch.where(draw(*shape) > 1.5, draw(*shape) * 1e20, draw(*shape))


def with_gaps(draw, *shape):
    """Zeros beside numbers of every size."""
    return torch.where(draw(*shape) > 0.3, of_every_size(draw, *shape), 0.0)


def cancelling(draw, *shape):
    """Each number, and nearly its opposite."""
    half = draw(shape[0], shape[1])
    half[:, 1::2] = -half[:, : shape[1] // 2 * 2 : 2] * (1 + 2.0**-20)
    return half


KINDS = (usual, of_every_size, smallest, with_few, with_outliers, with_gaps, cancelling)


def largest_error(left, right):
    """Beyond the last rounding, relative to the tolerated share of the product of magnitudes.

    Products of float32 numbers are exact in float64, and `math.fsum` rounds their sum once.
    """
    terms = (left.double()[:, :, None] * right.double()[None]).permute(0, 2, 1).flatten(0, 1)
    largest = 0.0
    for row, number in zip(terms.tolist(), product(left, right).flatten().tolist(), strict=True):
        exact = math.fsum(row)
        if math.isinf(number):
            assert abs(exact) > 2.0**127
            continue
        beyond = abs(number - exact) - abs(exact) * 2.0**-24 * (1 + 2.0**-20) - 2.0**-150
        if beyond > 0:
            largest = max(largest, beyond / math.fsum(map(abs, row)))
    return largest / bits_of_factors(left.shape[1]).tolerance


def products_of_every_kind(lengths=(1, 2, 3, 20, 130)):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    for length in lengths:
        for left in KINDS:
            for right in KINDS:
                yield left(draw, 3, length), right(draw, 4, length).T


@pytest.mark.parametrize(
    ("length", "tolerance"), [(2, 2.0**-20), (512, 2.0**-14), (400_000, 2.0**-9)]
)
def test_what_is_tolerated(length, tolerance):
    """A sum of so many numbers in float32 may lose 2**-24 of the magnitudes for each of them."""
    assert bits_of_factors(length).tolerance == tolerance


@pytest.mark.parametrize("most_small", [0, products._MOST_SMALL], ids=["large", "small"])
def test_the_error_is_bounded_whatever_the_numbers(monkeypatch, most_small):
    """Relative to the product of the magnitudes, number by number."""
    monkeypatch.setattr(products, "_MOST_SMALL", most_small)
    monkeypatch.setattr(sliced_products, "_DEARER_ALONE", 2)  # so that both ways are taken
    errors = [largest_error(left, right) for left, right in products_of_every_kind()]
    assert 0 < max(errors) <= 1


def test_the_first_look_decides_nothing(monkeypatch):
    """With every number doubtful, the bits are the same: it passes over none that one slice leaves
    too far off. Also in long rows, of which it sees some numbers only."""
    monkeypatch.setattr(products, "_MOST_SMALL", 0)
    pairs = [*products_of_every_kind((20, 700))]
    looked_at = [product(left, right) for left, right in pairs]

    def everything(rows, columns, bits):
        shape = (len(rows.given), rows.given.shape[1], columns.given.shape[1])
        return torch.ones(shape, dtype=torch.bool)

    monkeypatch.setattr(products, "doubts", everything)
    for (left, right), expected in zip(pairs, looked_at, strict=True):
        assert torch.equal(product(left, right), expected)


def test_a_small_number_beside_a_large_one_is_not_lost():
    left = torch.tensor([[1e9, 1.0], [1.0, 1e9]])
    right = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    assert product(left, right).tolist() == [[1, 1e9], [1e9, 1]]
    with one_slice():
        assert product(left, right).tolist() == [[0, 1e9], [1e9, 0]]


def test_a_gradient_over_many_pixels_is_as_near_as_plain():
    """Of pixels, few of them large, where the gradient is none."""
    generator = torch.Generator().manual_seed(0)
    gradient = torch.randn(2, 100_000, generator=generator)
    pixels = torch.randn(100_000, 3, generator=generator)
    gradient[:, ::10_000] = 0
    pixels[::10_000] *= 1e5
    exact = gradient.double() @ pixels.double()
    plain = ((gradient @ pixels) - exact).abs().max()
    assert (product(gradient, pixels) - exact).abs().max() <= 2 * plain
    with one_slice():
        assert (product(gradient, pixels) - exact).abs().max() > 100 * plain


def test_numbers_are_refined_without_regard_to_their_neighbours(monkeypatch):
    """Row by row, in a stack, by the other code, and on several threads."""
    left, right = matrices(40, 300, 50)
    left *= 10.0 ** (torch.arange(300) % 7)
    right[torch.arange(300) % 7 > 2] = 0
    right[:, ::3] = 0
    right[7, ::3] = 1
    expected = product(left, right)
    with one_slice():
        assert not torch.equal(product(left, right), expected)
    assert torch.equal(torch.cat([product(row[None], right) for row in left]), expected)
    assert torch.equal(product(left.expand(3, -1, -1), right.expand(3, -1, -1))[2], expected)
    monkeypatch.setattr(products, "_MOST_SMALL", 2**30)
    assert torch.equal(product(left, right), expected)
    monkeypatch.setattr(products, "_MOST_SMALL", 0)
    assert torch.equal(torch.cat([product(row[None], right) for row in left]), expected)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    nearly = product(left[:, order], right[order])  # sums of single products have an order
    assert torch.allclose(nearly, expected, rtol=2.0**-22, atol=0)


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


@pytest.mark.parametrize("most_small", [0, products._MOST_SMALL], ids=["large", "small"])
def test_no_zero_is_negative(monkeypatch, most_small):
    """Not even of a single product, to which nothing is added."""
    monkeypatch.setattr(products, "_MOST_SMALL", most_small)
    for length in (1, 2):
        zeros = product(torch.full((2, length), -1.0), torch.zeros(length, 3))
        assert not zeros.signbit().any()


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
