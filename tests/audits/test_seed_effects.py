"""Which seed changes a training: claims held by real steps."""

import numpy as np
import pytest

from cellrepro.audits import seed_effects
from cellrepro.audits.seed_effects import SEEDS, which_seed_changes
from samebits.errors import BadInput


@pytest.fixture(scope="module")
def probe(small_data, tmp_path_factory):
    """Real steps, once."""
    store = tmp_path_factory.mktemp("probe") / "outputs"
    found = which_seed_changes(small_data, store=store, quiet=True)
    assert not store.exists(), "a probe stores nothing"
    return found


@pytest.mark.slow  # notebook 03 shows it, too, in cells whose text is compared
def test_what_each_seed_changes(probe):
    """Cellpose 4.2.1.1 seeds NumPy at every epoch over what was set; PyTorch's drops layers."""
    assert [probe.sentence_of(seed_name) for seed_name in SEEDS] == [
        "NumPy and Python: seeds 1 and 2 give the same images and the same weights",
        "PyTorch: seeds 1 and 2 give the same images and different weights",
        "data seed: seeds 1 and 2 give different images and different weights",
    ]
    assert probe.trials[0].call == "random.seed(1); np.random.seed(1)"
    assert len({trial.batches for trial in probe.trials[:4]}) == 1  # all start alike
    *_, c, d = (trial.thumbnails for trial in probe.trials)
    assert (c.shape, c.dtype) == ((6, 64, 64), np.uint8)
    assert not np.array_equal(c, d)
    assert (probe.n_images, probe.steps_per_epoch) == (3, 3)
    assert probe.start_seed > 2**32  # 64 random bits, not a number that somebody chose


@pytest.mark.slow
def test_one_epoch_changes_no_weight(probe):
    first, second = probe.changed_after_epochs()
    assert (first, second > 1_000_000) == (0, True)
    for trial in probe.trials:
        assert trial.n_changed[0] == 0 < trial.n_changed[1]


def test_refusals(small_data, tmp_path, monkeypatch):
    monkeypatch.setattr(seed_effects, "in_planned_child", None)  # no process is to be started
    with pytest.raises(BadInput, match="unknown profile 'abacus'"):
        which_seed_changes(small_data, profile="abacus", store=tmp_path / "outputs")
    assert list(tmp_path.iterdir()) == []
