"""Generators are seeded together, and given back."""

import random

import numpy as np
import pytest

from cellrepro.control.seeding import check_seed, generators_kept, seed_everything, seeded
from cellrepro.errors import BadInput


def draw():
    """One number of each generator."""
    import torch

    return random.random(), np.random.rand(), torch.rand(1).item()


@pytest.fixture(autouse=True)
def _own_generators(generators_free):
    """These tests move the generators."""
    import torch  # noqa: F401


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_accepts(seed):
    assert check_seed(seed) == seed


@pytest.mark.parametrize(
    "seed",
    [-1, 2**32, 1.0, True, "0", None, float("nan"), np.int64(3)],
    ids=["negative", "2**32", "float", "bool", "text", "none", "nan", "numpy"],
)
def test_refuses(seed):
    with pytest.raises(
        BadInput, match=r"data_seed is .*; expected a whole number from 0 to 4294967295"
    ):
        check_seed(seed, name="data_seed")


def test_equal_seeds_agree_and_different_seeds_differ():
    drawn = []
    for seed in (3, 3, 4):
        seed_everything(seed)
        drawn.append(draw())
    assert drawn[0] == drawn[1]
    assert all(a != b for a, b in zip(drawn[1], drawn[2], strict=True))


def test_a_refused_seed_moves_nothing():
    seed_everything(5)
    expected = draw()
    seed_everything(5)
    with pytest.raises(BadInput), seeded(-1):
        pytest.fail("entered")
    with pytest.raises(BadInput):
        seed_everything(2**32)
    assert draw() == expected


@pytest.mark.parametrize("block", [lambda: seeded(9), generators_kept], ids=["seeded", "kept"])
def test_the_block_leaves_no_trace(block):
    seed_everything(1)
    expected = draw(), draw()
    seed_everything(1)
    first = draw()
    with block():
        draw()
    assert (first, draw()) == expected


@pytest.mark.parametrize("block", [lambda: seeded(9), generators_kept], ids=["seeded", "kept"])
def test_nor_does_one_that_raises(block):
    seed_everything(1)
    expected = draw()
    seed_everything(1)
    with pytest.raises(ZeroDivisionError), block():
        draw()[0] / 0
    assert draw() == expected


def test_nested_blocks_continue_where_they_were():
    with seeded(2):
        expected = draw(), draw()
    with seeded(2):
        outer = draw()
        with seeded(3):
            inner = draw()
            with pytest.raises(KeyError), seeded(4):
                raise KeyError
            with seeded(3):
                assert draw() == inner
        assert (outer, draw()) == expected


def test_seeded_is_seed_everything():
    seed_everything(8)
    expected = draw()
    with seeded(8):
        assert draw() == expected
