"""Rounded results one unit in the last place away, exact ones as they are."""

import pytest
import torch
from torch import nn

import samebits
from samebits.generator_digests import generator_digests

BITS = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}


def bits(tensor):
    """Numbers as whole numbers, of which neighbours differ by 1."""
    return tensor.detach().contiguous().view(BITS[tensor.dtype]).long()


def moved(function, *inputs, seed=0):
    """What a function of tensors gives in the block, and without it."""
    with samebits.perturbed(seed):
        inside = function(*[tensor.clone() for tensor in inputs])
    return inside, function(*[tensor.clone() for tensor in inputs])


def numbers(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    return (torch.rand(*shape, generator=generator) + 0.1).to(dtype)


@pytest.mark.parametrize("dtype", BITS, ids=str)
@pytest.mark.parametrize(
    "function",
    [
        torch.exp,
        lambda x: x @ x.T,
        lambda x: x.exp_(),
        lambda x: torch.exp(x, out=torch.empty_like(x)),
        lambda x: x.t().sqrt(),
        lambda x: x[:, ::3].exp_(),
        lambda x: nn.functional.layer_norm(x, x.shape[1:]),
    ],
    ids=["exp", "product", "in place", "out=", "turned", "a view", "several outputs"],
)
def test_every_rounded_number_moves_by_one_unit_half_of_them_up(function, dtype):
    inside, plain = moved(function, numbers(60, 100, dtype=dtype))
    assert (inside.dtype, inside.shape, inside.stride()) == (
        plain.dtype,
        plain.shape,
        plain.stride(),
    )
    change = (bits(inside) - bits(plain))[plain != 0]
    assert change.abs().unique().tolist() == [1]
    n_up = int((change > 0).sum())
    assert abs(n_up - len(change) / 2) < 4 * (len(change) / 4) ** 0.5


def indexed(x):
    """The relative positions of attention: whole numbers that find rows."""
    place = torch.arange(x.shape[0], dtype=torch.float32)
    return x[(place[:, None] - place[None, :] + len(x) - 1).div(2).long()]


EXACT = {
    "single": lambda x: (x + 2) * 3 - x / 7,
    "moved": lambda x: torch.cat([x.T.reshape(-1), x.flip(0).reshape(-1)]),
    "chosen": lambda x: torch.cat([x.relu(), x.clamp(0.2, 0.9), torch.maximum(x, x.flip(0))]),
    "sorted": lambda x: torch.stack([*x.sort()[0], *x.topk(x.shape[1])[0]]),
    "pooled": lambda x: nn.functional.max_pool2d(x[None, None], 2),
    "whole numbers": lambda x: (10 * x).long().sum(0),
    "compared": lambda x: x.exp() > 1,
    "placed": lambda x: x.scatter(0, torch.zeros(1, 20, dtype=torch.long), x[3:4]),
    "put": lambda x: x.index_put_((torch.tensor([1]),), x[2].clone()),
    "indexed": indexed,
    "left as they are": lambda x: nn.functional.dropout(x, training=False),
    "complex": lambda x: torch.cat([torch.view_as_complex(x.view(-1, 2))] * 2).clone(),
    "largest of bags": lambda x: nn.functional.embedding_bag(
        torch.tensor([[0, 1], [1, 2]]), x, mode="max"
    ),
    "whole quotients": lambda x: torch.cat([x // 0.3, x.div(0.3, rounding_mode="trunc"), x % 0.3]),
    "added once": lambda x: torch.cat(
        [
            x.index_add(0, torch.arange(20), x),
            x.scatter_add(0, torch.arange(20)[None], x[:1]),
            nn.functional.fold(x, (4, 25 * 4), (4, 5), stride=(1, 5)).view(20, 20),
            torch.ops.aten.embedding_dense_backward(x, torch.arange(20).flip(0), 20, -1, False),
        ]
    ),
    "of one each": lambda x: torch.stack([x[:, None].sum(1), x[None].mean(0), x[:, :1] @ x[:1]]),
    "on lists": lambda x: torch.stack(torch._foreach_mul([x, x], 3.0)),
}


@pytest.mark.parametrize("function", EXACT.values(), ids=EXACT)
@pytest.mark.parametrize("block", [torch.no_grad, torch.inference_mode])
def test_exact_numbers_stay(function, block):
    with block():
        inside, plain = moved(function, numbers(20, 20))
    assert torch.equal(inside, plain)


def test_zeros_infinities_and_nan_stay():
    """Also the rows to which nothing is added."""
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan")])
    inside, plain = moved(lambda x: x.pow(1.0), special)
    assert samebits.same_bits(inside, plain)
    rows = torch.tensor([3, 3])
    inside, plain = moved(lambda x: x.index_add_(0, rows, numbers(2, 5)), numbers(6, 5))
    assert (inside != plain).any(1).tolist() == [False, False, False, True, False, False]


@pytest.mark.parametrize(
    "update",
    [
        lambda x, by: x.add_(by, alpha=0.3),
        lambda x, by: torch.addcdiv(x, by, by + 2),
        lambda x, by: torch._foreach_addcmul([x], [by], [by])[0],
        lambda x, by: torch.lerp(x, by, 1e-3, out=torch.full_like(x, 9)),
    ],
)
def test_of_an_update_as_few_sums_are_moved_as_it_is_small(update):
    """A learning rate of 0 moves no weight, on no machine."""
    x = numbers(200, 500).abs() + 1
    by = torch.full_like(x, 0.01)
    inside, plain = moved(lambda x: update(x, by), x)
    share = (inside != plain).float().mean()
    added = ((plain - x) / plain).abs().mean()
    assert added / 2 < share < 2 * added
    inside, plain = moved(lambda x: x.addcdiv_(by, by, value=-0.0), x)
    assert samebits.same_bits(inside, plain)


def trained(seed):
    """The weights after two steps; a network with draws of its own."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GELU(), nn.Dropout(0.5), nn.Flatten())
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
        before = generator_digests()
        for _ in range(2):
            if seed is None:
                net(torch.randn(2, 1, 9, 9)).square().mean().backward()
                optimizer.step()
                continue
            with samebits.perturbed(seed):
                net(torch.randn(2, 1, 9, 9)).square().mean().backward()
                optimizer.step()
        after = generator_digests()
    return {"weights": net[0].weight.detach(), "gradients": net[0].weight.grad}, before, after


def test_equal_seeds_are_equal_and_the_generators_untouched():
    """Forward, backward and update; PyTorch's generator draws what it draws without the block."""
    one, before, after = trained(5)
    again, _, _ = trained(5)
    other, _, _ = trained(6)
    plain, _, plainly_after = trained(None)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in one)
    assert all(torch.allclose(one[name], plain[name], rtol=1e-3, atol=1e-5) for name in one)
    assert not torch.equal(one["gradients"], plain["gradients"])
    assert after == plainly_after != before


@pytest.mark.parametrize("seed", [-1, 1.5, True, None, 2**32])
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(samebits.BadInput, match="seed is"), samebits.perturbed(seed):
        pass
