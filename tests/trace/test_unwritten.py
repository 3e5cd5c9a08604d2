"""Memory that nobody has written is followed to what reads it, and nothing else is blamed."""

from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import cellrepro
from cellrepro.determinism.seeding import seeded
from cellrepro.store.bits import same_bits

audit = partial(cellrepro.audit, steps=1, replays=2, suspects=0)

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")


def only(found):
    (culprit,) = found.ops
    return culprit


class Filled(TorchDispatchMode):
    """What really stands in unwritten memory, so that a test does not depend on it itself."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        return made.fill_(self.value) if "empty" in str(func) else made


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
    with Filled(0.5):
        found = audit(trained(nn.Sequential(nn.Linear(6, 6), reader(), nn.Linear(6, 1))), steps=3)
    culprit = only(found)
    assert (culprit.op, culprit.module, culprit.phase) == (op, "1", phase)
    name, _, line = culprit.source.partition(":")
    assert name == "test_unwritten.py"
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
    ends = []
    for watched in (False, True):
        with seeded(3), Filled(0):
            net = nn.Sequential(nn.Linear(6, 6), ReadsForward(), nn.Linear(6, 1), nn.Dropout())
            step = trained(net)
            if watched:
                assert only(audit(step)).op == "aten.empty_like.default"
            else:
                step()
            ends.append([*(p.detach().clone() for p in net.parameters()), torch.rand(3)])
    assert all(same_bits(a, b) for a, b in zip(*ends, strict=True))
