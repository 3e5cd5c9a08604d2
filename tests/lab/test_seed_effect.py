"""Which seed changes a training: claims held by real steps."""

import subprocess
import sys

import numpy as np
import pytest

from cellrepro.errors import BadInput
from cellrepro.lab import seed_effect
from cellrepro.lab.seed_effect import DATA, SEEDS, TORCH, USUAL, which_seed_changes


@pytest.fixture(scope="module")
def probe(small_data, tmp_path_factory):
    """Real steps, once."""
    store = tmp_path_factory.mktemp("probe") / "outputs"
    found = which_seed_changes(small_data, draws=2, learning_rate=0.001, store=store, quiet=True)
    assert not store.exists(), "a probe stores nothing"
    return found


def test_what_each_seed_changes(probe):
    """Cellpose 4.2.1.1 seeds NumPy at every epoch over what was set; PyTorch's drops layers."""
    assert [probe.sentence(what) for what in SEEDS] == [
        "NumPy and Python: seeds 1 and 2 give the same images and the same weights",
        "PyTorch: seeds 1 and 2 give the same images and other weights",
        "data seed: seeds 1 and 2 give other images and other weights",
    ]
    assert probe.trials[0].call == "random.seed(1); np.random.seed(1)"


def test_the_seeds_were_really_set_and_trials_start_alike(probe):
    """Else it would be no news that they change nothing."""
    for what in (USUAL, TORCH):
        a, b = probe.pair(what)
        assert a.generators != b.generators
    a, b = probe.pair(DATA)
    assert a.generators == b.generators
    assert len({trial.batches for trial in probe.trials[:4]}) == 1
    assert len({trial.drawn for trial in probe.trials[:4]}) == 1
    assert not np.array_equal(a.thumbnails, b.thumbnails)
    assert (probe.n_images, probe.steps_per_epoch) == (3, 2)


def test_one_epoch_changes_no_weight(probe):
    first, second = probe.changed_after_epochs()
    assert first == 0
    assert probe.n_weights / 2 < second <= probe.n_weights
    for trial in probe.trials:
        assert trial.n_changed[:2] == (0, 0)
        assert min(trial.n_changed[2:]) > 0


def test_every_process_starts_with_another_seed_of_pytorchs(probe):
    """So that NumPy's seed alone makes no run repeat (torch 2.15)."""
    code = "import torch; print(torch.initial_seed())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) != probe.start_seed
    assert probe.start_seed > 2**32  # 64 random bits, not a number that somebody chose


def test_an_unknown_seed(probe):
    with pytest.raises(BadInput, match="'cuda' is no seed that was tried"):
        probe.pair("cuda")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"seeds": (1, 1)}, r"seeds is \(1, 1\); expected two different"),
        ({"seeds": 1}, "seeds is 1; expected two different"),
        ({"seeds": (0, -1)}, "seed is -1"),
        ({"draws": 0}, "draws must be a whole number of at least 1, got 0"),
        ({"profile": "abacus"}, "unknown profile 'abacus'"),
        ({"model": "brain"}, "unknown model 'brain'"),
    ],
    ids=str,
)
def test_refusals(small_data, tmp_path, monkeypatch, parameters, expected):
    monkeypatch.setattr(seed_effect, "call", None)  # no process is to be started
    with pytest.raises(BadInput, match=expected):
        which_seed_changes(small_data, store=tmp_path / "outputs", **parameters)
    assert list(tmp_path.iterdir()) == []


def test_a_thumbnail_is_what_was_shown():
    image = np.zeros((3, 128, 256), np.float32)
    image[:, :, 128:] = 4.0
    small = seed_effect.thumbnail(image)
    assert (small.shape, small.dtype) == ((64, 64), np.uint8)
    assert (small[:, :32] == 0).all()
    assert (small[:, 32:] == 255).all()
    assert (seed_effect.thumbnail(np.ones((1, 64, 64), np.float32)) == 0).all()
