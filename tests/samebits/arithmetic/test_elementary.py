"""Functions of one number, held to `mpmath`."""

import mpmath
import numpy as np
import pytest
import torch

from samebits.arithmetic.kernels import activations, elementary

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
    ],
)
def test_within_steps_of_the_exact_value(name, exact, numbers, most):
    actual = getattr(elementary, name)(numbers).numpy()
    assert units_in_the_last_place(actual, reference(exact, numbers)) <= most


@pytest.mark.parametrize(
    ("function", "exact", "most"),
    [
        (elementary.erf, mpmath.erf, 3e-7),
        (elementary.tanh, mpmath.tanh, 2.5e-7),
        (activations.gelu, lambda x: x * mpmath.ncdf(x), 1e-6),
        (activations.silu, lambda x: x / (1 + mpmath.exp(-x)), 1e-6),
    ],
)
def test_within_an_error_of_the_exact_value(function, exact, most):
    numbers = spread(-6, 6)
    wanted = reference(exact, numbers)
    errors = [abs(float(a) - b) for a, b in zip(function(numbers), wanted, strict=True)]
    assert max(errors) <= most


@pytest.mark.parametrize("name", ["exp", "log", "erf", "sigmoid", "tanh", "square_root"])
def test_special_numbers_as_in_pytorch(name):
    """Of NaN only that it is one: which of them is not said by IEEE 754."""
    numbers = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, -1.0, 2.0**-149, 3e38])
    of_torch = torch.sqrt if name == "square_root" else getattr(torch, name)
    actual, expected = getattr(elementary, name)(numbers), of_torch(numbers)
    assert torch.equal(actual.isnan(), expected.isnan())
    known = ~expected.isnan()
    assert torch.allclose(actual[known], expected[known], rtol=3e-7)


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
