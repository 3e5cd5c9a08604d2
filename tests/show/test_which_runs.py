"""Which runs a notebook looks at, against stores of planted outcomes."""

import numpy as np
import pytest

from cellrepro import show
from cellrepro.images.folder import folder_digest
from cellrepro.images.synthetic_sets import write_folder
from cellrepro.show import which_runs
from cellrepro.show.made_on_demand import some_runs
from cellrepro.store.store import Store
from samebits.errors import BadInput
from stores import add_run, short, squares, three


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images") / "cells"
    write_folder(folder, n_train=1, n_test=1, shape=(64, 64))
    return folder


@pytest.fixture(scope="module")
def digest(images):
    return {"data_digest": folder_digest(images)}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


MISSING = three(squares(second=False))
NOTHING = {name: np.zeros_like(masks) for name, masks in three().items()}


def test_best_network_agrees_best_with_the_truth(store, images, digest):
    with pytest.raises(BadInput, match="01_seeded_training"):
        which_runs.best_network(store, images)
    add_run(store, [(1.0, MISSING)], seed=1, **digest)
    best = add_run(store, [(2.0, three())], seed=2, **digest)
    add_run(store, [(3.0, three())], seed=3)  # over other images
    assert which_runs.best_network(store, images).name == best.repeats[0].name
    enough = {run.key for run in some_runs(store, images)}  # nothing is trained
    assert enough == {run.key for run in store.runs() if run.spec.seed < 3}


def test_diverging_pair_is_of_one_training_with_ledger_and_checkpoints(store, images, digest):
    def with_checkpoints(run):
        for repeat in run.repeats:
            (repeat.folder / "checkpoints" / "epoch-0001").mkdir(parents=True)

    asked = {"ledger": "steps", **digest}
    add_run(store, [(1.0, three())] * 2, **asked)
    add_run(store, [(1.0, three()), (2.0, three())], ledger="off", seed=2, **digest)
    apart = add_run(store, [(1.0, three()), (1.0, three()), (2.0, three())], seed=1, **asked)
    assert which_runs.diverging_pair(store, images) is None
    with_checkpoints(apart)
    names = [repeat.name for repeat in apart.repeats]
    assert which_runs.diverging_pair(store, images) == (names[0], names[2])
    in_cells = add_run(store, [(1.0, three()), (2.0, MISSING)], seed=3, **asked)
    with_checkpoints(in_cells)
    names = [repeat.name for repeat in in_cells.repeats]
    assert which_runs.diverging_pair(store, images) == (names[0], names[1])


def test_groups_of_networks_and_short_names(store):
    """Equal bits are one network; a name says what tells apart, and nothing else."""
    add_run(store, [(1.0, three())], seed=1)
    add_run(store, [(2.0, three())] * 2, seed=2)
    groups = which_runs.numbered_networks(store, store.runs(), store.runs())
    listed = show.table_of_runs(store, store.runs()).table.rows
    assert {number: len(members) for number, members in groups.items()} == {1: 1, 2: 2}
    assert [row.result.split()[1] for row in listed] == ["1", "2", "2"]  # as the table has them
    repeats = [
        repeat for run in which_runs.largest_question(store.runs()) for repeat in run.repeats
    ]
    expected = ["seed 1", "seed 2, repeat 0", "seed 2, repeat 1"]
    assert which_runs.short_names(repeats) == expected
    assert which_runs.short_names(repeats[1:]) == ["repeat 0", "repeat 1"]


def test_the_largest_question_is_sorted_by_seed(store):
    for seed in (11, 2, 1):
        add_run(store, [(seed, three())], seed=seed)
    add_run(store, [(4.0, three())], mode="fast", seed=1)
    add_run(store, [(5.0, three())], epochs=9)
    found = which_runs.largest_question(store.runs())
    expected = [(1, "fast"), (1, "strict"), (2, "strict"), (11, "strict")]
    assert [(run.spec.seed, run.spec.mode) for run in found] == expected
    assert which_runs.largest_question([]) == []


def test_same_question_leaves_out_what_was_asked_otherwise_or_found_nothing(store):
    own = add_run(store, [(1.0, three())] * 2, seed=5)
    other = add_run(store, [(2.0, MISSING)], seed=1, mode="fast", profile="cpu-1thread")
    add_run(store, [(3.0, three())], epochs=9)
    add_run(store, [(4.0, three())], data_digest="c" * 64)
    add_run(store, [(5.0, NOTHING)], seed=2)
    found = [short(repeat.name) for repeat in which_runs.same_question(store, own.repeats[0])]
    assert found == [f"{own.key}/0", f"{own.key}/1", f"{other.key}/0"]


def test_runs_of_one_seed_have_one_vote(store):
    own = add_run(store, [(1.0, three()), (1.5, MISSING)], seed=5)
    other = add_run(store, [(2.0, MISSING)], seed=1)
    both = [other.repeats[0], *own.repeats]
    assert which_runs.one_of_each_seed(both) == [other.repeats[0], own.repeats[0]]
    assert which_runs.one_of_each_seed(own.repeats) == list(own.repeats)  # nothing else to vote


def test_against_truth_counts_the_missing_cell(store):
    run = add_run(store, [(1.0, MISSING)])
    found = which_runs.against_truth(store, run.repeats[0])
    assert [result.kinds["lost"] for result in found] == [1, 0, 0]
    assert [result.n_objects_a for result in found] == [2, 2, 2]  # the truth is the first side
    found_in_words = which_runs.cells_found(store, run.repeats[0])
    assert found_in_words == "5 of the 6 cells of the ground truth"


def test_one_network_for_each_change(store):
    base = add_run(store, [(1.0, three()), (1.5, three())])
    seed = add_run(store, [(2.0, three())], seed=1)
    fast = add_run(store, [(3.0, three())], mode="fast")
    both = add_run(store, [(4.0, three())], mode="fast", seed=1)
    second = add_run(store, [(5.0, three())], seed=2)
    runs = (both, base, seed, second, fast)
    repeats = [repeat for run in runs for repeat in run.repeats]
    found = [short(repeat.name) for repeat in which_runs.one_change_each(repeats)]
    assert found == [f"{base.key}/0", f"{base.key}/1", f"{seed.key}/0", f"{fast.key}/0"]
