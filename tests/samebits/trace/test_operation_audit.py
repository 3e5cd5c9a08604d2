"""The audit finds every planted culprit, is silent on clean models, and changes no training."""

import random
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import samebits
from samebits.errors import BadInput
from samebits.seeds import seeded
from samebits.trace.kept_inputs import Before
from samebits.trace.observer import Call
from samebits.trace.replay_plan import plan_of

audit = partial(samebits.audit, steps=1, replays=2, suspects=0)
"""As few as the planted counts below need."""

pytestmark = [
    pytest.mark.usefixtures("one_thread", "generators_free"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]


# -- planted culprits ----------------------------------------------------------------------

NAMESPACE = "samebits_planted"


hidden = SimpleNamespace(n_calls=0)


def flips():
    """Every second call: a count that no argument shows makes a planted operation flip."""
    hidden.n_calls += 1
    return hidden.n_calls % 2 == 0


def one_ulp(x):
    """The first element becomes its neighbour, if it is this call's turn."""
    if flips():
        x.reshape(-1)[:1].view(torch.int32).add_(1)
    return x


def raises_or_draws(x):
    """Draws from every global generator, unless it is this call's turn."""
    if flips():
        raise RuntimeError("executed twice")
    return x + torch.rand(()) + random.random() + np.random.rand()


IMPLEMENTED = {
    "ulp(Tensor x) -> Tensor": lambda x: one_ulp(x.clone()),
    "length(Tensor x) -> Tensor[]": lambda x: [x.clone()] * (1 + flips()),
    "write_second(Tensor x, *, Tensor(a!) y) -> Tensor": lambda x, y: first(x + 1, one_ulp(y)),
    "zero(Tensor x) -> Tensor": lambda x: x * (-0.0 if flips() else 0.0),
    "sparse(Tensor x) -> Tensor": lambda x: sparse(one_ulp(x.clone())),
    "raises_or_draws(Tensor x) -> Tensor": raises_or_draws,
    "unsaid(Tensor x) -> Tensor": lambda x: first(x + 1, x.add_(1)),
    "unsaid_flip(Tensor x) -> Tensor": lambda x: first(x + 1, one_ulp(x)),
}


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
    hidden.n_calls = 0


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
        ("write_second", lambda: op("write_second")(x(), y=x(70_000)), 1, 2.0**-23),
        ("zero", lambda: op("zero")(x()), 6, 0.0),
        ("sparse", lambda: op("sparse")(x()), 1, 2.0**-23),
        ("unsaid_flip", lambda: op("unsaid_flip")(x()), 1, 2.0**-23),
    ],
)
def test_a_planted_culprit_is_found(name, step, n_elements, max_abs):
    culprit = only(audit(step, replays=3))
    assert culprit.op == f"{NAMESPACE}.{name}.default"
    assert (culprit.n_elements, culprit.max_abs) == (n_elements, max_abs)
    assert (culprit.calls, culprit.flips, culprit.replays) == (1, 2, 3)  # calls 2 and 4 flip
    assert (culprit.phase, culprit.warned, culprit.substitute) == ("forward", False, None)
    assert culprit.source.startswith("test_operation_audit.py:")


def test_of_what_flips_it_is_said_whether_pytorch_warns():
    """``put_`` is known to warn on a CPU; a mode below the audit makes it flip."""

    class Flipping(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            returned = func(*args, **(kwargs or {}))
            return one_ulp(returned) if func is torch.ops.aten.put_.default else returned

    with Flipping():
        found = audit(lambda: x().put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0])))
    culprit = only(found)
    assert (culprit.op, culprit.warned) == ("aten.put_.default", True)
    assert culprit.reason
    assert "PyTorch warns of it" in culprit.sentence()


# -- the training is not changed -----------------------------------------------------------


def test_what_a_flipping_operation_gave_stays():
    """The training goes on with the first run's values, whatever the replays give."""
    kept, written = [], x()
    audit(lambda: kept.append(op("write_second")(x(), y=written)), replays=3)  # 2 and 4 flip
    assert torch.equal(kept[0], x() + 1)
    assert torch.equal(written, x())


def test_generators_are_put_back_also_when_a_replay_raises():
    def drawing():
        hidden.n_calls = 0
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
    for offset, step, size in ((0, 1, 20), (17, 3, 11)):
        written = memory[offset : offset + size * step : step]
        beside = memory[100 : 100 + size]
        call = Call(torch.ops.aten.add_.Tensor, (written, beside), {}, None)
        before = Before(call, plan_of(call.func))
        for _ in range(2):
            (a, b), _ = before.again()
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
    assert (found.n_steps, found.n_replayed, found.n_replays, found.threads) == (3, 9, 36, 2)
    assert torch.get_num_threads() == 1
    views = audit(lambda: torch.empty(3).view(3, 1).t())
    assert views.sentence().startswith("vacuous: nothing was replayed")


@pytest.mark.parametrize(
    ("step", "options", "message"),
    [
        (3, {}, "step is 3; expected a function without arguments: one step"),
        (print, {"replays": True}, "replays must be a whole number of at least 1"),
        (print, {"model": "net"}, r"model is str; expected a torch\.nn\.Module, or none"),
    ],
)
def test_wrong_input_is_refused_before_anything_runs(step, options, message):
    with pytest.raises(BadInput, match=message):
        audit((lambda: pytest.fail("it ran")) if callable(step) else step, **options)


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
    assert list(found.least_replays.values()) == [7, 2]
    assert found.how_sure.endswith(
        "share of its replays: 35 % (what is documented to race), 78 % (all others)"
    )
    assert "35 % in what is documented to race (at least 7 replays each) or" in found.sentence()


@torch.compile(backend="eager")
def compiled_square(x):
    return x * x


def compiled_networks():
    """A network of torch.compile, one compiled in place, a function, and how each is named."""
    wrapped = torch.compile(nn.Sequential(nn.Linear(3, 2)), backend="eager", fullgraph=True)
    in_place = nn.Linear(3, 2)
    in_place.compile(backend="eager")
    return [(wrapped, "Sequential"), (in_place, "Linear"), (compiled_square, "compiled_square")]


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
@pytest.mark.parametrize("index", range(3), ids=["network", "in place", "function"])
def test_what_is_compiled_ran_uncompiled_and_is_named(index):
    compiled, name = compiled_networks()[index]
    x = torch.ones(2, 3)
    plain = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(plain.parameters())

    def eager_step():
        plain(x).sum().backward()
        optimizer.step()

    assert audit(eager_step, steps=1, replays=1).uncompiled == ()
    found = audit(lambda: (eager_step(), compiled(x)), steps=1, replays=1)
    assert found.uncompiled == (name,)
    assert f"{name} of torch.compile ran uncompiled" in found.sentence()
    with pytest.warns(UserWarning, match=f"{name} of torch.compile ran uncompiled"):
        samebits.determinism_warnings(lambda: compiled(x))
