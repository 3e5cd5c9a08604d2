"""Checkpoints: every bit comes back, whole or absent, and never of another training."""

import copy
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cellrepro.store import checkpoint_choice, checkpoints
from samebits.checkpoint_seeds import other_seeds
from samebits.errors import BadInput
from samebits.tensor_digests import tensor_digest
from small_training import ORIGIN, Small, change_byte, change_plain, left_by

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")


@pytest.fixture
def three(tmp_path):
    """A training of three epochs, and the checkpoints it left."""
    small = Small()
    for _ in range(3):
        small.epoch()
        small.save(tmp_path / "kept")
    return small, tmp_path / "kept"


def test_resumed_it_ends_in_the_same_bits(three):
    whole, kept = three
    checkpoint = checkpoints.read_plain(kept / "epoch-00001")
    assert (checkpoint.epoch, checkpoint.step) == (1, 2)
    resumed = Small(seed=99)
    resumed.go_on(checkpoint)
    for _ in range(2):
        resumed.epoch()
    assert resumed.outcome() == whole.outcome()


def test_what_is_read_is_what_was_saved_and_saving_moves_nothing(three):
    small, kept = three
    small.network.register_buffer("extra", torch.tensor([0.0, -0.0, torch.nan], dtype=torch.half))
    small.losses[-1] = float("nan")
    before = left_by(small.network, small.optimizer)
    found = checkpoints.read_plain(small.save(kept))
    state = found.training_state()
    optimizer = state.loop.optimizer
    assert tensor_digest(state.network) == before["weights"]
    assert tensor_digest(optimizer["state"]) == before["moments"]
    assert optimizer["param_groups"] == small.optimizer.state_dict()["param_groups"]
    assert {type(group["lr"]) for group in optimizer["param_groups"]} == {float}
    assert str(found.loop["epochs"][-1]) == "nan"
    assert (found.origin, found.n_rows) == (ORIGIN, {"ledger.parquet": 7})
    assert left_by(small.network, small.optimizer) == before


def plain(folder):
    return folder / checkpoints.PLAIN


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / checkpoints.STATE).unlink(), "changed since .* of no file"),
        (lambda f: plain(f).write_text(plain(f).read_text()[:90]), "is no whole checkpoint"),
        (change_byte, r"changed since it was written: its SHA-256 is \w{12}…, not"),
        (change_plain(format=2), "it has the format 2; this version reads 1"),
    ],
)
def test_an_earlier_whole_one_is_taken_instead_of_a_damaged_one(three, damage, message):
    _, kept = three
    damage(kept / "epoch-00003")
    found, passed_over = checkpoint_choice.nearest(kept)
    assert (found.epoch, len(passed_over)) == (2, 1)
    assert re.search(message, passed_over[0])
    damage(kept / "epoch-00001")
    damage(kept / "epoch-00002")
    found, passed_over = checkpoint_choice.nearest(kept)
    assert (found, len(passed_over)) == (None, 3)


def test_what_a_kill_left_half_written_is_no_checkpoint(three, monkeypatch):
    small, kept = three
    small.epoch()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lambda *_: 1 / 0)  # killed before it was whole
        with pytest.raises(ZeroDivisionError):
            small.save(kept)
    assert plain(kept / ".epoch-00004.part").exists()
    assert checkpoint_choice.nearest(kept)[0].epoch == 3
    small.save(kept)
    assert checkpoint_choice.nearest(kept)[0].epoch == 4
    assert not list(kept.glob(".*"))


def test_the_nearest_at_or_before_a_step(three):
    _, kept = three
    for step, expected in ((None, 3), (1, None), (2, 1), (5, 2), (6, 3), (99, 3)):
        found, passed_over = checkpoint_choice.nearest(kept, step=step)
        assert (found and found.epoch, passed_over) == (expected, ())
    change_byte(kept / "epoch-00003")
    assert checkpoint_choice.nearest(kept, step=1) == (
        None,
        (),
    )  # a damaged one past it does not matter
    change_byte(kept / "epoch-00001")
    found, (problem,) = checkpoint_choice.nearest(kept, step=3)
    assert (found, "epoch-00001" in problem) == (None, True)
    (kept / "rows").mkdir()
    checkpoint_choice.keep_last(kept)
    assert sorted(item.name for item in kept.iterdir()) == ["epoch-00003", "rows"]


OTHER_CLASS = {"name": "ba9876543210", "probes": {"sum/float32": "cc", "conv/float32": "bb"}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"spec": {**ORIGIN.spec, "seed": 4}}, "seed is 3 there and 4 here"),
        ({"initial_weights": "a" * 64}, "initial weights is 'eeee"),
        ({"numeric_class": OTHER_CLASS}, "computes different bits (numeric class ba98"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(three, changes, said):
    found, _ = checkpoint_choice.nearest(three[1])
    checkpoint_choice.refuse_other(found, copy.deepcopy(ORIGIN))
    with pytest.raises(BadInput, match=f"belongs to another training: .*{re.escape(said)}"):
        checkpoint_choice.refuse_other(found, replace(ORIGIN, **changes))


def test_generators_follow_from_their_seed_and_not_from_another(three):
    small, kept = three
    torch.rand(100_000)
    checkpoint = checkpoints.read_plain(small.save(kept))
    assert other_seeds(checkpoint.generators, 3) == []
    assert other_seeds(checkpoint.generators, 4) == ["torch's generator has seed 3"]
    after_400_numbers = list((400).to_bytes(8, "little"))  # as CUDA's generator says it
    states = [[*seed.to_bytes(8, "little"), *after_400_numbers] for seed in (3, 3 + 2**40)]
    checkpoint.generators["cuda"] = states
    wrong = f"cuda:1's generator has seed {3 + 2**40}"
    assert other_seeds(checkpoint.generators, 3) == [wrong]


def test_the_latest_is_the_one_with_the_most_epochs(tmp_path):
    for epoch in (99_999, 100_000, 5):
        (tmp_path / f"epoch-{epoch:05d}").mkdir()
    names = [folder.name for folder in checkpoints.folders(tmp_path)]
    assert names == ["epoch-00005", "epoch-99999", "epoch-100000"]
