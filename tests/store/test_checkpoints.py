"""A training goes on from a checkpoint to the same bits, or says why it cannot."""

import copy
import json
import random
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from cellrepro.determinism import seeding
from cellrepro.determinism.seeding import generators_kept, seed_everything
from cellrepro.errors import BadInput
from cellrepro.images.folder import LabelledImage
from cellrepro.lab.keeping import CHECKPOINTS, Keeper, Keeping
from cellrepro.model.network import ModelSource, build
from cellrepro.model.training import Loop
from cellrepro.store import checkpoints
from cellrepro.store.checkpoints import Origin
from cellrepro.store.digests import file_digest, generator_digests, state_digest
from cellrepro.store.ledger import DRAWS, LEDGER, OPERATIONS, Ledger, read_rows
from cellrepro.store.store import Store
from cellrepro.trace import seed_check as seeds
from cellrepro.trace.operation_ledger import OperationRow
from cellrepro.trace.random_draws import Draw
from cellrepro.trace.seed_check import seed_check

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")

ORIGIN = Origin(
    spec={"seed": 3, "data_digest": "d" * 64, "model": "tiny", "epochs": 3},
    repeat=0,
    numeric_class={"name": "0123456789ab", "probes": {"sum/float32": "aa", "conv/float32": "bb"}},
    initial_weights="e" * 64,
)


def bits(tensors):
    """Dtype, shape and bytes of every tensor."""

    def content(tensor):
        return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()

    return {name: (one.dtype, tuple(one.shape), content(one)) for name, one in tensors.items()}


def moments(optimizer_state):
    return {
        f"{index}/{key}": value
        for index, state in optimizer_state["state"].items()
        for key, value in state.items()
    }


# -- a small training of plain PyTorch -----------------------------------------------------


class Small:
    """A network with dropout and running statistics, whose data come from every generator."""

    def __init__(self, seed=3):
        seed_everything(seed)
        self.network = nn.Sequential(
            nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(0.3), nn.Linear(5, 2)
        )
        decayed = [p for p in self.network.parameters() if p.dim() > 1]
        others = [p for p in self.network.parameters() if p.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed}, {"params": others, "weight_decay": 0.0, "betas": (0.8, 0.99)}],
            lr=0.01,
        )
        self.losses, self.n_steps = [], 0

    def epoch(self):
        for group in self.optimizer.param_groups:
            group["lr"] = np.float64(0.01) / (3 + len(self.losses))
        for _ in range(2):
            x = torch.from_numpy(np.random.rand(4, 3).astype("float32")) * random.random()
            loss = self.network(x).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.n_steps += 1
        self.losses.append(loss.item())

    def save(self, parent, **changes):
        loop = {"epochs": self.losses, "n_steps": self.n_steps}
        return checkpoints.save(
            parent,
            **{
                "origin": ORIGIN,
                "network": self.network,
                "loop_state": {"loop": loop, "optimizer": self.optimizer.state_dict()},
                "n_rows": {"ledger.parquet": 7},
                **changes,
            },
        )

    def go_on(self, checkpoint):
        weights, optimizer = checkpoint.tensors()
        self.network.load_state_dict(weights)
        self.optimizer.load_state_dict(optimizer)
        self.losses, self.n_steps = list(checkpoint.loop["epochs"]), checkpoint.loop["n_steps"]
        seeding.restore(checkpoint.generators)

    def outcome(self):
        groups = [
            {key: float(value) if key == "lr" else value for key, value in group.items()}
            for group in self.optimizer.state_dict()["param_groups"]
        ]
        return (
            *(bits(self.network.state_dict()), bits(moments(self.optimizer.state_dict()))),
            *(groups, generator_digests(), self.losses, self.n_steps),
        )


@pytest.fixture
def three(tmp_path):
    """A training of three epochs, and the checkpoints it left."""
    small = Small()
    for _ in range(3):
        small.epoch()
        small.save(tmp_path / "kept")
    return small, tmp_path / "kept"


# -- every bit comes back ------------------------------------------------------------------


@pytest.mark.parametrize("n_epochs", [0, 1, 2, 3])
def test_resumed_it_ends_in_the_same_bits(three, tmp_path, n_epochs):
    whole, kept = three
    if n_epochs:
        checkpoint = checkpoints.read(kept / f"epoch-{n_epochs:05d}")
    else:
        checkpoint = checkpoints.read(Small().save(tmp_path / "begin"))
    assert (checkpoint.epoch, checkpoint.step) == (n_epochs, 2 * n_epochs)
    resumed = Small(seed=99)
    resumed.go_on(checkpoint)
    while len(resumed.losses) < 3:
        resumed.epoch()
    assert resumed.outcome() == whole.outcome()


def test_without_the_generators_it_ends_otherwise(three):
    whole, kept = three
    resumed = Small(seed=99)
    checkpoint = checkpoints.read(kept / "epoch-00001")
    resumed.go_on(checkpoint)
    torch.rand(1)
    while len(resumed.losses) < 3:
        resumed.epoch()
    assert resumed.outcome() != whole.outcome()


def test_what_is_read_is_what_was_saved(three):
    small, kept = three
    found = checkpoints.read(kept / "epoch-00003")
    weights, optimizer = found.tensors()
    assert bits(weights) == bits(small.network.state_dict())
    assert weights["1.num_batches_tracked"].dtype == torch.int64
    held = small.optimizer.state_dict()
    assert bits(moments(optimizer)) == bits(moments(held))
    assert optimizer["state"][0]["step"].item() == 6
    assert optimizer["param_groups"] == held["param_groups"]
    assert [group["betas"] for group in optimizer["param_groups"]] == [(0.9, 0.999), (0.8, 0.99)]
    for restored, group in zip(optimizer["param_groups"], held["param_groups"], strict=True):
        assert float(restored["lr"]).hex() == float(group["lr"]).hex()
        assert type(restored["lr"]) is float
    assert (found.origin, found.n_rows) == (ORIGIN, {"ledger.parquet": 7})
    with generators_kept():
        seeding.restore(found.generators)
        assert generator_digests() == small.outcome()[3]


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 1e-45, 3.4e38]),
        torch.tensor([0x7FC00001, 0x7F800001, -0x3FFFFF], dtype=torch.int32).view(torch.float32),
        torch.tensor([1.0, -0.0, 1e-40, torch.nan], dtype=torch.bfloat16),
        torch.tensor([1 / 3, 5e-324], dtype=torch.float64),
        torch.arange(6.0).reshape(2, 3).T,
        torch.zeros(0, 3),
        torch.tensor(2.5),
        torch.tensor([True, False]),
        torch.tensor([-(2**63), 2**63 - 1]),
    ],
    ids=[
        *("floats", "NaN payloads", "bfloat16", "float64", "transposed", "empty", "a scalar"),
        *("booleans", "whole numbers"),
    ],
)
def test_tensors_of_every_kind(tmp_path, values):
    small = Small()
    small.network.register_buffer("extra", values)
    weights, _ = checkpoints.read(small.save(tmp_path)).tensors()
    assert bits({"extra": weights["extra"]}) == bits({"extra": values})


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), 0.1, None], ids=repr)
def test_losses_of_every_kind(tmp_path, loss):
    small = Small()
    small.losses = [loss]
    (found,) = checkpoints.read(small.save(tmp_path)).loop["epochs"]
    assert found == loss or str(found) == str(loss) == "nan"


def test_saving_moves_nothing(tmp_path):
    small = Small()
    small.epoch()
    before = copy.deepcopy(small.outcome())
    small.save(tmp_path)
    assert small.outcome() == before


# -- whole or absent -----------------------------------------------------------------------


def change_byte(folder):
    path = folder / checkpoints.STATE
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def change_plain(**changes):
    def change(folder):
        path = folder / checkpoints.PLAIN
        plain = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({k: v for k, v in plain.items() if v != "gone"}))

    return change


DAMAGE = {
    "no plain part": (lambda f: (f / checkpoints.PLAIN).unlink(), "is no whole checkpoint"),
    "no tensors": (lambda f: (f / checkpoints.STATE).unlink(), "is no whole checkpoint"),
    "plain part empty": (
        lambda f: (f / checkpoints.PLAIN).write_text(""),
        "is no whole checkpoint",
    ),
    "plain part cut short": (
        lambda f: (f / checkpoints.PLAIN).write_text((f / checkpoints.PLAIN).read_text()[:90]),
        "is no whole checkpoint",
    ),
    "plain part a list": (
        lambda f: (f / checkpoints.PLAIN).write_text("[]"),
        "is no whole checkpoint",
    ),
    "a field gone": (change_plain(loop="gone"), "is no whole checkpoint"),
    "another origin": (change_plain(origin={"spec": {}}), "is no whole checkpoint"),
    "a changed bit": (change_byte, r"changed since it was written: its SHA-256 is \w{12}…, not"),
    "another format": (change_plain(format=2), "has the format 2; this version reads 1"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_refused(three, damage, message):
    _, kept = three
    damage(kept / "epoch-00003")
    with pytest.raises(BadInput, match=rf"(?s){message}.*train without --resume"):
        checkpoints.read(kept / "epoch-00003")


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_an_earlier_whole_one_is_taken_instead(three, damage, message):
    _, kept = three
    damage(kept / "epoch-00003")
    found, passed_over = checkpoints.nearest(kept)
    assert (found.epoch, len(passed_over)) == (2, 1)
    assert re.search(message, passed_over[0])
    damage(kept / "epoch-00001")
    assert checkpoints.nearest(kept)[0].epoch == 2
    damage(kept / "epoch-00002")
    found, passed_over = checkpoints.nearest(kept)
    assert (found, len(passed_over)) == (None, 3)


@pytest.mark.parametrize(
    "damage",
    [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-1])],
    ids=["gone", "cut short"],
)
def test_tensors_that_were_damaged_after_the_check(three, damage):
    _, kept = three
    found = checkpoints.read(kept / "epoch-00002")
    damage(kept / "epoch-00002" / checkpoints.STATE)
    with pytest.raises(BadInput, match=r"state\.safetensors cannot be read"):
        found.tensors()


def test_what_a_kill_left_half_written_is_no_checkpoint(three, monkeypatch):
    small, kept = three
    small.epoch()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lambda *_: 1 / 0)  # killed before it was whole
        with pytest.raises(ZeroDivisionError):
            small.save(kept)
    assert (kept / ".epoch-00004.part" / checkpoints.PLAIN).exists()
    assert [folder.name for folder in checkpoints.folders(kept)][-1] == "epoch-00003"
    assert checkpoints.nearest(kept)[0].epoch == 3
    small.save(kept)
    assert checkpoints.nearest(kept)[0].epoch == 4
    assert not list(kept.glob(".*"))


def test_saved_again_it_replaces_the_old_one(three):
    small, kept = three
    with torch.no_grad():
        small.network[0].bias.fill_(4.0)
    small.save(kept)
    weights, _ = checkpoints.nearest(kept)[0].tensors()
    assert weights["0.bias"].tolist() == [4.0] * 5
    assert len(checkpoints.folders(kept)) == 3


# -- which one -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "expected"), [(None, 3), (0, None), (1, None), (2, 1), (3, 1), (5, 2), (6, 3), (99, 3)]
)
def test_the_nearest_at_or_before_a_step(three, step, expected):
    _, kept = three
    found, passed_over = checkpoints.nearest(kept, step=step)
    assert (None if found is None else found.epoch) == expected
    assert passed_over == ()


def test_a_damaged_one_past_the_step_does_not_matter(three):
    _, kept = three
    change_byte(kept / "epoch-00003")
    assert checkpoints.nearest(kept, step=1) == (None, ())
    assert checkpoints.nearest(kept, step=3)[0].epoch == 1
    change_byte(kept / "epoch-00001")
    found, (problem,) = checkpoints.nearest(kept, step=3)
    assert found is None
    assert "epoch-00001" in problem


def test_the_step_is_read_before_tensors_are_digested(three, monkeypatch):
    """They may be gigabytes each: only those of the one that is taken are read."""
    _, kept = three
    digested = []

    def watched(path):
        digested.append(path.parent.name)
        return file_digest(path)

    monkeypatch.setattr(checkpoints, "file_digest", watched)
    assert checkpoints.nearest(kept, step=3)[0].epoch == 1
    assert digested == ["epoch-00001"]


def test_where_none_is_there_is_none(tmp_path):
    assert checkpoints.nearest(tmp_path / "nowhere") == (None, ())
    assert checkpoints.nearest(tmp_path) == (None, ())
    assert checkpoints.folders(tmp_path / "nowhere") == []
    checkpoints.keep_last(tmp_path / "nowhere")


def test_only_the_last_is_kept(three):
    _, kept = three
    (kept / "rows").mkdir()
    checkpoints.keep_last(kept)
    assert sorted(item.name for item in kept.iterdir()) == ["epoch-00003", "rows"]


# -- whose it is ---------------------------------------------------------------------------

OTHER_CLASS = {"name": "ba9876543210", "probes": {"sum/float32": "cc", "conv/float32": "bb"}}


def asked(**changes):
    return replace(ORIGIN, spec={**ORIGIN.spec, **changes})


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (asked(seed=4), ["seed is 3 there and 4 here"]),
        (asked(data_digest="f" * 64), [f"data_digest is '{'d' * 64}' there and '{'f' * 64}' here"]),
        (asked(epochs=4, model="other"), ["epochs is 3 there and 4 here", "model is 'tiny' there"]),
        (asked(loose="index_put"), ["loose is None there and 'index_put' here"]),
        (replace(ORIGIN, repeat=2), ["it is repeat 0, not 2"]),
        (
            replace(ORIGIN, initial_weights="a" * 64),
            ["it started from the weights eeeeeeeeeeee…, here they are aaaaaaaaaaaa…"],
        ),
        (
            replace(ORIGIN, numeric_class=OTHER_CLASS),
            [
                "this machine computes other bits (numeric class ba9876543210, there "
                "0123456789ab; sum/float32)"
            ],
        ),
        (
            replace(asked(seed=4), repeat=1, initial_weights="a" * 64, numeric_class=OTHER_CLASS),
            ["seed is 3", "it is repeat 0", "it started from", "this machine computes other bits"],
        ),
    ],
    ids=[
        *("seed", "data", "two fields", "a field of only one", "repeat", "initial weights"),
        *("numeric class", "all at once"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(three, wanted, said):
    found, _ = checkpoints.nearest(three[1])
    with pytest.raises(BadInput, match="belongs to another training") as caught:
        checkpoints.refuse_other(found, wanted)
    assert all(part in str(caught.value) for part in said)
    differences = checkpoints.differences(found.origin, wanted)
    assert len(differences) == len(said)


def test_a_checkpoint_of_the_same_training_is_taken(three):
    found, _ = checkpoints.nearest(three[1])
    checkpoints.refuse_other(found, copy.deepcopy(ORIGIN))
    assert checkpoints.differences(found.origin, ORIGIN) == []


# -- the seed it claims --------------------------------------------------------------------


def checkpoint_after(tmp_path, *, seed=3, python=0, torch_numbers=0, cuda=None):
    small = Small()
    seed_everything(seed)
    for _ in range(python):
        random.getrandbits(32)
    if torch_numbers:
        torch.rand(torch_numbers)
    np.random.seed(123)  # as every epoch does
    found = checkpoints.read(small.save(tmp_path))
    found.generators["cuda"] = cuda
    return found


@pytest.mark.parametrize(("python", "torch_numbers"), [(0, 0), (623, 625), (5000, 100_000)])
def test_generators_follow_from_their_seed(tmp_path, python, torch_numbers):
    checkpoint = checkpoint_after(tmp_path, python=python, torch_numbers=torch_numbers)
    before = generator_digests()
    found = seed_check(checkpoint)
    assert generator_digests() == before
    assert found.problems == ()
    assert found.sentence() == "follows from seed 3 (python, torch); not checked: numpy"


def test_generators_do_not_follow_from_another_seed(tmp_path):
    found = seed_check(checkpoint_after(tmp_path, python=4, torch_numbers=4), seed=4)
    assert found.follows == ()
    assert found.sentence() == "not seed 4: torch's generator has seed 3"


def test_a_claim_that_was_changed_in_the_checkpoint_is_found(tmp_path):
    small = Small()
    folder = small.save(tmp_path)
    change_plain(origin={**vars(ORIGIN), "spec": {**ORIGIN.spec, "seed": 5}})(folder)
    assert seed_check(checkpoints.read(folder)).problems


@pytest.mark.parametrize(
    ("library", "problems"), [("python", ()), ("torch", ("torch's generator has seed 8",))]
)
def test_one_generator_started_otherwise_is_named(tmp_path, library, problems, monkeypatch):
    """Python's holds no seed: that it was not reached is all that can be said."""
    monkeypatch.setattr(seeds, "FARTHEST", 10_000)
    checkpoint = checkpoint_after(tmp_path)
    other = checkpoint_after(tmp_path / "other", seed=8)
    checkpoint.generators[library] = other.generators[library]
    found = seed_check(checkpoint)
    assert found.problems == problems
    assert library not in found.follows


def of_cuda(seed, offset=0):
    """A state as CUDA's generator gives it, and as a checkpoint holds bytes."""
    state = seed.to_bytes(8, "little") + offset.to_bytes(8, "little")
    return list(state)


@pytest.mark.parametrize(
    ("states", "problems"),
    [
        ([of_cuda(3)], ()),
        ([of_cuda(3, 400), of_cuda(3)], ()),
        ([of_cuda(3), of_cuda(4)], ("cuda:1's generator has seed 4",)),
        ([of_cuda(3 + 2**40)], (f"cuda:0's generator has seed {3 + 2**40}",)),
    ],
    ids=["one", "two, one used", "the second of another", "of another in its high bytes"],
)
def test_a_gpus_generator_says_its_seed(tmp_path, states, problems):
    assert seed_check(checkpoint_after(tmp_path, cuda=states)).problems == problems


def test_bytes_are_held_as_this_test_makes_them():
    assert seeding.capture()["torch"] == torch.get_rng_state().tolist()


# -- the real loop -------------------------------------------------------------------------


def image(name, seed):
    """64 x 64 pixels with nine cells."""
    masks = np.zeros((64, 64), np.int32)
    for index in range(9):
        y, x = 8 + 20 * (index // 3), 8 + 20 * (index % 3)
        masks[y - 5 : y + 5 + index % 2, x - 5 : x + 5] = index + 1
    noise = np.random.default_rng(seed).integers(0, 50, masks.shape)
    return LabelledImage(name, ((masks > 0) * 100 + noise).astype(np.uint8), masks, name, None)


IMAGES = [image("a", 0), image("b", 1)]


def begun(*, seed=3, **options):
    """A network and its loop, seeded, about to begin."""
    network = build(
        ModelSource("tiny", "tiny"), seed=1, device=torch.device("cpu"), dtype="float32"
    )
    seed_everything(seed)
    options = {"n_epochs": 3, "learning_rate": 0.01, **options}
    watch = options.pop("watch", lambda network: None)
    return network, Loop(network, IMAGES, options.pop("test", ()), watch=watch(network), **options)


def walked(network, loop, *, to=None):
    while not loop.finished and loop.training.n_steps != to:
        loop.step()
    return outcome(network, loop)


def outcome(network, loop):
    optimizer = loop.optimizer.state_dict()
    return {
        "weights": bits(network.state_dict()),
        "moments": bits(moments(optimizer)),
        "rates": [float(group["lr"]).hex() for group in optimizer["param_groups"]],
        "generators": generator_digests(),
        "training": asdict(loop.training),
    }


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """How the real training ends, and the checkpoints of all its epochs."""
    kept = tmp_path_factory.mktemp("kept")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with generators_kept():

        def save(epoch):
            checkpoints.save(
                kept, origin=ORIGIN, network=network, loop_state=loop.state(), n_rows={}
            )

        network, loop = begun(on_epoch=save, test=IMAGES)
        found = walked(network, loop)
    torch.set_num_threads(threads)
    return found, kept


def test_the_real_training_trains(uninterrupted):
    found, _ = uninterrupted
    network, _ = begun()
    start = bits(network.state_dict())
    assert sum(start[name] != content for name, content in found["weights"].items()) > 20
    assert found["training"]["epochs"][0]["test_loss"] is not None


@pytest.mark.parametrize("n_epochs", [1, 2, 3])
def test_the_real_loop_goes_on_to_the_same_bits(uninterrupted, n_epochs):
    expected, kept = uninterrupted
    checkpoint = checkpoints.read(kept / f"epoch-{n_epochs:05d}")
    network, loop = begun(seed=77, test=IMAGES)
    weights, optimizer = checkpoint.tensors()
    network.load_state_dict(weights)
    loop.restore({"loop": checkpoint.loop, "optimizer": optimizer})
    seeding.restore(checkpoint.generators)
    assert loop.at_epoch_start
    assert loop.training.n_steps == 2 * n_epochs
    assert loop.finished is (n_epochs == 3)
    assert walked(network, loop) == expected


OPTIONS = [{"n_epochs": 2}, {"images_per_epoch": 3, "batch_size": 2, "data_seed": 9, "n_epochs": 2}]


@pytest.mark.parametrize("options", OPTIONS, ids=["every image once", "drawn, in batches"])
def test_back_to_the_middle_of_an_epoch(options):
    network, loop = begun(**options)
    walked(network, loop, to=3)
    assert not loop.at_epoch_start
    weights = copy.deepcopy(network.state_dict())
    state, generators = copy.deepcopy(loop.state()), seeding.capture()
    expected = walked(network, loop)

    def back(network, loop):
        network.load_state_dict(weights)
        loop.restore(copy.deepcopy(state))
        seeding.restore(generators)
        assert not loop.at_epoch_start
        return walked(network, loop)

    assert back(network, loop) == expected
    assert back(*begun(seed=78, **options)) == expected
    assert json.loads(json.dumps(state["loop"])) == state["loop"]


def test_a_restored_network_is_in_training():
    """A layer would otherwise never be dropped again: the network is only told at an epoch."""
    network, loop = begun()
    walked(network, loop, to=1)
    state = loop.state()
    other, again = begun()
    other.eval()
    again.restore(state)
    assert all(module.training for module in other.modules())


# -- the keeper ----------------------------------------------------------------------------


class Killed(Exception):
    pass


def kept_training(place, *, name, die=None, level="ops", origin=ORIGIN, seed=3, **keeping):
    """A training as the worker does it; it dies after as many steps as ``die`` says."""
    staged = place / name
    staged.mkdir()
    options = {"unfinished": str(place / "unfinished"), "checkpoint_every": 1, **keeping}
    keeper = Keeper(Keeping(**options), staged, level=level, seed=seed)

    def ended(epoch):
        keeper.epoch_ended(network, loop)

    network, loop = begun(seed=seed, on_epoch=ended, watch=keeper.watch)
    if level != "off":
        keeper.ledger.add("spec", "seed", "aa", detail=seed)
    keeper.begin(origin, network, loop)
    while not loop.finished:
        if loop.training.n_steps == die:
            raise Killed
        loop.step()
    if level != "off":
        keeper.ledger.step = loop.training.n_steps
        keeper.ledger.add("masks", "a labels", "bb")
    keeper.finish()
    return outcome(network, loop), keeper.resumed, keeper.notes


def rows(staged):
    """The ledgers that a repeat was left with."""
    return (
        Ledger.read(staged / LEDGER).entries,
        read_rows(staged / OPERATIONS, OperationRow),
        read_rows(staged / DRAWS, Draw),
    )


def files(staged):
    return {path.name: path.read_bytes() for path in staged.iterdir()}


NAMES = {"off": [], "steps": [LEDGER], "ops": [LEDGER, OPERATIONS, DRAWS]}


@dataclass
class WholeRun:
    """How an unkilled training ends, what it wrote down, and the files it left."""

    outcome: dict
    entries: list
    operations: list
    draws: list
    files: dict

    def of(self, level):
        return {name: self.files[name] for name in NAMES[level]}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    place = tmp_path_factory.mktemp("whole")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with generators_kept():
        found, resumed, _ = kept_training(place, name="staged")
    torch.set_num_threads(threads)
    assert resumed == []
    return WholeRun(found, *rows(place / "staged"), files(place / "staged"))


@pytest.mark.parametrize(
    ("deaths", "every", "level", "resumed"),
    [
        ([1], 1, "steps", []),
        ([3], 1, "ops", [1]),
        ([5], 2, "steps", [2]),
        ([2, 5], 1, "ops", [1, 2]),
        ([6], 1, "steps", [3]),
    ],
    ids=[
        *("in the first epoch", "in the second", "checkpoints every 2", "twice"),
        "after the last step",
    ],
)
def test_a_killed_training_leaves_what_an_unkilled_one_does(
    tmp_path, whole_run, deaths, every, level, resumed
):
    for n, die in enumerate(deaths):
        options = {"level": level, "resume": n > 0, "checkpoint_every": every}
        if die == 6:  # all is done, but not yet in the store
            kept_training(tmp_path, name=f"staged {n}", **options)
        else:
            with pytest.raises(Killed):
                kept_training(tmp_path, name=f"staged {n}", die=die, **options)
    found, told, _ = kept_training(tmp_path, name="staged", **{**options, "resume": True})
    assert found == whole_run.outcome
    assert told == resumed
    assert files(tmp_path / "staged") == whole_run.of(level)


def test_the_ledgers_of_an_unkilled_training(whole_run):
    entries = whole_run.entries
    assert (entries[0].name, entries[-1].name, entries[-1].step) == ("seed", "a labels", 6)
    for found in (whole_run.operations, whole_run.draws):
        assert sorted({row.step for row in found}) == list(range(6))
    assert [entry.step for entry in entries if entry.stage == "loss"] == list(range(6))


def test_without_resume_it_starts_anew(tmp_path, whole_run):
    with pytest.raises(Killed):
        kept_training(tmp_path, name="first", die=5, level="steps")
    assert checkpoints.folders(tmp_path / "unfinished")
    with pytest.raises(Killed):
        kept_training(tmp_path, name="second", die=1, level="steps")
    assert checkpoints.folders(tmp_path / "unfinished") == []
    options = {"name": "third", "resume": True, "level": "steps"}
    assert kept_training(tmp_path, **options) == (whole_run.outcome, [], [])
    assert files(tmp_path / "third") == whole_run.of("steps")


def test_only_the_last_checkpoint_is_kept_or_all_of_them(tmp_path):
    kept_training(tmp_path, name="one", level="off")
    assert [folder.name for folder in checkpoints.folders(tmp_path / "unfinished")] == [
        "epoch-00003"
    ]
    assert list((tmp_path / "one").iterdir()) == []
    kept_training(tmp_path, name="all", level="off", keep_checkpoints=True)
    found = checkpoints.folders(tmp_path / "all" / CHECKPOINTS)
    assert [checkpoints.read(folder).epoch for folder in found] == [1, 2, 3]


@pytest.mark.parametrize(
    "options", [{"unfinished": None}, {"checkpoint_every": 0}], ids=["nowhere to", "not asked for"]
)
def test_without_checkpoints_the_ledgers_are_the_same(tmp_path, whole_run, options):
    options = {"name": "staged", "level": "steps", **options}
    assert kept_training(tmp_path, **options) == (whole_run.outcome, [], [])
    assert files(tmp_path / "staged") == whole_run.of("steps")


def test_without_ledgers_the_bits_are_the_same(tmp_path, whole_run):
    found, *_ = kept_training(tmp_path, name="staged", level="off")
    assert found == whole_run.outcome
    assert files(tmp_path / "staged") == {}


def test_operations_of_chosen_steps(tmp_path, whole_run):
    kept_training(tmp_path, name="staged", operation_steps=(0, 3))
    entries, operations, draws = rows(tmp_path / "staged")
    assert entries == whole_run.entries
    assert operations == [row for row in whole_run.operations if row.step in (0, 3)]
    assert draws == [row for row in whole_run.draws if row.step in (0, 3)]


def test_nothing_of_another_training_is_taken_up(tmp_path):
    with pytest.raises(Killed):
        kept_training(tmp_path, name="first", die=3, level="steps")
    with pytest.raises(BadInput, match=r"epochs is 3 there and 4 here"):
        kept_training(tmp_path, name="second", level="steps", resume=True, origin=asked(epochs=4))
    assert checkpoints.nearest(tmp_path / "unfinished")[0].epoch == 1  # still there


def test_an_older_checkpoint_is_taken_and_told(tmp_path, whole_run):
    """The result is the same; that the nearer one was passed over is no secret."""
    with pytest.raises(Killed):
        kept_training(tmp_path, name="first", die=5, keep_checkpoints=True)
    change_byte(tmp_path / "unfinished" / "epoch-00002")
    found, resumed, notes = kept_training(tmp_path, name="second", resume=True)
    assert (found, resumed) == (whole_run.outcome, [1])
    assert len(notes) == 1
    assert re.search(
        r"epoch-00002/state.safetensors changed since it was written: .*; the training goes on "
        r"from an older checkpoint, after epoch 1$",
        notes[0],
    )


def test_generators_that_do_not_follow_from_the_seed_are_refused(tmp_path):
    with pytest.raises(Killed):
        kept_training(tmp_path, name="first", die=3, level="steps")
    folder = tmp_path / "unfinished" / "epoch-00001"
    with generators_kept():
        seed_everything(4)
        change_plain(generators=seeding.capture())(folder)
    with pytest.raises(
        BadInput, match=r"does not follow from seed 3: torch's generator has seed 4"
    ):
        kept_training(tmp_path, name="second", level="steps", resume=True)


def test_lost_rows_of_the_ledger_are_missed(tmp_path):
    with pytest.raises(Killed):
        kept_training(tmp_path, name="first", die=3, level="steps")
    shutil.rmtree(tmp_path / "unfinished" / "rows")
    with pytest.raises(BadInput, match=r"holds 0 rows of the ledger, the checkpoint says \d+"):
        kept_training(tmp_path, name="second", level="steps", resume=True)


# -- the unfinished in the store -----------------------------------------------------------


def listed(root):
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def left_by_a_kill(store, spec, repeat):
    """A folder with a checkpoint, as an error in the middle of a training leaves it."""

    def dies():
        with store.unfinished(spec, "here", repeat) as folder:
            (folder / "epoch-00001").mkdir()
            raise Killed

    with pytest.raises(Killed):
        dies()
    return store.root / "unfinished" / spec.key / "here" / str(repeat)


def test_what_ended_well_leaves_nothing(tmp_path, made_up):
    store = Store(tmp_path / "deep" / "outputs")
    with store.unfinished(made_up.spec(), "here", 0) as folder:
        (folder / "epoch-00001").mkdir()
        (folder / "epoch-00001" / "state.json").write_text("{}")
        assert folder == store.root / "unfinished" / made_up.spec().key / "here" / "0"
    assert listed(tmp_path) == []


def test_an_error_before_anything_was_saved_leaves_nothing(tmp_path, made_up):
    store = Store(tmp_path / "deep" / "outputs")
    with pytest.raises(Killed), store.unfinished(made_up.spec(), "here", 0):
        raise Killed
    assert listed(tmp_path) == []


def test_what_was_saved_before_an_error_stays(tmp_path, made_up):
    store, spec = Store(tmp_path / "outputs"), made_up.spec()
    folder = left_by_a_kill(store, spec, 2)
    assert (folder / "epoch-00001").is_dir()
    assert store.unfinished_specs() == {f"{spec.key}/here/2": spec.model_dump(mode="json")}
    with store.unfinished(spec, "here", 2) as again:
        assert (again / "epoch-00001").is_dir()
    assert listed(tmp_path) == ["outputs"]
    assert store.unfinished_specs() == {}


def test_others_in_the_store_are_left_alone(tmp_path, made_up):
    store = Store(tmp_path / "outputs")
    (store.root / "runs").mkdir(parents=True)
    a, b = made_up.spec(seed=1), made_up.spec(seed=2)
    for spec, repeat in ((a, 0), (a, 1), (b, 0)):
        left_by_a_kill(store, spec, repeat)
    assert set(store.unfinished_specs()) == {
        f"{a.key}/here/0",
        f"{a.key}/here/1",
        f"{b.key}/here/0",
    }
    with store.unfinished(a, "here", 0):
        pass
    assert set(store.unfinished_specs()) == {f"{a.key}/here/1", f"{b.key}/here/0"}
    for spec, repeat in ((a, 1), (b, 0)):
        with store.unfinished(spec, "here", repeat):
            pass
    assert listed(store.root) == ["runs"]


OTHER = """\
import os, sys
from cellrepro.store.spec import Spec
from cellrepro.store.store import Store
with Store(sys.argv[1]).unfinished(Spec.model_validate_json(sys.argv[2]), "here", 0) as folder:
    print(folder is None, flush=True)
    if sys.argv[3:] == ["die"]:
        (folder / "epoch-00001").mkdir()
        os._exit(9)
"""


def other_process(store, spec, *arguments):
    arguments = [sys.executable, "-P", "-c", OTHER, store.root, spec.model_dump_json(), *arguments]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout.strip(), done.stderr


def test_two_processes_at_one_repeat(tmp_path, made_up):
    """The second is told; a killed one leaves what it saved, and no lock."""
    store, spec = Store(tmp_path / "outputs"), made_up.spec()
    assert other_process(store, spec, "die") == (9, "False", "")
    with store.unfinished(spec, "here", 0) as folder:
        assert (folder / "epoch-00001").is_dir()
        with (
            store.unfinished(spec, "here", 0) as second,
            store.unfinished(spec, "here", 1) as beside,
        ):
            assert second is None
            assert beside is not None
        assert other_process(store, spec) == (0, "True", "")
        assert (folder / "epoch-00001").is_dir()
        assert list(store.unfinished_specs()) == [f"{spec.key}/here/0"]
    assert listed(tmp_path) == ["outputs"]


def test_a_store_that_cannot_be_written(tmp_path, made_up):
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "unfinished").write_text("a file in the way")
    with (
        pytest.raises(BadInput, match=r"the store .*outputs cannot be written"),
        Store(tmp_path / "outputs").unfinished(made_up.spec(), "here", 0),
    ):
        pass


def test_the_digest_of_a_state_sees_its_bits(three):
    """What the other tests compare with would otherwise prove nothing."""
    small, _ = three
    before = state_digest(small.optimizer.state_dict()["state"])
    next(iter(small.optimizer.state.values()))["exp_avg"].view(torch.int32).view(-1)[0] ^= 1
    assert state_digest(small.optimizer.state_dict()["state"]) != before
