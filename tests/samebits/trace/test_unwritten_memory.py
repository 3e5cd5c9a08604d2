"""Memory that nobody has written is followed to what reads it, and nothing else is blamed."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import samebits
from samebits.seeds import seeded
from samebits.tensor_digests import tensor_digest

audit = partial(samebits.audit, steps=1, replays=2, suspects=0)

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")

SOURCE = Path(__file__).read_text(encoding="utf-8").splitlines()


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
        fitting = "empty" in str(func) and made.is_floating_point()
        return made.fill_(self.value) if fitting else made


class ReadsForward(nn.Module):
    def forward(self, x):
        return x * torch.empty_like(x)  # planted


class ReadsBackward(nn.Module):
    def forward(self, x):
        y = x * 2
        y.register_hook(lambda gradient: gradient + gradient.new_empty(gradient.shape))  # planted
        return y


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
    """Though each of its operations repeats; by its line and what read it. The training goes on."""
    ends = []
    for watched in (False, True):
        with seeded(3), Filled(0.5):
            net = nn.Sequential(nn.Linear(6, 6), reader(), nn.Linear(6, 1), nn.Dropout())
            step = trained(net)
            found = audit(step, steps=3) if watched else [step() for _ in range(3)]
            ends.append(tensor_digest([*net.parameters(), torch.rand(3)]))
    assert ends[0] == ends[1]
    culprit = only(found)
    assert (culprit.op, culprit.module, culprit.phase) == (op, "1", phase)
    name, _, line = culprit.source.partition(":")
    assert name == "test_unwritten_memory.py"
    assert "# planted" in SOURCE[int(line.split()[0]) - 1]
    assert (culprit.calls, culprit.flips, culprit.replays) == (3, 3, 3)
    assert (culprit.n_elements, culprit.warned, culprit.substitute) == (12, False, None)
    assert culprit.read_by.startswith(("aten.mul.Tensor, forward of 1", "aten.add.Tensor, backw"))
    assert "a result comes from memory that nobody has written" in found.sentence()


def padded():
    """Three of five rows are written, and all are used."""
    x = torch.empty(5, 2)
    x[:3].copy_(torch.ones(3, 2))
    return x * 2


READ = {
    "_local_scalar_dense": lambda: torch.empty(1).item(),
    "floor_divide": lambda: torch.empty(4, dtype=torch.int32) // 2,
    "any": lambda: torch.empty(1, dtype=torch.bool).any(),  # of more, one may decide
    "abs": lambda: torch.empty(4, dtype=torch.complex64).abs(),
    "add_": lambda: torch.empty(4).add_(1),
    "mul": padded,
    "sqrt": lambda: torch.cat([torch.empty(3).clone(), torch.ones(3)]).to(torch.float64).sqrt(),
    "copy_": lambda: KEPT.copy_(torch.empty(3)),
}
KEPT = torch.ones(3)


@pytest.mark.parametrize("reader", READ)
def test_every_way_to_read_it_is_found(reader):
    culprit = only(audit(READ[reader]))
    assert culprit.read_by.split(",")[0].split(".")[1] == reader
    assert culprit.op.startswith("aten.empty")


def by_numpy():
    x = torch.empty(4)
    x.numpy()[:] = np.arange(1, 5)  # which PyTorch does not dispatch
    return x * 2


def in_parts():
    x = torch.empty(4, 2)
    x[:, 0].copy_(torch.ones(4))
    x[1:, 1].fill_(2)
    x[0, 0] = 3
    x[0, 1] = 4
    return x * 2


WRITTEN = {
    "out": lambda: torch.mul(torch.ones(3), 2, out=torch.empty(3)).sum(),
    "drawn": lambda: torch.empty(50).bernoulli_(0.5).sum(),
    "masked": lambda: torch.where(torch.ones(3) > 0, torch.ones(3), torch.empty(3)).sum(),
    "copied": lambda: nn.functional.pad(torch.ones(1, 3, 4), (1, 1, 2, 1), mode="circular").sum(),
    "list": lambda: torch._foreach_add_([torch.empty(3).zero_(), torch.ones(2)], 1),
    "in parts": in_parts,
    "NumPy": by_numpy,
}


@pytest.mark.parametrize("step", WRITTEN.values(), ids=WRITTEN)
def test_memory_that_is_written_before_it_is_read_is_left_alone(step):
    found = audit(step)
    assert found.ops == ()
    assert found.n_followed > 0
    assert not [op for op in found.not_replayed if "raised" in op or "not followed" in op]
