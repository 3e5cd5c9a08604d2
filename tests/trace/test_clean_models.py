"""The audit is silent on models that repeat, and their training is as without it."""

import random

import numpy as np
import pytest
import torch
from torch import nn

import cellrepro
from cellrepro.determinism.seeding import seeded
from cellrepro.store.bits import same_bits

pytestmark = [
    pytest.mark.usefixtures("one_thread", "generators_free"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]


def convolutional():
    net = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GELU(), nn.MaxPool2d(2)),
        nn.Dropout(0.3),
        *(nn.ConvTranspose2d(4, 2, 2, stride=2), nn.BatchNorm2d(2, momentum=None)),
        *(nn.Conv2d(2, 1, 1), nn.InstanceNorm2d(1, track_running_stats=True)),
    )
    return (
        net,
        torch.optim.Adam(net.parameters()),
        lambda: net(torch.randn(2, 1, 8, 8)).abs().mean(),
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
    flat, generator = torch.zeros(60), torch.Generator().manual_seed(3)

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
            torch.add(net.kept[2], 1, out=net.kept[3])
            torch._foreach_mul_([flat[:9], flat[9:20], net.kept], 1.25)
            torch._foreach_add_([flat, flat], 1)
            torch.mul(torch.empty(0).resize_(3).fill_(2), 2, out=torch.empty(0))
            torch.from_numpy(np.arange(9, dtype="f4")[1:]).mul_(3)
            torch.zeros(3, 4)[3:].add_(1)
            coo = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [1.0, 2.0, 3.0], (2, 3))
            coo.add_(coo)
            z = torch.complex(y, y.flip(0))
            z.copy_(z.conj()).mul_(2j)
            torch.rand(3, generator=generator).bernoulli_(0.5, generator=generator)
        return y.mean()

    return net, torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True), loss


CLEAN = {
    "convolutional": convolutional,
    "in place": in_place,
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

        found = cellrepro.audit(step, steps=2, suspects=0, **watch) if watch else [step(), step()]
        moments = (state.values() for state in optimizer.state.values())
        ends = [*net.parameters(), *net.buffers(), *losses, *(m for s in moments for m in s)]
        ends += [parameter.grad for parameter in net.parameters()]
        generators = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())
        ends = [t.detach().clone() for t in ends if isinstance(t, torch.Tensor)]
        return ends, repr(generators[1:]), generators[0], found


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
