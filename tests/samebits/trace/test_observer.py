"""Every dispatched operation and where it comes from, and nothing changed by looking."""

import gc
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

from samebits.trace.observer import Observer

THIS = "test_observer.py"

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")


class Log(Observer):
    """Remembers the place of every operation."""

    def __init__(self, model=None):
        super().__init__(model)
        self.places = []

    def observe(self, call):
        assert self.current is call.site
        self.places.append(call.site)
        return call.run()

    def of(self, op, phase=None):
        """The places of one operation, each once, in order."""
        places = [place for place in self.places if phase in (None, place.phase)]
        return list(dict.fromkeys(place for place in places if place.op.split(".")[1] == op))

    def modules(self, op, phase):
        return [place.module for place in self.of(op, phase)]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x):
        return self.lin(x).exp()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Block(), Block()

    def forward(self, x):
        return self.b(self.a(x)).tanh()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient.sin()


def line_of(place):
    """The source's line, as text."""
    file, _, rest = place.source.partition(":")
    assert file.endswith(THIS)
    return Path(__file__).read_text().splitlines()[int(rest.split(" ")[0]) - 1].strip()


# -- modules, lines, phases ----------------------------------------------------------------


def test_every_phase_has_module_and_line():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    with Log() as log:
        for _ in range(2):
            net(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    assert log.modules("addmm", "forward") == ["a.lin", "b.lin"]
    assert log.modules("tanh", "forward") == ["Net"]
    assert log.modules("sum", "forward") == [None]
    assert line_of(log.of("exp")[0]) == "return self.lin(x).exp()"
    # the backward of exp multiplies, of tanh and addmm has operations of its own
    assert log.modules("tanh_backward", "backward") == ["Net"]
    assert line_of(log.of("tanh_backward")[0]) == "return self.b(self.a(x)).tanh()"
    assert log.modules("mul", "backward") == ["b", "a"]
    assert log.modules("mm", "backward") == ["b.lin", "a.lin"]
    assert {line_of(place) for place in log.of("mm", "backward")} == {"return self.lin(x).exp()"}
    added = [(place.module, place.source) for place in log.of("add_", "backward")]
    assert added == [("b.lin", None), ("a.lin", None)]  # to gradients that are there
    updates = [place for place in log.places if place.phase == "update"]
    assert {place.module for place in updates} == {None}
    assert {line_of(place) for place in updates} == {"optimizer.step()"}
    assert log.of("add_", "update")


def test_names_come_from_the_model_given_and_strangers_keep_their_own():
    class Task(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.loss = Net(), nn.MSELoss()

        def forward(self, x):
            return self.loss(self.net(x), x)

    task = Task()
    for model, expected in [(None, "net.a.lin"), (task, "net.a.lin"), (task.net, "a.lin")]:
        with Log(model) as log:
            for _ in range(2):
                task(torch.ones(2, 3))
        assert log.modules("addmm", "forward")[0] == expected
        assert log.modules("mse_loss", "forward") == ["loss"]  # also where it is no part of it


def test_a_custom_function_has_module_and_the_line_of_its_own_backward():
    class Custom(nn.Module):
        def forward(self, x):
            return Doubled.apply(x)

    net = nn.Sequential(nn.Linear(3, 3), Custom())
    with Log() as log:
        net(torch.ones(2, 3)).sum().backward()
    (place,) = log.of("sin", "backward")
    assert place.module == "1"
    assert line_of(place) == "return gradient.sin()"
    assert log.modules("mm", "backward") == ["0"]  # what was made after it is not taken for it


def test_a_write_into_a_view_keeps_its_line_in_the_backward():
    x = torch.ones(4, requires_grad=True)
    with Log() as log:
        y = x * 3
        part = y[:2]
        part.mul_(5)
        z = part.exp()
        (z.sum() + y.sum()).backward()
    clone = log.of("clone", "backward")[0]  # of the part that was written
    assert line_of(clone) == "part.mul_(5)"
    assert "z = part.exp()" in {line_of(place) for place in log.of("mul", "backward")}
    # the nodes of the views that it read were made together with its own
    assert {place.op for place in log.places if place.phase == "backward" and not place.source} == {
        "aten.detach.default"  # of the gradient, for its parameter
    }


# -- the update ----------------------------------------------------------------------------


def test_a_closure_is_not_the_update():
    net = Net()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = net(torch.ones(2, 3).sinh()).sum().cos()
        loss.backward()
        return loss

    with Log() as log:
        optimizer.step(closure)
    assert [place.phase for place in log.of("addmm")] == ["forward"] * 2
    assert {place.phase for op in ("sinh", "cos") for place in log.of(op)} == {"forward"}
    assert {place.phase for place in log.of("tanh_backward")} == {"backward"}
    assert log.of("dot", "update")


# -- nothing is changed --------------------------------------------------------------------


def test_nothing_of_the_step_is_held():
    net, log = Net(), Log()
    held = []
    with log:
        loss = net(torch.ones(2, 3)).sum()
        loss.backward()
        held += [weakref.ref(loss), weakref.ref(net.a.lin.weight.grad)]
        net.zero_grad()
        del loss
        gc.collect()
        assert [reference() for reference in held] == [None, None]
    held = weakref.ref(net.a.lin.weight)
    del net
    gc.collect()
    assert held() is None
