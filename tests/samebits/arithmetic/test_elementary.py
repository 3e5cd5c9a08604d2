"""Functions of one number or two, held to `mpmath`."""

import math

import mpmath
import numpy as np
import pytest
import torch

from samebits.arithmetic.kernels import activations, elementary
from samebits.arithmetic.kernels.table import FORMS

pytestmark = pytest.mark.usefixtures("one_thread")


def reference(function, numbers):
    with mpmath.workdps(40):
        return [function(mpmath.mpf(float(number))) for number in numbers]


def units_in_the_last_place(actual, exact):
    """How far numbers lie from exact ones, in steps between neighbours of their type."""
    steps = []
    for given, wanted in zip(actual, exact, strict=True):
        step = float(np.spacing(actual.dtype.type(abs(float(wanted)))))
        steps.append(abs(mpmath.mpf(float(given)) - wanted) / step)
    return float(max(steps))


def spread(low, high, n_numbers=2000, seed=0, dtype=np.float32):
    generator = np.random.default_rng(seed)
    even = np.linspace(low, high, n_numbers // 2)
    drawn = generator.uniform(low, high, n_numbers // 2)
    return torch.from_numpy(np.concatenate([even, drawn]).astype(dtype))


def of_all_sizes(low, high, n_numbers=400, dtype=np.float32):
    """Numbers of both signs whose logarithm of base 10 lies between two."""
    numbers = torch.from_numpy(np.logspace(low, high, n_numbers).astype(dtype))
    return torch.cat([numbers, -numbers])


def near_multiples_of_a_quarter_turn(most=100, dtype=np.float32):
    """Where a sine or a cosine is small, and every bit of the reduced angle is seen."""
    quarters = np.concatenate([np.arange(1, 300), 2.0 ** np.arange(9, most) + 1.0])
    return torch.from_numpy((quarters * (np.pi / 2)).astype(dtype))


@pytest.mark.parametrize(
    ("name", "exact", "numbers", "most"),
    [
        ("exp", mpmath.exp, spread(-87, 88.7), 1.1),
        ("exp", mpmath.exp, spread(-103.9, -87), 1.1),
        ("exp", mpmath.exp, spread(-1e-3, 1e-3), 1.1),
        ("log", mpmath.log, spread(1e-30, 3), 1.0),
        ("log", mpmath.log, spread(0.99, 1.01), 1.0),
        ("log", mpmath.log, spread(2.0**-149, 2.0**-130), 1.0),
        ("sigmoid", lambda x: 1 / (1 + mpmath.exp(-x)), spread(-80, 80), 3.0),
        ("sigmoid", lambda x: 1 / (1 + mpmath.exp(-x)), spread(-103, -85), 3.0),
        ("tanh", mpmath.tanh, spread(-10, 10), 3.0),
        ("tanh", mpmath.tanh, of_all_sizes(-44, 1), 3.0),
        ("expm1", mpmath.expm1, spread(-30, 88.7), 2.0),
        ("expm1", mpmath.expm1, of_all_sizes(-44, 0), 2.0),
        ("exp2", lambda x: mpmath.mpf(2) ** x, spread(-148, 127.9), 0.51),
        ("log1p", mpmath.log1p, spread(-0.999, 3), 0.51),
        ("log1p", mpmath.log1p, of_all_sizes(-44, -0.01), 0.51),
        ("log2", lambda x: mpmath.log(x, 2), spread(1e-30, 3), 0.51),
        ("log10", mpmath.log10, spread(1e-30, 3), 0.51),
        ("logit", lambda x: mpmath.log(x / (1 - x)), spread(1e-6, 0.999), 0.51),
        ("sin", mpmath.sin, spread(-1e5, 1e5), 0.51),
        ("sin", mpmath.sin, of_all_sizes(-44, 38), 0.51),
        ("sin", mpmath.sin, near_multiples_of_a_quarter_turn(), 0.51),
        ("cos", mpmath.cos, spread(-1e5, 1e5), 0.51),
        ("cos", mpmath.cos, of_all_sizes(-44, 38), 0.51),
        ("cos", mpmath.cos, near_multiples_of_a_quarter_turn(), 0.51),
        ("tan", mpmath.tan, of_all_sizes(-44, 38), 0.51),
        ("atan", mpmath.atan, of_all_sizes(-44, 38), 0.51),
        ("asin", mpmath.asin, of_all_sizes(-44, -0.001), 0.51),
        ("acos", mpmath.acos, spread(-1, 1), 0.51),
        ("sinh", mpmath.sinh, of_all_sizes(-44, 1.9), 0.51),
        ("cosh", mpmath.cosh, spread(-89, 89), 0.51),
        ("asinh", mpmath.asinh, of_all_sizes(-44, 38), 0.51),
        ("acosh", mpmath.acosh, 1 + of_all_sizes(-7, 38)[:400], 0.51),
        ("atanh", mpmath.atanh, of_all_sizes(-44, -1e-7), 0.51),
        ("erfc", mpmath.erfc, spread(-6, 10, 200), 0.51),
        ("erfinv", mpmath.erfinv, spread(-0.99999, 0.99999, 200), 0.51),
    ],
)
def test_within_steps_of_the_exact_value(name, exact, numbers, most):
    actual = FORMS[name](numbers).numpy()
    assert units_in_the_last_place(actual, reference(exact, numbers)) <= most


def doubles(low, high):
    return spread(low, high, 200, dtype=np.float64)


def doubles_of_all_sizes(low, high):
    return of_all_sizes(low, high, 100, dtype=np.float64)


NEAR_MULTIPLES = torch.cat(
    [
        near_multiples_of_a_quarter_turn(1000, np.float64)[::4],
        # nearest of all float64 numbers to a multiple of pi / 2 (J.-M. Muller, Elementary
        # Functions, 3rd edition, section 11.3), and the largest
        torch.tensor([6381956970095103.0 * 2.0**797, 1.7e308], dtype=torch.float64),
    ]
)


@pytest.mark.parametrize(
    ("name", "exact", "numbers", "most"),
    [
        ("exp", mpmath.exp, doubles(-745, 709.7), 1.1),
        ("exp", mpmath.exp, doubles(-1e-3, 1e-3), 1.1),
        ("log", mpmath.log, doubles_of_all_sizes(-323, 308)[:100], 1.0),
        ("log", mpmath.log, doubles(0.5, 2), 1.0),
        ("sigmoid", lambda x: 1 / (1 + mpmath.exp(-x)), doubles(-745, 40), 3.0),
        ("tanh", mpmath.tanh, doubles_of_all_sizes(-320, 1.3), 3.0),
        ("expm1", mpmath.expm1, doubles(-40, 709.7), 2.0),
        ("expm1", mpmath.expm1, doubles_of_all_sizes(-320, 0.5), 2.0),
        ("exp2", lambda x: mpmath.mpf(2) ** x, doubles(-1074, 1023.9), 1.1),
        ("log1p", mpmath.log1p, doubles(-0.999, 3), 1.5),
        ("log1p", mpmath.log1p, doubles_of_all_sizes(-320, -0.01), 1.5),
        ("log2", lambda x: mpmath.log(x, 2), doubles(0.3, 3), 0.51),
        ("log10", mpmath.log10, doubles(0.3, 3), 0.51),
        ("logit", lambda x: mpmath.log(x / (1 - x)), doubles(1e-6, 0.999), 3.0),
        ("sin", mpmath.sin, doubles_of_all_sizes(-320, 308), 1.0),
        ("sin", mpmath.sin, NEAR_MULTIPLES, 1.0),
        ("cos", mpmath.cos, doubles_of_all_sizes(-320, 308), 1.0),
        ("cos", mpmath.cos, NEAR_MULTIPLES, 1.0),
        ("tan", mpmath.tan, NEAR_MULTIPLES, 3.0),
        ("atan", mpmath.atan, doubles_of_all_sizes(-320, 308), 3.0),
        ("atan", mpmath.atan, doubles(-3, 3), 3.0),
        ("asin", mpmath.asin, doubles(-1, 1), 3.0),
        ("acos", mpmath.acos, doubles(-1, 1), 3.0),
        ("sinh", mpmath.sinh, doubles_of_all_sizes(-320, 2.85), 3.0),
        ("cosh", mpmath.cosh, doubles(-710.4, 710.4), 2.0),
        ("erf", mpmath.erf, doubles(-6.5, 6.5), 2.0),
        ("erf", mpmath.erf, doubles_of_all_sizes(-300, 0.8), 2.0),
        ("asinh", mpmath.asinh, doubles_of_all_sizes(-320, 308), 3.0),
        ("acosh", mpmath.acosh, 1 + doubles_of_all_sizes(-15, 308)[:100], 3.0),
        ("atanh", mpmath.atanh, doubles_of_all_sizes(-320, -1e-15), 3.0),
        ("erfc", mpmath.erfc, doubles(-6, 27), 5.0),
        ("erfinv", mpmath.erfinv, doubles(-0.99999, 0.99999)[::4], 5.0),
    ],
)
def test_doubles_within_steps_of_the_exact_value(name, exact, numbers, most):
    actual = FORMS[name](numbers).numpy()
    with mpmath.workdps(400 if name in ("sin", "cos", "tan") else 40):
        wanted = [exact(mpmath.mpf(number)) for number in numbers.tolist()]
    assert units_in_the_last_place(actual, wanted) <= most


@pytest.mark.parametrize(
    ("function", "exact", "most"),
    [
        (elementary.erf, mpmath.erf, 3e-7),
        (activations.gelu, lambda x: x * mpmath.ncdf(x), 1e-6),
        (activations.silu, lambda x: x / (1 + mpmath.exp(-x)), 1e-6),
    ],
)
def test_within_an_error_of_the_exact_value(function, exact, most):
    numbers = spread(-6, 6)
    wanted = reference(exact, numbers)
    errors = [abs(float(a) - b) for a, b in zip(function(numbers), wanted, strict=True)]
    assert max(errors) <= most


SPECIAL = torch.tensor(
    [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1.0, -1.0, 2.0**-149, 3e38, 2.0, 0.5, -3.0]
)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "exp",
            "log",
            "erf",
            "sigmoid",
            "tanh",
            "sqrt",
            "expm1",
            "exp2",
            "log1p",
            "log2",
            "log10",
        ),
        *("sin", "cos", "tan", "atan", "asin", "acos", "sinh", "cosh", "erfinv"),
        *("asinh", "acosh", "atanh", "erfc"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_special_numbers_as_in_pytorch(name, dtype):
    """Of NaN only that it is one: which of them is not said by IEEE 754."""
    actual = FORMS[name](SPECIAL.to(dtype))
    expected = getattr(torch, name)(SPECIAL.double()).to(dtype)
    assert torch.equal(actual.isnan(), expected.isnan())
    known = ~expected.isnan()
    if dtype == torch.float64:  # the sine of -0 is +0 in float32
        assert torch.equal(actual[known].signbit(), expected[known].signbit())
    rounding = 4 * torch.finfo(dtype).eps
    assert torch.allclose(actual[known], expected[known], rounding, rounding)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["pow", "atan2", "fmod", "remainder", "floor_divide", "hypot"])
def test_special_pairs_as_in_pytorch(name, dtype):
    special = SPECIAL.to(dtype)
    a, b = (axis.flatten() for axis in torch.meshgrid(special, special, indexing="ij"))
    actual = FORMS[name](a, b)
    expected = getattr(torch, name)(a.double(), b.double()).to(dtype)
    assert torch.equal(actual.isnan(), expected.isnan())
    known = ~expected.isnan()
    assert torch.equal(actual[known].signbit(), expected[known].signbit())
    rounding = 4 * torch.finfo(dtype).eps
    assert torch.allclose(actual[known], expected[known], rounding, rounding)


@pytest.mark.parametrize(
    ("dtype", "most", "highest"),
    [(torch.float32, 0.51, 30), (torch.float64, 1.5, 200)],
    ids=["float32", "float64"],
)
def test_powers_are_rounded_once(dtype, most, highest):
    """In float64 by a little more."""
    generator = torch.Generator().manual_seed(0)
    base = torch.rand(800, generator=generator, dtype=dtype) * 20
    exponents = (torch.rand(800, generator=generator, dtype=dtype) - 0.5) * 2 * highest
    with mpmath.workdps(40):
        exact = [
            mpmath.mpf(x) ** mpmath.mpf(y)
            for x, y in zip(base.tolist(), exponents.tolist(), strict=True)
        ]
    assert units_in_the_last_place(FORMS["pow"](base, exponents).numpy(), exact) <= most


@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [(np.float32, -30, 38), (np.float64, -308, 308)],
    ids=["float32", "float64"],
)
def test_remainders_are_exact(dtype, least, most):
    """Also where the quotient has more bits than any number."""
    a = of_all_sizes(least, most, dtype=dtype)
    b = of_all_sizes(-most, -least, dtype=dtype).flip(0) * 0.7
    actual = FORMS["fmod"](a, b)
    for number, divisor, rest in zip(a.tolist(), b.tolist(), actual.tolist(), strict=True):
        assert rest == math.fmod(number, divisor)


def test_softmax_leaves_out_what_is_masked():
    numbers = torch.tensor([[0.0, -torch.inf, 1.0, -100.0], [5.0, 5.0, 5.0, 5.0]])
    shares = activations.softmax(numbers, dim=1)
    assert shares[0, 1] == 0
    assert torch.allclose(shares, torch.softmax(numbers.double(), 1).float(), atol=1e-7)


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_gradients_of_activations(name):
    numbers = spread(-8, 8).double().requires_grad_()
    getattr(torch.nn.functional, name)(numbers).sum().backward()
    backward = getattr(activations, f"{name}_backward")
    actual = backward(torch.ones(len(numbers)), numbers.detach().float())
    assert (actual - numbers.grad).abs().max() < 6e-7


def test_blocks_change_no_bit():
    """A number alone and among many others, also where the tensor is laid out otherwise."""
    numbers = spread(-5, 5, 300_000).reshape(500, 600)
    whole = elementary.exp(numbers)
    assert torch.equal(whole[123:124, 45:46], elementary.exp(numbers[123:124, 45:46]))
    assert torch.equal(elementary.exp(numbers.T), whole.T)
    assert torch.equal(elementary.exp(numbers[:, ::3]), whole[:, ::3])


@pytest.mark.parametrize("order", [0.5, 1, 2, 4, 6])
def test_the_norm_of_one_number_is_its_size(order):
    """Its power may be 0 or infinite."""
    numbers = torch.tensor([[-1e-30], [3e30], [-1e-41]])
    norm = FORMS["linalg_vector_norm"]
    of_rows = norm(numbers, order, [1])
    of_one = norm(numbers[1], order)
    assert of_rows.tolist() == numbers.abs().flatten().tolist()
    assert of_one.item() == numbers[1].item()
