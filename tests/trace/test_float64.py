"""Rounding is left alone, and an operation that computes something else is found."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from cellrepro.compare.operation_alignment import judge_round_off
from cellrepro.trace.float64 import Judged, Reference, ReferenceLog, judge, limit, op_class
from cellrepro.trace.observer import Call, Observer
from cellrepro.trace.operation_ledger import OperationLedger
from cellrepro.trace.reexecution import Plan

aten = torch.ops.aten
pytestmark = pytest.mark.usefixtures("one_thread")


class Net(nn.Module):
    """A small transformer with what Cellpose's network is made of."""

    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Conv2d(3, width, 4, stride=4)
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.place = nn.Parameter(torch.randn(7, width))
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.out = nn.ConvTranspose2d(width, 3, 4, stride=4)

    def forward(self, images):
        x = self.embed(images).flatten(2).transpose(1, 2)
        n = x.shape[1]
        place = functional.interpolate(self.place.T[None], size=n, mode="linear")[0].T
        x = x + place[torch.arange(n).flip(0)]
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        x = x + torch.softmax(q @ k.transpose(1, 2) / 4, dim=-1) @ v
        x = x + self.down(functional.gelu(self.up(self.norm(x))))
        side = int(n**0.5)
        return self.out(x.transpose(1, 2).reshape(len(x), -1, side, side))


def prepared(seed=0, **options):
    """A network and its training step, drawn from a seed; no generator is moved."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = Net()
        images, wanted = torch.randn(2, 3, 16, 16), torch.randn(2, 3, 16, 16)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1, **options)

    def step():
        optimizer.zero_grad()
        given = net(images)
        flows = functional.mse_loss(given[:, :2], wanted[:, :2])
        cells = functional.binary_cross_entropy_with_logits(given[:, 2], (wanted[:, 2] > 0).float())
        (flows + cells).backward()
        optimizer.step()

    return net, step


class Planted(ReferenceLog):
    """Does the first operation of a name in another way."""

    def __init__(self, op, fault):
        super().__init__()
        self.op, self.fault, self.place = op, fault, None

    def observe(self, call):
        if call.place.op == self.op and self.place is None:
            self.place = call.place
            call = Faulty(call.func, call.args, call.kwargs, call.place)
            call.fault = self.fault
        return super().observe(call)


class Faulty(Call):
    fault = None

    def run(self):
        return self.fault(self)


def change(function):
    """A fault that changes what the operation gives, or its first output."""

    def fault(call):
        given = call.func(*call.args, **call.kwargs)
        first = given[0] if isinstance(given, tuple) else given
        first.copy_(function(first.clone()))
        return given

    return fault


def one_element(x):
    x[(-1,) * x.dim()] += 0.01 * x.abs().max()
    return x


def truncated(x):
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)  # 10 bits of 23, as TF32


def in_another_way(function):
    """A fault that changes the inputs."""

    def fault(call):
        args = [function(a) if isinstance(a, torch.Tensor) else a for a in call.args]
        return call.func(*args, **call.kwargs)

    return fault


def in_bfloat16(call):
    args = [a.bfloat16() if isinstance(a, torch.Tensor) else a for a in call.args]
    return call.func(*args, **call.kwargs).float()


def another_epsilon(call):
    *args, _ = call.args
    return call.func(*args, 1e-3)


def last_term_dropped(call):
    a, b = call.args
    return call.func(a[:, :-1].contiguous(), b[:-1].contiguous())


def last_add_dropped(call):
    x, indices, values, accumulate = call.args
    values = values.clone()
    values[-1] = 0
    return call.func(x, indices, values, accumulate)


def transposed(call):
    return call.func(*call.args, **call.kwargs).transpose(-1, -2).contiguous()


EVERYWHERE = {
    *("aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.convolution.default"),
    *("aten.convolution_backward.default", "aten.native_layer_norm.default"),
    *("aten.native_layer_norm_backward.default", "aten.gelu.default", "aten.gelu_backward.default"),
    *("aten._softmax.default", "aten._softmax_backward_data.default", "aten.sum.dim_IntList"),
    *("aten.upsample_linear1d.default", "aten.index_put.default", "aten.add.Tensor"),
    *("aten.mse_loss.default", "aten.binary_cross_entropy_with_logits.default"),
    *("aten.index.Tensor", "aten.clone.default", "aten.addcdiv_.default", "aten.lerp_.Scalar"),
}


def found(op, fault, **options):
    log = Planted(op, fault)
    with log:
        prepared(**{"foreach": False, **options})[1]()
    assert log.place is not None, f"{op} never came"
    # What is computed from a wrong result is not wrong itself.
    assert [place for place, _ in log.faults] in ([], [log.place])
    return bool(log.faults)


class Changing(ReferenceLog):
    """Judges the first operation of each name by a changed copy of its results too."""

    def __init__(self, function):
        super().__init__()
        self.function, self.found, self.plans = function, {}, {}

    def observe(self, call):
        plan = Plan.of(call.func)
        reference = Reference.of(call, plan) if call.place.op not in self.found else None
        returned = super().observe(call)
        if reference is not None:
            outputs = list(plan.outputs(call.args, call.kwargs, returned))
            at = next(i for i, output in enumerate(outputs) if output is not None)
            if outputs[at].is_floating_point() and outputs[at].any():
                outputs[at] = self.function(outputs[at].clone())
                self.found[call.place.op] = judge(call, reference, outputs).fault
        return returned


@pytest.mark.parametrize(
    "change",
    [lambda x: x * (1 + 1e-3), lambda x: x * (1 - 1e-4), one_element, torch.neg],
    ids=["1e-3", "1e-4", "one element by 1 %", "sign"],
)
def test_a_changed_result_is_found(change):
    """In every kind of operation of a step."""
    log = Changing(change)
    with log:
        prepared(foreach=False)[1]()
    assert log.found.keys() >= EVERYWHERE
    assert [op for op, found in log.found.items() if not found] == []
    assert log.faults == []


@pytest.mark.parametrize(
    ("op", "fault"),
    [
        ("aten.bmm.default", transposed),
        ("aten.mm.default", transposed),
        ("aten.mm.default", last_term_dropped),
        ("aten.index_put.default", last_add_dropped),
        ("aten.native_layer_norm.default", another_epsilon),
        ("aten.mm.default", in_another_way(truncated)),
        ("aten.bmm.default", in_another_way(truncated)),
        ("aten.mm.default", in_bfloat16),
        ("aten.gelu.default", in_bfloat16),
        ("aten._softmax.default", in_bfloat16),
        ("aten.add.Tensor", in_bfloat16),
        ("aten.mm.default", change(lambda x: x * float("nan"))),
        ("aten.mm.default", change(lambda x: x.fill_(float("inf")))),
        ("aten.add.Tensor", change(torch.zeros_like)),
    ],
    ids=[
        *("transposed", "transposed shape", "term dropped", "add dropped", "epsilon", "tf32 mm"),
        *("tf32 bmm", "bf16 mm", "bf16 gelu", "bf16 softmax", "bf16 add", "nan", "inf", "zeros"),
    ],
)
def test_another_computation_is_found(op, fault):
    """As a device, a setting or a library with a bug would do it."""
    if fault is transposed and op == "aten.mm.default":
        call = called(aten.mm.default, torch.ones(2, 3), torch.ones(3, 4))
        reference = Reference.of(call, Plan.of(call.func))
        assert judge(call, reference, [fault(call)]).ulp == float("inf")
        return
    assert found(op, fault)


@pytest.mark.parametrize("terms", [64, 1024, 16384])
def test_truncated_inputs_are_found_in_long_products(terms):
    """However many terms there are: rounding of terms that cancel stays small."""
    g = torch.Generator().manual_seed(terms)
    a, b = torch.randn(8, terms, generator=g), torch.randn(terms, 8, generator=g)
    call = called(aten.mm.default, a, b)
    plan = Plan.of(call.func)
    assert not judge(call, Reference.of(call, plan), [a @ b]).fault
    assert judge(call, Reference.of(call, plan), [truncated(a) @ truncated(b)]).fault


@pytest.mark.parametrize(
    ("seed", "threads", "options"),
    [
        (0, 1, {"foreach": False}),
        (1, 1, {"foreach": True}),
        (2, 1, {"fused": True}),
        (3, 2, {"foreach": True}),
    ],
    ids=["single", "foreach", "fused", "two threads"],
)
def test_clean_steps_are_left_alone(seed, threads, options):
    """Several seeds, every form of the update, one and two threads."""
    torch.set_num_threads(threads)
    log = ReferenceLog()
    with log:
        prepared(seed, **options)[1]()
    assert log.faults == []
    judged = {place.op for place, _ in log.rows}
    assert judged >= {"aten.mm.default", "aten.convolution_backward.default", "aten.gelu.default"}
    assert not log.unjudged.keys() & {"aten.mm.default", "aten.index_put.default"}


def test_a_replay_that_failed_is_told(monkeypatch):
    """Out of memory, or no implementation in float64: not judged, and why."""
    real = Reference._run

    def failing(self, args, kwargs):
        if self._base == "gelu":
            raise torch.OutOfMemoryError("out of memory, tried to allocate 4 GB\nmore")
        return real(self, args, kwargs)

    monkeypatch.setattr(Reference, "_run", failing)
    why = "OutOfMemoryError: out of memory, tried to allocate 4 GB"
    log, ledger = ReferenceLog(), OperationLedger(reference=True)
    for watching in (log, ledger):
        with watching:
            prepared(0)[1]()
    n = log.problems.pop(("aten.gelu.default", why))
    assert (n, log.problems) == (log.unjudged["aten.gelu.default"], {})
    failed = [row for row in ledger.rows if row.problem is not None]
    assert {(row.op, row.ulp, row.problem) for row in failed} == {("aten.gelu.default", None, why)}
    found = judge_round_off(ledger.rows, ledger.rows)
    assert len(found.failed) == 2 * n
    assert (
        f"{2 * n} of these because their float64 replay failed: aten.gelu.default in "
    ) in found.sentence()
    assert found.sentence().count(why) == 1


def test_another_instruction_set_is_left_alone():
    """PyTorch's kernels without AVX round in another way, and compute the same."""
    code = """
        import sys
        sys.path[:0] = ["tests", "tests/trace"]
        from cellrepro.determinism.profiles import cpu_capability
        from test_float64 import ReferenceLog, prepared
        import torch
        assert cpu_capability() == "DEFAULT"
        with ReferenceLog() as log:
            prepared()[1]()
        assert log.rows and not log.faults, log.faults
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "ATEN_CPU_CAPABILITY": "default"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_watching_changes_no_bit():
    """Weights are those of the same steps unwatched; the fixture watches the generators."""
    plain, watched = prepared(4), prepared(4)
    with ReferenceLog():
        watched[1]()
        watched[1]()
    plain[1]()
    plain[1]()
    for a, b in zip(plain[0].parameters(), watched[0].parameters(), strict=True):
        assert torch.equal(a.view(torch.int32), b.view(torch.int32))


# -- one operation -------------------------------------------------------------------------


class Seen(Observer):
    """The place of one operation."""

    def observe(self, call):
        self.call = call
        return call.run()


def called(func, *args, **kwargs):
    """A call as it would be seen."""
    seen = Seen()
    copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    with seen:
        func(*copies, **kwargs)
    return Call(func, args, kwargs, seen.call.place)


def error_of(func, *args, **kwargs):
    call = called(func, *args, **kwargs)
    plan = Plan.of(func)
    reference = Reference.of(call, plan)
    if reference is None:
        return None
    return reference.error(plan.outputs(args, kwargs, call.run()))


def test_error_is_counted_in_ulp():
    """1 and 1 + 2**-23 are one ulp apart, 1 and 1 + 2**-7 one of bfloat16."""
    call = called(aten.add.Tensor, torch.ones(2), torch.zeros(2))
    plan = Plan.of(call.func)
    for step, dtype in ((2.0**-23, torch.float32), (2.0**-7, torch.bfloat16)):
        reference = Reference.of(call, plan)
        assert reference.error([torch.tensor([1, 1 + 3 * step], dtype=dtype)]) == 3


def test_in_place_is_judged_by_what_was_there():
    """The copies are older than the write."""
    x = torch.tensor([1.0, 2.0])
    assert error_of(aten.mul_.Tensor, x, torch.tensor([3.0, 5.0])) == 0
    assert x.tolist() == [3, 10]
    xs = [torch.ones(3), torch.ones(2)]
    call = called(aten._foreach_add_.Scalar, [t.clone() for t in xs], 1)
    call.args = (xs, 1)
    reference = Reference.of(call, Plan.of(call.func))
    call.run()
    assert reference.error(xs) == 0
    xs[1][0] = 2.5
    call.args = ([torch.ones(3), torch.ones(2)], 1)
    assert Reference.of(call, Plan.of(call.func)).error(xs) > 1e6


@pytest.mark.parametrize(
    ("func", "args", "kwargs"),
    [
        (aten.view.default, (torch.ones(4), [2, 2]), {}),
        (aten.empty.memory_format, ([3],), {}),
        (aten.bernoulli.default, (torch.ones(3),), {}),
        (aten.gt.Scalar, (torch.ones(3), 0), {}),
        (aten.add.Tensor, (torch.ones(3, dtype=torch.int64), 1), {}),
        (aten.add.Tensor, (torch.ones(3, dtype=torch.float64), 1.0), {}),
        (aten.add.Tensor, (torch.ones(3, dtype=torch.complex64), 1), {}),
        (aten.upsample_nearest1d.default, (torch.ones(1, 1, 3), [5]), {}),
        (aten.div.Tensor_mode, (torch.ones(3), 0.1), {"rounding_mode": "floor"}),
        (aten.div.Tensor, (torch.ones(3, dtype=torch.int64), 3), {}),
    ],
    ids=[
        *("view", "empty", "random", "truth", "whole", "float64", "complex", "nearest", "floor"),
        "float32 by default",
    ],
)
def test_no_reference(func, args, kwargs, generators_free):
    """Nothing is said where float64 would not know better."""
    assert error_of(func, *args, **kwargs) is None


@pytest.mark.parametrize(
    ("func", "args", "kwargs"),
    [
        (aten._to_copy.default, (torch.tensor([1 / 3]),), {"dtype": torch.bfloat16}),
        (aten.full.default, ([3], 0.1), {}),
        (aten.linspace.default, (0, 1, 7), {}),
        (aten.sub.Tensor, (torch.tensor([1.0]), torch.tensor([1 - 2**-24])), {}),
        (aten.add.Tensor, (torch.tensor([-0.1]), 0.1), {}),
        (aten.rsub.Scalar, (torch.tensor([0.1]), 0.1), {}),
        (aten._foreach_sub.List, ([torch.ones(2)], [torch.full((2,), 1 - 2**-24)]), {}),
        (aten.exp.default, (torch.tensor([100.0, -200.0, float("-inf"), float("nan")]),), {}),
        (aten.gelu.default, (torch.tensor([-5.0, -6.0]),), {}),
        (aten.tanh_backward.default, (torch.ones(2), torch.tensor([1 - 2**-24, 0.99999])), {}),
        (aten.mul.Tensor, (torch.tensor([1e-30]), torch.tensor([1e-12])), {}),
        (aten.sum.default, (torch.tensor([1e8, 1.0, -1e8]),), {}),
        (aten.sum.default, (torch.tensor([3e38, 3e38, -3e38]),), {}),
        (aten._log_softmax.default, (torch.tensor([[50.0, 0.0]]), 1, False), {}),
        (aten.native_layer_norm.default, (torch.full((2, 9), 0.1), [9], None, None, 1e-5), {}),
        (
            aten.native_layer_norm.default,
            (1e4 + torch.linspace(0, 1, 400).reshape(8, 50), [50], None, None, 1e-5),
            {},
        ),
        (aten._softmax.default, (torch.tensor([[float("-inf"), 1.0]]), 1, False), {}),
        (aten.mm.default, (torch.full((2, 1024), 0.1), torch.full((1024, 2), 0.3)), {}),
        (aten.mm.default, (torch.ones(2, 3).bfloat16(), torch.full((3, 2), 0.1).bfloat16()), {}),
        (aten.sum.default, (torch.zeros(0),), {}),
        (aten.cat.default, ([torch.zeros(0), torch.ones(2)],), {}),
    ],
    ids=[
        *("cast", "full", "linspace", "sub", "add number", "rsub number", "foreach sub"),
        *(
            "overflow",
            "gelu's tail",
            "saturated",
            "underflow",
            "cancelling sum",
            "overflow on the way",
            "log softmax",
        ),
        *(
            "layer norm of equals",
            "layer norm far off",
            "masked softmax",
            "equal terms",
            "bfloat16",
            "empty",
            "cat",
        ),
    ],
)
def test_correct_results_at_the_edges(func, args, kwargs):
    """Cancelling, overflow, underflow, saturation: still no fault."""
    call = called(func, *args, **kwargs)
    plan = Plan.of(func)
    outputs = plan.outputs(args, kwargs, call.run())
    judged = judge(call, Reference.of(call, plan), outputs)
    assert judged is not None
    assert not judged.fault, judged


def test_attention_without_dropout_draws_nothing():
    """It may draw, says its schema; with nothing to drop it is judged."""
    attention = aten._scaled_dot_product_flash_attention_for_cpu.default
    q = torch.linspace(-1, 1, 64).reshape(1, 1, 8, 8)
    assert error_of(attention, q, q, q) < 40
    assert Reference.of(called(attention, q, q, q, 0.0), Plan.of(attention)) is not None
    call = Call(attention, (q, q, q, 0.5), {}, called(attention, q, q, q).place)
    assert Reference.of(call, Plan.of(attention)) is None


@given(
    st.lists(st.floats(-1e8, 1e8, width=32), min_size=1, max_size=20),
    st.sampled_from([aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor]),
)
@settings(max_examples=50, deadline=None)
def test_correctly_rounded_arithmetic_is_half_an_ulp(values, func):
    """What IEEE 754 rounds once is never off by more."""
    x = torch.tensor(values)
    assert error_of(func, x, x.flip(0)) <= 0.5


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("aten.add_.Tensor", "elementwise"),
        ("aten._foreach_addcdiv_.ScalarList", "elementwise"),
        ("aten._to_copy.default", "exact"),
        ("aten.convolution_backward.default", "reduction"),
        ("aten._softmax.default", "function"),
        ("mine.special.default", "function"),
    ],
)
def test_op_class(op, expected):
    """By name, whatever form it comes in."""
    assert op_class(op) == expected


def test_limits():
    """They grow with the terms where terms are added, and what is exact rounds once at most."""
    assert limit("aten.copy_.default", 1000) == 0.5
    assert limit("aten.add.Tensor", 1) == limit("aten.add.Tensor", 100)
    assert limit("aten.mm.default", 4) < limit("aten.mm.default", 400)
    assert not Judged(1.0, 1.0, "exact").fault
    assert Judged(1.5, 1.0, "exact").fault
    assert Judged(float("nan"), 1.0, "exact").fault
