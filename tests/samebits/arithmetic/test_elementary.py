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
    """How far float32 numbers lie from exact ones, in steps between neighbours."""
    steps = []
    for given, wanted in zip(actual, exact, strict=True):
        step = max(float(np.spacing(np.float32(abs(float(wanted))))), 2.0**-149)
        steps.append(abs(mpmath.mpf(float(given)) - wanted) / step)
    return float(max(steps))


def spread(low, high, n_numbers=2000, seed=0):
    generator = np.random.default_rng(seed)
    even = np.linspace(low, high, n_numbers // 2)
    drawn = generator.uniform(low, high, n_numbers // 2)
    return torch.from_numpy(np.concatenate([even, drawn]).astype(np.float32))


def of_all_sizes(low, high, n_numbers=400):
    """Numbers of both signs whose logarithm of base 10 lies between two."""
    numbers = torch.from_numpy(np.logspace(low, high, n_numbers).astype(np.float32))
    return torch.cat([numbers, -numbers])


def near_multiples_of_a_quarter_turn():
    """Where a sine or a cosine is small, and every bit of the reduced angle is seen."""
    quarters = np.concatenate([np.arange(1, 300), 2 ** np.arange(9, 100) + 1.0])
    return torch.from_numpy((quarters * (np.pi / 2)).astype(np.float32))


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
        ("erfinv", mpmath.erfinv, spread(-0.99999, 0.99999, 200), 0.51),
    ],
)
def test_within_steps_of_the_exact_value(name, exact, numbers, most):
    actual = FORMS[name](numbers).numpy()
    assert units_in_the_last_place(actual, reference(exact, numbers)) <= most


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
    ],
)
def test_special_numbers_as_in_pytorch(name):
    """Of NaN only that it is one: which of them is not said by IEEE 754."""
    actual = FORMS[name](SPECIAL)
    expected = getattr(torch, name)(SPECIAL.double()).float()
    assert torch.equal(actual.isnan(), expected.isnan())
    known = ~expected.isnan()
    assert torch.allclose(actual[known], expected[known], rtol=3e-7)


@pytest.mark.parametrize("name", ["pow", "atan2", "fmod", "remainder", "floor_divide", "hypot"])
def test_special_pairs_as_in_pytorch(name):
    a, b = (axis.flatten() for axis in torch.meshgrid(SPECIAL, SPECIAL, indexing="ij"))
    actual = FORMS[name](a, b)
    expected = getattr(torch, name)(a.double(), b.double()).float()
    assert torch.equal(actual.isnan(), expected.isnan())
    known = ~expected.isnan()
    assert torch.equal(actual[known].signbit(), expected[known].signbit())
    assert torch.allclose(actual[known], expected[known], rtol=3e-7)


def test_powers_are_rounded_once():
    generator = torch.Generator().manual_seed(0)
    base = torch.rand(800, generator=generator) * 20
    exponents = (torch.rand(800, generator=generator) - 0.5) * 60
    with mpmath.workdps(40):
        exact = [
            mpmath.mpf(x) ** mpmath.mpf(y)
            for x, y in zip(base.tolist(), exponents.tolist(), strict=True)
        ]
    assert units_in_the_last_place(FORMS["pow"](base, exponents).numpy(), exact) <= 0.51


def test_remainders_are_exact():
    """Also where the quotient has more bits than any number."""
    a = of_all_sizes(-30, 38)
    b = of_all_sizes(-38, 30).flip(0) * 0.7
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
