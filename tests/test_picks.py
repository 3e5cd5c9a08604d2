"""Which runs a notebook looks at, against stores of planted outcomes."""

import numpy as np
import pytest

from cellrepro import comparison, picks
from cellrepro.cells.images import folder_digest
from cellrepro.cells.synthetic import write_folder
from cellrepro.errors import BadInput
from cellrepro.record.store import Store
from stores import add_run, squares, three


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
    assert picks.best_network(store, images).name == f"{best.key}/0"


def test_best_network_of_none(tmp_path, images):
    with pytest.raises(BadInput, match="01_seeded_training"):
        picks.best_network(Store(tmp_path), images)


def test_telling_pair_prefers_repeats_that_differ(tmp_path, images, digest):
    store = Store(tmp_path)
    add_run(store, [(1.0, three())] * 2, seed=1, **digest)
    loose = add_run(store, [(1.0, three()), (2.0, missing())], mode="fast", **digest)
    (run, a), (other, b) = picks.telling_pair(store, images)
    assert {a.name, b.name} == {f"{loose.key}/0", f"{loose.key}/1"}
    assert run.key == other.key == loose.key


def test_telling_pair_of_equal_masks_prefers_different_specs(tmp_path, images, digest):
    store = Store(tmp_path)
    add_run(store, [(1.0, three())] * 2, seed=1, **digest)
    add_run(store, [(2.0, three())] * 2, seed=2, **digest)
    (run, _), (other, _) = picks.telling_pair(store, images)
    assert run.key != other.key


def test_telling_pair_never_crosses_data_sets_nor_takes_empty_masks(tmp_path, images, digest):
    store = Store(tmp_path)
    add_run(store, [(1.0, three())], **digest)
    add_run(store, [(1.0, missing())])
    nothing = {name: np.zeros_like(masks) for name, masks in three().items()}
    add_run(store, [(3.0, nothing)], seed=3, **digest)
    with pytest.raises(BadInput, match="fewer than two runs over"):
        picks.telling_pair(store, images)


def test_distinct_networks_are_grouped_by_their_bits(tmp_path):
    store = Store(tmp_path)
    add_run(store, [(1.0, three())] * 3, seed=1)
    add_run(store, [(2.0, three())], seed=2)
    groups = picks.distinct_networks(store.runs())
    assert [len(members) for members in groups] == [3, 1]


def test_short_names_say_what_tells_apart(tmp_path):
    store = Store(tmp_path)
    add_run(store, [(1.0, three())], seed=1)
    add_run(store, [(2.0, three())], seed=2)
    repeats = [run.repeats[0] for run in store.runs()]
    assert sorted(picks.short_names(store, repeats)) == ["seed 1, repeat 0", "seed 2, repeat 0"]
    assert picks.asked(store, repeats[0]).startswith("seed ")


def test_agreement_counts_pixels_and_objects(tmp_path):
    """The lost object has 16 pixels; three images of equal size are compared."""
    store = Store(tmp_path)
    run = add_run(store, [(1.0, three()), (1.0, missing()), (1.0, three())])
    found = comparison.agreement(run.repeats)
    n_pixels = 3 * squares().size
    expected = 16e6 / n_pixels
    assert found.ppm == pytest.approx(
        np.array([[0, expected, 0], [expected, 0, expected], [0, expected, 0]])
    )
    assert found.n_unmatched.tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
