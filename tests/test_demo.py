"""The demo stops where its first network found too little, before anything else is trained."""

from types import SimpleNamespace

import pytest

from cellrepro import demo
from cellrepro.store.store import Store


@pytest.mark.slow
def test_stops_before_the_grid(monkeypatch, invoke, small_data, tmp_path):
    """One network that has learnt nothing, the ways on, exit code 1, and nothing trained after."""
    monkeypatch.setattr(demo, "BASE", {"epochs": 2, "images_per_epoch": 1})
    monkeypatch.delattr(demo, "run_grid")
    store = tmp_path / "outputs"
    answer = invoke("demo", small_data, "--store", store, "--json")
    assert answer.code == 1
    assert (answer.json["runs"], answer.json["notebooks"], answer.json["report"]) == ([], [], None)
    said = answer.json["stopped"]
    assert said in answer.err
    assert "tiny finds 0 cells in 1 image where " in said
    assert f"make demo DATA={small_data} STORE={store} MODEL=cpsam_v2, or a weights file" in said
    (run,) = Store(store).runs()
    assert (run.key, len(run.repeats)) == (answer.json["base"], 1)


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
    assert (demo.why_to_stop(base, "cells", "tiny") is not None) is stops
