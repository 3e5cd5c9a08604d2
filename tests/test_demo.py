"""The demo stops where its first network found too little, before anything else is trained."""

from types import SimpleNamespace

import pytest

from cellrepro import demo
from cellrepro.store.store import Store


@pytest.fixture
def short(monkeypatch):
    """A first network that has learnt nothing; nothing more may be trained or executed."""
    monkeypatch.setattr(demo, "BASE", {"epochs": 2, "images_per_epoch": 1})
    for name in ("run_grid", "_execute_notebooks", "write_report"):
        monkeypatch.delattr(demo, name)


@pytest.mark.slow
def test_stops_before_the_grid(short, invoke, small_data, tmp_path):
    """One network, the ways on with their times, exit code 1, and nothing trained in vain."""
    store = tmp_path / "outputs"
    answer = invoke("demo", small_data, "--store", store, "--json")
    assert answer.code == 1
    assert answer.json["runs"] == answer.json["notebooks"] == []
    assert answer.json["report"] is None
    said = answer.json["stopped"]
    assert said in answer.err
    assert "tiny finds 0 cells in 1 image where " in said
    assert f"make demo DATA={small_data} STORE={store} MODEL=cpsam_v2, or a weights file" in said
    assert f"more epochs: cellrepro train {small_data} --epochs 100" in said
    (run,) = Store(store).runs()
    assert (run.key, len(run.repeats)) == (answer.json["base"], 1)
    assert sorted(path.name for path in store.iterdir() if path.is_dir()) == ["data", "runs"]


@pytest.mark.parametrize(
    ("score", "vacuous", "stops"),
    [
        (0.05, [], True),
        (0.1, [], False),
        (None, [], False),
        (None, ["no object was found in any of the 1 images"], True),
    ],
    ids=["too few", "enough", "no truth", "nothing found"],
)
def test_when_it_stops(made_up, score, vacuous, stops):
    manifest = made_up.manifest(vacuous=vacuous)
    for record in manifest.masks.values():
        record.ap50, record.n_true = score, None if score is None else 30
    base = SimpleNamespace(store=Store("outputs"), repeats=[SimpleNamespace(manifest=manifest)])
    said = demo.why_to_stop(base, "cells", "tiny")
    assert (said is not None) is stops
    if score is not None and stops:
        assert "finds 3 cells in 1 image where 30 are drawn (mean AP@0.5 0.05)" in said
