"""Generators are seeded together, stored as plain data, and given back."""

import io
import json
import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cellrepro.determinism.seeding import (
    capture,
    generators_kept,
    item_generator,
    loader_arguments,
    rank_seed,
    restore,
    seed_everything,
    seeded,
    split,
)
from cellrepro.errors import BadInput, NotPossibleHere

pytestmark = pytest.mark.usefixtures("generators_free")


def draw():
    """Of each generator; Python and NumPy draw two normal numbers at once and keep the second."""
    return (
        random.random(),
        random.gauss(),
        np.random.rand(),
        np.random.randn(),
        torch.rand(1).item(),
    )


# -- one process ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [-1, 2**32, 1.0, True], ids=repr)
def test_refuses_a_seed_before_anything_moves(seed):
    expected = capture()
    for use in (seed_everything, lambda seed: seeded(seed).__enter__()):
        with pytest.raises(BadInput, match=r"seed is .*; expected a whole number from 0 to 4294"):
            use(seed)
    assert capture() == expected


def test_equal_seeds_agree_and_different_seeds_differ():
    drawn = []
    for seed in (3, 3, 4):
        generator = seed_everything(seed)
        drawn.append((*draw(), generator.random()))
    assert drawn[0] == drawn[1]
    assert all(a != b for a, b in zip(drawn[1], drawn[2], strict=True))


@pytest.mark.parametrize("block", [lambda: seeded(9), generators_kept], ids=["seeded", "kept"])
def test_the_block_leaves_no_trace(block):
    """Also when it is nested, and when it raises."""
    seed_everything(1)
    expected = draw(), draw()
    seed_everything(1)
    first = draw()
    with pytest.raises(ZeroDivisionError), block(), block():
        draw()[0] / 0
    assert (first, draw()) == expected


def test_default_rng_without_a_seed_follows_inside_the_block():
    before = np.random.default_rng
    drawn = []
    for seed in (3, 3, 4):
        with seeded(seed):
            drawn.append((np.random.default_rng().random(), np.random.default_rng().random()))
            assert np.random.default_rng(5).random() == before(5).random()
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0][0] != drawn[0][1]
    assert np.random.default_rng is before


def test_tensorflow_is_seeded_where_it_is_imported(monkeypatch):
    seeds = []
    fake = SimpleNamespace(random=SimpleNamespace(set_seed=seeds.append))
    monkeypatch.setitem(sys.modules, "tensorflow", fake)
    seed_everything(3)
    assert seeds == [3]


# -- CUDA and MPS, made up -------------------------------------------------------------------


class FakeCuda:
    """Two CUDA devices, as PyTorch shows them: they start when first asked, with a waiting seed."""

    n_devices, waiting, generators = 2, 67280421310721, None

    def init(self):
        if self.generators is None:
            self.generators = [torch.Generator() for _ in range(self.n_devices)]
            self.manual_seed_all(self.waiting)

    def manual_seed_all(self, seed):
        self.waiting = seed
        for generator in self.generators or ():
            generator.manual_seed(seed)

    def get_rng_state_all(self):
        return [generator.get_state() for generator in self.generators]

    def set_rng_state_all(self, states):
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state)

    def draw(self):
        self.init()
        return [torch.rand(1, generator=generator).item() for generator in self.generators]


@pytest.fixture
def cuda(monkeypatch):
    fake = FakeCuda()
    for name in ("init", "manual_seed_all", "get_rng_state_all", "set_rng_state_all"):
        monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: fake.n_devices)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: fake.generators is not None)
    return fake


def test_cuda_goes_on_after_the_block(cuda):
    seed_everything(1)
    expected = cuda.draw(), cuda.draw()
    seed_everything(1)
    before = cuda.draw()
    with generators_kept(), seeded(9):
        cuda.draw()
    assert (before, cuda.draw()) == expected


def test_cuda_is_not_started_and_no_seed_of_a_block_waits_for_it(cuda):
    seed_everything(1)
    expected = cuda.draw()
    cuda.generators = None
    seed_everything(1)
    state = capture()
    with generators_kept(), seeded(9):
        restore(state)
        seed_everything(9)
    assert state["cuda"] is None
    assert cuda.generators is None
    assert cuda.draw() == expected


def test_cuda_states_are_restored(cuda):
    seed_everything(1)
    early = capture()
    cuda.init()
    late = json.loads(json.dumps(capture()))
    expected = cuda.draw()
    for state in (late, early):  # before CUDA started: it is started with PyTorch's seed then
        seed_everything(2)
        cuda.draw()
        restore(state)
        assert cuda.draw() == expected
    cuda.n_devices = 3
    with pytest.raises(NotPossibleHere, match=r"of 2 CUDA devices, and PyTorch finds 3; .* show"):
        restore(late)


# -- states to store -----------------------------------------------------------------------


def through_json(state):
    return json.loads(json.dumps(state, allow_nan=False))


def through_torch(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@pytest.mark.parametrize("through", [through_json, through_torch])
@pytest.mark.parametrize("n_before", [0, 1])
def test_states_survive_a_file(through, n_before):
    seed_everything(3)
    for _ in range(n_before):
        draw()
    state = through(capture(seed=3))
    expected = draw()
    seed_everything(4)
    draw()
    restore(state, seed=3)
    assert draw() == expected


def test_refuses_a_state_of_another_seed():
    with pytest.raises(BadInput, match="of a training with seed 3, not 4"):
        restore(capture(seed=3), seed=4)


@pytest.mark.parametrize(
    "change",
    [
        {"torch": [1, 2, 3]},
        {"python": [3, [1, 2], None]},
        {"numpy": {"bit_generator": "MT19937", "state": {"key": [0] * 624, "pos": 10**6}}},
    ],
    ids=["too short", "Python's", "past its end"],
)
def test_what_is_not_accepted_changes_nothing(change):
    state = {**capture(), **change}
    seed_everything(3)
    expected = capture()
    with pytest.raises(BadInput, match=r"does not accept its state .* nothing was restored"):
        restore(state)
    assert capture() == expected


@pytest.mark.parametrize("state", [None, {"format": "another"}], ids=repr)
def test_refuses_another_format(state):
    with pytest.raises(BadInput, match="the generators' state has the format"):
        restore(state)


# -- loading data ----------------------------------------------------------------------------


class Augmented:
    """Six images, each drawn at random by whoever loads it."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        of_item = item_generator(5, epoch=0, index=index).random()
        return index, [*draw(), np.random.default_rng().random()], of_item


def load(seed, *, n_workers, rank=0, n_epochs=1):
    """Index, draws, and the image's own draw, of every image of every epoch."""
    loader = torch.utils.data.DataLoader(
        Augmented(),
        shuffle=True,
        num_workers=n_workers,
        collate_fn=_as_is,
        **loader_arguments(seed, rank=rank),
    )
    return [tuple(batch[0]) for _ in range(n_epochs) for batch in loader]


def _as_is(batch):
    return batch


def images(loaded):
    return [index for index, _, _ in loaded]


def columns(loaded):
    """The draws of each generator: Python's, NumPy's, PyTorch's, default_rng's."""
    return list(zip(*(drawn for _, drawn, _ in loaded), strict=True))


# Python 3.12 warns of every fork of a process with threads, which PyTorch's loader makes.
forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@forks
def test_workers_repeat_with_equal_seeds():
    seed_everything(1)
    first = load(3, n_workers=2, n_epochs=2)
    seed_everything(2)  # the training's own generators have no say
    draw()
    assert load(3, n_workers=2, n_epochs=2) == first
    for column in columns(first):
        assert len(set(column)) == 12, "two workers, images or epochs drew alike"


@forks
def test_workers_differ_between_seeds_and_ranks():
    base, seed = (load(seed, n_workers=2) for seed in (3, 4))
    rank = load(3, n_workers=2, rank=1)
    assert images(rank) == images(base) != images(seed)
    for of_base, of_seed, of_rank in zip(*map(columns, (base, seed, rank)), strict=True):
        assert not {*of_base} & {*of_seed}
        assert not {*of_base} & {*of_rank}


@forks
def test_order_and_item_draws_hold_across_worker_counts():
    two, none = (load(3, n_workers=n_workers) for n_workers in (2, 0))
    assert images(two) == images(none)
    assert [of_item for *_, of_item in two] == [of_item for *_, of_item in none]


def test_item_generators_depend_on_everything():
    keys = [(3, 0, 1), (3, 1, 0), (3, 0, 0), (4, 0, 0), (0, 3, 0), (0, 0, 3)]
    assert len({item_generator(*key).random() for key in keys}) == 6
    assert item_generator(3, np.int64(1), 2).random() == item_generator(3, 1, 2).random()


# -- splits ----------------------------------------------------------------------------------


@given(
    weights=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    more=st.integers(0, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_split_is_a_partition_of_the_right_sizes(weights, more, seed):
    n = -(-sum(weights) // min(weights)) + more  # at least one item for each part
    fractions = [weight / sum(weights) for weight in weights]
    parts = split(n, fractions, seed)
    assert sorted(np.concatenate(parts)) == list(range(n))
    for part, fraction in zip(parts, fractions, strict=True):
        assert abs(len(part) - fraction * n) <= 1
        assert list(part) == sorted(part)


def test_splits_are_these_everywhere():
    """Stored splits must not change with the platform, NumPy or this package."""
    plain = split(12, [0.5, 0.25, 0.25], seed=1)
    assert [part.tolist() for part in plain] == [[0, 2, 4, 5, 7, 9], [8, 10, 11], [1, 3, 6]]
    grouped = split(6, [0.5, 0.5], 7, groups=[0, 0, 1, 1, 2, 2])
    assert [part.tolist() for part in grouped] == [[0, 1], [2, 3, 4, 5]]
    assert [len(part) for part in split(100, [0.29, 0.71], 3)] == [29, 71]


@pytest.mark.parametrize(
    ("n", "fractions", "groups", "message"),
    [
        (9, [0.5, 0.4], None, "expected numbers above 0, together 1"),
        (3, [0.9, 0.1], None, r"part 1 of \[0.9, 0.1\] would be empty with 3 items"),
        (3, [0.5, 0.5], ["a", "b"], "groups has 2 labels for 3 items"),
    ],
)
def test_refuses_a_split(n, fractions, groups, message):
    with pytest.raises(BadInput, match=message):
        split(n, fractions, seed=3, groups=groups)


# -- several devices -------------------------------------------------------------------------


def test_ranks_draw_differently():
    assert [rank_seed(40, rank, 3) for rank in range(3)] == [40, 41, 42]
    assert rank_seed(2**32 - 4, 3, 4) == 2**32 - 1


@pytest.mark.parametrize(
    ("base", "rank", "n_ranks", "message"),
    [
        (2**32 - 3, 0, 4, "the seed of rank 3 is 4294967296"),  # or it would wait for the others
        (3, 2, 2, "rank is 2 of 2 ranks; expected one from 0 to n_ranks - 1"),
    ],
)
def test_refuses_ranks(base, rank, n_ranks, message):
    with pytest.raises(BadInput, match=message):
        rank_seed(base, rank, n_ranks)
