"""Which runs a notebook looks at, against stores of planted outcomes."""

from itertools import combinations

import numpy as np
import pytest

from cellrepro.errors import BadInput
from cellrepro.images.folder import folder_digest
from cellrepro.images.synthetic import write_folder
from cellrepro.lab import compare_results, select_runs
from cellrepro.store.store import Store
from stores import add_run, short, squares, three


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images") / "cells"
    write_folder(folder, n_train=1, n_test=1, shape=(64, 64))
    return folder


@pytest.fixture(scope="module")
def digest(images):
    return {"data_digest": folder_digest(images).digest}


def missing():
    return three(squares(second=False))


def test_best_network_agrees_best_with_the_truth(tmp_path, images, digest):
    store = Store(tmp_path)
    add_run(store, [(1.0, missing())], seed=1, **digest)
    best = add_run(store, [(2.0, three())], seed=2, **digest)
    add_run(store, [(3.0, three())], seed=3)  # over other images
    assert select_runs.best_network(store, images).name == best.repeats[0].name


def test_best_network_of_none(tmp_path, images):
    with pytest.raises(BadInput, match="01_seeded_training"):
        select_runs.best_network(Store(tmp_path), images)


def test_telling_pair_prefers_repeats_that_differ(tmp_path, images, digest):
    store = Store(tmp_path)
    add_run(store, [(1.0, three())] * 2, seed=1, **digest)
    loose = add_run(store, [(1.0, three()), (2.0, missing())], mode="fast", **digest)
    a, b = select_runs.telling_pair(store, images)
    assert {a.name, b.name} == {repeat.name for repeat in loose.repeats}
    assert a.manifest.key == b.manifest.key == loose.key


def test_telling_pair_of_equal_masks_prefers_different_specs(tmp_path, images, digest):
    store = Store(tmp_path)
    add_run(store, [(1.0, three())] * 2, seed=1, **digest)
    add_run(store, [(2.0, three())] * 2, seed=2, **digest)
    a, b = select_runs.telling_pair(store, images)
    assert a.manifest.key != b.manifest.key


def test_telling_pair_never_crosses_data_sets_nor_takes_empty_masks(tmp_path, images, digest):
    store = Store(tmp_path)
    add_run(store, [(1.0, three())], **digest)
    add_run(store, [(1.0, missing())])
    nothing = {name: np.zeros_like(masks) for name, masks in three().items()}
    add_run(store, [(3.0, nothing)], seed=3, **digest)
    with pytest.raises(BadInput, match="fewer than two runs over"):
        select_runs.telling_pair(store, images)


def test_distinct_networks_are_grouped_by_their_bits(tmp_path):
    store = Store(tmp_path)
    add_run(store, [(1.0, three())] * 3, seed=1)
    add_run(store, [(2.0, three())], seed=2)
    groups = select_runs.distinct_networks(store.runs())
    assert [len(members) for members in groups] == [3, 1]


def test_short_names_say_what_tells_apart(tmp_path):
    store = Store(tmp_path)
    add_run(store, [(1.0, three())], seed=1)
    add_run(store, [(2.0, three())] * 2, seed=2)
    repeats = [repeat for run in select_runs.asked_alike(store.runs()) for repeat in run.repeats]
    expected = ["seed 1", "seed 2, repeat 0", "seed 2, repeat 1"]
    assert select_runs.short_names(repeats) == expected
    assert select_runs.short_names(repeats[1:]) == ["repeat 0", "repeat 1"]


def test_enough_runs_are_taken_as_they_are(tmp_path, images, digest):
    store = Store(tmp_path)
    expected = {add_run(store, [(seed, three())], seed=seed, **digest).key for seed in (1, 2)}
    assert {run.key for run in select_runs.some_runs(store, images)} == expected
    assert {run.key for run in store.runs()} == expected  # nothing was trained


def test_asked_alike_are_the_most_in_order(tmp_path):
    store = Store(tmp_path)
    for seed in (11, 2, 1):
        add_run(store, [(seed, three())], seed=seed)
    add_run(store, [(4.0, three())], mode="fast", seed=1)
    add_run(store, [(5.0, three())], epochs=9)
    found = select_runs.asked_alike(store.runs())
    expected = [(1, "fast"), (1, "strict"), (2, "strict"), (11, "strict")]
    assert [(run.spec.seed, run.spec.mode) for run in found] == expected
    assert select_runs.asked_alike([]) == []


def test_same_question_leaves_out_what_was_asked_otherwise_or_found_nothing(tmp_path):
    store = Store(tmp_path)
    own = add_run(store, [(1.0, three())] * 2, seed=5)
    other = add_run(store, [(2.0, missing())], seed=1, mode="fast", profile="cpu-1thread")
    add_run(store, [(3.0, three())], epochs=9)
    add_run(store, [(4.0, three())], data_digest="c" * 64)
    nothing = {name: np.zeros_like(masks) for name, masks in three().items()}
    add_run(store, [(5.0, nothing)], seed=2)
    found = [short(repeat.name) for repeat in select_runs.same_question(store, own.repeats[0])]
    assert found == [f"{own.key}/0", f"{own.key}/1", f"{other.key}/0"]


def test_against_truth_counts_the_missing_cell(tmp_path):
    store = Store(tmp_path)
    run = add_run(store, [(1.0, missing())])
    found = select_runs.against_truth(store, run.repeats[0])
    assert [result.kinds["lost"] for result in found] == [1, 0, 0]
    assert [result.n_objects_a for result in found] == [2, 2, 2]  # the truth is the first side


def test_against_no_truth(tmp_path):
    store = Store(tmp_path)
    run = add_run(store, [(1.0, three())], truth=False)
    assert select_runs.against_truth(store, run.repeats[0]) == []


def test_one_network_for_each_change(tmp_path):
    store = Store(tmp_path)
    base = add_run(store, [(1.0, three()), (1.5, three())])
    seed = add_run(store, [(2.0, three())], seed=1)
    fast = add_run(store, [(3.0, three())], mode="fast")
    both = add_run(store, [(4.0, three())], mode="fast", seed=1)
    second = add_run(store, [(5.0, three())], seed=2)
    runs = (base, both, seed, second, fast)
    repeats = [repeat for run in runs for repeat in run.repeats]
    found = [short(repeat.name) for repeat in select_runs.one_change_each(repeats)]
    assert found == [f"{base.key}/0", f"{base.key}/1", f"{seed.key}/0", f"{fast.key}/0"]
    machine = base.repeats[0].manifest.machine.model_copy(update={"identity": "another"})
    add_run(store, [(1.2, three())] * 2, manifest={"machine": machine})
    every = store.run(base.key).repeats
    there = [repeat for repeat in every if repeat.machine == machine.name]
    here = [repeat for repeat in every if repeat.machine != machine.name]
    assert select_runs.one_change_each([*here, *there]) == [*here, there[0]]
    apart = [base.repeats[0], both.repeats[0]]
    assert select_runs.one_change_each(apart) == apart
    assert select_runs.one_change_each(apart[:1]) == apart[:1]


def test_compare_masks_of(tmp_path):
    """The lost object has 16 pixels; three images of equal size are compared."""
    run = add_run(Store(tmp_path), [(1.0, three()), (1.0, missing()), (1.0, three())])
    found = [compare_results.compare_masks_of(*pair) for pair in combinations(run.repeats, 2)]
    expected = 16e6 / (3 * squares().size)
    assert [pair.ppm for pair in found] == pytest.approx([expected, 0, expected])
    assert [pair.n_unmatched for pair in found] == [1, 0, 1]
