"""What a loop tells is digested, and no way of watching changes a bit of a training."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

from cellrepro.comparison.ledger_diff import compare_ledgers
from cellrepro.images.folder import LabelledImage
from cellrepro.model.operation_watch import OperationWatch
from cellrepro.model.watches import StepWatch, Watch, Watches
from cellrepro.store.ledger import Ledger
from samebits.generator_digests import generator_digests
from samebits.modes import mode_in_force
from samebits.seeds import seed_everything
from samebits.tensor_digests import tensor_digest, tensors_digest
from samebits.trace.operation_audit import Auditor
from samebits.trace.operation_ledger import OperationLedger
from samebits.trace.torch_warnings import WarningLog

pytestmark = [
    pytest.mark.usefixtures("one_thread", "generators_free"),
    # Cellpose makes sparse tensors without asking for checks, which PyTorch answers with a warning.
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        return 3 * ctx.saved_tensors[0] ** 2 * gradient


def in_place(x):
    """Writes into views, onto themselves, beside themselves and into given tensors."""
    y = Cubed.apply(x) * 1.5
    y[1:3].mul_(2)
    y.t()[0].add_(1)
    with torch.no_grad():
        kept, flat, generator = y.clone(), torch.ones(60), torch.Generator().manual_seed(3)
        kept.add_(kept)
        kept[:2].sub_(kept[2:])
        kept.index_add_(0, torch.tensor([0, 0, 2]), y[:3])
        kept.index_put_((torch.tensor([1, 1]),), y[:2], accumulate=True)
        torch.add(kept[2], 1, out=kept[3])
        torch._foreach_mul_([flat[:9], flat[9:20], kept], 1.25)
        torch._foreach_add_([flat, flat], 1)
        torch.mul(torch.empty(0).resize_(3).fill_(2), 2, out=torch.empty(0))
        torch.from_numpy(np.arange(9, dtype="f4")[1:]).mul_(3)
        torch.zeros(3, 4)[3:].add_(1)
        coo = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [1.0, 2.0, 3.0], (2, 3))
        coo.add_(coo)
        z = torch.complex(y, y.flip(0))
        z.copy_(z.conj()).mul_(2j)
        torch.rand(3, generator=generator).bernoulli_(0.5, generator=generator)
    return y + kept


class Training:
    """A loop that tells a watch what it does."""

    def __init__(self, seed=0):
        seed_everything(seed)
        self.network = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5), nn.BatchNorm1d(5))
        self.network.append(nn.Linear(5, 2))
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=0.1)
        self.added = 0.0

    def step(self, index, watch):
        with watch.step(index, index // 2):
            x = torch.rand(4, 3) + np.random.rand() + self.added
            watch.batch([f"image {index}"], [{"scale": 1.0}], x, x.flip(0))
            y = in_place(self.network(x))
            watch.forward(y)
            loss = y.square().mean()
            watch.loss(loss)
            self.optimizer.zero_grad()
            loss.backward()
            watch.backward(self.network)
            self.optimizer.step()
            watch.updated(self.network, self.optimizer)

    def ends(self):
        """Every bit that it ends with."""
        moments = self.optimizer.state_dict()["state"]
        gradients = {name: p.grad for name, p in self.network.named_parameters()}
        found = [dict(self.network.state_dict()), moments, gradients]
        return [*map(tensor_digest, found), generator_digests()]


# -- nothing is changed --------------------------------------------------------------------

WATCHED_BY = {
    "float64": lambda net: (OperationLedger(reference=True), Watch()),
    "audited, too": lambda net: (
        Auditor(replays=1, suspects=0, model=net),
        Watches([OperationWatch(net, steps=[1]), StepWatch(Ledger())]),
    ),
    "warnings": lambda net: (WarningLog().observing(net), Watch()),
}


@pytest.mark.parametrize("way", WATCHED_BY)
@pytest.mark.parametrize("mode", ["fast", "warn"])
def test_a_watched_training_ends_in_the_same_bits(way, mode):
    ends = []
    for watched in (False, True):
        training, who, watch = Training(), nullcontext(), Watch()
        if watched:
            who, watch = WATCHED_BY[way](training.network)
        with mode_in_force(mode), who:
            for index in range(3):
                training.step(index, watch)
        ends.append(training.ends())
    assert ends[0] == ends[1]
    if isinstance(who, Auditor):  # and it is silent, though it replayed
        found = who.result(n_steps=3)
        assert (found.ops, found.n_replays) == ((), found.n_replayed)
        assert found.n_replayed > 100
        assert not [op for op in found.not_replayed if "raised" in op]


def test_cellposes_own_training_watched_in_every_way_ends_in_the_same_bits():
    from cellrepro.model.network import build
    from cellrepro.model.training_loop import TrainingLoop
    from cellrepro.model.weight_sources import ModelSource

    masks = np.kron(np.arange(1, 10).reshape(3, 3), np.pad(np.ones((14, 14), int), 3))
    image = ((masks > 0) * 100 + np.arange(60)).astype(np.uint8)
    images = [LabelledImage("a", image, masks.astype(np.int32), "a")]
    ends, rows = [], []
    for watched in (False, True):
        device = torch.device("cpu")
        network = build(ModelSource("tiny", "tiny"), seed=1, device=device, dtype="float32")
        seed_everything(3)
        steps, operations = StepWatch(Ledger()), OperationWatch(network)
        watch = Watches([steps, operations]) if watched else None
        loop = TrainingLoop(network, images, (), n_epochs=2, learning_rate=0.01, watch=watch)
        before = tensor_digest(dict(network.state_dict()))
        loop.step()
        with Auditor(replays=1, suspects=0, model=network) if watched else nullcontext():
            loop.step()
        rows += operations.rows
        moments = loop.optimizer.state_dict()["state"]
        ends.append((tensor_digest(dict(network.state_dict())), tensor_digest(moments)))
    assert ends[0] == ends[1]
    assert ends[0][0] != before
    assert {row.step for row in rows} == {0, 1}


# -- what is written down ------------------------------------------------------------------


def steps_of(training, n=3, change=None):
    watch = StepWatch(Ledger())
    for index in range(n):
        if index == 1 and change is not None:
            change(training)
        training.step(index, watch)
    return watch.ledger.entries


def test_the_entries_of_a_step_are_in_order_and_true():
    training = Training()
    entries = steps_of(training)
    for step in range(3):
        of_step = [entry for entry in entries if entry.step == step]
        assert {entry.epoch for entry in of_step} == {step // 2}
        stages = list(dict.fromkeys(entry.stage for entry in of_step))
        assert stages == ["rng", "batch", "forward", "loss", "backward", "update", "weights"]
        assert [entry.name for entry in of_step if entry.stage == "batch"] == [
            *("images drawn", "crops", "images", "targets"),
        ]
        assert (of_step[0].name, of_step[-1].name) == ("python before", "torch after")
        assert len(of_step) == len({(entry.stage, entry.name) for entry in of_step})
    found = {(e.stage, e.name): e for e in entries if e.step == 2}
    for name, digest in generator_digests().items():
        assert found["rng", f"{name} after"].digest == digest
    gradients = {name: p.grad for name, p in training.network.named_parameters() if "2." in name}
    assert found["backward", "2"].digest == tensors_digest(gradients)
    assert found["update", "learning rate"].value == 0.1
    assert found["batch", "images drawn"].detail == '["image 2"]'


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda t: vars(t).update(added=1e-3), (1, "batch", "images")),
        (lambda t: t.network[3].bias.data.add_(1e-4), (1, "forward", "output")),
        (lambda t: t.optimizer.state[t.network[3].bias]["exp_avg_sq"].add_(1), (1, "update", "3")),
        (lambda t: t.optimizer.param_groups[0].update(weight_decay=0.2), (1, "update", "settings")),
        (lambda t: torch.rand(1), (1, "rng", "torch before")),
    ],
    ids=["an image", "a weight", "a moment", "decay", "a draw"],
)
def test_what_changes_is_the_first_difference(change, expected):
    same = steps_of(Training())
    assert compare_ledgers(same, steps_of(Training())).first is None
    first = compare_ledgers(same, steps_of(Training(), change=change)).first
    assert (first.step, first.stage, first.name) == expected


def test_digesting_is_not_among_the_operations():
    network = Training().network
    alone, both = (OperationWatch(network) for _ in range(2))
    for watch in (alone, Watches([StepWatch(Ledger()), both])):
        Training().step(0, watch)
    assert [row.op for row in both.rows] == [row.op for row in alone.rows]
