"""Rounding is left alone, and an operation that computes something else is found."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from samebits.call_site import Site
from samebits.trace import float64_reference
from samebits.trace.float64_reference import Reference
from samebits.trace.observer import Call
from samebits.trace.operation_ledger import OperationLedger
from samebits.trace.replay_plan import plan_of

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


def training_step(**options):
    """A training step of it; no generator is moved."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
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

    return step


def faults_of(step):
    """The operations of a step that are further from float64 than they may be."""
    with OperationLedger(reference=True) as log:
        step()
    judged = [row for row in log.rows if row.ulp is not None]
    assert judged
    return [row.op for row in judged if not row.ulp <= row.limit], {row.op for row in judged}


def test_clean_steps_are_left_alone():
    torch.set_num_threads(2)
    faults, judged = faults_of(training_step(fused=True))
    assert faults == []
    assert judged >= {
        *("aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.convolution.default"),
        *("aten.convolution_backward.default", "aten.native_layer_norm.default"),
        *("aten.gelu.default", "aten.gelu_backward.default", "aten._softmax.default"),
        *("aten.upsample_linear1d.default", "aten.index_put.default", "aten.add.Tensor"),
    }


class Planted(TorchDispatchMode):
    """Does the first float32 operation of a name in another way, below who watches."""

    def __init__(self, func, fault):
        super().__init__()
        self.func, self.fault, self.n_done = func, fault, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        in_float32 = any(isinstance(a, torch.Tensor) and a.dtype == torch.float32 for a in args)
        if func is self.func and in_float32 and not self.n_done:
            self.n_done += 1
            return self.fault(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def truncated(x):
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)  # 10 bits of 23, as TF32


def as_tf32(func, *args):
    return func(*(truncated(a) if isinstance(a, torch.Tensor) else a for a in args))


def last_add_dropped(func, x, indices, values, accumulate):
    return func(x, indices, torch.cat([values[:-1], 0 * values[-1:]]), accumulate)


def off(factor):
    return lambda func, *args, **kwargs: func(*args, **kwargs) * factor


@pytest.mark.parametrize(
    ("func", "fault"),
    [
        (aten.index_put.default, last_add_dropped),
        (aten.mm.default, as_tf32),
        (aten.gelu.default, off(1 - 1e-4)),
        (aten._softmax.default, off(1 + 1e-4)),
        (aten.convolution.default, off(math.nan)),
    ],
    ids=["an add dropped", "TF32", "a function", "of a row", "NaN"],
)
def test_another_computation_is_found_and_only_it(func, fault):
    """As a device, a setting or a library with a bug would do it; what follows is not wrong."""
    step = training_step()
    with Planted(func, fault) as planted:
        faults, _ = faults_of(step)
    assert planted.n_done == 1
    assert faults == [str(func)]


# -- one operation -------------------------------------------------------------------------


def called(func, *args, **kwargs):
    """A call as it would be seen."""
    return Call(func, args, kwargs, Site(str(func), None, None, "forward"))


def error_of(func, *args, **kwargs):
    """Error and limit of an operation, in ulp."""
    call, plan = called(func, *args, **kwargs), plan_of(func)
    reference = Reference.of(call, plan)
    return reference and reference.error(plan.outputs(args, kwargs, call.run()))


def test_the_error_is_counted_in_ulp():
    """1 and 1 + 2**-23 are one ulp apart, 1 and 1 + 2**-7 one of bfloat16."""
    call = called(aten.add.Tensor, torch.ones(2), torch.zeros(2))
    for step, dtype in ((2.0**-23, torch.float32), (2.0**-7, torch.bfloat16)):
        reference = Reference.of(call, plan_of(call.func))
        assert reference.error([torch.tensor([1, 1 + 3 * step], dtype=dtype)]).ulp == 3
    shape = Reference.of(call, plan_of(call.func)).error([torch.ones(3)])
    assert shape.ulp == math.inf
    x = torch.tensor([1.0, 2.0])  # in place: the copies are older than the write
    assert error_of(aten.mul_.Tensor, x, torch.tensor([3.0, 5.0])).ulp == 0
    assert x.tolist() == [3, 10]


def test_a_replay_that_failed_is_written_down():
    """No implementation in float64, or no memory: not judged, and why."""

    class Refusing(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is aten.gelu.default and args[0].dtype == torch.float64:
                raise torch.OutOfMemoryError("tried to allocate 4 GB\nmore")
            return func(*args, **(kwargs or {}))

    with Refusing(), OperationLedger(reference=True) as log:
        functional.gelu(torch.ones(3)).exp()
    *_, gelu, exp = log.rows
    why = "OutOfMemoryError: tried to allocate 4 GB"
    assert (gelu.ulp, gelu.limit, gelu.problem) == (None, None, why)
    assert exp.ulp <= exp.limit


def test_nothing_is_said_where_float64_would_not_know_better(generators_free):
    assert error_of(aten.view.default, torch.ones(4), [2, 2]) is None
    assert error_of(aten.bernoulli.default, torch.ones(3)) is None
    assert error_of(aten.add.Tensor, torch.ones(3, dtype=torch.float64), 1.0) is None
    assert error_of(aten.div.Tensor_mode, torch.ones(3), 0.1, rounding_mode="floor") is None


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (aten.sub.Tensor, (torch.tensor([1.0]), torch.tensor([1 - 2**-24]))),
        (aten.exp.default, (torch.tensor([100.0, -200.0, -math.inf, math.nan]),)),
        (aten.gelu.default, (torch.tensor([-5.0, -6.0]),)),
        (aten.mul.Tensor, (torch.tensor([1e-30]), torch.tensor([1e-12]))),
        (aten.sum.default, (torch.tensor([3e38, 3e38, -3e38]),)),
        (aten.mm.default, (torch.full((2, 1024), 0.1), torch.full((1024, 2), 0.3))),
    ],
    ids=["cancelling", "overflow", "gelu's tail", "underflow", "overflow on the way", "equal"],
)
def test_correct_results_at_the_edges_are_no_fault(func, args):
    error = error_of(func, *args)
    assert error.ulp <= error.limit


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("asked_for", [False, True], ids=["float32", "TF32"])
def test_convolutions_of_a_gpu_are_left_alone_and_tf32_in_secret_is_found(asked_for, monkeypatch):
    """Transforms round more than sums do; TF32 is a fault only where it was forbidden."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", asked_for)
    images = torch.randn(2, 256, 32, 32, generator=torch.Generator().manual_seed(0)).cuda()
    weight = torch.randn(256, 256, 3, 3, generator=torch.Generator().manual_seed(1)).cuda() / 48
    leaves = images.requires_grad_(), weight.requires_grad_()

    def step():
        functional.conv2d(*leaves, padding=1).square().mean().backward()

    faults, judged = faults_of(step)
    assert faults == []
    assert "aten.convolution_backward.default" in judged
    if asked_for:
        monkeypatch.setattr(float64_reference, "rounds_to_tf32", lambda base: False)
        assert "aten.convolution_backward.default" in faults_of(step)[0]
