"""The demo stops where its first network found too little, before anything else is trained."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from cellrepro import demo, demo_network
from cellrepro.process.process_ends import RunError
from cellrepro.run import training_until_found
from cellrepro.run.until_found import Goal
from cellrepro.store.store import Store
from samebits.errors import BadInput

PROJECT = Path(__file__).parents[1]


@pytest.mark.slow
def test_stops_before_the_grid(monkeypatch, invoke, small_data, tmp_path):
    """One network that has learnt nothing, the ways on, exit code 1, and nothing trained after."""
    for goal in ("SOON", "FOUND"):
        monkeypatch.setattr(demo_network, goal, Goal(score=1.0, seconds=0.0))
    monkeypatch.setattr(training_until_found, "DRAWS_PER_EPOCH", 1)
    monkeypatch.delattr(demo, "run_grid")
    store = tmp_path / "outputs"
    answer = invoke("demo", small_data, "--store", store, "--json")
    assert (answer.code, answer.out) == (1, "")
    assert "tiny finds 0 cells in 1 image where " in answer.err
    assert "after 2 epochs in " in answer.err
    command = f"make demo DATA={small_data} STORE={store} MODEL="
    assert f"{command}cpsam_v2, or a weights" in answer.err
    assert f"{command}KEY/0" in answer.err
    assert "more epochs, about " in answer.err
    (stored,) = Store(store).runs()
    assert len(stored.repeats) == 1


def test_without_images_it_says_how_they_are_made(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="`cellrepro data synthetic`"):
        demo.run_demo("data/synthetic")


@pytest.mark.parametrize("is_clone", [True, False])
def test_the_ways_on_can_be_pasted(made_up, monkeypatch, tmp_path, is_clone):
    """By ``make`` where there is the Makefile of a clone alone; a blank in a path is no end."""
    monkeypatch.chdir(PROJECT if is_clone else tmp_path)
    manifest = made_up.manifest(vacuous=["nothing"])
    base = SimpleNamespace(store=Store("my runs"), repeats=[SimpleNamespace(manifest=manifest)])
    with pytest.raises(RunError) as refusal:
        demo_network.stop_without_cells(base, "my cells", "tiny")
    by_make = "make demo DATA='my cells' STORE='my runs' MODEL=cpsam_v2"
    by_command = 'cellrepro demo "my cells" --model cpsam_v2 --store "my runs"'
    assert [words in str(refusal.value) for words in (by_make, by_command)] == [
        is_clone,
        not is_clone,
    ]


@pytest.mark.parametrize(("score", "stops"), [(0.05, True), (0.1, False), (None, False)])
def test_when_it_stops(made_up, score, stops):
    manifest = made_up.manifest()
    for record in manifest.masks.values():
        record.ap50, record.n_true = score, None if score is None else 30
    base = SimpleNamespace(store=Store("outputs"), repeats=[SimpleNamespace(manifest=manifest)])
    with pytest.raises(RunError, match="finds 3 cells in 1 image") if stops else nullcontext():
        demo_network.stop_without_cells(base, "cells", "tiny")
