"""Operations whose bits depend on the batch: those that brute force names, and no others."""

import pytest
import torch
from torch import nn

from samebits.errors import BadInput
from samebits.trace.batch_invariance import batch_invariance

pytestmark = pytest.mark.usefixtures("generators_free")


class Mixed(nn.Module):
    """Products and sums of shapes for which a CPU's libraries cut other blocks."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3)
        self.wide = nn.Linear(256, 256)
        self.norm = nn.LayerNorm(256)

    def forward(self, x):
        pooled = torch.relu(self.conv(x)).flatten(1)[:, :256]
        return self.norm(self.wide(pooled)) * 2


def differs_by_brute_force(module, batch):
    """Whether some item comes out otherwise alone, each operation given the same values."""
    together = module(batch)
    alone = torch.cat([module(one.clone()) for one in batch.split(1)])
    return not torch.equal(together, alone)


def test_names_what_brute_force_finds():
    torch.manual_seed(0)
    network = Mixed().eval()
    batch = torch.randn(16, 8, 17, 17)
    with torch.no_grad():
        pooled = torch.relu(network.conv(batch)).flatten(1)[:, :256].contiguous()
        inputs = {"conv": batch, "wide": pooled, "norm": network.wide(pooled)}
        expected = {
            name for name, x in inputs.items() if differs_by_brute_force(getattr(network, name), x)
        }
    found = batch_invariance(network, batch, model=network)
    assert {one.module for one in found.ops} == expected
    assert found.n_compared >= 5
    if expected:
        assert all(one.max_abs > 0 and one.n_elements > 0 for one in found.ops)
        assert "different bits in a batch than alone" in found.sentence()


def test_an_operation_over_the_whole_batch_is_named_and_others_are_not():
    def forward(x):
        return torch.relu(x) + 1, torch.softmax(x.flatten(1), dim=0)

    found = batch_invariance(forward, torch.randn(6, 4, 4))
    assert [one.op for one in found.ops] == ["aten._softmax.default"]
    clean = batch_invariance(lambda x: torch.relu(x).mean(-1), torch.randn(6, 4, 4))
    assert (clean.ops, clean.not_compared) == ((), {})
    assert clean.n_compared == 2


def test_a_call_counts_once_whichever_items_and_outputs_differ():
    def only_the_middle_item(x):
        for _ in range(5):
            x = x.cumsum(0).sub(x.cumsum(0)).add(x)
        return x

    found = batch_invariance(only_the_middle_item, torch.tensor([[1.0], [-1.0], [5.0]]))
    assert {one.op: one.calls for one in found.ops} == {"aten.cumsum.default": 10}
    both_outputs = batch_invariance(lambda x: x.sort(0), torch.tensor([[3.0], [2.0], [1.0]]))
    assert [(one.op, one.calls) for one in both_outputs.ops] == [("aten.sort.default", 1)]


def test_a_batch_of_one_shows_nothing_and_is_refused():
    with pytest.raises(BadInput, match="the batch has 1 item; expected 2"):
        batch_invariance(torch.relu, torch.randn(1, 4))
