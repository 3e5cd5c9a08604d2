"""Generators are seeded together, stored as plain data, and given back."""

import base64
import io
import json
import random
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cellrepro.determinism.seeding import (
    RankSeeds,
    capture,
    check_seed,
    generators_kept,
    item_generator,
    loader_arguments,
    rank_seeds,
    restore,
    seed_everything,
    seed_worker,
    seeded,
    split,
    torch_generator,
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


@pytest.mark.parametrize("seed", [-1, 2**32, 1.0, True, "0", None], ids=repr)
def test_refuses_a_seed_before_anything_moves(seed):
    expected = capture()
    with pytest.raises(BadInput, match=r"data_seed is .*; expected a whole number from 0 to 4294"):
        check_seed(seed, name="data_seed")
    with pytest.raises(BadInput), seeded(seed):
        pytest.fail("entered")
    with pytest.raises(BadInput):
        seed_everything(seed)
    assert capture() == expected


def test_equal_seeds_agree_and_different_seeds_differ():
    drawn = []
    for seed in (3, 3, 4):
        generator = seed_everything(seed)
        drawn.append((*draw(), generator.random(), torch_generator(seed).initial_seed()))
    assert drawn[0] == drawn[1]
    assert all(a != b for a, b in zip(drawn[1], drawn[2], strict=True))


@pytest.mark.parametrize("block", [lambda: seeded(9), generators_kept], ids=["seeded", "kept"])
def test_the_block_leaves_no_trace(block):
    """Also when it is nested, and when it raises."""
    seed_everything(1)
    expected = draw(), draw(), draw()
    seed_everything(1)
    first = draw()
    with block():
        draw()
        with block():
            draw()
    second = draw()
    with pytest.raises(ZeroDivisionError), block():
        draw()[0] / 0
    assert (first, second, draw()) == expected


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


def test_tensorflow_and_cupy_are_seeded_where_they_are_imported(monkeypatch):
    seed_everything(1)
    assert not {"tensorflow", "cupy"} & sys.modules.keys()
    seeds = {}
    for name, module in (
        ("tensorflow", {"random": SimpleNamespace(set_seed=lambda s: seeds.update(tf=s))}),
        ("cupy", {"random": SimpleNamespace(seed=lambda s: seeds.update(cupy=s))}),
    ):
        fake = ModuleType(name)
        vars(fake).update(module, cuda=SimpleNamespace(is_available=lambda: True))
        monkeypatch.setitem(sys.modules, name, fake)
    seed_everything(3)
    assert seeds == {"tf": 3, "cupy": 3}


# -- CUDA and MPS, made up -------------------------------------------------------------------


class FakeCuda:
    """CUDA as PyTorch shows it: it starts when first asked, with the seed that waits for it."""

    def __init__(self, n_devices=2):
        self.n_devices, self.waiting, self.generators = n_devices, 67280421310721, None
        self.waiting_states = []

    def init(self):
        if self.generators is None:
            self.generators = [torch.Generator() for _ in range(self.n_devices)]
            self.manual_seed_all(self.waiting)
            self.set_rng_state_all(self.waiting_states)

    def manual_seed_all(self, seed):
        self.waiting = seed
        for generator in self.generators or ():
            generator.manual_seed(seed)

    def get_rng_state_all(self):
        self.init()
        return [generator.get_state() for generator in self.generators]

    def set_rng_state_all(self, states):
        if self.generators is None:
            self.waiting_states = states
            return
        for generator, state in zip(self.generators, states, strict=False):
            generator.set_state(state)

    def draw(self):
        self.init()
        return [torch.rand(1, generator=generator).item() for generator in self.generators]


@pytest.fixture
def cuda(monkeypatch):
    """A machine with two CUDA devices that have not started."""
    fake = FakeCuda()
    for name in ("init", "manual_seed_all", "get_rng_state_all", "set_rng_state_all"):
        monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: fake.n_devices)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: fake.generators is not None)
    return fake


@pytest.mark.parametrize("started", [False, True], ids=["not started", "started"])
def test_cuda_goes_on_after_the_block(cuda, started):
    seed_everything(1)
    expected = cuda.draw(), cuda.draw()
    cuda.generators = None
    seed_everything(1)
    before = [cuda.draw()] if started else []
    with generators_kept(), seeded(9):
        cuda.draw()
    after = [cuda.draw() for _ in range(2 - len(before))]
    assert tuple(before + after) == expected


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
    torch.cuda.manual_seed_all(7)  # a seed of CUDA's own goes on waiting
    with generators_kept():
        draw()
    assert cuda.waiting == 7


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


def test_mps_is_kept_and_captured(monkeypatch):
    generator = torch.Generator().manual_seed(3)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "get_rng_state", generator.get_state)
    monkeypatch.setattr(torch.mps, "set_rng_state", generator.set_state)
    state = capture()
    expected = torch.rand(1, generator=generator)
    restore(state)
    with generators_kept():
        assert torch.rand(1, generator=generator) == expected
    assert torch.rand(1, generator=generator) == expected
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(NotPossibleHere, match="MPS"):
        restore(state)


# -- states to store -----------------------------------------------------------------------


def own_generators(seed):
    return {
        "python": random.Random(seed),
        "legacy": np.random.RandomState(seed),
        "pcg": np.random.default_rng(seed),
        "sfc": np.random.Generator(np.random.SFC64(seed)),
        "torch": torch_generator(seed),
    }


def draw_own(own):
    return (
        *(own["python"].gauss(), own["legacy"].randn(), own["sfc"].random()),
        *(int(own["pcg"].integers(2**32, dtype=np.uint32)),),  # half a word is kept
        torch.randn(1, generator=own["torch"]).item(),
    )


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
    """And another process, whose own generators were seeded otherwise."""
    own = own_generators(3)
    seed_everything(3)
    for _ in range(n_before):
        draw(), draw_own(own)
    state = through(capture(own, seed=3))
    expected = draw(), draw_own(own)
    seed_everything(4)
    draw()
    other = own_generators(4)
    restore(state, other, seed=3)
    assert (draw(), draw_own(other)) == expected


def test_reads_the_first_format():
    """As the checkpoints of older stores hold it: words as base64, floats as hexadecimal text."""
    seed_everything(3)
    draw()

    def text(values, dtype):
        return base64.b64encode(np.array(values, dtype).tobytes()).decode()

    def twister(words, pos, gauss):
        state = {"key": text(words, "<u4"), "pos": pos}
        held = {"bit_generator": "MT19937", "state": state}
        return {**held, "has_gauss": int(gauss is not None), "gauss": (gauss or 0.0).hex()}

    _, words, gauss = random.getstate()
    numpys = np.random.get_state(legacy=False)
    old = {
        "format": "cellrepro generators 1",
        "python": twister(words[:-1], words[-1], gauss),
        "numpy": twister(
            *numpys["state"].values(), numpys["gauss"] if numpys["has_gauss"] else None
        ),
        "torch": text(torch.get_rng_state().numpy(), "u1"),
        "cuda": None,
        "mps": None,
        "generators": {},
        "left_out": [],
    }
    expected = draw(), draw()
    seed_everything(4)
    restore(through_json(old))
    assert (draw(), draw()) == expected


def test_refuses_a_state_of_another_seed():
    state = capture(seed=3)
    with pytest.raises(BadInput, match="of a training with seed 3, not 4"):
        restore(state, seed=4)


@pytest.mark.parametrize(
    "change",
    [
        {"torch": [1, 2, 3]},
        {"python": [3, [1, 2], None]},
        {"numpy": {"bit_generator": "PCG64", "state": {}}},
        {"numpy": {"bit_generator": "MT19937", "state": {"key": [0] * 624, "pos": 10**6}}},
        {"generators": {"own": {"bit_generator": "MT19937"}}},
    ],
    ids=["too short", "Python's", "of another generator", "past its end", "one's own"],
)
def test_what_is_not_accepted_changes_nothing(change):
    own = {"own": np.random.default_rng(3)}
    state = {**capture(own), **change}
    seed_everything(3)
    expected = capture(own)
    with pytest.raises(BadInput, match=r"does not accept its state .* nothing was restored"):
        restore(state, own)
    assert capture(own) == expected


@pytest.mark.parametrize("state", [None, {}, {"format": "another"}], ids=repr)
def test_refuses_another_format(state):
    with pytest.raises(BadInput, match="the generators' state has the format"):
        restore(state)


def test_refuses_other_generators():
    with pytest.raises(BadInput, match=r"holds the generators \['a'\], but \['b'\] were given"):
        restore(capture({"a": random.Random(1)}), {"b": random.Random(1)})
    with pytest.raises(BadInput, match="the generator 'a' is a int; expected"):
        capture({"a": 3})


# -- loading data ----------------------------------------------------------------------------


class Augmented:
    """Six images, each drawn at random by whoever loads it."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        worker = torch.utils.data.get_worker_info()
        of_item = item_generator(5, epoch=0, index=index).random()
        return (
            [index, worker.id if worker else -1],
            [*draw(), np.random.default_rng().random()],
            of_item,
        )


def load(seed, *, n_workers, rank=0, n_epochs=1, **changes):
    """Index and worker, draws, and the image's own draw, of every image of every epoch."""
    arguments = {**loader_arguments(seed, rank=rank), **changes}
    loader = torch.utils.data.DataLoader(
        Augmented(), shuffle=True, num_workers=n_workers, collate_fn=_as_is, **arguments
    )
    return [tuple(batch[0]) for _ in range(n_epochs) for batch in loader]


def _as_is(batch):
    return batch


def images(loaded):
    return [index for (index, _), _, _ in loaded]


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
    assert {worker for (_, worker), _, _ in first} == {0, 1}


@forks
def test_workers_differ_between_seeds_and_ranks():
    base, seed, rank = (
        load(3, n_workers=2),
        load(4, n_workers=2),
        load(3, n_workers=2, rank=1),
    )
    assert images(rank) == images(base) != images(seed)
    for of_base, of_seed, of_rank in zip(*map(columns, (base, seed, rank)), strict=True):
        assert not {*of_base} & {*of_seed}
        assert not {*of_base} & {*of_rank}


@forks
def test_order_and_item_draws_hold_across_worker_counts():
    one, two, none = (load(3, n_workers=n_workers) for n_workers in (1, 2, 0))
    assert images(one) == images(two) == images(none)
    assert [of_item for *_, of_item in one] == [of_item for *_, of_item in two]
    assert [of_item for *_, of_item in one] == [of_item for *_, of_item in none]
    for of_one, of_two in zip(columns(one), columns(two), strict=True):
        assert of_one != of_two  # what the documentation says cannot hold


@forks
def test_workers_without_it_would_share_draws_between_ranks():
    """What `seed_worker` is for: the fault is there without it."""
    ranks = [load(3, n_workers=1, rank=rank, worker_init_fn=None) for rank in (0, 1)]
    assert columns(ranks[0])[:-1] == columns(ranks[1])[:-1]
    assert columns(ranks[0])[-1] != columns(ranks[1])[-1]  # default_rng, out of control


def test_refuses_to_seed_the_training_as_a_worker():
    before = capture()
    with pytest.raises(BadInput, match=r"seed_worker\(0\) was called outside .* worker_init_fn"):
        seed_worker(0)
    assert capture() == before


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
    again = split(np.int64(n), np.array(fractions, dtype=np.float32), seed)
    assert all(map(np.array_equal, parts, again))


@given(
    groups=st.lists(st.sampled_from("abcdefgh"), min_size=2, max_size=40).filter(
        lambda groups: len(set(groups)) > 1
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_groups_stay_whole(groups, seed):
    parts = split(len(groups), [0.5, 0.5], seed, groups=groups)
    train, test = ([groups[index] for index in part] for part in parts)
    assert not set(train) & set(test)
    assert sorted(train + test) == sorted(groups)
    assert abs(len(train) - len(test)) <= max(map(groups.count, groups))


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
        (0, [1.0], None, "n must be a whole number of at least 1, got 0"),
        (9, [0.5, 0.4], None, "expected numbers above 0, together 1"),
        (9, [1.5, -0.5], None, "expected numbers above 0, together 1"),
        (9, "most", None, "fractions is 'most'; expected numbers"),
        (3, [0.9, 0.1], None, r"part 1 of \[0.9, 0.1\] would be empty with 3 items"),
        (3, [0.5, 0.5], ["a", "b"], "groups has 2 labels for 3 items"),
        (3, [0.5, 0.5], ["a", "a", "a"], "would be empty with 3 items in 1 groups"),
    ],
)
def test_refuses_a_split(n, fractions, groups, message):
    with pytest.raises(BadInput, match=message):
        split(n, fractions, seed=3, groups=groups)


# -- several devices -------------------------------------------------------------------------


def test_ranks_draw_differently_from_one_order_of_the_data():
    seeds = [rank_seeds(40, rank, 3) for rank in range(3)]
    assert seeds == [RankSeeds(rank, 40 + rank, 40) for rank in range(3)]
    assert {rank_seeds(40, rank, 3, data_seed=7).data for rank in range(3)} == {7}
    assert rank_seeds(2**32 - 4, 3, 4).model == 2**32 - 1


@pytest.mark.parametrize(
    ("base", "rank", "n_ranks", "message"),
    [
        (2**32 - 3, 0, 4, "the seed of rank 3 is 4294967296"),  # or it would wait for the others
        (3, 2, 2, "rank is 2 of 2 ranks; expected one from 0 to n_ranks - 1"),
        (3, -1, 2, "rank must be a whole number of at least 0"),
    ],
)
def test_refuses_ranks(base, rank, n_ranks, message):
    with pytest.raises(BadInput, match=message):
        rank_seeds(base, rank, n_ranks)
