"""Which two runs tell most when they are compared, against stores of planted outcomes."""

import itertools

import numpy as np
import pytest

from cellrepro.images.folder import folder_digest
from cellrepro.images.synthetic_sets import write_folder
from cellrepro.show.telling_pair import telling_pair, telling_pair_of
from cellrepro.store.store import Store
from samebits.errors import BadInput
from stores import add_run, some_machine, squares, three

MISSING = three(squares(second=False))
OTHER_CELLS = "two repeats of one spec that found other cells"
NOTHING = {name: np.zeros_like(masks) for name, masks in three().items()}


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


def test_telling_pair_prefers_repeats_that_differ(store, images, digest):
    """It never crosses data sets, nor takes empty masks."""
    add_run(store, [(1.0, three())], seed=1, **digest)
    add_run(store, [(1.0, MISSING)])
    add_run(store, [(3.0, NOTHING)], seed=3, **digest)
    with pytest.raises(BadInput, match="fewer than two runs over"):
        telling_pair(store, images)
    loose = add_run(store, [(1.0, three()), (2.0, MISSING)], mode="fast", **digest)
    pair = telling_pair(store, images)
    assert {pair.a.name, pair.b.name} == {repeat.name for repeat in loose.repeats}
    assert pair.reason == OTHER_CELLS


def test_telling_pair_looks_for_repeats_machines_and_profiles_first_and_for_seeds_last(
    store, images, digest
):
    """Each run that is added makes a pair that comes before all others."""
    grown = three(squares(grown=3))
    add_run(store, [(1.0, three())], **digest)
    counted = "numbers of cells differ"
    steps = (
        ("two seeds whose masks are equal, as all are", {"seed": 1}, three()),
        ("two seeds whose masks differ", {"seed": 4}, grown),
        (f"two seeds whose {counted}", {"seed": 2}, MISSING),
        (f"different settings whose {counted}", {"batch_size": 4}, MISSING),
        (f"two modes whose {counted}", {"mode": "fast"}, MISSING),
        (
            f"two modes whose {counted}; two profiles have as many cells as each other",
            {"profile": "cpu-1thread"},
            grown,
        ),
        (f"two profiles whose {counted}", {"profile": "cpu-avx2"}, MISSING),
        (
            f"two machines whose {counted}",
            {"manifest": {"machine": some_machine("x")}},
            MISSING,
        ),
    )
    for expected, changes, masks in steps:
        run = add_run(store, [(2.0, masks)], **changes, **digest)
        pair = telling_pair(store, images)
        assert pair.reason == expected
        if "equal" not in expected and "each other" not in expected:
            assert run.key in {pair.a.manifest.key, pair.b.manifest.key}
    add_run(store, [(2.0, three()), (3.0, MISSING)], seed=5, **digest)
    assert telling_pair(store, images).reason == OTHER_CELLS


def test_repeats_with_other_cells_come_first_also_where_their_numbers_are_equal(
    store, images, digest
):
    """A cell elsewhere is another cell; one that has grown is the same."""
    elsewhere = np.roll(squares(), 20, axis=1)
    add_run(store, [(1.0, three())], **digest)
    add_run(store, [(2.0, MISSING)], profile="cpu-avx2", **digest)
    add_run(store, [(3.0, three()), (4.0, three(squares(grown=3)))], mode="fast", **digest)
    counted = telling_pair(store, images)
    assert counted.reason.startswith("two profiles whose numbers of cells differ")
    run = add_run(store, [(5.0, three()), (6.0, three(elsewhere))], seed=3, mode="fast", **digest)
    pair = telling_pair(store, images)
    assert pair.reason == OTHER_CELLS
    assert {pair.a.name, pair.b.name} == {repeat.name for repeat in run.repeats}


@pytest.mark.parametrize("seed", range(8))
def test_telling_pair_is_the_first_of_all_pairs(tmp_path, digest, seed):
    """Found without pairing each with each, it is the one that a look at every pair finds."""
    random = np.random.default_rng(seed)
    store = Store(tmp_path)
    sizes = [three(squares(grown=grown)) for grown in range(2)] + [MISSING]
    for profile, mode, number in itertools.product(("a", "b"), ("fast", "strict"), (0, 1)):
        outcomes = [(1.0, sizes[random.integers(3) * (seed % 3 > 0)])] * random.integers(1, 3)
        if random.random() < 0.7:
            add_run(store, outcomes, profile=profile, mode=mode, seed=number, **digest)
    repeats = [repeat for run in store.runs() for repeat in run.repeats]

    def rank(pair):
        one, other = (repeat.spec for repeat in pair)
        order = ["repeat", "profile", "mode", "seed"]
        kinds = [name for name in order if getattr(one, name, 0) != getattr(other, name, 0)]
        masks = [[m.digest for m in repeat.manifest.masks.values()] for repeat in pair]
        counts = [[m.n_objects for m in repeat.manifest.masks.values()] for repeat in pair]
        sameness = (masks[0] == masks[1]) + (counts[0] == counts[1])
        return sameness, order.index((kinds or ["repeat"])[-1]), len(kinds)

    expected = min(map(rank, itertools.combinations(repeats, 2)))
    chosen = telling_pair_of(repeats)
    assert rank((chosen.a, chosen.b)) == expected
