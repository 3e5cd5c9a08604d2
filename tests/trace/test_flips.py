"""The audit finds every planted culprit, is silent on clean models, and changes no training."""

import gc
import random
import warnings
import weakref
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import cellrepro
from cellrepro.determinism.modes import mode_in_force
from cellrepro.determinism.seeding import seeded
from cellrepro.errors import BadInput
from cellrepro.store.bits import same_bits
from cellrepro.trace.flips import Auditor, could_miss
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from cellrepro.trace.observer import Call, Observer
from cellrepro.trace.reexecution import Before, Buffers, plan_of, wait

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


def rewritten(x, value, usual):
    """The first element's bits are ``value`` at this call's turn, otherwise ``usual``."""
    x.reshape(-1)[:1].view(torch.int32).fill_(value if hidden.flips() else usual)
    return x


def raises_or_draws(x):
    """Draws from every global generator, unless it is this call's turn."""
    if hidden.flips():
        raise RuntimeError("executed twice")
    return x + torch.rand(()) + random.random() + np.random.rand()


IMPLEMENTED = {
    "ulp(Tensor x) -> Tensor": lambda x: one_ulp(x.clone()),
    "steady(Tensor x) -> Tensor": lambda x: x.clone(),
    "third(Tensor x) -> (Tensor, Tensor, Tensor)": lambda x: (x + 1, x + 2, one_ulp(x + 3)),
    "length(Tensor x) -> Tensor[]": lambda x: [x.clone()] * (1 + hidden.flips()),
    "write(Tensor(a!) x) -> ()": lambda x: none(one_ulp(x)),
    "write_second(Tensor x, *, Tensor(a!) y) -> Tensor": lambda x, y: first(x + 1, one_ulp(y)),
    "write_all(Tensor(a!)[] xs) -> ()": lambda xs: none(one_ulp(xs[1])),
    "zero(Tensor x) -> Tensor": lambda x: rewritten(x.clone(), -(2**31), 0),
    "payload(Tensor x) -> Tensor": lambda x: rewritten(x.clone(), 0x7FC00001, 0x7FC00000),
    "truth(Tensor x) -> Tensor": lambda x: (x > 0) ^ hidden.flips(),
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
    backward = lambda ctx, gradient: op("ulp")(gradient)  # noqa: E731
    torch.library.register_autograd(f"{NAMESPACE}::steady", backward, lib=library)
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
        ("third", lambda: op("third")(x()), 1, 2.0**-21),
        ("length", lambda: op("length")(x()), 1, float("inf")),  # one more than there were
        ("write", lambda: op("write")(x()), 1, 2.0**-23),
        ("write_second", lambda: op("write_second")(x(), y=x(70_000)), 1, 2.0**-23),
        ("write_all", lambda: op("write_all")([x(), x(), x()]), 1, 2.0**-23),
        ("zero", lambda: op("zero")(x()), 1, 0.0),
        ("payload", lambda: op("payload")(x()), 1, 0.0),
        ("truth", lambda: op("truth")(x()), 6, 1.0),
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


def test_only_in_the_backward():
    class Steady(nn.Module):
        def forward(self, x):
            return op("steady")(x)

    net = nn.Sequential(nn.Linear(6, 6), Steady())
    culprit = only(audit(lambda: net(x()).sum().backward()))
    assert (culprit.op, culprit.phase) == (f"{NAMESPACE}.ulp.default", "backward")
    assert culprit.module == "1"
    assert culprit.source.startswith("test_flips.py:")
    hidden.reset()
    assert only(audit(lambda: net(x()).sum().backward(), model=net[1])).module == "Steady"


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
    hidden.reset(every=100)
    assert only(audit(lambda: op("ulp")(value), steps=34, replays=2)).calls == 34


def test_places_are_told_apart():
    value = x()

    def step():
        op("ulp")(value)  # calls 1, 2 and 3
        op("ulp")(value)  # calls 4, 5 and 6

    hidden.reset(every=5)
    culprit = only(audit(step))
    assert culprit.calls == 1
    line = int(culprit.source.split(":")[1].split(" ")[0])
    assert line == step.__code__.co_firstlineno + 2


def test_a_warned_operation_says_so():
    """``put_`` warns on a CPU; a mode below the audit makes it flip."""

    class Flipping(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            returned = func(*args, **(kwargs or {}))
            return one_ulp(returned) if func is torch.ops.aten.put_.default else returned

    with Flipping():
        found = audit(lambda: x().put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0])))
    culprit = only(found)
    assert culprit.op == "aten.put_.default"
    assert culprit.warned
    assert culprit.reason
    assert "PyTorch warns of it" in culprit.sentence()
    assert not torch.are_deterministic_algorithms_enabled()


# -- clean models --------------------------------------------------------------------------


def classifier(make_optimizer, **options):
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    optimizer = make_optimizer(net.parameters(), lr=0.05, **options)
    return (
        net,
        optimizer,
        lambda: functional.cross_entropy(net(torch.randn(5, 6)), torch.tensor([0, 1, 2, 0, 1])),
    )


def convolutional():
    net = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GELU(), nn.MaxPool2d(2)),
        *(nn.ConvTranspose2d(4, 2, 2, stride=2), nn.BatchNorm2d(2, momentum=None)),
        *(nn.Conv2d(2, 1, 1), nn.InstanceNorm2d(1, track_running_stats=True)),
    )
    return (
        net,
        torch.optim.Adam(net.parameters()),
        lambda: net(torch.randn(2, 1, 8, 8)).abs().mean(),
    )


def attention():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)

        def forward(self, x):
            x = self.layer(self.attention(x, x, x)[0])
            q = x.unflatten(-1, (2, 4)).transpose(1, 2)
            return functional.scaled_dot_product_attention(q, q, q, dropout_p=0.3, is_causal=True)

    net = Net()
    return net, torch.optim.AdamW(net.parameters()), lambda: net(torch.randn(2, 4, 8)).mean()


def embedding():
    net = nn.Sequential(nn.Embedding(9, 4, sparse=True, max_norm=1.0), nn.Flatten())
    indices = torch.tensor([[0, 3, 3], [1, 0, 8]])
    update = torch.optim.SGD(net.parameters(), lr=0.1)
    return net, update, lambda: net(indices).square().sum()


def checkpointed(reentrant):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Tanh())

        def forward(self, x):
            return checkpoint(self.block, x, use_reentrant=reentrant)

    net = Net()
    return (
        net,
        torch.optim.SGD(net.parameters(), lr=0.1),
        lambda: net(torch.randn(3, 6, requires_grad=True)).sum(),
    )


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        return 3 * ctx.saved_tensors[0] ** 2 * gradient


def in_place():
    """Writes into views, onto themselves, beside themselves and into given tensors."""
    net = nn.Linear(6, 6)
    net.register_buffer("kept", torch.zeros(4, 6))
    flat = torch.zeros(60)

    def loss():
        y = Cubed.apply(net(torch.randn(4, 6)))
        y = y * 1.5
        y[1:3].mul_(2)
        y.t()[0].add_(1)
        with torch.no_grad():
            net.kept.add_(net.kept)
            net.kept.add_(y)
            net.kept[0].copy_(net.kept[1])
            net.kept[:2].sub_(net.kept[2:])
            net.kept.index_add_(0, torch.tensor([0, 0, 2]), y[:3])
            net.kept.index_put_((torch.tensor([1, 1]),), y[:2], accumulate=True)
            net.kept.scatter_(1, torch.tensor([[0, 1]]), 0.5).masked_fill_(net.kept > 1e6, 0)
            torch.add(net.kept[2], 1, out=net.kept[3])
            torch.addmm(
                flat[:4].view(2, 2), flat[4:8].view(2, 2), flat[4:8].view(2, 2), out=torch.empty(0)
            )
            torch._foreach_mul_([flat[:9], flat[9:20], net.kept], 1.25)
            torch._foreach_add_([flat, flat], 1)
            new = torch.empty(0).resize_(3).fill_(2).unsqueeze_(0).squeeze_(0)
            torch.mul(new, 2, out=torch.empty(0))
            torch.from_numpy(np.arange(9, dtype="f4")[1:]).mul_(3)
            net.weight.mul_(1.001)
            torch.zeros(3, 4)[3:].add_(1)
            torch.empty_strided((2, 2), (1, 3)).zero_().add_(1)
            list(torch.zeros(4).split(2))[1].add_(1)
        return y.mean()

    return net, torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True), loss


def unusual():
    """Empty, complex, sparse, quantised, integer and double tensors; explicit generators."""
    net = nn.Linear(6, 6)
    generator = torch.Generator().manual_seed(3)
    net.register_buffer("drawn", torch.zeros(3))

    def loss():
        y = net(torch.randn(4, 6))
        torch.zeros(0, 3).add_(1).sum()
        z = torch.complex(y, y.flip(0))
        spectrum = torch.fft.fft(z) * z.conj()
        with torch.no_grad():
            own = z.clone()
            own.copy_(own.conj()).mul_(2j)
            net.drawn.add_(torch.rand(3, generator=generator)).add_(torch.randn(3))
            net.drawn.bernoulli_(0.5, generator=generator).uniform_()
            torch.randperm(5), torch.multinomial(torch.ones(5), 3), torch.poisson(torch.ones(3))
            coo = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [1.0, 2.0, 3.0], (2, 3))
            coo.add_(coo)
            net.drawn.add_(coo.coalesce().mul_(2).to_dense().sum())
            torch.quantize_per_tensor(torch.rand(4), 0.1, 2, torch.quint8).dequantize()
            torch.arange(5).cumsum(0).double().softmax(0).topk(2)
            torch.rrelu(torch.randn(5), training=True)
        return spectrum.abs().mean() + functional.dropout(y, 0.2).mean()

    return net, torch.optim.SGD(net.parameters(), lr=0.1), loss


CLEAN = {
    "adamw foreach": partial(classifier, torch.optim.AdamW, foreach=True),
    "sgd fused": partial(classifier, torch.optim.SGD, momentum=0.9, fused=True),
    "convolutional": convolutional,
    "attention": attention,
    "sparse embedding": embedding,
    "checkpoint": partial(checkpointed, False),
    "reentrant checkpoint": partial(checkpointed, True),
    "in place": in_place,
    "unusual": unusual,
}


def run(make, seed, **watch):
    """What a training ends with, and what the audit found."""
    with seeded(seed):
        net, optimizer, loss = make()
        losses = []

        def step():
            optimizer.zero_grad()
            value = loss()
            value.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            optimizer.step()
            losses.append(value.detach().clone())

        found = audit(step, steps=2, **watch) if watch else [step(), step()]
        moments = (state.values() for state in optimizer.state.values())
        ends = [*net.parameters(), *net.buffers(), *losses, *(m for s in moments for m in s)]
        ends += [parameter.grad for parameter in net.parameters()]
        generators = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())
        ends = [t.detach().clone() for t in ends if isinstance(t, torch.Tensor)]
        return ends, repr(generators[1:]), generators[0], found


@pytest.mark.filterwarnings("ignore:.*quantize")
@pytest.mark.parametrize("name", CLEAN)
def test_silent_on_a_clean_model_and_the_training_is_unchanged(name):
    plain, audited = run(CLEAN[name], 5), run(CLEAN[name], 5, replays=2)
    found = audited[3]
    assert found.ops == ()
    assert not [op for op in found.not_replayed if "raised" in op]
    assert found.n_replays == 2 * found.n_replayed > 0
    assert len(plain[0]) == len(audited[0])
    assert all(same_bits(a, b) for a, b in zip(plain[0], audited[0], strict=True))
    assert (plain[1], plain[2].tolist()) == (audited[1], audited[2].tolist())


def test_what_a_flipping_operation_gave_stays():
    """The training goes on with the first run's values, whatever the replays give."""
    kept, written = [], x()
    audit(lambda: kept.append(op("ulp")(x())), replays=3)  # replays 2 and 4 flip
    assert torch.equal(kept[0], x())
    hidden.reset()
    audit(lambda: op("write")(written), replays=3)
    assert torch.equal(written, x())


@pytest.mark.parametrize("every", [2, 99], ids=["also when a replay raises", "of a custom one"])
def test_generators_are_put_back(every):
    def drawing():
        hidden.reset(every)
        with seeded(3):
            op("raises_or_draws")(x())
            return torch.rand(1).item(), random.random(), np.random.rand()

    expected, actual = drawing(), []
    found = audit(lambda: actual.append(drawing()))
    assert (found.ops, actual) == ((), [expected])
    name = f"{NAMESPACE}.raises_or_draws.default"
    assert (found.not_replayed.get(f"{name}: replay raised RuntimeError") == 1) is (every == 2)
    assert (name in found.kinds) is (every != 2)


def test_copies_that_need_not_be_done_are_waited_for(monkeypatch):
    """On a GPU; here the waiting is only counted, and the device is said to be one."""
    waited = []

    class Module:
        def synchronize():
            waited.append(1)

    class Elsewhere(torch.Tensor):
        device = torch.device("cuda", 0)

    monkeypatch.setattr(torch, "get_device_module", lambda kind: Module)
    call = Call(torch.ops.aten.copy_.default, (x(), x().as_subclass(Elsewhere), True), {}, None)
    plan = plan_of(call.func)
    wait(call, plan)
    assert waited == [1]
    for arguments in ((*call.args[:2], False), call.args[:2], (x(), x(), True)):
        wait(Call(call.func, arguments, {}, None), plan)
    assert waited == [1]
    call = Call(torch.ops.aten._to_copy.default, call.args[1:2], {"non_blocking": True}, None)
    wait(call, plan_of(call.func))
    assert waited == [1, 1]
    value = x()
    found = audit(lambda: value.double().copy_(value, non_blocking=True))
    assert found.ops == ()
    assert found.n_replayed == 2


def test_what_an_operation_writes_without_saying_so_is_written_once():
    value = x()
    assert audit(lambda: op("unsaid")(value), replays=4).ops == ()
    assert torch.equal(value, x() + 1)
    net, batch = nn.BatchNorm1d(2), torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    audit(lambda: net(batch), replays=5)  # its schema is silent, too (torch 2.15)
    assert torch.allclose(net.running_mean, torch.tensor([0.2, 0.4]))


def test_what_the_step_raises_is_the_users_and_all_is_put_back():
    hidden.reset(every=1)
    threads, handled = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    filters = list(warnings.filters)
    with pytest.raises(RuntimeError, match="executed twice"):
        audit(lambda: op("raises_or_draws")(x()), threads=2)
    assert torch.get_num_threads() == threads
    assert torch.are_deterministic_algorithms_enabled() == handled
    assert warnings.filters == filters
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


def test_replays_do_not_warn_again():
    def step():
        return x().put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))

    with mode_in_force("warn"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = audit(step, replays=5)
    assert found.kinds["aten.put_.default"] == 1
    assert len(caught) == 1


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
    assert found.sentence().startswith(
        "no operation flips, over 3 steps: 9 operations of 3 kinds, 36 replays at 2 threads; "
    )
    assert torch.get_num_threads() == 1
    views = audit(lambda: torch.empty(3).view(3, 1).t())
    assert (views.n_calls, views.n_replayed) == (3, 0)
    assert views.sentence().startswith("vacuous: nothing was replayed")


def test_an_auditor_inside_an_observer_and_used_twice():
    auditor = Auditor(replays=2)
    for _ in range(2):
        with Observer(), auditor:
            op("ulp")(x())
    assert only(auditor.result(n_steps=2)).calls == 2


def test_nothing_of_the_step_is_held():
    held = []

    def step():
        net = nn.Linear(300, 300)
        loss = net(torch.ones(2, 300)).mul_(2).sum()
        loss.backward()
        held.extend(map(weakref.ref, (net, net.weight, net.weight.grad, loss)))

    with Auditor():
        step()
        gc.collect()
        assert [reference() for reference in held] == [None] * 4


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


def test_a_culprit_in_words():
    culprit = NondeterministicOperation(
        *("aten.index_put.default", "a.b", "x.py:3 in f", "backward", 1, 4, False),
        *("rel-pos-gather", 2e-9, 7, 2, "", "wait"),
    )
    assert culprit.sentence() == (
        "aten.index_put.default, backward of a.b (x.py:3 in f): 1 of 4 replays gave other bits, "
        "largest difference 2e-09; PyTorch does not warn of it; substitute: rel-pos-gather"
    )


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


@pytest.mark.parametrize("chances", [(0.5, 0.5), (0.9, 0.1), (0.4, 0.3, 0.3), (0.99, 0.01)])
def test_a_chance_that_could_be_missed_is_missed_in_one_of_twenty_at_most(chances):
    """All replays equal the first in sum(p ** (r + 1)) of the cases."""
    n = next(n for n in range(1, 10_000) if could_miss(n) <= 1 - max(chances))
    assert sum(p ** (n + 1) for p in chances) <= 0.05


# -- memory that nobody has written --------------------------------------------------------


class ReadsForward(nn.Module):
    def forward(self, x):
        return x * torch.empty_like(x)  # planted


class ReadsBackward(nn.Module):
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, gradient):
            return gradient + gradient.new_empty(gradient.shape)  # planted

    def forward(self, x):
        return self.Doubled.apply(x)


def trained(net):
    """A step of a training, with what it learns from."""
    optimizer = torch.optim.AdamW(net.parameters())
    batch = torch.ones(2, 6)

    def step():
        optimizer.zero_grad()
        net(batch).square().mean().backward()
        optimizer.step()

    return step


@pytest.mark.parametrize(
    ("reader", "op", "phase"),
    [
        (ReadsForward, "aten.empty_like.default", "forward"),
        (ReadsBackward, "aten.new_empty.default", "backward"),
    ],
)
def test_a_module_that_reads_what_nobody_wrote_is_found(reader, op, phase):
    """Though each of its operations repeats; by its line, and by what read it."""
    found = audit(trained(nn.Sequential(nn.Linear(6, 6), reader(), nn.Linear(6, 1))), steps=3)
    culprit = only(found)
    assert (culprit.op, culprit.module, culprit.phase) == (op, "1", phase)
    name, _, line = culprit.source.partition(":")
    assert name == "test_flips.py"
    assert "# planted" in SOURCE[int(line.split()[0]) - 1]
    assert (culprit.calls, culprit.flips, culprit.replays) == (3, 3, 3)
    assert (culprit.n_elements, culprit.warned, culprit.substitute) == (12, False, None)
    assert culprit.read_by.startswith(("aten.mul.Tensor, forward of 1", "aten.add.Tensor, backw"))
    assert "a result comes from memory that nobody has written" in found.sentence()


SOURCE = Path(__file__).read_text(encoding="utf-8").splitlines()


def grown():
    x = torch.ones(3)
    return x.resize_(5).sum()


def padded(rows):
    """Three of five rows are written, and some are used."""
    x = torch.empty(5, 2)
    x[:3].copy_(torch.ones(3, 2))
    y = x * 2
    return y[:rows].sum() + y[:rows].max()


def drawn_by_it(first=torch.empty):
    """Where what is really there is no probability, it is refused, and other memory is taken."""
    taken = [first(4).abs_()]
    while True:
        with suppress(RuntimeError):
            return torch.multinomial(taken[-1].clamp(0.1, 1), 1)
        taken.append(torch.empty(4).abs_())


@pytest.mark.parametrize(
    ("step", "reader"),
    [
        (lambda: torch.empty(4).sum(), "sum"),
        (lambda: torch.empty(1).item(), "_local_scalar_dense"),
        (lambda: torch.empty(4, dtype=torch.int32) // 2, "floor_divide"),
        (lambda: torch.empty(4, dtype=torch.bool).any(), "any"),
        (lambda: torch.empty(4, dtype=torch.complex64).abs(), "abs"),
        (lambda: torch.empty(4, dtype=torch.bfloat16).softmax(0), "_softmax"),
        (lambda: torch.empty(4).gt(0).nonzero(), "gt"),
        (lambda: torch.empty(4).add_(1), "add_"),
        (lambda: torch.empty_strided((2, 2), (1, 4)) * 0, "mul"),
        (lambda: torch.stack([torch.ones(2), torch.empty(2)]), "stack"),
        (drawn_by_it, "abs_"),
        (lambda: padded(4), "mul"),
        (grown, "sum"),
    ],
    ids=[
        *("float", "number", "whole", "truth", "complex", "half", "size", "in place", "times 0"),
        *("one of two", "drawn by it", "padding", "resized"),
    ],
)
def test_every_way_to_read_it_is_found(step, reader):
    generator = torch.get_rng_state()
    culprit = only(audit(step))
    assert culprit.read_by.split(",")[0].split(".")[1] == reader
    assert culprit.op.startswith(("aten.empty", "aten.resize_"))
    assert len(torch.get_rng_state()) == len(generator)


def by_numpy():
    x = torch.empty(4)
    x.numpy()[:] = np.arange(1, 5)  # which PyTorch does not dispatch
    return x * 2


def overwritten():
    x = torch.empty(3)
    return x.copy_(torch.ones(3)) * 2


@pytest.mark.parametrize(
    "step",
    [
        overwritten,
        lambda: torch.mul(torch.ones(3), 2, out=torch.empty(3)).sum(),
        lambda: torch.cat([torch.ones(3), torch.ones(2)], out=torch.empty(5)).sum(),
        lambda: torch.empty(50).bernoulli_(0.5).sum(),
        lambda: torch.empty(50).normal_().mean(),
        lambda: torch.zeros_like(torch.empty(3)).sum(),
        lambda: torch.empty(3, 4).shape,
        lambda: torch.where(torch.ones(3) > 0, torch.ones(3), torch.empty(3)).sum(),
        lambda: torch.empty(0).resize_(3).fill_(1).sum(),
        lambda: torch.empty_strided((2, 2), (1, 3)).zero_().add_(1).sum(),
        lambda: torch._foreach_add_([torch.empty(3).zero_(), torch.ones(2)], 1),
        lambda: padded(3),
        lambda: nn.Linear(6, 6)(torch.ones(2, 6)).sum().backward(),
        by_numpy,
    ],
    ids=[
        *("copied", "out", "cat out", "drawn", "normal", "shape of it", "shape", "masked", "grown"),
        *("strided", "list", "padding", "initialised", "NumPy"),
    ],
)
def test_memory_that_is_written_before_it_is_read_is_left_alone(step):
    found = audit(step)
    assert found.ops == ()
    assert found.n_followed > 0
    assert not [op for op in found.not_replayed if "raised" in op or "not followed" in op]


def test_of_two_the_one_that_matters_is_named():
    """What is copied over is clean, whatever is copied into it."""

    def step():
        clean = torch.empty(3)
        clean.copy_(torch.ones(3) + torch.empty_like(clean))
        return clean.sum()

    found = audit(step)
    assert only(found).op == "aten.empty_like.default"
    assert found.n_followed == 2


def test_a_faulty_training_is_followed_without_being_touched():
    """Its own memory stays: zeros here, as fresh memory often is, and the weights as without."""

    class Zeros(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            return made.zero_() if func is torch.ops.aten.empty_like.default else made

    ends = []
    for watched in (False, True):
        with seeded(3), Zeros():
            net = nn.Sequential(nn.Linear(6, 6), ReadsForward(), nn.Linear(6, 1), nn.Dropout())
            step = trained(net)
            if watched:
                assert only(audit(step)).op == "aten.empty_like.default"
            else:
                step()
            ends.append([*(p.detach().clone() for p in net.parameters()), torch.rand(3)])
    assert all(same_bits(a, b) for a, b in zip(*ends, strict=True))


def test_memory_that_pytorch_fills_is_the_same_every_time():
    with mode_in_force("strict"):
        torch.utils.deterministic.fill_uninitialized_memory = True  # which the mode puts back
        found = audit(lambda: torch.empty(4).sum())
    assert (found.ops, found.n_followed) == ((), 0)
