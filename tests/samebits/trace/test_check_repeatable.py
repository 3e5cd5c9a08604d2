"""Is a step repeatable: run several times from one state, and everything put back."""

import copy
import enum
import functools
import random

import numpy as np
import psutil
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from samebits.bit_equality import same_bits
from samebits.errors import BadInput, NotPossibleHere
from samebits.generator_digests import generator_digests
from samebits.seeds import generator
from samebits.tensor_digests import tensor_digest
from samebits.trace.check_dataset import check_dataset
from samebits.trace.check_repeatable import check_repeatable

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")


class Net(nn.Module):
    """Everything a step may change: weights, buffers, one put in another's place, generators."""

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


class Training:
    """A step of it that fails, plants something or changes a schedule when told to."""

    def __init__(self, n_before=0):
        self.net, self.n_run, self.plant = Net(), 0, None
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.1)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        for _ in range(n_before):
            self.step()

    def step(self):
        self.optimizer.zero_grad()
        x = torch.randn(5, 3) + random.random() + np.random.rand()
        loss = self.net(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.net.eval()
        with torch.no_grad():
            self.net.passing.zero_()
            self.n_run += 1
            if self.n_run == 3 and self.plant is not None:
                self.plant(self.net)
        return loss

    def check(self, n=3):
        self.n_run = 0
        return check_repeatable(self.step, self.net, self.optimizer, self.schedule, n=n)

    def everything(self):
        """All that a step starts from."""
        gradients = [parameter.grad for parameter in self.net.parameters()]
        tensors = [*self.net.parameters(), *self.net.buffers(), *gradients]
        state = [self.optimizer.state_dict(), self.schedule.state_dict()]
        training = [module.training for module in self.net.modules()]
        return tensor_digest([tensors, state]), training, generator_digests()


@pytest.mark.parametrize("n_before", [0, 2], ids=["fresh", "under way"])
def test_identical_and_everything_put_back(n_before):
    training = Training(n_before)
    before, objects = training.everything(), [*training.net.parameters(), *training.net.buffers()]
    found = training.check()
    assert found.identical
    assert (found.changed, found.vacuous, found.n) == ((), False, 3)
    assert training.everything() == before
    now = [*training.net.parameters(), *training.net.buffers()]
    assert all(a is b for a, b in zip(objects, now, strict=True))


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (lambda net: net.passing.copy_(torch.tensor([-0.0])), "weights passing"),
        (lambda net: net.head.bias.grad.add_(0.5), "gradient head.bias"),
        (lambda net: np.random.rand(), "generators"),
    ],
    ids=["sign of zero", "gradient", "generators"],
)
def test_what_changes_is_named(plant, name):
    training = Training()
    training.plant = plant  # in the third step
    before = training.everything()
    assert training.check(n=2).identical
    found = training.check(n=4)
    assert [(changed.name, changed.n_elements) for changed in found.changed] == [(name, 1)]
    assert not found.identical
    assert name in found.sentence()
    assert training.everything() == before


def test_the_optimizers_state_is_compared_and_put_back_in_its_own_precision():
    """PyTorch's way to load an optimizer's state rounds it to the weights' precision."""
    net = nn.Linear(2, 1, bias=False).bfloat16()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer.state[net.weight]["sum"] = torch.tensor([1 / 3])
    added = iter([0.0, 0.0, 0.0, 1.0])

    def step():
        net(torch.ones(1, 2).bfloat16()).sum().backward()
        optimizer.state[net.weight]["sum"] += next(added)

    assert check_repeatable(step, net, optimizer, n=2).identical
    assert same_bits(optimizer.state[net.weight]["sum"], torch.tensor([1 / 3]))
    found = check_repeatable(step, net, optimizer, n=2)
    assert [(m.name, m.max_abs) for m in found.changed] == [("optimizer 0 sum", pytest.approx(1))]


def test_everything_is_put_back_when_the_step_raises():
    training = Training(n_before=1)
    before = training.everything()
    training.plant = lambda net: 1 / 0
    with pytest.raises(ZeroDivisionError):
        training.check()
    assert training.everything() == before


def test_numpys_global_generator_may_be_of_another_kind():
    training = Training()
    usual = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(3))
    try:
        assert training.check().identical
        assert check_dataset([torch.ones(2)] * 3).ok
    finally:
        np.random.set_bit_generator(usual)


def test_a_step_that_changes_nothing_is_vacuous():
    found = check_repeatable(lambda: 1.0, Net())
    assert (found.vacuous, found.identical) == (True, False)


def test_an_evaluation_that_differs_is_said_to_differ():
    """Though it changes nothing. What is put back, such as Python's generator, is not blamed."""
    net = nn.Linear(2, 1)

    def evaluation():
        noise = np.random.default_rng().random(2)
        return net(torch.ones(3, 2)).sum().item() + noise + random.random()

    found = check_repeatable(evaluation)
    assert (found.vacuous, found.not_put_back) == (False, ())
    assert found.sentence().startswith("different over 3 runs")


def test_what_a_step_changes_is_found_in_it():
    """In the object of a method, and in what a function names; each is put back."""
    training = Training(n_before=1)
    before = training.everything()
    found = check_repeatable(training.step, n=4)
    assert (found.identical, found.n_compared) == (True, training.check(n=4).n_compared)
    assert training.everything() == before
    net, draws = nn.Linear(2, 1), iter(range(99))

    def step():
        net(torch.ones(1, 2)).sum().backward()
        net.weight.grad += next(draws)

    assert [changed.name for changed in check_repeatable(step).changed] == ["gradient weight"]
    assert net.weight.grad is None


def test_a_step_that_begins_anew_each_time_needs_nothing():
    def anew(*, loose=False):
        net = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            net(torch.rand(4, 2)).square().sum().backward()
            optimizer.step()
        return net.weight.detach().numpy() + loose * next(count)

    count = iter(range(99))
    assert check_repeatable(anew, n=4).identical
    assert check_repeatable(lambda: anew(loose=True)).changed[0].name == "loss"
    assert check_repeatable(lambda: None).vacuous


X = torch.ones(4, 3)
N_CALLS = iter(range(10**6))


class Holder:
    """Holds what it is given; a class may hold it for all of its objects."""

    def __init__(self, **held):
        vars(self).update(held)


def small_training(kind=torch.optim.Adam):
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    return net, kind(net.parameters(), lr=0.1)


def loss_in_a_function(plant):
    net, optimizer = small_training()

    def loss_of(x):
        return (net(x) - 3).square().sum()

    def step():
        optimizer.zero_grad()
        loss = loss_of(X)
        loss.backward()
        plant(net[0].weight)
        optimizer.step()
        return loss

    return step, net


def closure(plant):
    net, optimizer = small_training(torch.optim.LBFGS)

    def step():
        def again():
            optimizer.zero_grad()
            loss = (net(X) - 3).square().sum()
            loss.backward()
            plant(net[0].weight)
            return loss

        return optimizer.step(again)

    return step, net


def partial_function(plant):
    inner, net = loss_in_a_function(plant)
    return functools.partial(lambda *, call: call(), call=inner), net


def dictionary(plant):
    net, optimizer = small_training()
    held = {"nets": [net], "optimizers": {"first": optimizer}}

    def step():
        for one in held["optimizers"].values():
            one.zero_grad()
            held["nets"][0](X).square().sum().backward()
            plant(held["nets"][0][0].weight)
            one.step()

    return step, net


def nested_attribute(plant):
    net, optimizer = small_training()
    run = Holder(state=Holder(net=net), update=Holder(optimizer=optimizer))

    def step():
        run.update.optimizer.zero_grad()
        run.state.net(X).square().sum().backward()
        plant(run.state.net[0].weight)
        run.update.optimizer.step()

    return step, net


def attribute_of_a_class(plant):
    class Run:
        net, optimizer = small_training()

        @classmethod
        def step(cls):
            cls.optimizer.zero_grad()
            cls.net(X).square().sum().backward()
            plant(cls.net[0].weight)
            cls.optimizer.step()

    return lambda: Run().step(), Run.net


def bare_parameters(plant):
    parts = nn.ParameterDict({"w": torch.ones(3)})
    latent = parts["w"]
    optimizer = torch.optim.SGD([latent], lr=0.1, momentum=0.9)

    def step():
        optimizer.zero_grad()
        (X @ latent).square().sum().backward()
        plant(latent)
        optimizer.step()

    return step, parts


def without_an_optimizer(plant):
    parts = nn.ParameterDict({"w": torch.ones(3)})
    latent, average = parts["w"], torch.zeros(3)
    parts.register_buffer("average", average)

    def step():
        latent.grad = None
        (X @ latent).square().sum().backward()
        plant(latent)
        with torch.no_grad():
            latent.sub_(0.1 * latent.grad)
            average.mul_(0.9).add_(latent)

    return step, parts


def generator_function(plant):
    inner, net = loss_in_a_function(plant)

    def forever():
        call = inner
        while True:
            yield call()

    return forever().__next__, net


HIDDEN = {}


def no_name_leads_to_it(plant):
    HIDDEN["step"], net = loss_in_a_function(plant)
    return lambda: eval('globals()["HIDDEN"]["step"]()'), net


WAYS = [
    loss_in_a_function,
    closure,
    partial_function,
    dictionary,
    nested_attribute,
    attribute_of_a_class,
    bare_parameters,
    without_an_optimizer,
    generator_function,
    no_name_leads_to_it,
]


def everything_of(net):
    tensors = [*net.parameters(), *net.buffers(), *(p.grad for p in net.parameters())]
    return tensor_digest(tensors), [module.training for module in net.modules()]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("given", [False, True], ids=["found", "network given"])
def test_a_training_is_checked_and_put_back_however_its_step_is_written(way, given):
    planted = False

    def plant(weight):
        if planted:
            weight.grad.view(-1)[0] += next(N_CALLS)

    step, net = way(plant)
    before = everything_of(net)
    parts = (net,) if given else ()
    found = check_repeatable(step, *parts)
    assert (found.identical, found.vacuous, found.changed) == (True, False, ())
    assert everything_of(net) == before
    planted = True
    found = check_repeatable(step, *parts)
    assert any(changed.name.startswith("gradient") for changed in found.changed)
    assert everything_of(net) == before
    with pytest.raises(ZeroDivisionError):
        check_repeatable(lambda: (step(), 1 / 0))
    assert everything_of(net) == before
    step()
    assert everything_of(net) != before


PLAIN = {}


def new_weights(weights):
    loss = (X @ weights["w"]).square().sum()
    (gradient,) = torch.autograd.grad(loss, [weights["w"]])
    return {"w": (weights["w"] - 0.1 * gradient).detach().requires_grad_()}


def put_into_a_dictionary():
    PLAIN["held"].update(new_weights(PLAIN["held"]))


def put_into_a_global_variable():
    global WEIGHTS
    WEIGHTS = new_weights(WEIGHTS)


class Functional:
    weights = None

    def step(self):
        self.weights = new_weights(self.weights)


@pytest.mark.parametrize("place", ["dictionary", "global variable", "closure", "attribute"])
def test_weights_that_a_step_computes_anew_are_state(place):
    global WEIGHTS
    weights = {"w": torch.ones(3, requires_grad=True)}
    PLAIN["held"] = WEIGHTS = weights
    tensor = weights["w"]
    functional = Functional()
    functional.weights = weights
    variable = weights

    def put_into_a_closure():
        nonlocal variable
        variable = new_weights(variable)

    steps = {
        "dictionary": put_into_a_dictionary,
        "global variable": put_into_a_global_variable,
        "closure": put_into_a_closure,
        "attribute": functional.step,
    }
    found = check_repeatable(steps[place])
    assert (found.identical, found.vacuous) == (True, False)
    for after in (PLAIN["held"], WEIGHTS, functional.weights, variable):
        assert after["w"] is tensor
    assert tensor.tolist() == [1, 1, 1]


def test_a_race_in_an_embedding_without_a_module_is_found():
    torch.set_num_threads(2)
    # Longer than a time slice of the scheduler: on busy cores two short threads run in turn.
    index = torch.randint(0, 50, (1_000_000,))
    factors = torch.randn(1_000_000, 8)
    embedding = nn.Parameter(torch.zeros(50, 8))
    optimizer = torch.optim.SGD([embedding], lr=0.1)

    def step():
        optimizer.zero_grad()
        (embedding[index].sin() * factors).sum().backward()  # its gradient: index_put
        optimizer.step()

    found = check_repeatable(step, n=20)
    assert (found.vacuous, found.identical) == (False, False)
    assert not embedding.any()


def test_a_step_that_copies_a_network_and_trains_the_copy_is_not_vacuous():
    template = nn.Linear(3, 1)

    def step():
        net = copy.deepcopy(template)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(X).square().sum().backward()
        optimizer.step()
        return net.weight

    assert check_repeatable(step).identical
    optimizer = torch.optim.SGD(template.parameters(), lr=0.1)
    assert check_repeatable(lambda: optimizer.step()).vacuous  # it has no gradient


def training_on(next_batch):
    """A step with its network and optimizer, on whatever it is given next."""
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        loss = net(next_batch()).sum()
        loss.backward()
        optimizer.step()
        return loss

    return step, net, optimizer


def test_batches_that_go_on_from_run_to_run_are_told_from_a_step_that_does_not_repeat():
    """An iterator, a loader with a generator of its own: what they give next is not put back."""
    batches = iter([torch.full((1, 2), float(index)) for index in range(5)])
    loader = DataLoader(torch.arange(64.0).reshape(-1, 2), shuffle=True, generator=generator(0))
    for next_batch, name in ((lambda: next(batches), "batches"), (lambda: next(iter(loader)), "l")):
        found = check_repeatable(*training_on(next_batch), n=3)
        assert not found.identical
        assert f"where the step takes its batch from `{name}" in found.sentence()
        assert "give every run that one: check_repeatable(lambda: step(batch)" in found.sentence()
    message = r"takes its batch from \(`batches` of `next_batch`\) was at its end in run 3; take a"
    with pytest.raises(BadInput, match=message) as told:
        check_repeatable(*training_on(lambda: next(batches)), n=4)
    assert isinstance(told.value.__cause__, StopIteration)
    one = torch.ones(1, 2)
    assert check_repeatable(*training_on(lambda: one)).identical


@pytest.mark.parametrize(
    ("step", "parts", "n", "message"),
    [
        (lambda images, labels: None, (), 3, "step takes images, labels; .* step.images, labels"),
        (None, (nn.Linear,), 3, "Linear is a class; expected the object itself"),
        (None, (nn.LazyLinear(2),), 3, "weight of the network is not made before its first pass"),
        (3, (), 3, "step is 3; expected a function without arguments: one step"),
        (None, ("net",), 3, "str has no load_state_dict; expected modules, optimizers, sched"),
        (None, (nn.Linear(1, 1),), 1, "n must be a whole number of at least 2"),
    ],
    ids=["arguments", "class", "lazy", "step", "parts", "n"],
)
def test_wrong_input_is_refused_before_anything_runs(step, parts, n, message):
    with pytest.raises(BadInput, match=message):
        check_repeatable(step or (lambda: pytest.fail("it ran")), *parts, n=n)


class Phase(enum.Enum):
    FIRST = 1


def test_a_step_may_name_a_class():
    network = nn.Linear(3, 1)
    images = torch.ones(2, 3)

    def step():
        (network(images).sum() * Phase.FIRST.value).backward()
        with torch.no_grad():
            network.weight.mul_(2)

    assert check_repeatable(step, network).identical


def test_another_process_loads_the_device_from_the_second_run_on():
    here = psutil.Process()
    net = nn.Linear(2, 2)

    def step():
        net(torch.ones(1, 2)).sum().backward()
        return len(here.children())

    alone = check_repeatable(step, net)
    assert alone.identical
    contended = check_repeatable(step, net, contended_on="cpu")
    assert [change.name for change in contended.changed] == ["loss"]
    assert "while another process loaded cpu" in contended.sentence()
    assert here.children() == []
    with pytest.raises(NotPossibleHere, match="no process can load 'no-device' here"):
        check_repeatable(step, net, contended_on="no-device")
