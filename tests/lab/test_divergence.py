"""Two runs made by the command, and the place at which they part; kills, and what was kept."""

import json
import math
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import planted
from cellrepro.errors import BadInput
from cellrepro.lab import growth as growing
from cellrepro.lab import process as child
from cellrepro.lab.divergence import judge, rerun
from cellrepro.lab.divergence.find import diverge
from cellrepro.lab.divergence.result import Place
from cellrepro.lab.growth import growth
from cellrepro.lab.run import plan_training
from cellrepro.store import checkpoints
from cellrepro.store.digests import array_digest, file_digest
from cellrepro.store.ledger import LEDGER, Entry, Ledger, by_place
from cellrepro.store.store import Repeat, Store
from conftest import _MAIN, SMALL, options, run_command
from stores import TRUTH, add_run, three

BRIEF = {"epochs": 2, "images_per_epoch": 3, "learning_rate": 0.01}


@pytest.fixture(scope="module")
def copied(small_store, tmp_path_factory):
    """The small store, copied, to train beside what it holds."""
    root = tmp_path_factory.mktemp("diverging") / "outputs"
    shutil.copytree(small_store.root, root)
    return root


def test_equal_repeats(small_store, command):
    """Nothing is reported, and it is said over how much."""
    answer = command(
        "diverge", small_store.key, small_store.key, "--store", small_store.root, "--json"
    )
    assert answer.code == 0, answer.err
    assert answer.json["first"] is None
    assert answer.json["verdict"] == "identical"
    assert answer.json["compared"] > 1000
    assert answer.json["stages"] == {}


@pytest.fixture(scope="module")
def fast(tmp_path_factory, small_data):
    """Repeats of one fast training with everything written down, and what differs between them."""
    root = tmp_path_factory.mktemp("fast") / "outputs"
    arguments = {**BRIEF, "mode": "fast", "repeats": 2, "store": root}
    answer = run_command("train", small_data, "--keep-checkpoints", "--json", *options(**arguments))
    assert answer.code in (0, 1), answer.err
    return root, answer.json


def test_a_race_is_named(fast, command):
    """Where a race showed, its operation, module and line are named; where none did, nothing."""
    root, trained = fast
    weights = [repeat["weights"] for repeat in trained["repeats"]]
    answer = command(
        *("diverge", f"{trained['key']}/0", f"{trained['key']}/1"), "--json", "--store", root
    )
    found = answer.json
    # So short a training finds no cell: equal repeats of it prove nothing, which is no 0 either.
    assert answer.code == (0 if found["verdict"] == "identical" else 1), answer.err
    if found["first"] is not None:
        assert found["first"]["stage"] == "backward"
        assert found["judgement"] == "race"
        assert found["first"]["op"] == "aten.index_put.default"
        assert found["first"]["module"].endswith(".attn")
        assert "get_rel_pos" in found["first"]["source"]
        assert found["first"]["inputs"] == "agree"
        assert found["evidence"]["flips"] is None or found["first"]["max_abs"] > 0
    else:
        assert weights[0] == weights[1]


def test_what_a_mode_replaces_is_compared_with_what_it_stands_for(fast, small_data, command):
    """Fast and strict part in a result, not in how the lab's own substitute computes it."""
    root, trained = fast
    strict = command("train", small_data, "--json", *options(**BRIEF, repeats=1, store=root))
    found = diverge(trained["key"] + "/0", strict.json["key"], store=root, quiet=True)
    assert found.first.stage == "spec"
    place = found.computed
    assert (place.op, place.phase, place.inputs) == ("get_rel_pos", "backward", "agree")
    assert place.module.endswith(".attn")
    assert 0 < place.max_abs < 1e-6
    assert place.apart == (
        "between the substitutes rel-pos-gather and rel-pos-interpolation of B and what they "
        "stand for"
    )
    assert f"largest difference {place.max_abs:.2g} {place.apart}; round-off" in found.sentence()
    assert found.judgement == "round-off"
    assert found.evidence.substituted.startswith("4 of 8 calls gave equal bits: the substitutes")
    inside = [
        row for pair in found.operations.pairs for row in pair if "substitutes" in str(row.source)
    ]
    assert inside == []


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([[1.0, 2.0]], [[1.0, 2.5]], {"n_elements": 1, "max_abs": 0.5}),
        ([[1.0]], [[1.0, 2.0]], {"apart": "float32 of shape 1 in A and float32 of shape 2 in B"}),
        (
            [[1.0, math.nan]],
            [[1.0, 2.0]],
            {"n_elements": 1, "max_abs": None, "apart": "with NaN or infinity beside a number"},
        ),
        ([], [[1.0]], {}),
    ],
    ids=["numbers", "shapes", "NaN", "absent"],
)
def test_how_far_results_are_apart(a, b, expected):
    """A difference of shapes is said, and is no infinite number."""
    torch = pytest.importorskip("torch")
    sides = [[torch.tensor(values) for values in side] for side in (a, b)]
    assert judge._difference(*sides) == expected


@pytest.mark.parametrize(
    ("asked", "judgement", "elimination"),
    [
        ({"mode": "strict"}, "fault", None),
        ({"mode": "warn"}, "unexplained", "mode warn lets operations race that have no"),
        pytest.param(
            {"mode": "fast", "profile": "cpu-1thread"}, "fault", None, marks=pytest.mark.slow
        ),
        pytest.param(
            {"mode": "strict", "loose": "upsample_linear1d_backward"},
            *("unexplained", "upsample_linear1d_backward was left loose"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["strict", "warn", "fast at one thread", "loose"],
)
def test_a_fault_is_called_one_where_no_race_is_possible(
    small_data, tmp_path, asked, judgement, elimination
):
    """One repeat is altered from a step on: nothing of it comes again."""
    root = tmp_path / "outputs"
    made = run_command(
        "train", small_data, "--json", *options(**BRIEF, **asked, repeats=1, store=root)
    )
    (repeat,) = Store(root).run(made.json["key"]).repeats
    other = altered(repeat, from_step=4)
    found = diverge(*(repeat.name, other.name), repetitions=2, suspects=0, store=root, quiet=True)
    assert (found.first.step, found.first.stage) == (4, "backward")
    assert found.judgement == judgement, found.evidence
    assert found.evidence.ends_as == "a"
    said = found.evidence.elimination
    assert said is None if elimination is None else said.startswith(elimination)


def altered(repeat, *, from_step):
    """A copy as the next repeat, with other digests of gradients and of all that follows."""
    folder = repeat.folder.with_name("1")
    shutil.copytree(repeat.folder, folder)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    planted.rewrite_manifest(folder, lambda manifest: manifest.update(repeat=1))
    ledger = Ledger.read(folder / LEDGER)
    ledger.entries = [
        replace(entry, digest=entry.digest[::-1])
        if entry.step >= from_step and entry.stage in ("backward", "update", "weights")
        else entry
        for entry in ledger.entries
    ]
    ledger.write(folder / LEDGER)
    return Repeat(folder)


def test_two_machines_are_no_fault(small_data):
    """What one machine cannot repeat of another's run is no fault of either."""
    look = object.__new__(judge.Look)
    spec = plan_training(small_data, mode="strict").spec
    here, there = (SimpleNamespace(machine=name) for name in ("laptop-1", "a100-2"))
    run, seen = SimpleNamespace(spec=spec), SimpleNamespace(rows=[])
    look._sides = ((run, here), (run, here))
    assert look._no_fault(seen) is None
    look._sides = ((run, here), (run, there))
    assert "computed on a100-2 and laptop-1" in look._no_fault(seen)


def test_a_checkpoint_that_was_passed_over_is_told(fast, tmp_path):
    """Replayed from the beginning instead, and said so."""
    root, trained = fast
    shutil.copytree(root, tmp_path / "outputs")
    store = Store(tmp_path / "outputs")
    run = store.run(trained["key"])
    repeat = run.repeats[0]
    state = repeat.folder / "checkpoints" / "epoch-00001" / checkpoints.STATE
    state.chmod(0o644)
    state.write_bytes(state.read_bytes()[:-1] + b"!")
    source = judge.find_model("tiny", store)
    seen = rerun.replay(
        rerun.request_of(run, repeat, data=Path(repeat.manifest.data.path), model=source),
        repeat,
        step=4,
        scratch=tmp_path / "scratch",
    )
    assert seen.arrival.start == 0
    assert seen.arrival.n_verified <= 4
    assert "restored from the initial weights" in judge._arrived(seen)
    assert re.search(
        r"a nearer checkpoint was passed over: .*epoch-00001.* changed since", judge._arrived(seen)
    )


def test_steps_of_which_the_ledger_holds_nothing_are_not_verified():
    """Agreement over nothing is none."""
    entry = Entry(3, 1, "weights", "out", "a" * 32)
    assert rerun._agree([entry], {}) is None
    assert rerun._agree([entry], by_place([replace(entry, digest="b" * 48)])) is None
    assert rerun._agree([entry], by_place([entry])) is True
    assert rerun._agree([entry], by_place([replace(entry, digest="b" * 32)])) is False


def test_growth_follows_checkpoints(fast):
    """One moment for every epoch; the first trains nothing, at a learning rate of 0."""
    root, trained = fast
    moments = growth(
        f"{trained['key']}/0", f"{trained['key']}/1", n_masks=2, store=root, quiet=True
    )
    assert [moment.epoch for moment in moments] == [1, 2]
    assert [moment.step for moment in moments] == [3, 6]
    assert moments[0].n_differing == 0 == moments[0].relative_l2
    equal = trained["repeats"][0]["weights"] == trained["repeats"][1]["weights"]
    assert (moments[1].n_differing == 0) is equal
    assert moments[0].ppm == 0
    assert moments[0].ap50 == (0, 0)
    ends = [repeat["ap50"] for repeat in trained["repeats"][:2]]
    assert moments[1].ap50 == pytest.approx(ends, abs=0.02)


def test_growth_makes_masks_as_each_run_does(copied, small_store, small_data, monkeypatch):
    """In its own profile and mode: the last checkpoint's masks are those the run ended with."""
    keys = [
        run_command(
            *("train", small_data, "--keep-checkpoints", "--json"),
            *options(**SMALL, repeats=1, profile=profile, ledger="off", store=copied / name),
        ).json["key"]
        for name, profile in (("a", "cpu"), ("b", "cpu-1thread"))
    ]
    shutil.copytree(copied / "b", copied / "a", dirs_exist_ok=True)
    made, seen = {}, []

    def compared(scratch, epoch, truths):
        made.update({side: np.load(scratch / f"{side}-{epoch}-0.npy") for side in "ab"})
        return {}

    def call(work, setup, **others):
        seen.append(setup.environment()["OMP_NUM_THREADS"])
        return child.call(work, setup, **others)

    monkeypatch.setattr(growing, "_compared", compared)
    monkeypatch.setattr(growing, "call", call)
    (moment, *_) = reversed(growth(*keys, n_masks=2, store=copied / "a", quiet=True))
    assert moment.epoch == SMALL["epochs"]
    assert seen == ["2", "1"]
    for side, key in zip("ab", keys, strict=True):
        (repeat,) = Store(copied / "a").run(key).repeats
        ((_, record),) = repeat.manifest.masks.items()
        assert array_digest(made[side].astype(np.uint32)) == record.digest
        assert record.n_objects


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("architecture", "not of one architecture"),
        ("data", "not of one data set"),
        ("masks", "not of one segmented images"),
    ],
)
def test_growth_refuses_other_networks_and_images(tmp_path, field, message):
    store = Store(tmp_path)
    a = add_run(store, [(1.0, three())])
    other = {
        "architecture": {
            "manifest": {
                "model": a.repeats[0].manifest.model.model_copy(update={"architecture": "cellpose"})
            }
        },
        "data": {"data_digest": "c" * 64},
        "masks": {},
    }[field]
    masks = {"img_a": TRUTH} if field == "masks" else three()
    b = add_run(store, [(1.0, masks)], seed=5, **other)
    with pytest.raises(BadInput, match=message):
        growth(a.key, b.key, store=tmp_path)


def test_moments_are_scored_over_images_with_a_truth():
    """One of two true cells missing is 1 / 2; images without truth or true cells do not count."""
    truth = np.array([[1, 1, 0, 2, 2]])
    one_lost, nothing = np.where(truth == 2, 0, truth), np.zeros_like(truth)
    truths = [truth, None, nothing]
    masks = [[truth, nothing, truth], [one_lost, truth, nothing]]
    assert growing._scores(truths, masks) == (1, 0.5)
    assert growing._scores([None, nothing], [side[1:] for side in masks]) is None


def test_two_profiles_are_round_off(copied, small_store, small_data, command):
    """Other threads: named as the cause, with the first operation, judged as round-off."""
    arguments = {**SMALL, "repeats": 1, "profile": "cpu-1thread", "store": copied}
    made = command("train", small_data, "--json", *options(**arguments))
    answer = command("diverge", small_store.key, made.json["key"], "--json", "--store", copied)
    assert answer.code == 1, answer.err
    found = answer.json
    assert found["first"]["stage"] == "environment"
    assert "threads" in " ".join(found["first"]["names"])
    assert found["first"]["op"].startswith("aten.")
    assert found["first"]["inputs"] == "agree"
    assert 0 < found["first"]["max_abs"] < 1e-3
    assert found["judgement"] == "round-off", found["evidence"]
    assert not {"data", "weights-init", "spec", "rng"} & set(found["stages"])
    assert found["evidence"]["alignment"].startswith("all ")


class TestDoors:
    """Wrong input: one message, exit code 2."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["nowhere", "nowhere"], "names 0 runs"),
            (["KEY/0", "KEY/7"], "no machine has repeat 7"),
            (["KEY/0", "KEY/1", "--repetitions", "0"], "repetitions is 0"),
            (["KEY/0", "KEY/1", "--suspects", "-1"], "suspects is -1"),
        ],
        ids=["no such run", "no such repeat", "no repetition", "negative"],
    )
    def test_refuses(self, small_store, invoke, arguments, message):
        named = [text.replace("KEY", small_store.key) for text in arguments]
        answer = invoke("diverge", *named, "--store", small_store.root)
        assert answer.code == 2
        assert message in answer.err

    def test_a_single_repeat(self, small_store, tmp_path):
        root = tmp_path / "outputs"
        shutil.copytree(small_store.root, root)
        shutil.rmtree(root / "runs" / small_store.key / small_store.machine / "1")
        with pytest.raises(BadInput, match="no machine has repeat 0 and 1 of"):
            diverge(small_store.key, small_store.key, store=root)

    def test_a_damaged_ledger(self, small_store, tmp_path):
        root = tmp_path / "outputs"
        shutil.copytree(small_store.root, root)
        path = root / "runs" / small_store.key / small_store.machine / "1" / LEDGER
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(BadInput, match="is no ledger that can be read"):
            diverge(small_store.key, small_store.key, store=root)

    def test_images_that_moved(self, fast, tmp_path):
        """Without the images no step is gone through again; the rest is told."""
        root, trained = fast
        names = [f"{trained['key']}/{index}" for index in (0, 1)]
        found = diverge(*names, data=tmp_path / "gone", store=root, quiet=True)
        if found.first is not None:
            assert found.first.op is None
            assert any("--data" in note for note in found.notes)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--ledger", "everything"], "'off', 'steps' or 'ops'"),
            (["--operation-steps", "0"], "operation_steps is .0., but ledger is 'steps'"),
            (["--ledger", "ops", "--operation-steps", "a"], "expected numbers of steps"),
            (["--checkpoint-every", "-1"], "checkpoint_every is -1"),
            (["--checkpoint-every", "0", "--keep-checkpoints"], "checkpoint_every, 0, for none"),
        ],
        ids=["ledger", "steps without operations", "no steps", "negative", "none to keep"],
    )
    def test_training_refuses(self, small_data, tmp_path, invoke, monkeypatch, options, message):
        monkeypatch.setattr(child.subprocess, "Popen", None)  # nothing is to be started
        store = tmp_path / "outputs"
        answer = invoke("train", small_data, "--store", store, *options)
        assert answer.code == 2
        assert re.search(message, answer.err)
        assert not store.exists()


def test_killed_and_resumed(small_store, tmp_path, command, wholeness):
    """kill -9; what it is not is refused; then on to the bits of the uninterrupted training."""
    store, data = tmp_path / "outputs", small_store.data
    resume = ["train", data, "--resume", "--json"]
    started = [sys.executable, "-P", "-c", _MAIN, "train", str(data)]
    process = subprocess.Popen(
        [*started, *options(**SMALL, repeats=1, store=store)],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    end = time.monotonic() + 120
    while not list(store.glob("unfinished/*/*/0/epoch-*")) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = list(store.glob("unfinished/*/*/0/epoch-*"))
    assert left, "no checkpoint was left"

    refused = command(*resume, *options(**SMALL, seed=1, store=store))
    assert refused.code == 2
    assert "seed is 0 there and 1 here" in refused.err

    plain = max(left) / "state.json"
    written = plain.read_text()
    record = json.loads(written)
    probe = next(iter(record["origin"]["numeric_class"]["probes"]))
    record["origin"]["numeric_class"]["probes"][probe] = "0" * 64
    plain.write_text(json.dumps(record))
    refused = command(*resume, *options(**SMALL, repeats=1, store=store))
    assert refused.code == 2
    assert "computes other bits" in refused.err
    assert probe in refused.err
    assert checkpoints.read_plain(plain.parent).epoch > 0, "a refused checkpoint is kept"

    plain.write_text(written)
    answer = command(*resume, *options(**SMALL, repeats=1, store=store))
    assert answer.code == 0, answer.err
    assert f"{checkpoint_epoch(left)} of {SMALL['epochs']} epochs were done" in answer.err
    assert answer.json["key"] == small_store.key
    folder = store / "runs" / small_store.key / small_store.machine / "0"
    for name in ("weights.safetensors", LEDGER):
        whole = small_store.folder / "0" / name
        assert file_digest(folder / name) == file_digest(whole)
    assert wholeness(store) == [f"{small_store.key}/0"]
    assert not (store / "unfinished").exists()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["training"]["resumed_at"] == [checkpoint_epoch(left)]


def checkpoint_epoch(folders):
    return max(int(folder.name.rpartition("-")[2]) for folder in folders)


@pytest.mark.parametrize(
    ("phase", "stage", "expected"),
    [
        ("backward", "backward", True),
        ("forward", "backward", True),
        ("backward", "forward", False),
        ("update", "backward", False),
        ("update", "weights", True),
        ("backward", "batch", False),
    ],
)
def test_a_race_is_not_blamed_for_what_came_before_it(phase, stage, expected):
    """A race in the backward pass is no reason why the forward pass differs."""
    place = Place(step=3, epoch=0, stage=stage, names=("x",), said="x")
    assert judge._may_explain(phase, place) is expected
