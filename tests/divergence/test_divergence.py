"""Two runs made by the command: the place at which they diverge, and how a difference grows."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import planted
from cellrepro.divergence.diverge import diverge
from cellrepro.divergence.growth import Moment, growth, with_masks
from cellrepro.divergence.judgements import JUDGEMENTS, OF_STAGE
from cellrepro.store.ledger import LEDGER, SEGMENTATION_STAGES, STAGES, LedgerRow
from cellrepro.store.manifest import Manifest
from cellrepro.store.row_tables import read_rows, write_rows
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from command_line import carried_out
from conftest import options, run_command
from samebits.errors import BadInput
from stores import add_run, reseal, three

BRIEF = {"epochs": 2, "images_per_epoch": 3, "learning_rate": 0.01}


def test_every_stage_of_a_ledger_has_its_words():
    assert {*OF_STAGE} == {*STAGES, *SEGMENTATION_STAGES}
    assert {stage.judgement for stage in OF_STAGE.values()} <= JUDGEMENTS.keys()


def test_equal_repeats(small_store, invoke):
    """Nothing is reported, and it is said over how much."""
    key = small_store.key
    answer = invoke("diverge", key, key, "--store", small_store.root, "--json")
    assert answer.code == 0, answer.err
    assert answer.json["first"] is None
    assert answer.json["verdict"] == "identical"
    assert answer.json["compared"] > 1000
    assert answer.json["stages"] == {}


@pytest.fixture(scope="module")
def fast(tmp_path_factory, small_data):
    """Repeats of one fast training with kept checkpoints."""
    root = tmp_path_factory.mktemp("fast") / "outputs"
    arguments = {**BRIEF, "mode": "fast", "repeats": 2, "store": root}
    asked = options(**arguments)
    code, said, problems = carried_out("train", small_data, "--keep-checkpoints", "--json", *asked)
    assert code in (0, 1), problems
    return root, json.loads(said)


def test_a_race_is_named(fast, invoke):
    """Where a race showed, its operation, module and line are named; where none did, nothing."""
    root, trained = fast
    weights = [repeat["weights"] for repeat in trained["repeats"]]
    answer = invoke("diverge", trained["key"], trained["key"], "--json", "--store", root)
    found = answer.json
    # So short a training finds no cell: equal repeats of it prove nothing, which is no 0 either.
    assert answer.code == (0 if found["verdict"] == "identical" else 1), answer.err
    if found["first"] is None:
        assert weights[0] == weights[1]
        return
    assert found["judgement"] == "race"
    first = found["first"]
    assert (first["stage"], first["op"]) == ("backward", "aten.index_put.default")
    assert first["module"].endswith(".attn")
    assert "get_rel_pos" in first["source"]
    assert first["inputs"] == "agree"
    assert found["evidence"]["flips"] is None or first["max_abs"] > 0
    (arrival,) = found["evidence"]["arrival"]
    assert "just before this step" in arrival or "on the way" in arrival


@pytest.fixture(scope="module")
def strict(fast, small_data):
    """The same training in mode strict, in the same store."""
    asked = options(**BRIEF, repeats=1, store=fast[0])
    return run_command("train", small_data, "--json", *asked).json["key"]


@pytest.mark.slow
def test_what_a_mode_replaces_is_compared_with_what_it_stands_for(fast, strict):
    """Fast and strict diverge in a result, not in how the lab's own substitute computes it."""
    root, trained = fast
    few = {"repetitions": 2, "suspects": 0}
    found = diverge(trained["key"] + "/0", strict, **few, store=root, quiet=True)
    assert found.first.stage == "spec"
    place = found.computed
    assert (place.op, place.phase, place.inputs) == ("get_rel_pos", "backward", "agree")
    assert place.module.endswith(".attn")
    size = place.size
    assert 0 < size.max_abs < 1e-6
    assert size.words == (
        "between the substitutes rel-pos-gather and rel-pos-interpolation of B and what they "
        "stand for"
    )
    assert f"largest difference {size.max_abs:.2g} {size.words}; round-off" in found.sentence()
    assert found.judgement == "round-off"
    rows = [row for pair in found.operations.pairs for row in pair]
    assert not any("substitutes" in str(row.source) for row in rows)


@pytest.mark.slow  # notebook 05 asks the same of its runs
def test_two_profiles_are_round_off(fast, strict, small_data):
    """Other threads: named as the cause, with the first operation, judged as round-off."""
    root, _ = fast
    asked = options(**BRIEF, profile="cpu-1thread", repeats=1, store=root)
    made = run_command("train", small_data, "--json", *asked)
    found = diverge(strict, made.json["key"], store=root, quiet=True)
    assert found.first.stage == "environment"
    assert "threads" in " ".join(found.first.names)
    assert found.first.op.startswith("aten.")
    assert found.first.inputs == "agree"
    assert 0 < found.first.max_abs < 1e-3
    assert found.judgement == "round-off", found.evidence
    assert not {"data", "weights-init", "spec", "rng"} & set(found.stages)
    assert found.evidence.alignment.startswith("all ")


def altered(repeat, *, from_step):
    """A copy as repeat 7, with different digests of gradients and of all that follows."""
    folder = planted.copied(repeat, repeat.folder.parent / "7").folder
    entries = [
        replace(entry, digest=entry.digest[::-1])
        if entry.step >= from_step and entry.stage in ("backward", "update", "weights")
        else entry
        for entry in read_rows(folder / LEDGER, LedgerRow)
    ]
    write_rows(folder / LEDGER, entries, LedgerRow)
    reseal(folder)
    return Repeat(folder).name


def test_a_fault_is_called_one_where_no_race_is_possible(small_store, tmp_path):
    """One repeat is altered from a step on: nothing of it comes again."""
    root = tmp_path / "outputs"
    shutil.copytree(small_store.root, root)
    repeat = Store(root).find(f"{small_store.key}/0")
    other = altered(repeat, from_step=4)
    repeat.folder.chmod(0o755)
    damaged = repeat.folder / "checkpoints" / "epoch-00001"
    damaged.mkdir(parents=True)
    (damaged / "checkpoint.json").write_text("{")
    found = diverge(repeat.name, other, repetitions=2, suspects=0, store=root, quiet=True)
    assert (found.first.step, found.first.stage) == (4, "backward")
    assert found.judgement == "fault", found.evidence
    assert (found.evidence.ends_as, found.evidence.n_repetitions) == ("a", 2)
    said = "gave different numbers from equal ones"
    as_first = replace(found.first, op="aten.x.default", phase="backward")
    for inputs, is_said in (("agree", True), ("differ", False), (None, False)):  # None: of a draw
        one = replace(found, first=replace(as_first, inputs=inputs), computed=None)
        assert (said in one.headline) == is_said
        doubted = replace(one, evidence=replace(found.evidence, doubt="only probably, as …"))
        assert ("probably a fault" in doubted.headline) == is_said
        assert any(line.startswith("probably a fault") for line in doubted.answer())
    # The damaged checkpoint is passed over, and that is said.
    (arrival,) = found.evidence.arrival
    assert arrival.startswith("computed again from the initial weights; all 4 steps")
    assert "; a nearer checkpoint was passed over: " in arrival
    # Without the images no step is gone through again; the rest is told.
    found = diverge(repeat.name, other, data=tmp_path / "gone", store=root, quiet=True)
    assert (found.first.step, found.first.stage, found.first.op) == (4, "backward", None)
    assert any("--data" in note for note in found.notes)


def test_refusals(small_store, invoke):
    for *arguments, message in (
        ("nowhere", "nowhere", "names no run"),
        ("KEY/0", "KEY/1", "--repetitions", "0", "repetitions must be a whole number"),
    ):
        named = [text.replace("KEY", small_store.key) for text in arguments]
        answer = invoke("diverge", *named, "--store", small_store.root)
        assert (answer.code, message in answer.err) == (2, True)


# -- growth --------------------------------------------------------------------------------


def test_growth_follows_checkpoints(fast, invoke):
    """One moment for every epoch; the first trains nothing, at a learning rate of 0."""
    root, trained = fast
    key = trained["key"]
    first, second = invoke(*("growth", key, key, "--masks", 0, "--store", root, "--json")).json[
        "moments"
    ]
    assert (first["epoch"], first["n_differing"], first["distance"]) == (1, 0, 0)
    equal = trained["repeats"][0]["weights"] == trained["repeats"][1]["weights"]
    assert (second["epoch"], second["distance"] == 0) == (2, equal)
    assert (first["ap50_a"], first["ap50_b"], first["changed"]) == (0, 0, None)


@pytest.mark.slow
def test_scores_by_epoch_are_those_of_masks_made_of_the_checkpoints(
    small_store, invoke, monkeypatch
):
    """As the worker left them after training, and as `growth` finds them from the files."""
    run = small_store.key
    stored = Store(small_store.root).find(f"{run}/0").manifest
    assert stored.ap50_by_epoch.keys() == {3, 4}
    assert 0 < stored.ap50_by_epoch[3] < 1
    assert stored.ap50_by_epoch[4] == stored.ap50
    score = f"{stored.ap50_by_epoch[3]:.3f}"
    monkeypatch.setattr(Manifest, "ap50_by_epoch", {})
    answer = invoke("growth", run, run, "--store", small_store.root)
    assert answer.code == 0, answer.err
    assert answer.out.splitlines()[4].split() == [
        "3",
        "0",
        "0",
        "0",
        "%",
        "0",
        "%",
        f"{score},",
        score,
    ]


def test_growth_refuses_other_images_and_runs_without_checkpoints(tmp_path):
    store = Store(tmp_path)
    a = add_run(store, [(1.0, three())])
    for message, fields in (
        ("are not of one network over the same images", {"data_digest": "c" * 64}),
        ("kept no checkpoints", {}),
    ):
        b = add_run(store, [(1.0, three())], seed=5, **fields)
        with pytest.raises(BadInput, match=message):
            growth(a.key, b.key, store=tmp_path)


def test_how_far_masks_are_apart():
    """One of two cells is lost in B, and a new one is gained; only images with truth are scored."""
    truth = np.array([[1, 1, 0, 2, 2, 0, 0, 0]])
    one_lost = np.where(truth == 2, 0, truth)
    others = np.array([[1, 1, 0, 0, 0, 0, 3, 3]])
    nothing = np.zeros_like(truth)
    truths = [truth, None, nothing]
    moment = Moment(epoch=1, n_differing=1, n_parameters=2, relative_l2=0.1)
    apart = with_masks(moment, truths, [truth, truth, truth], [one_lost, others, truth])
    assert (apart.lost, apart.gained, apart.objects) == (2, 1, (6, 5))
    assert apart.ppm == pytest.approx(1e6 * (2 + 4) / 24)
    assert apart.ap50 == (1, 0.5)
    assert with_masks(moment, [None, nothing], [truth] * 2, [truth] * 2).ap50 is None
