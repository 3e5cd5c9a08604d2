"""Which seed moves a training, and which operations are tried: claims held by real steps."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from cellrepro.errors import BadInput
from cellrepro.lab import process, seed_effect
from cellrepro.lab.seed_effect import DATA, SEEDS, TORCH, USUAL, effects_of, which_seed_moves


@pytest.fixture
def no_child(monkeypatch):
    """Fail if a process is started: a refusal must come before."""

    def refuse(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(process.subprocess, "Popen", refuse)


# -- seeds ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def probe(small_data, tmp_path_factory):
    """Real steps, once."""
    store = tmp_path_factory.mktemp("probe") / "outputs"
    found = which_seed_moves(small_data, draws=2, learning_rate=0.001, store=store, quiet=True)
    assert not store.exists(), "a probe stores nothing"
    return found


def test_numpys_seed_moves_nothing(probe):
    """Cellpose 4.2.1.1 seeds NumPy at every epoch, over whatever was set."""
    assert probe.same_images(USUAL)
    assert probe.same_weights(USUAL)


def test_pytorchs_seed_moves_the_weights_alone(probe):
    """The layer drop."""
    assert probe.same_images(TORCH)
    assert not probe.same_weights(TORCH)


def test_the_data_seed_moves_images_and_weights(probe):
    assert not probe.same_images(DATA)
    assert not probe.same_weights(DATA)


def test_the_seeds_were_really_set(probe):
    """Else it would be no news that they change nothing."""
    for what in (USUAL, TORCH):
        a, b = probe.pair(what)
        assert a.generators != b.generators
    a, b = probe.pair(DATA)
    assert a.generators == b.generators
    assert len({trial.generators for trial in probe.trials}) == 5


def test_one_epoch_changes_no_weight(probe):
    first, second = probe.changed_after_epochs()
    assert first == 0
    assert probe.n_weights / 2 < second <= probe.n_weights
    for trial in probe.trials:
        assert trial.n_changed[:2] == (0, 0)
        assert min(trial.n_changed[2:]) > 0


def test_trials_start_alike(probe):
    """What is not seeded otherwise is drawn alike: the first four trials saw the same images."""
    assert len({trial.batches for trial in probe.trials[:4]}) == 1
    assert len({trial.drawn for trial in probe.trials[:4]}) == 1
    assert [trial.what for trial in probe.trials] == [what for what in SEEDS for _ in range(2)]


def test_what_was_shown_is_kept(probe):
    for trial in probe.trials:
        assert trial.thumbnails.shape == (4, 64, 64)
        assert len(trial.drawn) == len(trial.batches) == len(trial.n_changed) == 4
        assert trial.thumbnails.std() > 10
    a, b = probe.pair(DATA)
    assert not np.array_equal(a.thumbnails, b.thumbnails)
    assert (probe.n_images, probe.steps_per_epoch) == (3, 2)


def test_every_process_starts_with_another_seed_of_pytorchs(probe):
    """So that NumPy's seed alone makes no run repeat (torch 2.15)."""
    done = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.initial_seed())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) != probe.start_seed
    assert probe.start_seed > 2**32  # 64 random bits, not a number that somebody chose


def test_in_words(probe):
    assert [probe.sentence(what) for what in SEEDS] == [
        "NumPy and Python: seeds 1 and 2 give the same images and the same weights",
        "PyTorch: seeds 1 and 2 give the same images and other weights",
        "data seed: seeds 1 and 2 give other images and other weights",
    ]
    assert probe.trials[0].call == "random.seed(1); np.random.seed(1)"


def test_an_unknown_seed(probe):
    with pytest.raises(BadInput, match="'cuda' is no seed that was tried"):
        probe.pair("cuda")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"seeds": (1, 1)}, r"seeds is \(1, 1\); expected two different"),
        ({"seeds": (1, 2, 3)}, "expected two different"),
        ({"seeds": 1}, "seeds is 1; expected two different"),
        ({"seeds": (0, -1)}, "seed is -1"),
        ({"draws": 0}, "draws is 0; expected a whole number, 1 or more"),
        ({"draws": True}, "draws is True"),
        ({"profile": "abacus"}, "unknown profile 'abacus'"),
        ({"model": "brain"}, "unknown model 'brain'"),
    ],
    ids=str,
)
def test_refusals(small_data, tmp_path, no_child, parameters, expected):
    with pytest.raises(BadInput, match=expected):
        which_seed_moves(small_data, store=tmp_path / "outputs", **parameters)
    assert list(tmp_path.iterdir()) == []


def test_a_thumbnail_is_what_was_shown():
    image = np.zeros((3, 128, 256), np.float32)
    image[:, :, 128:] = 4.0
    small = seed_effect._thumbnail(image)
    assert small.dtype == np.uint8
    assert (small[:, :32] == 0).all()
    assert (small[:, 32:] == 255).all()
    assert (seed_effect._thumbnail(np.ones((1, 64, 64), np.float32)) == 0).all()


# -- what is tried -------------------------------------------------------------------------


def audit_of(*ops, warnings=()):
    return SimpleNamespace(
        ops=[SimpleNamespace(op=op) for op in ops],
        warnings=[SimpleNamespace(op=op) for op in warnings],
    )


@pytest.fixture
def trained(monkeypatch):
    """What would have been trained, and nothing is."""
    asked = []

    def effect(data, op, **parameters):
        asked.append(op)
        if op == "aten.relu.default":
            raise BadInput("loose is 'aten.relu.default', an operation that strict does not hold")
        if parameters.get("epochs") == -1:
            raise BadInput("epochs is -1")
        return f"effect of {op}"

    monkeypatch.setattr(seed_effect, "effect", effect)
    return asked


def test_flips_are_tried_before_warnings(trained):
    audit = audit_of("aten.b.default", "aten.a.default", warnings=("aten.c.default",))
    found = effects_of(audit, "cells", most=2)
    assert trained == ["aten.b.default", "aten.a.default"]
    assert found["aten.b.default"] == "effect of aten.b.default"
    assert found["aten.c.default"] == "not measured: 2 operations at most"


def test_variants_of_one_operation_are_tried_once(trained):
    found = effects_of(audit_of("aten.index_put.default", "aten.index_put_.default"), "cells")
    assert trained == ["aten.index_put.default"]
    assert set(found.values()) == {"effect of aten.index_put.default"}


def test_without_a_suspect_the_known_one_is_tried(trained):
    assert effects_of(audit_of(), "cells") == {"index_put": "effect of index_put"}


def test_what_strict_does_not_hold_is_said(trained):
    found = effects_of(audit_of("aten.relu.default"), "cells")
    assert found["aten.relu.default"].startswith("not measured: mode strict does not hold")


def test_other_wrong_input_is_not_swallowed(trained):
    with pytest.raises(BadInput, match="epochs is -1"):
        effects_of(audit_of("aten.b.default"), "cells", epochs=-1)
