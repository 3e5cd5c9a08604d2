"""Spread: which repeats are pairs, and what lies between them; stores made by hand."""

import itertools
import json
from collections import Counter

import numpy as np
import pytest

from cellrepro.comparison import seed_spread
from cellrepro.comparison.five_steps import protocol
from cellrepro.comparison.image_differences import MaskPairs
from cellrepro.comparison.seed_spread import decide_between, measure_spread
from cellrepro.comparison.within_spread import NOTHING_BESIDE
from cellrepro.store.store import Store
from samebits.errors import BadInput
from stores import NOTHING, SIZE, add_run, squares, three

BFLOAT16 = {"profile": "cpu-bfloat16", "profile_settings": {"threads": 2, "dtype": "bfloat16"}}
CUDA = {"profile": "cuda", "profile_settings": {"name": "cuda", "device": "cuda"}}


def threads(n):
    return {"profile": f"cpu-{n}thread", "profile_settings": {"device": "cpu", "threads": n}}


def cells(*, without=(), grown=0):
    """Sixteen squares of 36 pixels, some of them left out, the first a few pixels larger."""
    labels = np.zeros((SIZE, SIZE), np.uint16)
    for i in set(range(16)) - set(without):
        y, x = 12 * (i // 4) + 2, 12 * (i % 4) + 2
        labels[y : y + 6, x : x + 6] = i + 1
    labels[8, 2 : 2 + grown] = 1 if grown else labels[8, 2]
    return labels


def images(n=4, **changes):
    return {f"img_{i}": cells(**changes) for i in range(n)}


def seeded(store, seed, **fields):
    """A run that misses two cells of its own, and one more on every other image."""
    own = {2 * seed, 2 * seed + 1}
    found = {f"img_{i}": cells(without=own | {15 - seed} if i % 2 else own) for i in range(6)}
    return add_run(store, [(1.0 + seed, found)], seed=seed, truth=False, **fields)


# -- which repeats are a pair --------------------------------------------------------------


def test_one_pair_along_every_axis(tmp_path):
    here = Store(tmp_path / "here")
    add_run(here, [(1.0, three()), (1.0, three())])
    for fields in ({"seed": 1}, {"data_seed": 5}, {"mode": "fast"}, threads(1), BFLOAT16):
        add_run(here, [(1.0, three())], **fields)
    add_run(here, [(1.0, three())], seed=2, mode="fast")  # differs in two respects from most
    runs = here.runs()
    elsewhere = {"host": {"processor": "Slide Rule 2", "memory": 2**34, "gpus": []}}
    newer = {"versions": {"python": "3.13", "torch": "2.7"}}
    for name, manifest in {"machine": elsewhere, "version": newer}.items():
        add_run(Store(tmp_path / name), [(1.0, three())], manifest=manifest)
        runs += Store(tmp_path / name).runs()

    spread = measure_spread(runs)
    assert {axis.name: [(p.name_a, p.name_b) for p in axis.pairs] for axis in spread.axes} == {
        "repeats": [("repeat 0", "repeat 1")],
        "seed": [("seed 0", "seed 1"), ("seed 0", "seed 2")],
        "data_seed": [("data seed 5", "data seed cellpose")],
        "mode": [("fast", "strict")],
        "threads": [("cpu", "cpu-1thread")],
        "precision": [("cpu", "cpu-bfloat16")],
        "machine": [("abacus-9", "slide-rule-2")],
        "version": [("torch 2.6", "torch 2.7")],
    }
    assert spread.seeds.pairs[1].context == "abacus-9, torch 2.6, cpu, fast"
    written = json.loads(spread.as_json())
    assert [axis["axis"] for axis in written["axes"]] == [axis.name for axis in spread.axes]
    assert written["n_seeds"] == spread.n_seeds


@pytest.mark.parametrize(
    ("settings", "axes"),
    [
        ([{"threads": 2}, {"threads": 1}, {"threads": 2, "dtype": "bfloat16"}],
         {"threads": 1, "precision": 1}),
        ([{"threads": 1}, {"threads": 2, "dtype": "bfloat16"}], {"profile": 1}),
        ([{}, {"environment": {"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}}], {"precision": 1}),
        ([{"threads": 2}, {"device": "cuda"}], {"device": 1}),
        ([{"threads": 2}, {"device": "cuda"}, {"device": "cuda", "dtype": "bfloat16"}],
         {"device": 1, "precision": 1}),
    ],
    ids=["bfloat16 is no device", "two at once", "rounding by variable",
         "a GPU's threads are not set", "one step at a time"],
)  # fmt: skip
def test_what_a_profile_sets_is_three_axes(tmp_path, settings, axes):
    store = Store(tmp_path)
    for i, fields in enumerate(settings):
        add_run(store, [(1.0, three())], profile=f"p{i}", profile_settings={"name": "", **fields})
    found = measure_spread(store.runs())
    assert {axis.name: len(axis.pairs) for axis in found.axes} == axes


@pytest.mark.parametrize(
    ("changes", "axes"),
    [
        ([{}, {"label": "b", "identity": "b"}], {"repeats": 2, "machine": 1}),
        ([{}, {"versions": {"torch": "2.7"}, "numeric_class": "0b"}], {"repeats": 2, "version": 1}),
        ([{"driver": "550"}, {"driver": "570", "identity": "b"}], {"repeats": 2, "machine": 1}),
        ([{}, {"identity": "b", "versions": {"torch": "2.7"}}], {"repeats": 2}),
        ([{}, {"numeric_class": "0b"}], {"repeats": 2, "machine": 1}),
    ],
    ids=["two of one kind and class", "an upgrade", "each its driver", "both",
         "alike by name and version, and yet of different bits"],
)  # fmt: skip
def test_machines_are_compared_by_what_they_are(tmp_path, changes, axes):
    """Repeats of one spec on two machines are never repeats of each other."""
    store = Store(tmp_path)
    machine = {"label": "a", "identity": "a", "device": "Abacus 9", "numeric_class": "0a"}
    for change in changes:
        whole = {**machine, "versions": {"torch": "2.6"}, **change}
        add_run(store, [(1.0, three())] * 2, manifest={"machine": whole})
    found = measure_spread(store.runs())
    assert {axis.name: len(axis.pairs) for axis in found.axes} == axes
    assert all(pair.a.machine == pair.b.machine for pair in found.axis("repeats").pairs)


@pytest.mark.parametrize("both", [False, True], ids=["on no machine both", "on one machine both"])
def test_devices_are_compared_across_machines_only_where_none_has_both(tmp_path, both):
    other = {"host": {"processor": "Slide Rule 2", "gpus": [{"name": "G"}]}}
    add_run(Store(tmp_path / "a"), [(1.0, three())], manifest={"device": "cpu"})
    b = Store(tmp_path / "b")
    on_gpu = [(2.0, three(squares(second=False)))]
    add_run(b, on_gpu, **CUDA, manifest={**other, "device": "cuda:0"})
    if both:
        add_run(b, [(1.0, three())], manifest={**other, "device": "cpu"})
    (pair,) = measure_spread(Store(tmp_path / "a").runs() + b.runs()).axis("device").pairs
    across = ("cpu on abacus-9", "cuda on slide-rule-2")
    assert (pair.name_a, pair.name_b) == (("cpu", "cuda") if both else across)
    processors = {repeat.manifest.host["processor"] for repeat in (pair.a, pair.b)}
    assert processors == ({"Slide Rule 2"} if both else {"Slide Rule 2", "Abacus 9"})


def test_what_is_left_out_is_counted_and_every_surrounding_has_its_turn(tmp_path, monkeypatch):
    store = Store(tmp_path)
    for mode, seed in itertools.product(("fast", "strict"), range(5)):
        add_run(store, [(1.0, {"img": cells(without=[seed])})], seed=seed, mode=mode, truth=False)
    monkeypatch.setattr(seed_spread, "MOST_PAIRS", 10)
    axis, again = (
        measure_spread(runs, axes=["seed"]).seeds for runs in (store.runs(), store.runs()[::-1])
    )
    assert (len(axis.pairs), axis.n_left_out) == (10, 10)
    assert Counter(pair.context for pair in axis.pairs) == {"fast": 5, "strict": 5}
    seeds = Counter(unit for pair in axis.pairs for unit in pair.units)
    assert set(seeds.values()) == {4}
    assert {(p.a.name, p.b.name) for p in again.pairs} == {(p.a.name, p.b.name) for p in axis.pairs}
    monkeypatch.setattr(seed_spread, "MOST_PIXELS", 3 * SIZE**2)
    few = measure_spread(store.runs(), axes=["seed"]).seeds
    assert len(few.pairs) < 10
    assert len(few.pairs) + few.n_left_out == 20


def test_where_one_pair_of_each_setting_is_all_there_is_time_for_some_are_compared_whole(
    tmp_path, monkeypatch
):
    """One pair of seeds in each of many settings would never make three seeds in one."""
    store = Store(tmp_path)
    for rate, mode, seed in itertools.product(range(1, 6), ("fast", "strict"), range(3)):
        masks = {"img": cells(without=[seed])}
        add_run(store, [(1.0, masks)], learning_rate=rate, mode=mode, seed=seed, truth=False)
    monkeypatch.setattr(seed_spread, "MOST_PAIRS", 6)
    spread = measure_spread(store.runs(), axes=["seed", "mode"])
    found = {axis.name: (len(axis.pairs), axis.n_left_out) for axis in spread.axes}
    assert (spread.n_seeds, found) == (3, {"seed": (6, 24), "mode": (6, 9)})
    rates = [{pair.a.spec.learning_rate for pair in axis.pairs} for axis in spread.axes]
    assert len(rates[0]) == 1
    assert rates[0] <= rates[1]


# -- what lies between them ------------------------------------------------------------------


def test_measures_of_a_pair(tmp_path):
    store = Store(tmp_path)
    lost = {"img_0": cells(without=[3]), "img_1": cells(grown=4), "img_2": cells()}
    add_run(store, [(1.0, images(3)), (1.5, lost)], truth=False)
    (pair,) = measure_spread(store.runs()).axis("repeats").pairs
    found = list(pair.images.values())
    assert [one.n_objects for one in found] == [31, 32, 32]
    assert pair.changed == pytest.approx(1 / 95)
    assert pair.ppm == pytest.approx(1e6 * 40 / (3 * SIZE**2))
    assert [one.ap50 for one in found] == pytest.approx([1 / 16, 0, 0])
    # A cell grown by 4 of 36 pixels has an IoU of 0.9: it fails the threshold 0.95 only.
    assert [one.ap for one in found] == pytest.approx([1 / 16, (1 - 15 / 17) / 10, 0])
    assert pair.mean("ap50") == pytest.approx(1 / 48)
    assert (pair.kinds["lost"], pair.kinds["gained"], pair.kinds["kept"]) == (1, 0, 47)
    masks = MaskPairs()  # which compares each pair of label images once
    for a, b, kind in ((pair.a, pair.b, "lost"), (pair.b, pair.a, "gained")):
        assert masks.differences(a, b)["img_0"].kinds[kind] == 1
    assert pair.weights_equal is False


def test_what_proves_nothing_is_no_evidence(tmp_path):
    store = Store(tmp_path)
    add_run(store, [(1.0, {"img": NOTHING})] * 2)
    add_run(store, [(1.0, {"img": squares()})], seed=1)
    found = measure_spread(store.runs())
    repeats = found.axis("repeats")
    assert (repeats.evidence, repeats.equal, len(repeats.pairs)) == ([], False, 1)
    assert (len(found.seeds.not_vacuous), found.seeds.evidence) == (1, [])  # one side found nothing
    assert np.isnan(repeats.distribution().mean)


def test_what_cannot_be_compared_is_refused(tmp_path):
    store = Store(tmp_path)
    for data in ("a", "b"):
        add_run(store, [(1.0, three())], data_digest=data * 64)
    with pytest.raises(BadInput, match="the runs are of 2 kinds"):
        measure_spread(store.runs())


# -- beside what seeds do --------------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    """Three seeds in mode strict, and seed 0 on a different profile, a few pixels apart."""
    store = Store(tmp_path)
    for seed in range(3):
        seeded(store, seed)
    moved = {f"img_{i}": cells(without={0, 1, 15} if i % 2 else {0, 1}) for i in range(6)}
    moved["img_0"][8, 26:30] = moved["img_0"][7, 26]
    add_run(store, [(1.01, moved)], truth=False, **threads(1))
    return store


def pick(store, **fields):
    (repeat,) = (
        run.repeats[0]
        for run in store.runs()
        if all(getattr(run.spec, name) == value for name, value in fields.items())
    )
    return repeat


def masks_of(repeat):
    return {name: repeat.masks(name) for name in repeat.manifest.masks}


def test_a_device_within_the_spread_of_seeds(store):
    a, b = pick(store, seed=0, profile="cpu"), pick(store, profile="cpu-1thread")
    found = decide_between(a, b, store.runs())
    assert found.within
    assert found.sentence().startswith(
        "0 % of the cells have no match, between seeds 19 % (3 pairs of 3"
    )
    spread = measure_spread(store.runs())
    assert (spread.decide("threads").within, spread.n_seeds) == (True, 3)
    assert spread.sentence() == (
        "Changing the number of threads left 0 % of the cells without a match (1 pair, 6 "
        "images), less than seeds do; changing the seed left 19 % of the cells without a match "
        "(3 pairs of 3 seeds, 6 images)."
    )


def test_one_profile_is_not_diluted_by_others_that_do_nothing(store):
    """On three more profiles all is as on the first; on a fourth as much changes as by seed."""
    same = masks_of(pick(store, seed=0, profile="cpu"))
    for n in range(3, 6):
        add_run(store, [(1.0, same)], truth=False, **threads(n))
    assert measure_spread(store.runs()).decide("threads").within
    add_run(store, [(1.0, images(6, without={12, 13, 14}))], truth=False, **threads(8))
    spread = measure_spread(store.runs())
    found = spread.decide("threads")
    assert spread.axis("threads").distribution().mean < spread.seeds.distribution().mean
    assert not found.within
    assert "and cpu-8thread" in found.contrast
    assert found.sentence().startswith(f"{found.contrast}: 21 % of the cells")
    assert found.contrast in spread.sentence()
    assert "less than seeds do" not in spread.sentence()


def test_seeds_of_other_surroundings_are_no_baseline(store, tmp_path):
    a, b = pick(store, seed=0, profile="cpu"), pick(store, profile="cpu-1thread")
    for seed in range(3):
        seeded(Store(tmp_path / "other"), seed, manifest={"versions": {"torch": "2.7"}})
    runs = [run for run in store.runs() if run.key in (a.spec.key, b.spec.key)]
    runs += Store(tmp_path / "other").runs()
    assert decide_between(a, b, runs).sentence().startswith("these runs have one seed only")


def test_two_seeds_are_told_where_they_stand_among_seeds(store):
    a, b = pick(store, seed=0, profile="cpu"), pick(store, seed=1)
    found = decide_between(a, b, store.runs())
    assert not found.within
    assert found.sentence() == (
        "19 % of the cells have no match between these two seeds, and 19 % in the 3 pairs of all "
        "3 seeds of the store"
    )


def test_the_sentence_says_what_is_missing(tmp_path):
    store = Store(tmp_path)
    add_run(store, [(1.0, images(3)), (1.5, images(3, without=[1]))], truth=False)
    assert measure_spread(store.runs()).sentence() == (
        "Repeating the same spec left 3.2 % of the cells without a match (1 pair, 3 images); what "
        "seeds do is not known, as no two of them were compared or found cells."
    )


_SETTINGS = ("settings.diameter", "settings.min_size", "settings.niter")


def test_settings_of_a_segmentation_are_axes_also_one_that_changes_nothing(tmp_path):
    store, usual = Store(tmp_path), {"img": cells()}
    for settings, masks in (
        ({}, usual),
        ({"diameter": 60}, {"img": cells(without=[1])}),
        ({"min_size": -1}, usual),
    ):
        add_run(store, [(None, masks)], task="segment", settings=settings)
    spread = measure_spread(store.runs(), axes=_SETTINGS)
    assert spread.of_seeds() == NOTHING_BESIDE
    assert protocol(spread)[4].outcome == "does not apply"
    found = {axis.name: axis for axis in spread.axes}
    assert found["settings.diameter"].doing == "changing diameter"
    assert found["settings.diameter"].distribution().mean > 0
    assert (found["settings.min_size"].equal, found["settings.min_size"].n_images) == (True, 1)
    assert "settings.niter" not in {name for name, axis in found.items() if axis.pairs}


def test_a_ledger_is_no_difference(tmp_path):
    """Observing changes no bit: seeds are pairs whichever of them wrote a ledger."""
    store = Store(tmp_path)
    for seed, ledger in enumerate(("steps", "ops", "off")):
        add_run(store, [(1.0 + seed, three())], seed=seed, ledger=ledger)
    (axis,) = (axis for axis in measure_spread(store.runs()).axes if axis.name == "seed")
    assert len(axis.pairs) == 3


def test_scores_lie_apart_by_what_differs(tmp_path):
    """Without one of two cells an image has AP@0.5 1/2: the mean of three is 1, 5/6 or 4/6."""
    less = squares(second=False)
    store = Store(tmp_path)
    for seed, found in enumerate((three(), three(less), three(less, img_b=less))):
        add_run(store, [(1.0 + seed, found)] * 2, seed=seed)
    assert measure_spread(store.runs()).of_scores() == (
        "AP@0.5 on the images that were segmented differs by at most 0.000 between repeats of one "
        "spec and 0.333 between seeds"
    )
    other = Store(tmp_path / "other")
    add_run(other, [(1.0, images())] * 2, truth=False)
    assert measure_spread(other.runs()).of_scores().startswith("no two runs have a score")
