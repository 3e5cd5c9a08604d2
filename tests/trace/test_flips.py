"""The audit finds every planted culprit, is silent on clean models, and changes no training."""

import random
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import cellrepro
from cellrepro.determinism.seeding import seeded
from cellrepro.errors import BadInput
from cellrepro.trace.observer import Call
from cellrepro.trace.reexecution import Before, Buffers, plan_of

audit = partial(cellrepro.audit, steps=1, replays=2, suspects=0)
"""As few as the planted counts below need."""

pytestmark = [
    pytest.mark.usefixtures("one_thread", "generators_free"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]


# -- planted culprits ----------------------------------------------------------------------

NAMESPACE = "cellrepro_planted"


class Hidden:
    """What makes a planted operation flip: a count of its calls that no argument shows."""

    def __init__(self):
        self.reset()

    def reset(self, every=2):
        self.n_calls, self.every = 0, every

    def flips(self):
        self.n_calls += 1
        return self.n_calls % self.every == 0


hidden = Hidden()


def one_ulp(x):
    """The first element becomes its neighbour, if it is this call's turn."""
    if hidden.flips():
        x.reshape(-1)[:1].view(torch.int32).add_(1)
    return x


def raises_or_draws(x):
    """Draws from every global generator, unless it is this call's turn."""
    if hidden.flips():
        raise RuntimeError("executed twice")
    return x + torch.rand(()) + random.random() + np.random.rand()


IMPLEMENTED = {
    "ulp(Tensor x) -> Tensor": lambda x: one_ulp(x.clone()),
    "length(Tensor x) -> Tensor[]": lambda x: [x.clone()] * (1 + hidden.flips()),
    "write(Tensor(a!) x) -> ()": lambda x: none(one_ulp(x)),
    "write_second(Tensor x, *, Tensor(a!) y) -> Tensor": lambda x, y: first(x + 1, one_ulp(y)),
    "zero(Tensor x) -> Tensor": lambda x: x * (-0.0 if hidden.flips() else 0.0),
    "real(Tensor x) -> float": lambda x: -0.0 if hidden.flips() else 0.0,
    "sparse(Tensor x) -> Tensor": lambda x: sparse(one_ulp(x.clone())),
    "raises_or_draws(Tensor x) -> Tensor": raises_or_draws,
    "unsaid(Tensor x) -> Tensor": lambda x: first(x + 1, x.add_(1)),
    "unsaid_flip(Tensor x) -> Tensor": lambda x: first(x + 1, one_ulp(x)),
}


def none(_):
    return None


def first(a, _):
    return a


def sparse(x):
    return torch.sparse_coo_tensor(torch.arange(x.numel())[None], x.reshape(-1), (x.numel(),))


@pytest.fixture(scope="module", autouse=True)
def planted():
    """The operations, for this module only."""
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    for schema, implementation in IMPLEMENTED.items():
        library.define(schema)
        library.impl(schema.split("(")[0], implementation, "CompositeExplicitAutograd")
    yield
    library._destroy()


@pytest.fixture(autouse=True)
def rewound():
    hidden.reset()


def op(name):
    return getattr(getattr(torch.ops, NAMESPACE), name)


def x(n=6):
    return torch.arange(1.0, n + 1)


def only(found):
    (culprit,) = found.ops
    return culprit


@pytest.mark.parametrize(
    ("name", "step", "n_elements", "max_abs"),
    [
        ("ulp", lambda: op("ulp")(x()), 1, 2.0**-23),
        ("length", lambda: op("length")(x()), 1, float("inf")),  # one more than there were
        ("write", lambda: op("write")(x()), 1, 2.0**-23),
        ("write_second", lambda: op("write_second")(x(), y=x(70_000)), 1, 2.0**-23),
        ("zero", lambda: op("zero")(x()), 6, 0.0),
        ("real", lambda: op("real")(x()), 1, 0.0),
        ("sparse", lambda: op("sparse")(x()), 1, 2.0**-23),
        ("unsaid_flip", lambda: op("unsaid_flip")(x()), 1, 2.0**-23),
    ],
)
def test_a_planted_culprit_is_found(name, step, n_elements, max_abs):
    culprit = only(audit(step, replays=2))
    assert culprit.op == f"{NAMESPACE}.{name}.default"
    assert (culprit.n_elements, culprit.max_abs) == (n_elements, max_abs)
    # of calls 1 to 4 the even ones flip; the third is to see whether PyTorch warns
    assert (culprit.calls, culprit.flips, culprit.replays) == (1, 2, 2)
    assert (culprit.phase, culprit.warned, culprit.substitute) == ("forward", False, None)
    assert culprit.source.startswith("test_flips.py:")


def test_one_call_in_a_hundred_takes_a_hundred_replays():
    """Too few replays do not find it, and do not claim that nothing is there."""
    value = x()
    hidden.reset(every=100)
    found = audit(lambda: op("ulp")(value), replays=2)
    assert found.ops == ()
    assert found.sentence() == (
        "no operation flips, over 1 steps: 1 operations of 1 kinds, 2 replays at 1 threads; a "
        "chance of other bits above 78 % in all others (at least 2 replays each) would have been "
        "seen with 95 % certainty"
    )
    hidden.reset(every=100)
    assert only(audit(lambda: op("ulp")(value), replays=100)).flips == 1


def test_a_warned_operation_says_so():
    """``put_`` warns on a CPU; a mode below the audit makes it flip."""

    class Flipping(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            returned = func(*args, **(kwargs or {}))
            return one_ulp(returned) if func is torch.ops.aten.put_.default else returned

    with Flipping(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = audit(lambda: x().put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0])))
    assert caught == []  # the replays are not heard
    culprit = only(found)
    assert culprit.op == "aten.put_.default"
    assert culprit.warned
    assert culprit.reason
    assert "PyTorch warns of it" in culprit.sentence()
    assert not torch.are_deterministic_algorithms_enabled()


# -- the training is not changed -----------------------------------------------------------


def test_what_a_flipping_operation_gave_stays():
    """The training goes on with the first run's values, whatever the replays give."""
    kept, written = [], x()
    audit(lambda: kept.append(op("ulp")(x())), replays=3)  # replays 2 and 4 flip
    assert torch.equal(kept[0], x())
    hidden.reset()
    audit(lambda: op("write")(written), replays=3)
    assert torch.equal(written, x())


def test_generators_are_put_back_also_when_a_replay_raises():
    def drawing():
        hidden.reset()
        with seeded(3):
            op("raises_or_draws")(x())
            return torch.rand(1).item(), random.random(), np.random.rand()

    expected, actual = drawing(), []
    found = audit(lambda: actual.append(drawing()))
    assert (found.ops, actual) == ((), [expected])
    name = f"{NAMESPACE}.raises_or_draws.default"
    assert found.not_replayed[f"{name}: replay raised RuntimeError"] == 1


def test_what_an_operation_writes_without_saying_so_is_written_once():
    value = x()
    assert audit(lambda: op("unsaid")(value), replays=4).ops == ()
    assert torch.equal(value, x() + 1)
    net, batch = nn.BatchNorm1d(2), torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    audit(lambda: net(batch), replays=5)  # its schema is silent, too (torch 2.15)
    assert torch.allclose(net.running_mean, torch.tensor([0.2, 0.4]))


def test_copies_lie_as_the_originals():
    """Every argument that shares the written memory shares the copy, at the same alignment."""
    memory = torch.from_numpy(np.random.default_rng(0).random(209, dtype="f4"))
    for offset, step, size in ((0, 1, 20), (3, 2, 7), (17, 3, 11)):
        written = memory[offset : offset + size * step : step]
        beside = memory[100 : 100 + size]
        call = Call(torch.ops.aten.add_.Tensor, (written, beside), {}, None)
        before = Before(call, plan_of(call.func), Buffers())
        for last in (False, True):
            (a, b), _ = before.again(last=last)
            assert torch.equal(a, written)
            assert torch.equal(b, beside)
            assert (a.data_ptr() - written.data_ptr()) % 16 == 0
            assert a.data_ptr() % 64 // 16 == written.data_ptr() % 64 // 16
            assert torch._C._is_alias_of(a, b)
            assert not torch._C._is_alias_of(a, written)
            a.add_(1)


# -- how much ------------------------------------------------------------------------------


def test_counts_and_what_is_vacuous():
    value = x()
    found = audit(lambda: value.cos().sin().view(2, 3).add_(1), steps=3, replays=4, threads=2)
    assert found.kinds == {"aten.add_.Tensor": 3, "aten.cos.default": 3, "aten.sin.default": 3}
    assert found.not_replayed == {"aten.view.default": 3}
    assert (found.n_steps, found.n_calls, found.n_replayed, found.n_replays) == (3, 12, 9, 36)
    assert torch.get_num_threads() == 1
    views = audit(lambda: torch.empty(3).view(3, 1).t())
    assert (views.n_calls, views.n_replayed) == (3, 0)
    assert views.sentence().startswith("vacuous: nothing was replayed")


@pytest.mark.parametrize(
    ("step", "options", "message"),
    [
        (3, {}, "step is 3; expected a function without arguments: one step"),
        (print, {"steps": 0}, "steps must be a whole number of at least 1"),
        (print, {"replays": True}, "replays must be a whole number of at least 1"),
        (print, {"suspects": -1}, "suspects must be a whole number of at least 0"),
        (print, {"threads": 10**6}, "threads must be at most 1024"),
        (print, {"model": "net"}, r"model is str; expected a torch\.nn\.Module, or none"),
    ],
)
def test_wrong_input_is_refused_before_anything_runs(step, options, message):
    ran = []
    with pytest.raises(BadInput, match=message):
        audit((lambda: ran.append(1)) if callable(step) else step, **options)
    assert ran == []


def test_what_is_documented_to_race_is_replayed_more_often():
    """index_put is on the list of the CPU; a product is not. What could be missed is said."""
    table = torch.randn(9, 4, requires_grad=True)
    rows = torch.tensor([0, 0, 1])

    def step():
        table.grad = None
        (table[rows] @ torch.ones(4, 1)).sum().backward()

    found = audit(step, replays=2, suspects=7)
    assert found.n_replays == 2 * found.n_replayed + 5
    assert found.replays["aten.index_put.default"] == 7
    race, others = found.groups
    assert (race.n_places, race.least_replays, others.least_replays) == (1, 7, 2)
    assert race.could_miss == pytest.approx(1 - 0.05 ** (1 / 7))
    assert "35 % in what is documented to race (at least 7 replays each) or 78 %" in str(
        found.sentence()
    )
