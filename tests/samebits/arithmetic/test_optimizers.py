"""Optimizers under the mode: close to PyTorch's own, with states that are PyTorch's."""

import importlib
import math
from fractions import Fraction

import pytest
import torch

from samebits.arithmetic.kernels import optimizers
from samebits.arithmetic.portable_mode import NotPortable, PortableArithmetic

_STEPS = 12
_RATE = 0.01

_OPTIMIZERS = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=_RATE, weight_decay=0.1),
    "AdamW fused": lambda parameters: torch.optim.AdamW(parameters, lr=_RATE, fused=True),
    "AdamW foreach": lambda parameters: torch.optim.AdamW(parameters, lr=_RATE, foreach=True),
    "AdamW amsgrad": lambda parameters: torch.optim.AdamW(
        parameters, lr=_RATE, amsgrad=True, maximize=True
    ),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=_RATE, weight_decay=0.1),
    "SGD": lambda parameters: torch.optim.SGD(
        parameters, lr=_RATE, momentum=0.9, weight_decay=0.1, nesterov=True
    ),
    "SGD foreach": lambda parameters: torch.optim.SGD(
        parameters, lr=_RATE, momentum=0.9, foreach=True
    ),
    "RMSprop foreach": lambda parameters: torch.optim.RMSprop(
        parameters, lr=_RATE, momentum=0.5, foreach=True
    ),
    "Adagrad foreach": lambda parameters: torch.optim.Adagrad(parameters, lr=_RATE, foreach=True),
    "Adadelta foreach": lambda parameters: torch.optim.Adadelta(parameters, lr=_RATE, foreach=True),
    "Adamax": lambda parameters: torch.optim.Adamax(parameters, lr=_RATE, weight_decay=0.1),
    "NAdam": lambda parameters: torch.optim.NAdam(parameters, lr=_RATE),
    "RAdam": lambda parameters: torch.optim.RAdam(parameters, lr=_RATE),
    "ASGD": lambda parameters: torch.optim.ASGD(parameters, lr=_RATE, lambd=0.1),
}


class Trained:
    """Two parameters, one laid out in columns, with gradients that PyTorch draws."""

    def __init__(self, make):
        generator = torch.Generator().manual_seed(4)
        self.parameters = [
            torch.rand(300, 7, generator=generator).t().requires_grad_(),
            torch.rand(5, generator=generator).requires_grad_(),
        ]
        self.optimizer = make(self.parameters)
        self._generator = generator

    def steps(self, n_steps):
        for _ in range(n_steps):
            for parameter in self.parameters:
                drawn = torch.rand(parameter.shape, generator=self._generator)
                parameter.grad = torch.empty_like(parameter).copy_((drawn - 0.4) * 1e-3)
            self.optimizer.step()
        return self


def largest_difference(a, b):
    return max(
        (one - other).abs().max().item()
        for one, other in zip(a.parameters, b.parameters, strict=True)
    )


@pytest.mark.parametrize("name", list(_OPTIMIZERS))
def test_parameters_are_pytorchs_within_roundings(name):
    """After twelve steps, whichever of its own implementations PyTorch was asked for."""
    plain = Trained(_OPTIMIZERS[name]).steps(_STEPS)

    with PortableArithmetic():
        portable = Trained(_OPTIMIZERS[name]).steps(_STEPS)

    assert largest_difference(plain, portable) < 1e-6
    assert largest_difference(plain, Trained(_OPTIMIZERS[name])) > 1e-5


def test_adam_is_the_same_whether_fused_or_not():
    """PyTorch's own implementations differ from each other."""
    with PortableArithmetic():
        fused = Trained(_OPTIMIZERS["AdamW fused"]).steps(_STEPS)
        listed = Trained(_OPTIMIZERS["AdamW foreach"]).steps(_STEPS)
    assert largest_difference(fused, listed) == 0


@pytest.mark.parametrize("kind", ["SGD", "RMSprop", "Adagrad", "Adadelta", "Adam"])
def test_parameters_that_share_memory_are_updated_one_after_the_other(kind):
    """As where the weights of two layers are tied by their data."""

    def trained():
        shared = torch.arange(1.0, 7.0)
        views = [torch.nn.Parameter(shared.view(2, 3)), torch.nn.Parameter(shared.view(3, 2))]
        optimizer = getattr(torch.optim, kind)(views, lr=_RATE)
        for step, view in enumerate(views, start=1):
            view.grad = torch.full_like(view, step)
        optimizer.step()
        return shared

    plain = trained()
    with PortableArithmetic():
        portable = trained()
    torch.testing.assert_close(portable, plain, rtol=1e-6, atol=1e-7)
    assert not torch.equal(plain, torch.arange(1.0, 7.0))


@pytest.mark.parametrize("kind", ["SGD", "RMSprop", "Adagrad", "Adadelta"])
def test_small_parameters_have_the_same_bits_together(kind, monkeypatch):
    """As each by itself, and so have their states, which hold the number of steps."""
    settings = {"momentum": 0.9} if kind in ("SGD", "RMSprop") else {}

    def trained():
        make = getattr(torch.optim, kind)
        with PortableArithmetic():
            return Trained(lambda parameters: make(parameters, lr=_RATE, **settings)).steps(3)

    together = trained()
    monkeypatch.setattr(optimizers, "MOST_TOGETHER", 0)
    alone = trained()

    assert largest_difference(together, alone) == 0
    expected = alone.optimizer.state_dict()["state"]
    for index, state in together.optimizer.state_dict()["state"].items():
        torch.testing.assert_close(state, expected[index], rtol=0, atol=0)


def test_state_is_pytorchs():
    """What a checkpoint holds is taken up within the mode and without it."""
    make = _OPTIMIZERS["AdamW"]
    plain = Trained(make).steps(3)
    with PortableArithmetic():
        portable = Trained(make).steps(3)
    expected = plain.optimizer.state_dict()
    actual = portable.optimizer.state_dict()
    assert actual["param_groups"] == expected["param_groups"]
    for index, state in expected["state"].items():
        torch.testing.assert_close(actual["state"][index], state, rtol=1e-5, atol=1e-9)
        assert actual["state"][index]["step"].equal(state["step"])

    with PortableArithmetic():
        straight = Trained(make).steps(6)
        resumed = Trained(make).steps(3)
        held = resumed.optimizer.state_dict()
        resumed.optimizer = make(resumed.parameters)
        resumed.optimizer.load_state_dict(held)
        resumed.steps(3)
    assert largest_difference(straight, resumed) == 0


def test_corrections_are_exact_before_they_are_rounded():
    """Of the first steps and of a late one; the system's power differs between systems."""
    for step in (*range(1, 300), 20_011):
        expected = 1.0 - float(Fraction(0.999) ** step)
        assert optimizers.bias_correction(0.999, step) == expected


@pytest.mark.parametrize("name", ["AdamW", "AdamW foreach"])
def test_adam_computes_no_powers_by_itself(name, monkeypatch):
    """Neither of PyTorch's implementations in Python is called."""
    home = importlib.import_module("torch.optim.adam")
    for implementation in ("_single_tensor_adam", "_multi_tensor_adam"):
        monkeypatch.setattr(home, implementation, None)
    with PortableArithmetic():
        Trained(_OPTIMIZERS[name]).steps(1)


def test_pytorchs_own_update_is_given_back():
    """After the block, and after one that raised."""
    home = importlib.import_module("torch.optim.adam")
    original = home.adam
    with PortableArithmetic():
        assert home.adam is not original
    assert home.adam is original
    with pytest.raises(ZeroDivisionError), PortableArithmetic():
        raise ZeroDivisionError
    assert home.adam is original


class SystemsNumber(float):
    """A number whose powers are those of a library that is far off."""

    def __pow__(self, exponent):
        return 0.99 * float(self) ** float(exponent)

    def __rpow__(self, base):
        return 0.99 * float(base) ** float(self)


@pytest.mark.parametrize("name", ["Adamax", "NAdam", "RAdam", "ASGD", "AdamW"])
def test_no_power_of_an_update_is_that_of_its_settings(name):
    """Plainly it is, so that the system's library decides."""

    def trained(kind):
        training = Trained(_OPTIMIZERS[name])
        for group in training.optimizer.param_groups:
            for key, value in group.items():
                if isinstance(value, float):
                    group[key] = kind(value)
                if key == "betas":
                    group[key] = tuple(map(kind, value))
        return training.steps(_STEPS)

    assert largest_difference(trained(float), trained(SystemsNumber)) > 0
    with PortableArithmetic():
        assert largest_difference(trained(float), trained(SystemsNumber)) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12),
        lambda optimizer: torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.05, anneal_epochs=12),
    ],
    ids=["annealing", "averaging"],
)
def test_cosines_of_a_schedule_are_no_libraries(monkeypatch, make):
    """Those of this system may be others than those of the next."""

    def rates():
        optimizer = torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=_RATE)
        schedule = make(optimizer)
        found = []
        for _ in range(12):
            optimizer.step()
            schedule.step()
            found += schedule.get_last_lr()
        return found

    with PortableArithmetic():
        expected = rates()
    assert rates() == pytest.approx(expected, abs=1e-12)
    cosine = math.cos
    monkeypatch.setattr(math, "cos", lambda angle: math.nextafter(cosine(angle), 2))
    assert rates() != expected
    with PortableArithmetic():
        assert rates() == expected


@pytest.mark.parametrize(
    "make",
    [
        torch.optim.Adafactor,
        type("OneOfTheirOwn", (torch.optim.Adafactor,), {}),
        lambda parameters: torch.optim.LBFGS(parameters[:1], line_search_fn="strong_wolfe"),
        lambda parameters: torch.optim.Adam(parameters, differentiable=True),
    ],
)
def test_an_optimizer_with_powers_of_its_own_is_refused_by_name_and_line(make):
    """No operation of PyTorch shows what it computes in Python."""
    trained = Trained(make)
    refused = pytest.raises(NotPortable, match=r"torch\.optim\.\w+\.step")
    with refused as refusal, PortableArithmetic():
        trained.steps(1)
    assert "test_optimizers.py" in refusal.value.site.source
    assert refusal.value.site.phase == "update"


@pytest.mark.parametrize(
    "kind", [each for each in vars(torch.optim).values() if isinstance(each, type)]
)
def test_an_optimizer_of_pytorch_runs_or_is_refused_by_its_own_name(kind):
    """Not by that of an operation in it, which a user has not written."""
    weight = torch.ones(3, 3, requires_grad=True)
    weight.grad = torch.ones(3, 3)
    name = ""
    try:
        with PortableArithmetic():
            kind([weight]).step(weight.sum)
    except NotPortable as refusal:
        name = refusal.site.op
    except (TypeError, NotImplementedError):  # of the class that all are made of
        name = ""
    assert name in ("", f"torch.optim.{kind.__name__}.step")
