"""How far two generators are apart, beyond one block of 624 numbers, and which was just seeded."""

import random

import numpy as np
import pytest
import torch

from cellrepro.explanation.compare_files import compare
from cellrepro.explanation.describe import describe


@pytest.fixture
def saved(tmp_path):
    """Write where the three generators stand, after seeding them and some draws."""

    def save(name, *, seed=7, n=0):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            numpy = np.random.RandomState(seed)
            python = random.Random(seed)
            torch.rand(n)
            numpy.random_sample(n)  # of two numbers of 32 bits each
            for _ in range(n):
                python.random()
            content = {
                "model": {"w": torch.ones(3)},
                "torch_rng": torch.get_rng_state(),
                "numpy_rng": numpy.get_state(),
                "python_rng": python.getstate(),
            }
        torch.save(content, tmp_path / name)
        return str(tmp_path / name)

    return save


@pytest.mark.parametrize("n_between", [36, 600, 623, 624, 625, 100_000])
@pytest.mark.parametrize("n_before", [0, 46])
def test_draws_are_counted_over_blocks(saved, n_before, n_between):
    earlier = saved("a.pt", n=n_before)
    later = saved("b.pt", n=n_before + n_between)
    expected = {"PyTorch": n_between, "NumPy": 2 * n_between, "Python": 2 * n_between}
    for pair in (compare(earlier, later), compare(later, earlier)):
        assert {each.kind: each.draws_apart for each in pair.state.generators} == expected


def test_a_generator_that_was_seeded_and_not_used_is_said(saved):
    """What a resumed run looks like that began its random numbers anew."""
    resumed = saved("a.pt")
    went_on = saved("b.pt", n=2000)
    for generator in compare(went_on, resumed).state.generators:
        assert generator.fresh == ("", "freshly seeded with 7")
        assert "B stands where seeding puts it (freshly seeded with 7)" in generator.sentence()
    assert "PyTorch (freshly seeded with 7)" in describe(resumed).details["generators"]
    assert "PyTorch (seed 7)" in describe(went_on).details["generators"]
    by_array = saved("c.pt", seed=2**31)  # of which Python's seed does not show
    assert describe(by_array).details["generators"].endswith("Python (freshly seeded)")


def test_two_streams_are_at_different_places(saved):
    state = compare(saved("a.pt", n=700), saved("b.pt", seed=8, n=700)).state
    assert [each.draws_apart for each in state.generators] == [None] * 3
    assert "NumPy: at different places" in " ".join(state.sentences())
