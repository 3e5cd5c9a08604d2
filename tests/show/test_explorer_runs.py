"""Stored runs in the explorer: which are shown first, and what is refused at the door."""

import numpy as np
import pytest

from cellrepro.errors import BadInput
from cellrepro.show.explorer.runs import explore_runs, n_repeats
from cellrepro.store.store import Store
from stores import add_run, squares, three


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def missing(image: str) -> dict[str, np.ndarray]:
    return three(**{image: squares(second=False)})


def test_first_are_repeats_that_differ_on_an_image_where_they_do(store):
    """Repeats of one spec should not differ, so they come before seeds that may."""
    add_run(store, [(1.0, three())] * 2, seed=0)
    add_run(store, [(2.0, three()), (2.0, missing("img_c"))], seed=1)
    shown = explore_runs(store)
    assert shown.image_name == "img_c"
    assert all("seed 1" in name for name in (shown.name_a, shown.name_b))
    assert shown.counts["differ"] == 16
    assert shown.images == ["img_a", "img_b", "img_c"]
    assert len(shown.runs) == len(set(shown.runs)) == n_repeats(store) == 4


def test_named_runs_come_in_their_order(store):
    one = add_run(store, [(1.0, three())], seed=0)
    two = add_run(store, [(2.0, missing("img_b"))], seed=1)
    shown = explore_runs(store, [two.key, f"{one.key}/0"], image="img_b")
    assert shown.scene["n_objects"] == {"a": 1, "b": 2}
    assert shown.counts["only_b"] == 16
    assert "truth" in shown.scene["planes"]


def test_menus_say_what_tells_runs_apart_and_nothing_else(store):
    """The network that all start from made every name as long as "model …, seed 0, epochs …"."""
    base = add_run(store, [(9.0, three())], epochs=12)
    start = {"model": base.repeats[0].name}
    start["model_digest"] = base.repeats[0].manifest.weights.digest
    for seed in (1, 0):
        for mode in ("strict", "fast"):
            add_run(store, [(1.0 + seed, missing("img_b"))], seed=seed, mode=mode, **start)
    shown = explore_runs(store)
    assert shown.runs == ["fast, seed 0", "strict, seed 0", "fast, seed 1", "strict, seed 1"]
    other = next(run.key for run in store.runs() if run.key != base.key)
    assert explore_runs(store, [base.key, other]).runs[0] == "starting network"


def test_a_machine_is_part_of_the_name_where_there_are_several(store):
    for label in ("laptop", "a100"):
        machine = {"label": label, "identity": label, "device": "d", "numeric_class": ""}
        machine["versions"] = {}
        add_run(store, [(1.0, three())] * 2, manifest={"machine": machine})
    assert explore_runs(store).runs == [
        "a100, repeat 0", "a100, repeat 1", "laptop, repeat 0", "laptop, repeat 1",
    ]  # fmt: skip


def test_one_repeat_is_too_few(store):
    run = add_run(store, [(1.0, three())], seed=0)
    with pytest.raises(BadInput, match=r"has 1 repeats over the same images.*cellrepro train"):
        explore_runs(store)
    with pytest.raises(BadInput, match=rf"has 1 repeats named by {run.key}/0; .* two or more"):
        explore_runs(store, [f"{run.key}/0"])


def test_unknown_run_and_image(store):
    add_run(store, [(1.0, three())] * 2, seed=0)
    with pytest.raises(BadInput, match="0123456789abcdef"):
        explore_runs(store, ["0123456789abcdef"])
    with pytest.raises(BadInput, match="there is no image 'img_z'; expected one of 3: img_a"):
        explore_runs(store, image="img_z")


def test_runs_over_different_data_have_no_image_in_common(store):
    """Images of one name in two data sets are two images."""
    one = add_run(store, [(1.0, three())], data_digest="a" * 64)
    two = add_run(store, [(1.0, three())], data_digest="b" * 64)
    with pytest.raises(BadInput, match="no two of the 2 repeats segmented the same image"):
        explore_runs(store, [one.key, two.key])
