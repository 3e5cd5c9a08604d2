"""Generators are seeded together, stored as plain data, and given back."""

import itertools
import json
import random

import numpy as np
import pytest
import torch

from samebits.checkpoint_seeds import add_seed_to, check_seed_of
from samebits.data_order import item_generator, loader_arguments, split
from samebits.errors import BadInput, NotPossibleHere
from samebits.generator_states import capture, generators_kept, restore
from samebits.seeds import check_seed, generator, rank_seed, seed_everything, seeded

pytestmark = [
    pytest.mark.usefixtures("generators_free"),
    # Python 3.12 warns of every fork of a process with threads, which PyTorch's loader makes.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def draw():
    """Of each generator; Python and NumPy draw two normal numbers at once and keep the second."""
    numpy = np.random.rand(), np.random.randn()
    return (random.random(), random.gauss(), *numpy, torch.rand(1).item())


@pytest.mark.parametrize("seed", [-1, 2**32, 1.0, True, np.array([1, 2]), np.True_], ids=repr)
def test_refuses_a_seed_before_anything_moves(seed):
    expected = capture()
    for use in (seed_everything, lambda seed: seeded(seed).__enter__()):
        with pytest.raises(BadInput, match=r"seed is .*; expected a whole number from 0 to 4294"):
            use(seed)
    assert capture() == expected


def test_seeds_may_be_numpys():
    """As ``for seed in np.arange(3)`` gives them; what is kept of them is Python's."""
    expected = seed_everything(1, quiet=True).random(), draw()
    for seed in (np.int64(1), np.uint8(1)):
        assert (seed_everything(seed, quiet=True).random(), draw()) == expected
        assert type(check_seed(seed)) is int
    assert item_generator(np.int64(1), 0, np.int32(2)).random() == item_generator(1, 0, 2).random()


def test_equal_seeds_agree_and_different_seeds_differ():
    """Also NumPy's generators that are made without a seed inside the block."""
    before, drawn = np.random.default_rng, []
    for seed in (3, 3, 4):
        with seeded(seed) as generator:
            made = np.random.default_rng().random(), np.random.default_rng().random()
            assert np.random.default_rng(5).random() == before(5).random()
            drawn.append((*draw(), generator.random(), *made))
    assert drawn[0] == drawn[1]
    assert all(a != b for a, b in zip(drawn[1], drawn[2], strict=True))
    assert made[0] != made[1]
    assert np.random.default_rng is before


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


class FakeCuda:
    """Two CUDA devices, as PyTorch shows them: they start when first asked, with a waiting seed."""

    n_devices, waiting, generators = 2, 67280421310721, ()
    is_available = staticmethod(lambda: True)

    def init(self):
        if not self.generators:
            self.generators = [torch.Generator() for _ in range(self.n_devices)]
            self.manual_seed_all(self.waiting)

    def manual_seed_all(self, seed):
        self.waiting = seed
        for each in self.generators:
            each.manual_seed(seed)

    def get_rng_state_all(self):
        return [generator.get_state() for generator in self.generators]

    def set_rng_state_all(self, states):
        for each, state in zip(self.generators, states, strict=True):
            each.set_state(state)

    def device_count(self):
        return self.n_devices

    def is_initialized(self):
        return bool(self.generators)


@pytest.fixture
def cuda(monkeypatch):
    fake = FakeCuda()
    for name in vars(torch.cuda).keys() & vars(FakeCuda).keys():
        if not name.startswith("_"):
            monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    return fake


def draw_on(cuda):
    cuda.init()
    return [torch.rand(1, generator=generator).item() for generator in cuda.generators]


def test_cuda_goes_on_after_the_block_and_is_not_started_by_it(cuda):
    seed_everything(1)
    expected = draw_on(cuda), draw_on(cuda)
    seed_everything(1)
    before = draw_on(cuda)
    with generators_kept(), seeded(9):
        draw_on(cuda)
    assert (before, draw_on(cuda)) == expected
    cuda.generators = ()
    seed_everything(1)
    state = capture()
    with generators_kept(), seeded(9):
        restore(state)
        seed_everything(9)  # no seed of a block waits for it
    assert (state["cuda"], cuda.generators) == (None, ())
    assert draw_on(cuda) == expected[0]


def test_cuda_states_are_restored(cuda):
    seed_everything(1)
    early = capture()
    cuda.init()
    late = json.loads(json.dumps(capture()))
    expected = draw_on(cuda)
    for state in (late, early):  # before CUDA started: it is started with PyTorch's seed then
        seed_everything(2)
        draw_on(cuda)
        restore(state)
        assert draw_on(cuda) == expected
    cuda.n_devices = 3
    with pytest.raises(NotPossibleHere, match=r"of 2 CUDA devices, and PyTorch finds 3"):
        restore(late)


def test_states_survive_json():
    seed_everything(3)
    draw()
    state = json.dumps(capture(), allow_nan=False)
    expected = draw()
    seed_everything(4)
    restore(json.loads(state))
    assert draw() == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"torch": [3, *[0] * 7, 1]}, "does not accept its state .* nothing was restored"),
        ({"format": "another"}, "the generators' state has the format"),
    ],
)
def test_what_is_not_accepted_changes_nothing(change, message):
    seed_everything(3)
    state = {**capture(), **change}
    expected = capture()
    with pytest.raises(BadInput, match=message):
        restore(state)
    assert capture() == expected


def test_what_was_seeded_is_said_unless_asked_not_to(capsys):
    seed_everything(42)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("seeded with 42: Python, NumPy and PyTorch on every device; not reached:")
    with seeded(4):
        seed_everything(42, quiet=True)
    assert capsys.readouterr() == ("", "")


def test_a_training_goes_on_from_its_own_file_and_from_no_other_seeds(tmp_path):
    """Through the file that ``torch.save`` writes and ``weights_only=True`` reads."""
    file = tmp_path / "checkpoint.pt"
    seed_everything(42)
    draw()
    torch.save(add_seed_to({"model": {"weight": torch.ones(2)}}), file)
    expected = draw()
    seed_everything(7)
    with pytest.raises(BadInput, match=r"checkpoint.pt is not of seed 7: torch's .* has seed 42;"):
        check_seed_of(file, 7)
    assert check_seed_of(file, seed=42)
    restore(torch.load(file))
    assert draw() == expected
    assert check_seed_of(add_seed_to({}), seed=42)  # also of a training that was resumed


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_a_gpus_generator_knows_its_seed_and_goes_on():
    seed_everything(42)
    torch.rand(3, device="cuda")
    checkpoint = add_seed_to({})
    expected = torch.rand(3, device="cuda").tolist(), draw()
    seed_everything(7)
    assert check_seed_of(checkpoint, 42)
    restore(checkpoint)
    assert (torch.rand(3, device="cuda").tolist(), draw()) == expected
    own = (generator(42, "cuda") for _ in range(2))
    a, b = (torch.rand(3, device="cuda", generator=each).tolist() for each in own)
    assert a == b


def test_a_file_of_before_says_what_is_unknown(tmp_path):
    torch.save({"weight": torch.ones(2)}, tmp_path / "old.pt")
    with pytest.warns(UserWarning, match=r"old.pt holds no seed: which one .* is unknown"):
        assert not check_seed_of(tmp_path / "old.pt", 42)
    with pytest.raises(BadInput, match=r"format 'None'; expected .* as samebits\.add_seed_to"):
        restore(torch.load(tmp_path / "old.pt"))


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda path: check_seed_of(path / "none.pt", 1), r"none.pt cannot be read \(No such file"),
        (lambda path: check_seed_of(path / "net.pt", 1), r"cannot be read \(Weights only load fai"),
        (lambda path: add_seed_to({"weight": torch.ones(1)}), "tensors alone, as a network's"),
    ],
    ids=["no file", "pickled network", "bare state dict"],
)
def test_refuses_a_checkpoint(tmp_path, use, message):
    seed_everything(1)
    torch.save(torch.nn.Linear(1, 1), tmp_path / "net.pt")
    with pytest.raises(BadInput, match=message):
        use(tmp_path)


def test_a_checkpoint_of_a_full_disk_and_a_state_without_a_part(tmp_path):
    (tmp_path / "empty.pt").touch()
    with pytest.raises(BadInput, match=r"empty.pt cannot be read \(it ends too soon"):
        check_seed_of(tmp_path / "empty.pt", 1)
    state = capture()
    del state["cuda"]
    with pytest.raises(BadInput, match="the generators' state has no cuda"):
        restore(state)


def test_a_training_that_was_not_seeded_has_no_seed_to_add():
    torch.manual_seed(2**40)
    with pytest.raises(BadInput, match=r"seed 1099511627776, .* call samebits.seed_everything"):
        add_seed_to({})


def test_a_generator_of_ones_own():
    own, same, other = generator(42), generator(42, "cpu"), generator(43)
    expected = capture()
    drawn = [torch.rand(3, generator=each).tolist() for each in (own, same, other)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert capture() == expected


class Augmented:
    """Six images, each drawn at random by whoever loads it."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        of_item = item_generator(5, epoch=0, index=index).random()
        return index, [*draw(), np.random.default_rng().random()], of_item


def load(seed, *, n_workers=2, rank=0, n_epochs=1):
    """Of every image of every epoch: the indices, the draws of each generator, its own draws."""
    how = {"shuffle": True, "batch_size": None, "num_workers": n_workers}
    loader = torch.utils.data.DataLoader(Augmented(), **how, **loader_arguments(seed, rank=rank))
    index, drawn, of_item = zip(*(one for _ in range(n_epochs) for one in loader), strict=True)
    return index, list(zip(*drawn, strict=True)), of_item


def test_workers_repeat_with_equal_seeds():
    seed_everything(1)
    first = load(3, n_epochs=2)
    seed_everything(2)  # the training's own generators have no say
    draw()
    assert load(3, n_epochs=2) == first
    for column in first[1]:
        assert len(set(column)) == 12, "two workers, images or epochs drew alike"


def test_workers_differ_between_seeds_and_ranks_and_images_do_not():
    base, seed, rank, alone = load(3), load(4), load(3, rank=1), load(3, n_workers=0)
    assert rank[0] == alone[0] == base[0] != seed[0]
    assert rank[2] == alone[2] == base[2]
    for of_base, of_seed, of_rank in zip(base[1], seed[1], rank[1], strict=True):
        assert not {*of_base} & {*of_seed}
        assert not {*of_base} & {*of_rank}


def test_item_generators_depend_on_everything():
    keys = [(3, 0, 1), (3, 1, 0), (3, 0, 0), (4, 0, 0), (0, 3, 0), (0, 0, 3)]
    assert len({item_generator(*key).random() for key in keys}) == 6


def test_a_split_is_a_partition_of_the_right_sizes():
    for n, weights in itertools.product((10, 23, 104), ([1], [2, 1], [5, 3, 1, 1])):
        fractions = [weight / sum(weights) for weight in weights]
        parts = split(n, fractions, n)
        assert sorted(np.concatenate(parts)) == list(range(n))
        assert all(abs(len(p) - f * n) <= 1 for p, f in zip(parts, fractions, strict=True))


def test_splits_are_these_everywhere():
    """Stored splits must not change with the platform, NumPy or this package."""
    plain = split(12, [0.5, 0.25, 0.25], seed=1)
    assert [part.tolist() for part in plain] == [[0, 2, 4, 5, 7, 9], [8, 10, 11], [1, 3, 6]]
    grouped = split(6, [0.5, 0.5], 7, groups=[0, 0, 1, 1, 2, 2])
    assert [part.tolist() for part in grouped] == [[0, 1], [2, 3, 4, 5]]
    assert [len(part) for part in split(100, [0.29, 0.71], 3)] == [29, 71]
    assert [len(part) for part in split(100, [29, 71], 3)] == [29, 71]


def test_a_split_of_names_does_not_follow_their_listing():
    names = [f"img{index:02}" for index in range(12)]
    expected = [{names[index] for index in part} for part in split(12, [9, 3], seed=1)]
    slides = [name[:4] for name in names]
    for order in (names, names[::-1], names[5:] + names[:5]):
        parts = split(order, [0.75, 0.25], seed=1)
        assert [{order[index] for index in part} for part in parts] == expected
    grouped = [
        {order[index] for index in split(order, [10, 2], 2, groups=labels)[0]}
        for order, labels in ((names, slides), (names[::-1], slides[::-1]))
    ]
    assert grouped[0] == grouped[1]


@pytest.mark.parametrize(
    ("n", "fractions", "groups", "message"),
    [
        (9, [0.5, 0.4], None, "expected numbers above 0, together 1"),
        (3, [0.9, 0.1], None, r"one part of \[0.9, 0.1\] would be empty with 3 items"),
        (3, [0.5, 0.5], ["a", "b"], "groups has 2 labels for 3 items"),
        (["a", "b", "a"], [0.5, 0.5], None, "1 of 3 names occur before"),
        ("train", [0.6, 0.4], None, "items is 'train', one text; expected a number of items"),
        (9.0, [0.5, 0.5], None, r"items must be a whole number of at least 1, got 9\.0"),
        (9, [5, 3], None, "expected numbers above 0, together 1, or 9 items"),
    ],
)
def test_refuses_a_split(n, fractions, groups, message):
    with pytest.raises(BadInput, match=message):
        split(n, fractions, seed=3, groups=groups)


def test_ranks_draw_differently():
    """Nor do ranks of one training draw what ranks of another do, whose seed is near."""
    seeds = [rank_seed(base, rank, 64) for base in range(64) for rank in range(64)]
    assert len(set(seeds)) == 64 * 64
    assert seeds[::64] == list(range(64))
    assert rank_seed(40, 1, 3) == rank_seed(40, 1, 4) == 2794524927
    assert 0 <= rank_seed(2**32 - 1, 3, 4) < 2**32
    with pytest.raises(BadInput, match="rank is 2 of 2 ranks; expected one from 0 to n_ranks - 1"):
        rank_seed(3, 2, 2)
