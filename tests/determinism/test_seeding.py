"""Generators are seeded together, stored as plain data, and given back."""

import base64
import json
import random
import sys
from dataclasses import FrozenInstanceError
from functools import partial
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
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


def draw():
    """One number of each generator."""
    import torch

    return random.random(), np.random.rand(), torch.rand(1).item()


@pytest.fixture(autouse=True)
def _own_generators(generators_free):
    """These tests move the generators."""
    import torch  # noqa: F401


# -- one process ---------------------------------------------------------------------------


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
        generator = seed_everything(seed)
        drawn.append((*draw(), generator.random()))
    assert drawn[0] == drawn[1]
    assert all(a != b for a, b in zip(drawn[1], drawn[2], strict=True))


def test_hands_out_numpys_own_generator():
    assert seed_everything(3).random() == np.random.default_rng(3).random()
    with seeded(3) as generator:
        assert generator.random() == np.random.default_rng(3).random()


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


@pytest.mark.parametrize("block", [lambda: seeded(9), generators_kept], ids=["seeded", "kept"])
def test_nor_do_halves_of_normal_pairs(block):
    """Python and NumPy draw two normal numbers at once and keep the second."""
    seed_everything(1)
    expected = [(random.gauss(), np.random.randn()) for _ in range(2)]
    seed_everything(1)
    first = random.gauss(), np.random.randn()
    with block():
        random.gauss(), np.random.randn()
    assert [first, (random.gauss(), np.random.randn())] == expected


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


def test_default_rng_without_a_seed_follows_inside_the_block():
    def drawn(seed):
        with seeded(seed):
            return [np.random.default_rng().random(), np.random.default_rng(None).random()]

    assert drawn(3) == drawn(3)
    assert len({*drawn(3), *drawn(4)}) == 4


def test_default_rng_with_a_seed_is_numpys():
    given = [5, [1, 2], np.random.SeedSequence(9)]
    expected = [np.random.default_rng(seed).random() for seed in given]
    with seeded(3):
        assert [np.random.default_rng(seed=seed).random() for seed in given] == expected
        before = draw()
    with seeded(3):
        assert draw() == before, "a seeded one moved the global generator"


def test_default_rng_is_given_back():
    own = np.random.default_rng
    with seeded(1):
        with pytest.raises(KeyError), seeded(2):
            raise KeyError
        assert np.random.default_rng is not own
    assert np.random.default_rng is own
    assert own().random() != own().random()


def test_looking_with_default_rng_moves_nothing():
    with seeded(3):
        expected = np.random.default_rng().random()
    with seeded(3):
        with generators_kept():
            np.random.default_rng()
        assert np.random.default_rng().random() == expected


# -- TensorFlow and CuPy, made up ------------------------------------------------------------


class NoImports:
    """Fails whoever looks for TensorFlow or CuPy."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "cupy"):
            pytest.fail(f"{name} was imported")


def test_never_imports_tensorflow_or_cupy(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [NoImports(), *sys.meta_path])
    seed_everything(1)
    with seeded(1):
        assert capture()["left_out"] == []


@pytest.fixture
def tensorflow(monkeypatch):
    """What TensorFlow was seeded with."""
    module = ModuleType("tensorflow")
    module.seeds = []
    module.random = SimpleNamespace(set_seed=module.seeds.append)
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    return module


class FakeCupy(ModuleType):
    """As much of CuPy as is called: an opaque generator for each device."""

    def __init__(self, *, available=True):
        super().__init__("cupy")
        self.current = 0
        fake = self

        class Device:
            def __init__(self):
                self.id = fake.current

            def __enter__(self):
                self.before, fake.current = fake.current, self.id

            def __exit__(self, *_):
                fake.current = self.before

        self.states = {0: random.Random(70), 1: random.Random(71)}
        self.cuda = SimpleNamespace(is_available=lambda: available, Device=Device)
        self.random = SimpleNamespace(
            seed=lambda seed: self.states[self.current].seed(seed),
            RandomState=random.Random,
            get_random_state=lambda: self.states[self.current],
            set_random_state=lambda state: self.states.update({self.current: state}),
        )

    def draw(self):
        return self.states[self.current].random()


@pytest.fixture
def cupy(monkeypatch):
    module = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_seeds_tensorflow_where_it_is_imported(tensorflow):
    seed_everything(3)
    with seeded(4):
        pass
    with pytest.raises(BadInput):
        seed_everything(-1)
    assert tensorflow.seeds == [3, 4]


def test_seeds_cupy_where_it_is_imported(cupy):
    seed_everything(3)
    expected = cupy.draw()
    seed_everything(3)
    assert cupy.draw() == expected


def test_cupy_goes_on_after_the_block(cupy):
    expected = [random.Random(70).random(), random.Random(71).random()]
    with seeded(3):
        inner = cupy.draw()
    with pytest.raises(ZeroDivisionError), seeded(3):
        cupy.draw() / 0
    with seeded(3):
        assert cupy.draw() == inner
        cupy.current = 1
    assert [cupy.states[0].random(), cupy.states[1].random()] == expected


def test_cupy_without_a_device_is_left_alone(monkeypatch):
    module = FakeCupy(available=False)
    monkeypatch.setitem(sys.modules, "cupy", module)
    seed_everything(4)
    with seeded(3):
        pass
    assert module.draw() == random.Random(70).random()


def test_says_what_it_cannot_capture(cupy, tensorflow):
    assert capture()["left_out"] == ["cupy", "tensorflow"]


# -- CUDA and MPS, made up -------------------------------------------------------------------


class FakeCuda:
    """CUDA as PyTorch shows it: it starts when first asked, with the seed that waits for it."""

    def __init__(self, n_devices=2):
        self.n_devices, self.waiting, self.generators = n_devices, 67280421310721, None
        self.waiting_states = []

    def init(self):
        if self.generators is None:
            import torch

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
        import torch

        self.init()
        return [torch.rand(1, generator=generator).item() for generator in self.generators]


@pytest.fixture
def cuda(monkeypatch):
    """A machine with two CUDA devices that have not started."""
    import torch

    fake = FakeCuda()
    for name in ("init", "manual_seed_all", "get_rng_state_all", "set_rng_state_all"):
        monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: fake.n_devices)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: fake.generators is not None)
    return fake


def test_cuda_is_not_started(cuda):
    state = capture()
    with generators_kept(), seeded(3):
        restore(state)
    assert state["cuda"] is None
    assert cuda.generators is None


@pytest.mark.parametrize("started", [False, True], ids=["not started", "started"])
@pytest.mark.parametrize("block", [lambda: seeded(9), generators_kept], ids=["seeded", "kept"])
def test_cuda_goes_on_after_the_block(cuda, block, started):
    seed_everything(1)
    expected = cuda.draw(), cuda.draw()
    cuda.generators = None
    seed_everything(1)
    before = [cuda.draw()] if started else []
    with block():
        cuda.draw()
    after = [cuda.draw() for _ in range(2 - len(before))]
    assert tuple(before + after) == expected


@pytest.mark.parametrize(
    "block",
    [lambda: seeded(9), generators_kept],
    ids=["seeded", "seeded by hand inside kept"],
)
def test_no_seed_of_a_block_waits_for_cuda_after_it(cuda, block):
    seed_everything(1)
    expected = cuda.draw()
    cuda.generators = None
    seed_everything(1)
    with block():
        seed_everything(9)
    assert cuda.generators is None
    assert cuda.draw() == expected


def test_a_seed_of_cudas_own_goes_on_waiting(cuda):
    """A block that seeds nothing must not replace it by the seed of the CPU."""
    import torch

    seed_everything(1)
    torch.cuda.manual_seed_all(7)
    with generators_kept():
        draw()
    assert cuda.waiting == 7


def test_cuda_states_survive_json(cuda):
    seed_everything(1)
    cuda.draw()
    state = json.loads(json.dumps(capture()))
    expected = cuda.draw()
    cuda.generators = None
    restore(state)
    assert cuda.draw() == expected


def test_a_state_from_before_cuda_starts_it_with_its_seed(cuda):
    seed_everything(1)
    state = capture()
    expected = cuda.draw()
    seed_everything(2)
    cuda.draw()
    restore(state)
    assert cuda.draw() == expected


@pytest.mark.parametrize("n_devices", [1, 3])
def test_refuses_the_states_of_other_devices(cuda, n_devices):
    cuda.draw()
    state = capture()
    cuda.n_devices = n_devices
    expected = capture()
    with pytest.raises(
        NotPossibleHere, match=rf"of 2 CUDA devices, and PyTorch finds {n_devices}; .* shows 2"
    ):
        restore(state)
    assert capture() == expected


def test_refuses_cuda_states_without_cuda(cuda, monkeypatch):
    import torch

    cuda.draw()
    state = capture()
    monkeypatch.undo()
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(NotPossibleHere, match="of 2 CUDA devices, and PyTorch finds 0"):
        restore(state)


@pytest.mark.parametrize("started", [False, True], ids=["not started", "started"])
def test_puts_everything_back_when_cuda_refuses(cuda, started):
    cuda.draw()
    state = capture()
    state["cuda"][1] = "AAAA"
    seed_everything(3)
    expected = capture()
    if not started:  # PyTorch would keep the states until it starts, and only then refuse them
        cuda.generators = None
    with pytest.raises(BadInput, match=r"global generators is not accepted: .* nothing was rest"):
        restore(state)
    assert capture() == expected


def test_mps_is_kept_and_captured(monkeypatch):
    import torch

    generator = torch.Generator().manual_seed(3)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "get_rng_state", generator.get_state)
    monkeypatch.setattr(torch.mps, "set_rng_state", generator.set_state)
    state = capture()
    expected = torch.rand(1, generator=generator)
    restore(json.loads(json.dumps(state)))
    with generators_kept():
        assert torch.rand(1, generator=generator) == expected
    assert torch.rand(1, generator=generator) == expected
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(NotPossibleHere, match="an MPS device, and PyTorch finds none"):
        restore(state)


# -- states as plain data --------------------------------------------------------------------


BIT_GENERATORS = ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"]


def own_generators(seed):
    """One of every kind that can be captured by name."""
    kinds = {name: np.random.Generator(getattr(np.random, name)(seed)) for name in BIT_GENERATORS}
    return {
        **kinds,
        "legacy": np.random.RandomState(seed),
        "python": random.Random(seed),
        "torch": torch_generator(seed),
    }


def draw_some(own, moves):
    """Numbers of every generator, odd counts of each kind left in their caches."""
    import torch

    drawn = []
    for move in moves:
        for source in (random, own["python"]):
            drawn.append(source.gauss() if move == "normal" else source.getrandbits(32))
        for source in (np.random, own["legacy"]):
            drawn.append(source.randn() if move == "normal" else source.randint(2**31))
        for name in BIT_GENERATORS:  # 32 of the 64 bits drawn are kept for the next time
            drawn.append(
                own[name].standard_normal()
                if move == "normal"
                else int(own[name].integers(2**32, dtype=np.uint32))
            )
        for source in (None, own["torch"]):
            function = torch.randn if move == "normal" else torch.rand
            drawn.append(function(1, generator=source).item())
    return drawn


_moves = st.lists(st.sampled_from(["normal", "word"]), max_size=4)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), before=_moves, after=_moves.filter(len), astray=_moves)
def test_states_survive_json(seed, before, after, astray):
    own = own_generators(seed)
    seed_everything(seed)
    draw_some(own, before)
    text = json.dumps(capture(own), allow_nan=False)
    expected = draw_some(own, after)
    seed_everything(seed ^ 1)
    draw_some(own, astray)
    restore(json.loads(text), own)
    assert json.dumps(capture(own)) == text
    assert draw_some(own, after) == expected


def plain(value):
    if isinstance(value, dict):
        return all(isinstance(name, str) and plain(item) for name, item in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) is str or (type(value) is int and abs(value) <= 2**53)


def test_states_are_plain(cuda):
    cuda.draw()
    assert plain(capture(own_generators(3)))


def test_fresh_generators_take_a_state():
    """As in another process: the seed of the one that takes it does not matter."""
    own = own_generators(3)
    draw_some(own, ["word", "normal", "word"])
    state = capture(own)
    expected = draw_some(own, ["word", "normal"])
    others = own_generators(4)
    restore(state, others)
    assert draw_some(others, ["word", "normal"]) == expected


def test_another_global_bit_generator():
    """NumPy lets a user replace it; its state is then of that kind."""
    own = np.random.get_bit_generator()
    try:
        legacy = capture()
        np.random.set_bit_generator(np.random.PCG64(3))
        state = capture()
        expected = np.random.rand()
        restore(state)
        assert np.random.rand() == expected
        with pytest.raises(BadInput, match=r"numpy is of 'MT19937', but .* is 'PCG64' here"):
            restore(legacy)
    finally:
        np.random.set_bit_generator(own)


def changed(*path, to):
    """Change one leaf of a captured state."""

    def change(state):
        *parents, last = path
        for name in parents:
            state = state[name]
        state[last] = to

    return change


def without(name):
    def change(state):
        del state[name]

    return change


SHORT = "AAAA"
NULLS = base64.b64encode(bytes(5056)).decode()
"""Of the right size, and no Mersenne Twister."""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("format", to="cellrepro generators 9"), "format 'cellrepro generators 9'; exp"),
        (without("torch"), r"has the keys \['cuda', .*; expected \['cuda'.*'torch'\]"),
        (changed("surplus", to=1), "has the keys .*'surplus'"),
        (changed("python", to=None), r"state of python is None; expected the fields \['bit_gen"),
        (changed("python", "state", "key", to=SHORT), "python.state.key has 3 bytes; exp.* 2496"),
        (changed("python", "state", "pos", to=625), "python.state.pos is 625; .* 0 to 624"),
        (changed("python", "bit_generator", to="X"), "python.bit_generator is 'X'; .* 'MT19937'"),
        (changed("python", "gauss", to=0.5), "python.gauss is 0.5; expected a number, in hex"),
        (changed("python", "gauss", to="nan"), "python.gauss is nan; expected a finite number"),
        (changed("numpy", "state", "pos", to=625), "numpy.state.pos is 625; .* 0 to 624"),
        (changed("numpy", "state", "pos", to=-1), "numpy.state.pos is -1; "),
        (changed("numpy", "state", "pos", to="-0x1"), "numpy.state.pos is -1; "),
        (changed("numpy", "state", "pos", to=True), "numpy.state.pos is True; expected a number"),
        (changed("numpy", "state", "pos", to=1.5), "numpy.state.pos is 1.5; expected a number"),
        (changed("numpy", "state", to={"key": ""}), r"numpy.state is .*; .*\['key', 'pos'\]"),
        (changed("numpy", "has_gauss", to=2), "numpy.has_gauss is 2; .* 0 to 1"),
        (changed("numpy", "state", "key", to="é"), "numpy.state.key is 'é'; expected base64"),
        (changed("numpy", "bit_generator", to="SFC64"), "numpy is of 'SFC64', but .*'MT19937'"),
        (changed("numpy", to=[]), r"numpy is of \[\], but"),
        (changed("torch", to=SHORT), "torch has 3 bytes; expected 5056"),
        (changed("torch", to="A" * 90), "torch is 'A{56}...; expected base64"),
        (changed("torch", to=NULLS), "not accepted: Invalid mt19937 state.*nothing was restored"),
        (changed("torch", to=f"?{NULLS}"), "torch is '.A{55}...; expected base64 text"),
        (changed("torch", to=7), "torch is 7; expected base64 text"),
        (changed("cuda", to=SHORT), "cuda is 'AAAA'; expected a list or None"),
        (changed("generators", to=[]), r"holds the generators \[\], but \['mine', 'other'"),
        (without("generators"), "has the keys"),
        (changed("generators", "mine", to=3), "generators.mine is 3; expected kind and state"),
        (
            changed("generators", "mine", "kind", to="random.Random"),
            "generators.mine is of kind 'random.Random', but .* 'numpy.random.Generator'",
        ),
        (
            changed("generators", "mine", "state", "bit_generator", to="PCG64"),
            "generators.mine.bit_generator is 'PCG64'; expected 'Philox'",
        ),
        (
            changed("generators", "mine", "state", "buffer_pos", to=5),
            "generators.mine.buffer_pos is 5; .* 0 to 4",
        ),
        (changed("generators", "mine", "state", "has_uint32", to=2), "has_uint32 is 2; .* 0 to 1"),
        (
            changed("generators", "mine", "state", "uinteger", to=2**32),
            "generators.mine.uinteger is 4294967296; ",
        ),
        (
            changed("generators", "other", "state", to=NULLS),
            "generators.other is not accepted: Invalid mt19937 state.*nothing was restored",
        ),
        (changed("generators", "other", "state", to=SHORT), "generators.other has 3 bytes"),
    ],
)
def test_refuses_what_is_no_state(change, message):
    own = {"mine": np.random.Generator(np.random.Philox(3)), "other": torch_generator(3)}
    state = json.loads(json.dumps(capture(own)))
    change(state)
    draw(), own["mine"].random()
    expected = capture(own)
    with pytest.raises(BadInput, match=message):
        restore(state, own)
    assert capture(own) == expected


@pytest.mark.parametrize("state", [None, "text", [], {}, 3])
def test_refuses_another_format(state):
    with pytest.raises(BadInput, match=r"has the format .*; expected 'cellrepro generators 1'"):
        restore(state)


@pytest.mark.parametrize(
    ("generators", "message"),
    [
        ({"a": 3}, "the generator 'a' is a int; expected a numpy.random.Generator or Rand"),
        ({"a": random.SystemRandom()}, "the generator 'a' is a SystemRandom"),
        ({"a": np.random.PCG64(3)}, "the generator 'a' is a PCG64"),
        ([random.Random(3)], "expected generators by name"),
        ({3: random.Random(3)}, "expected generators by name"),
    ],
    ids=["a number", "no state", "bits", "a list", "no name"],
)
def test_refuses_what_is_no_generator(generators, message):
    with pytest.raises(BadInput, match=message):
        capture(generators)
    with pytest.raises(BadInput, match=message):
        restore(capture(), generators)


def test_refuses_other_names():
    mine = random.Random(3)
    with pytest.raises(BadInput, match=r"holds the generators \['a'\], but \[\] were given"):
        restore(capture({"a": mine}))
    with pytest.raises(BadInput, match=r"holds the generators \['a'\], but \['b'\] were given"):
        restore(capture({"a": mine}), {"b": mine})


# -- loading data ----------------------------------------------------------------------------


def test_a_generator_of_ones_own():
    import torch

    def drawn(seed):
        return torch.rand(3, generator=torch_generator(seed)).tolist()

    before = torch.get_rng_state()
    assert drawn(3) == drawn(3) != drawn(4)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch_generator(3, torch.device("cpu")).device.type == "cpu"


@pytest.mark.parametrize("device", ["gpu", "cuda:x", None, 1.5])
def test_refuses_an_unknown_device(device):
    with pytest.raises(BadInput, match=r"device is .*; expected one like 'cpu', 'cuda:0', 'mps'"):
        torch_generator(3, device)


def test_refuses_a_missing_device():
    import torch

    missing = "cuda" if not torch.cuda.is_available() else "mps"
    with pytest.raises(NotPossibleHere, match=f"no generator on the device '{missing}' of this"):
        torch_generator(3, missing)


def test_refuses_a_seed_for_a_generator():
    with pytest.raises(BadInput, match="seed is -1"):
        torch_generator(-1)


class Augmented:
    """Six images, each drawn at random by whoever loads it."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        import torch.utils.data

        worker = torch.utils.data.get_worker_info()
        of_item = item_generator(5, epoch=0, index=index).random()
        return (
            [index, worker.id if worker else -1],
            [*draw(), np.random.default_rng().random()],
            of_item,
        )


def load(seed, *, n_workers, rank=0, n_epochs=1, **changes):
    """Index and worker, draws, and the image's own draw, of every image of every epoch."""
    import torch.utils.data

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
    assert columns(ranks[0])[:3] == columns(ranks[1])[:3]
    assert columns(ranks[0])[3] != columns(ranks[1])[3]  # default_rng, out of control


def test_refuses_to_seed_the_training_as_a_worker():
    before = capture()
    with pytest.raises(BadInput, match=r"seed_worker\(0\) was called outside .* worker_init_fn"):
        seed_worker(0)
    assert capture() == before


@pytest.mark.parametrize("rank", [-1, 0.5, None, True])
def test_refuses_a_rank(rank):
    for refuses in (
        lambda: seed_worker(0, rank=rank),
        lambda: loader_arguments(3, rank=rank),
        lambda: rank_seeds(3, rank, 4),
    ):
        with pytest.raises(BadInput, match=rf"rank is {rank}; expected a whole number from 0"):
            refuses()


def test_item_generators_depend_on_everything():
    drawn = {
        item_generator(*key).random()
        for key in [(3, 0, 1), (3, 1, 0), (3, 0, 0), (4, 0, 0), (0, 3, 0), (0, 0, 3)]
    }
    assert len(drawn) == 6
    assert item_generator(3, np.int64(1), 2).random() == item_generator(3, 1, 2).random()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 0, 0), "seed is -1"),
        ((3, -1, 0), "epoch is -1; expected a whole number from 0"),
        ((3, 0, 1.0), "index is 1.0; expected a whole number from 0"),
    ],
)
def test_refuses_an_item(arguments, message):
    with pytest.raises(BadInput, match=message):
        item_generator(*arguments)


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
        assert part.dtype == np.int64
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
    renamed = split(len(groups), [0.5, 0.5], seed, groups=[ord(group) for group in groups])
    assert all(map(np.array_equal, parts, renamed))


@pytest.mark.parametrize(
    ("n", "fractions", "sizes"),
    [
        (10, [0.7, 0.3], [7, 3]),
        (3, [1 / 3, 1 / 3, 1 / 3], [1, 1, 1]),
        (100, [0.29, 0.71], [29, 71]),
        (5, [0.5, 0.5], [2, 3]),
        (1, [1.0], [1]),
    ],
)
def test_sizes_are_exact(n, fractions, sizes):
    for seed in range(3):
        assert [len(part) for part in split(n, fractions, seed)] == sizes


def test_a_group_of_one_each_is_no_group():
    plain, grouped = split(9, [0.6, 0.4], 3), split(9, [0.6, 0.4], 3, groups=list("ihgfedcba"))
    assert all(map(np.array_equal, plain, grouped))


def test_splits_follow_the_seed_and_nothing_else():
    before = capture()
    splits = {tuple(split(20, [0.5, 0.5], seed)[0]) for seed in range(50)}
    assert len(splits) == 50
    assert capture() == before


def test_every_item_falls_everywhere():
    """Over many seeds each item is in the smaller part about equally often."""
    counts = np.zeros(10, dtype=int)
    for seed in range(1000):
        counts[split(10, [0.7, 0.3], seed)[1]] += 1
    assert counts.sum() == 3000
    assert counts.min() > 240, counts  # 4 standard deviations below 300
    assert counts.max() < 360, counts


def test_splits_are_these_everywhere():
    """Stored splits must not change with the platform, NumPy or this package."""
    plain = split(12, [0.5, 0.25, 0.25], seed=1)
    assert [part.tolist() for part in plain] == [[0, 2, 4, 5, 7, 9], [8, 10, 11], [1, 3, 6]]
    grouped = split(6, [0.5, 0.5], 7, groups=[0, 0, 1, 1, 2, 2])
    assert [part.tolist() for part in grouped] == [[0, 1], [2, 3, 4, 5]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, [1.0]), "n is 0; expected at least 1 item"),
        ((-1, [1.0]), "n is -1; expected a whole number from 0"),
        ((2.0, [1.0]), "n is 2.0; expected a whole number from 0"),
        ((9, []), r"fractions is \[\], together 0.0; expected numbers above 0"),
        ((9, [0.5, 0.4]), r"fractions is \[0.5, 0.4\], together 0.9"),
        ((9, [1.5, -0.5]), "expected numbers above 0 that are 1 together"),
        ((9, [1.0, 0.0]), "expected numbers above 0 that are 1 together"),
        ((9, [float("nan"), 1.0]), "expected numbers such as 0.8, 0.2"),
        ((9, [float("inf"), 1.0]), "expected numbers such as 0.8, 0.2"),
        ((9, "most"), "fractions is 'most'; expected numbers such as 0.8, 0.2"),
        ((9, 0.8), "fractions is 0.8; expected numbers such as 0.8, 0.2"),
        ((3, [0.9, 0.1]), r"part 1 of \[0.9, 0.1\] would be empty with 3 items; give it a larger"),
    ],
)
def test_refuses_a_split(arguments, message):
    with pytest.raises(BadInput, match=message):
        split(*arguments, seed=3)


def test_refuses_a_splits_seed():
    with pytest.raises(BadInput, match=r"seed is 1\.0"):
        split(9, [1.0], 1.0)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a", "b"], "groups has 2 labels for 3 items; expected one for each item"),
        ([1.0, float("nan"), 2.0], r"groups\[1\] is nan, which equals nothing"),
        (["a", "a", "a"], r"would be empty with 3 items in 1 groups"),
    ],
)
def test_refuses_groups(groups, message):
    with pytest.raises(BadInput, match=message):
        split(3, [0.5, 0.5], 3, groups=groups)


# -- several devices -------------------------------------------------------------------------


def test_ranks_draw_differently_from_one_order_of_the_data():
    seeds = [rank_seeds(40, rank, 3) for rank in range(3)]
    assert seeds == [RankSeeds(rank, 40 + rank, 40) for rank in range(3)]
    assert {rank_seeds(40, rank, 3, data_seed=7).data for rank in range(3)} == {7}
    with pytest.raises(FrozenInstanceError):
        seeds[0].model = 3


def test_the_last_seed_is_still_one():
    assert rank_seeds(2**32 - 4, 3, 4).model == 2**32 - 1


@pytest.mark.parametrize("rank", [0, 3])
def test_every_rank_refuses_an_overflow(rank):
    """Rank 0 too, although its own seed is in range: it would wait for the others."""
    with pytest.raises(BadInput, match=r"last of 4 ranks .* 4294967296; .* at most 4294967292"):
        rank_seeds(2**32 - 3, rank, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(rank_seeds, -1, 0, 1), "base is -1"),
        (partial(rank_seeds, 3, 2, 2), "rank is 2 of 2 ranks; expected one from 0 to n_ranks - 1"),
        (partial(rank_seeds, 3, 0, 0), "rank is 0 of 0 ranks"),
        (partial(rank_seeds, 3, 0, "2"), "n_ranks is '2'; expected a whole number"),
        (partial(rank_seeds, 3, 0, 1, data_seed=-1), "data_seed is -1"),
    ],
)
def test_refuses_ranks(call, message):
    with pytest.raises(BadInput, match=message):
        call()
