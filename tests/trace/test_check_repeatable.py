"""Is a step repeatable: run several times from one state, and everything put back."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from cellrepro.errors import BadInput
from cellrepro.store.bits import same_bits
from cellrepro.trace.check_repeatable import check_repeatable

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")


class Net(nn.Module):
    """Everything a step may move: weights, buffers, one put in another's place, generators."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.3))
        self.head = nn.Linear(4, 1)
        self.register_buffer("average", torch.zeros(4))
        self.register_buffer("absent", None)
        self.register_buffer("passing", torch.zeros(1), persistent=False)

    def forward(self, x):
        y = self.body(x)
        self.average = 0.9 * self.average + 0.1 * y.detach().mean(0)  # another tensor each time
        self.passing += 1
        return self.head(y)


def training(make=torch.optim.AdamW, **options):
    net = Net()
    optimizer = make(net.parameters(), lr=0.1, **options)

    def step():
        optimizer.zero_grad()
        x = torch.randn(5, 3) + random.random() + np.random.rand()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return net, optimizer, step


def everything(net, optimizer, *others):
    """All that a step starts from, as bytes."""
    tensors = [*net.parameters(), *net.buffers(), *(p.grad for p in net.parameters())]
    tensors += [
        value
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor)
    ]
    return [
        *(None if t is None else t.detach().numpy().tobytes() for t in tensors),
        repr(
            [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
        ),
        [module.training for module in net.modules()],
        *(repr(other.state_dict()) for other in others),
        torch.get_rng_state().numpy().tobytes(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
    ]


@pytest.mark.parametrize("n_before", [0, 2], ids=["fresh", "under way"])
def test_identical_and_everything_put_back(n_before):
    net, optimizer, step = training()
    for _ in range(n_before):
        step()
    before = everything(net, optimizer)
    objects = [*net.parameters(), *net.buffers()]
    found = check_repeatable(step, net, optimizer)
    assert found.identical
    assert (found.changed, found.vacuous, found.n) == ((), False, 3)
    assert everything(net, optimizer) == before
    assert all(a is b for a, b in zip(objects, [*net.parameters(), *net.buffers()], strict=True))


# -- planted ------------------------------------------------------------------------------

COUNT = {"n": 0}


@pytest.fixture(autouse=True)
def rewound():
    COUNT["n"] = 0


def turn(every):
    COUNT["n"] += 1
    return COUNT["n"] % every == 0


def moves_weight(net):
    with torch.no_grad():
        net.head.bias.view(torch.int32)[0] += 1


def moves_zero(net):
    with torch.no_grad():
        net.passing.copy_(torch.tensor([-0.0]))


def moves_gradient(net):
    net.head.bias.grad[0] += 0.5


def moves_generator(net):
    torch.rand(1)


@pytest.mark.parametrize(
    ("plant", "name", "n_elements"),
    [
        (moves_weight, "weights head.bias", 1),
        (moves_zero, "weights passing", 1),
        (moves_gradient, "gradient head.bias", 1),
        (moves_generator, "generators", 1),
        (lambda net: random.random(), "generators", 1),
        (lambda net: np.random.rand(), "generators", 1),
    ],
    ids=["weight", "sign of zero", "gradient", "torch", "random", "numpy"],
)
def test_what_moves_is_named(plant, name, n_elements):
    net, optimizer, step = training()

    def planted():
        loss = step()
        with torch.no_grad():
            net.passing.zero_()
        if turn(3):
            plant(net)
        return loss

    assert check_repeatable(planted, net, optimizer, n=2).identical
    before = everything(net, optimizer)
    COUNT["n"] = 0
    found = check_repeatable(planted, net, optimizer, n=4)  # the third one moves
    assert [(moved.name, moved.n_elements) for moved in found.changed] == [(name, n_elements)]
    assert not found.identical
    assert found.sentence().startswith("different over 4 runs from one state, ")
    assert name in found.sentence()
    assert everything(net, optimizer) == before


def test_the_loss_may_be_a_tensor_a_number_or_several():
    net, optimizer, step = training()

    def planted():
        loss, moves = step().item(), turn(2)
        return {"total": loss, "parts": [torch.tensor(float(moves)), -0.0 if moves else 0.0]}

    found = check_repeatable(planted, net, optimizer, n=2)
    assert [moved.name for moved in found.changed] == ["loss parts.0", "loss parts.1"]
    assert [moved.max_abs for moved in found.changed] == [1.0, 0.0]
    plain = check_repeatable(step, net, optimizer, n=2)
    assert found.n_compared == plain.n_compared + 2


def test_the_optimizers_state_is_compared_and_put_back_in_its_own_precision():
    """PyTorch's way to load an optimizer's state rounds it to the weights' precision."""

    class Own(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.1})

        def step(self):
            for parameter in self.param_groups[0]["params"]:
                state = self.state[parameter]
                state["sum"] = state.get("sum", 0) + parameter.grad.float() / 3
                state["count"] = state.get("count", 0) + 1
                parameter.data.sub_(parameter.grad)
                if turn(5):
                    state["count"] += 1

    net = nn.Linear(2, 1, bias=False).bfloat16()
    optimizer = Own(net.parameters())

    def step():
        optimizer.zero_grad()
        net(torch.ones(1, 2).bfloat16()).sum().backward()
        optimizer.step()

    for _ in range(2):
        step()
    kept = optimizer.state[net.weight]["sum"].clone()
    found = check_repeatable(step, net, optimizer, n=2)
    assert found.identical
    assert optimizer.state[net.weight]["sum"].dtype == torch.float32
    assert same_bits(optimizer.state[net.weight]["sum"], kept)
    COUNT["n"] = 3  # so that the second of the next two is the fifth
    found = check_repeatable(step, net, optimizer, n=2)
    assert [(m.name, m.max_abs) for m in found.changed] == [("optimizer state.0.count", 1.0)]


def test_schedulers_are_put_back():
    net, optimizer, step = training(torch.optim.SGD)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    def with_schedule():
        loss = step()
        scheduler.step()
        net.eval()  # the modules' flags are put back, too
        return loss

    before = everything(net, optimizer, scheduler)
    found = check_repeatable(with_schedule, net, optimizer, others=[scheduler])
    assert found.identical
    assert everything(net, optimizer, scheduler) == before
    assert optimizer.param_groups[0]["lr"] == 0.1
    with_schedule()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)


def test_everything_is_put_back_when_the_step_raises():
    net, optimizer, step = training()
    step()
    before = everything(net, optimizer)

    def fails():
        step()
        if turn(2):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        check_repeatable(fails, net, optimizer)
    assert everything(net, optimizer) == before


def test_a_step_that_changes_nothing_is_vacuous():
    net, optimizer, _ = training()
    found = check_repeatable(lambda: 1.0, net, optimizer)
    assert found.vacuous
    assert not found.identical
    assert found.sentence().startswith("vacuous over 3 runs from one state, ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": 3}, "step is 3; expected a function without arguments: one step"),
        ({"model": "net"}, r"model is str; expected a torch\.nn\.Module"),
        ({"n": 1}, "n must be a whole number of at least 2"),
        ({"optimizer": 3}, "int has no state_dict and load_state_dict; expected an optimizer"),
        ({"others": [print]}, "builtin_function_or_method has no state_dict"),
    ],
)
def test_wrong_input_is_refused_before_anything_runs(changes, message):
    ran = []
    given = {"step": lambda: ran.append(1), "model": nn.Linear(1, 1), **changes}
    with pytest.raises(BadInput, match=message):
        check_repeatable(**given)
    assert ran == []
