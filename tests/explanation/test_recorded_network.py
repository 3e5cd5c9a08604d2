"""The network that made a result is found by its record; without one it is Cellpose's own."""

import shutil

import pytest

from cellrepro.explanation.recorded_network import recorded_network, usual_network
from cellrepro.explanation.recorded_settings import RecordedSettings, of_file
from cellrepro.store.store import Store
from samebits.digests import file_digest
from samebits.errors import BadInput


@pytest.fixture
def cellpose_folder(tmp_path, monkeypatch):
    folder = tmp_path / "models"
    folder.mkdir()
    monkeypatch.setenv("CELLPOSE_LOCAL_MODELS_PATH", str(folder))
    return folder


def record_of(**values):
    return RecordedSettings(of_file("a_masks.json", values))


def test_a_file_that_moved_is_found_and_one_that_changed_is_not_taken(
    small_store, cellpose_folder, tmp_path
):
    shutil.copy(small_store.weights, cellpose_folder / "mine")
    store = Store(tmp_path)
    recorded = {"model": "mine", "model_path": r"C:\Users\me\.cellpose\models\mine"}
    digest = file_digest(small_store.weights)
    found = recorded_network(record_of(**recorded, model_digest=digest), store)
    assert found.source.path == cellpose_folder / "mine"
    assert "is taken for it" in found.remark
    changed = recorded_network(record_of(**recorded, model_digest="0" * 64), store)
    assert changed.source is None
    assert "was replaced since" in changed.remark
    absent = recorded_network(record_of(model_path="/gone/theirs"), store)
    assert (absent.source, "not on this machine" in absent.remark) == (None, True)


def test_a_network_is_found_in_a_store_that_moved_by_its_run(
    small_store, cellpose_folder, tmp_path
):
    name = f"{small_store.key}/{small_store.machine}/0"
    recorded = {"model": name, "model_path": f"/gone/runs/{name}/weights.safetensors"}
    digest = file_digest(small_store.weights)
    moved = Store(small_store.root)
    found = recorded_network(record_of(**recorded, model_digest=digest), moved)
    assert found.source.path == small_store.weights
    assert f"{name} is taken for it" in found.remark
    changed = recorded_network(record_of(**recorded, model_digest="0" * 64), moved)
    assert (changed.source, "was replaced since" in changed.remark) == (None, True)
    elsewhere = recorded_network(record_of(**recorded, model_digest=digest), Store(tmp_path))
    assert elsewhere.source is None


def test_without_a_record_the_network_is_that_of_the_generation(cellpose_folder):
    (cellpose_folder / "cpsam").touch()
    usual = usual_network(None, is_provided=False)
    assert usual.source.label == "cpsam_v2"
    assert "downloaded first" in usual.remark
    older = usual_network("4.0.9", is_provided=False)
    assert (older.source.label, "downloaded" in older.remark) == ("cpsam", False)
    assert usual_network("3.1.1.2", is_provided=True).source.label == "cyto3"
    with pytest.raises(BadInput, match=r"does not load its networks: give --model .*cpsam"):
        usual_network("3.0", is_provided=False)
