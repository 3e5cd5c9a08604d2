"""A store that the version before wrote opens: listed, compared, its checkpoint taken up.

Two runs of two repeats, made by hand there, and a training of plain PyTorch that was left
unfinished; what is expected was noted when it was made.
"""

import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from cellrepro.comparison.ledger_diff import compare_ledgers
from cellrepro.store import checkpoint_choice
from cellrepro.store.ledger import LEDGER, LedgerRow
from cellrepro.store.row_tables import read_rows
from cellrepro.store.store import Store
from samebits import generator_states

ARCHIVE = Path(__file__).with_name("store_of_the_version_before.zip")
STRICT, FAST, UNFINISHED = "1174c97e4c1aa840", "17bf8270d2b7b2e7", "48b01c6119dd729a"


@pytest.fixture
def store(tmp_path):
    zipfile.ZipFile(ARCHIVE).extractall(tmp_path / "outputs")
    return Store(tmp_path / "outputs")


def test_it_is_listed_and_whole(store, invoke, wholeness):
    listed = invoke("list", "--store", store.root, "--json").json["runs"]
    assert [run["key"] for run in listed] == [STRICT, FAST]
    assert wholeness(store.root) == [f"{key}/{n}" for key in (STRICT, FAST) for n in (0, 1)]
    assert [run.spec.key for run in store.runs()] == [STRICT, FAST]


def test_it_is_compared(store, invoke):
    equal = invoke("compare", STRICT, STRICT, "--store", store.root, "--json")
    assert (equal.code, equal.json["verdict"]) == (0, "identical")
    other = invoke("compare", FAST, FAST, "--store", store.root, "--json")
    assert (other.code, other.json["verdict"]) == (1, "different")


def test_its_ledgers_are_read(store):
    a, b = (read_rows(one.folder / LEDGER, LedgerRow) for one in store.run(FAST).repeats)
    first = compare_ledgers(a, b).first
    assert (first.step, first.stage) == (1, "backward")
    assert compare_ledgers(a, a).first is None


def test_its_unfinished_training_goes_on(store, generators_free):
    ((name, spec),) = store.unfinished_specs().items()
    key, machine, repeat = name.split("/")
    assert key == UNFINISHED
    run = store.run(STRICT)
    with store.unfinished(run.spec.model_copy(update={"seed": 3}), machine, int(repeat)) as folder:
        found, passed_over = checkpoint_choice.nearest(folder)
        assert (found.epoch, found.step, passed_over) == (1, 2, ())
        assert found.origin.spec == spec
        checkpoint_choice.refuse_other(found, found.origin)
        network = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        optimizer = torch.optim.AdamW(network.parameters(), lr=0.5)
        state = found.training_state()
        network.load_state_dict(state.network)
        optimizer.load_state_dict(state.loop.optimizer)
        assert optimizer.param_groups[0]["lr"] == 0.01
        assert optimizer.state[network[0].weight]["step"].item() == 2
        generator_states.restore(found.generators)
        drawn = [random.random(), float(np.random.rand()), float(torch.rand(1))]
    assert drawn == [0.625720304108054, 0.30636353237617975, 0.2927446961402893]
    assert store.unfinished_specs() == {}


def test_it_takes_a_new_repeat(store):
    run = store.run(STRICT)
    with store.staging() as area:
        folder = area / "repeat"
        folder.mkdir()
        manifest = run.repeats[0].manifest.model_copy(update={"repeat": 2, "masks": {}})
        (folder / "manifest.json").write_text(manifest.model_dump_json())
        (folder / "weights.safetensors").write_bytes(run.repeats[0].weights.read_bytes())
        stored = store.commit(folder, run.spec)
    assert stored.weights.samefile(run.repeats[0].weights)
    assert next(iter(store.run(STRICT).machines.values())).keys() == {0, 1, 2}
