"""A run computed again where it was not made: the same spec, an honest step of the ladder."""

import json
import shutil
import subprocess
from types import SimpleNamespace

import pytest
import yaml
from safetensors.numpy import load_file, save_file

import cellrepro
from cellrepro.comparison.verdicts import Verdict
from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.exchange.input_lookup import NETWORKS
from cellrepro.exchange.passport_comparison import DigestComparison, environment_differences
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.plan_again import RecordedRun, plan_again
from cellrepro.exchange.receipt import EnvironmentDifference
from cellrepro.exchange.replay import Replay
from cellrepro.exchange.replay_request import ReplayRequest
from cellrepro.exchange.signed.signer import AGENT_VARIABLE
from cellrepro.run.function_segmenter import plan_function
from cellrepro.run.options import SegmentationOptions, TrainingOptions, WrapOptions
from cellrepro.run.planning import plan_segmentation, plan_training
from cellrepro.run.program_segmenter import plan_program
from cellrepro.store.store import Store
from conftest import SMALL
from stores import add_run, squares, three


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "outputs")


@pytest.fixture
def elsewhere(small_data, tmp_path):
    """The same images in a folder of another name."""
    return shutil.copytree(small_data, tmp_path / "0123456789abcdef")


def recorded(spec):
    return RecordedRun(f"{spec.key}/basel-01234567/0", spec)


# -- the same spec -------------------------------------------------------------------------


TRAININGS = {
    "usual": {},
    "every option": {
        "seed": 3,
        "data_seed": 7,
        "epochs": 3,
        "batch_size": 2,
        "learning_rate": 0.02,
        "images_per_epoch": 9,
        "weight_decay": 0.2,
        "min_train_masks": 1,
        "rescale": True,
        "scale_range": 0.25,
        "normalize": False,
        "ledger": "ops",
        "loose": "index_put",
        "profile": "cpu-1thread",
    },
    "images as they are": {"augmentation": False},
    "nothing seeded": {"mode": "off"},
    "ranks": {"ranks": 2, "batch_size": 4},
    "portable": {"mode": "portable"},
    "variables": {"profile": "cpu+MKL_CBWR=COMPATIBLE"},
}


@pytest.mark.parametrize("options", TRAININGS.values(), ids=TRAININGS)
def test_a_training_is_asked_for_as_it_was(small_data, elsewhere, store, options):
    """Option by option; the name of the folder here is not part of it."""
    spec = plan_training(TrainingOptions(data=small_data, store=store.root, **options)).spec
    plan = plan_again(recorded(spec), ReplayRequest(elsewhere), store)
    assert (plan.spec, plan.spec.key) == (spec, spec.key)
    assert plan.request.data == elsewhere.resolve()


def test_a_profile_of_a_file_is_not_needed(small_data, store, tmp_path):
    """The spec has all of it."""
    own = tmp_path / "mine.yaml"
    own.write_text(yaml.safe_dump({"threads": 3, "environment": {"MKL_CBWR": "AVX2"}}))
    options = TrainingOptions(data=small_data, profile=str(own), store=store.root)
    spec = plan_training(options).spec
    own.unlink()
    plan = plan_again(recorded(spec), ReplayRequest(small_data), store)
    assert plan.spec == spec
    assert plan.profile.threads == 3


def test_a_segmentation_is_asked_for_as_it_was(small_data, elsewhere, store, tmp_path):
    """By the digest of its network, wherever that lies now."""
    repeat = add_run(store, [(1.0, three())]).repeats[0]
    network = tmp_path / "mine.safetensors"
    shutil.copy(repeat.weights, network)
    options = SegmentationOptions(
        data=small_data,
        model=str(network),
        settings={"diameter": 25, "normalize.sharpen": 2, "flow_threshold": 0.6},
        store=store.root,
    )
    spec = plan_segmentation(options).spec
    known = recorded(spec)
    empty = Store(tmp_path / "empty")
    with pytest.raises(BadInput, match=r"the network mine.safetensors .* --model FILE"):
        plan_again(known, ReplayRequest(elsewhere), empty)
    with pytest.raises(BadInput, match="is not the network that"):
        plan_again(known, ReplayRequest(elsewhere, model="tiny"), empty)
    moved = network.rename(tmp_path / "moved.safetensors")
    assert plan_again(known, ReplayRequest(elsewhere, model=str(moved)), empty).spec == spec
    sent = empty.root / NETWORKS / f"{spec.model_digest}.safetensors"
    sent.parent.mkdir(parents=True)
    moved.rename(sent)
    assert plan_again(known, ReplayRequest(elsewhere), empty).spec == spec


def test_nothing_that_was_sent_is_executed(small_data, elsewhere, store, tmp_path, monkeypatch):
    """Whoever replays a program names it, and it must be the same."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def cells(image):\n    return image > 9\n")
    words = ["python", "mine.py", "{image}", "{masks}"]
    program = plan_program(WrapOptions(data=small_data, mode="fast", store=store.root), words).spec
    function = plan_function(WrapOptions(data=small_data, store=store.root), "mine.py:cells").spec
    for spec, command in ((program, words), (function, ["mine.py:cells"])):
        with pytest.raises(BadInput, match="nothing that was sent is executed"):
            plan_again(recorded(spec), ReplayRequest(elsewhere), store)
        assert (
            plan_again(recorded(spec), ReplayRequest(elsewhere, command=command), store).spec
            == spec
        )
    (tmp_path / "mine.py").write_text("def cells(image):\n    return image > 8\n")
    for spec, command in ((program, words), (function, ["mine.py:cells"])):
        with pytest.raises(BadInput, match=r"the command is not the one of .* model_digest"):
            plan_again(recorded(spec), ReplayRequest(elsewhere, command=command), store)


def test_what_cannot_be_asked_for_again(small_data, store, tmp_path):
    spec = plan_training(TrainingOptions(data=small_data, store=store.root)).spec
    continued = spec.model_copy(update={"continued_from": "0/laptop/0"})
    with pytest.raises(NotPossibleHere, match="checkpoints are not sent"):
        plan_again(recorded(continued), ReplayRequest(small_data), store)
    with pytest.raises(BadInput, match=r"the images of .* are not here"):
        plan_again(recorded(spec), ReplayRequest(), store)
    (tmp_path / "other").mkdir()
    with pytest.raises(BadInput, match="does not hold the images"):
        plan_again(recorded(spec), ReplayRequest(tmp_path / "other"), store)
    with pytest.raises(BadInput, match="unknown profile"):
        plan_again(recorded(spec), ReplayRequest(small_data, profile="none"), store)
    newer = spec.model_copy(update={"bsize": 128})  # as a version after this one may allow
    with pytest.raises((BadInput, NotPossibleHere)):
        plan_again(recorded(newer), ReplayRequest(small_data), store)


def test_a_path_of_another_computer_is_not_looked_at(small_data, store):
    """It would be asked for the reader's password."""
    spec = plan_training(TrainingOptions(data=small_data, store=store.root)).spec
    there = RecordedRun("a/b/0", spec, data_path=r"\\server\share", model_path="//server/share")
    with pytest.raises(BadInput, match="are not here"):
        plan_again(there, ReplayRequest(), store)


# -- by digests alone ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weight", "masks", "verdict", "n_labels", "n_outlines"),
    [
        (1.0, three(), Verdict.IDENTICAL, 3, 3),
        (1.0, three(img_c=squares(numbers=(7, 3))), Verdict.SAME_OBJECTS, 2, 3),
        (1.0, three(img_b=squares(grown=8)), Verdict.DIFFERENT, 2, 2),
        (2.0, three(), Verdict.DIFFERENT, 3, 3),
    ],
    ids=["equal", "renumbered", "another outline", "other weights"],
)
def test_the_step_by_digests(store, weight, masks, verdict, n_labels, n_outlines):
    """What a passport without its run can tell."""
    run = add_run(store, [(1.0, three()), (weight, masks)])
    original, again = (passport_of(repeat) for repeat in run.repeats)
    digests = DigestComparison.of(original, again)
    assert digests.verdict == verdict
    assert (digests.n_equal_labels, digests.n_equal_outlines) == (n_labels, n_outlines)


def test_environments_are_held_to_each_other(store):
    here = add_run(store, [(1.0, three())]).repeats[0]
    there = add_run(store, [(1.0, three())], manifest={"threads": 16}, seed=1).repeats[0]
    same = environment_differences(passport_of(here), passport_of(here))
    assert same == {}
    differing = environment_differences(passport_of(there), passport_of(here))
    assert (differing["threads"].theirs, differing["threads"].here) == (16, 2)


def test_a_replay_says_what_it_is_over_and_what_is_not_the_same(store):
    run = add_run(store, [(1.0, three()), (2.0, three(squares(grown=3)))])
    original, again = (passport_of(repeat) for repeat in run.repeats)
    replay = Replay(
        verdict=Verdict.DIFFERENT,
        environment={"threads": EnvironmentDifference(16, None)},
        reasons=("the run itself is not in the store",),
        _passport=original,
        _repeat=run.repeats[1],
        _digests=DigestComparison.of(original, again),
        _comparison=None,
    )
    document = json.loads(replay.as_json())
    assert (document["original"], document["repeat"]) == (original.name, again.name)
    assert (document["verdict"], document["weights_equal"]) == ("different", False)
    assert (document["images"], document["equal_labels"]) == (3, replay.equal_labels)
    assert document["changed_objects"] is document["first"] is None
    assert document["environment"] == {"threads": {"theirs": 16, "here": None}}
    assert replay.exit_code == 1
    first, *others = replay.as_text().splitlines()
    assert first.startswith(f"different: {original.name} computed again as {again.name}; weights")
    assert others == [
        "  not the same there and here:",
        "    threads: 16 there, nothing here",
        "  the run itself is not in the store",
    ]


# -- computed again ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sent(tmp_path_factory, small_data):
    """A training made in a folder that is gone afterwards; its file, and a signer."""
    folder = tmp_path_factory.mktemp("sent")
    images = shutil.copytree(small_data, folder / "nuclei")
    outcome = cellrepro.train(images, repeats=1, store=folder / "theirs", quiet=True, **SMALL)
    file = folder / "run.cellrepro.zip"
    options = {"store": folder / "theirs", "quiet": True}
    cellrepro.export_runs(outcome.key, file, weights=True, images=True, **options)
    passport = folder / "run.intoto.jsonl"
    cellrepro.export_passports(outcome.key, passport, store=folder / "theirs")
    shutil.rmtree(folder / "theirs")
    shutil.rmtree(images)
    return SimpleNamespace(key=outcome.key, file=file, passport=passport)


@pytest.mark.slow
def test_a_run_that_was_sent_is_computed_again(sent, tmp_path, monkeypatch):
    """Without the folder in which it was made: identical, with a signed receipt."""
    monkeypatch.delenv(AGENT_VARIABLE, raising=False)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "k"], check=True
    )
    receipt = tmp_path / "ours.intoto.jsonl"
    found = cellrepro.verify(
        sent.file,
        replay=True,
        receipt=receipt,
        sign=tmp_path / "k.pub",
        store=tmp_path / "ours",
        quiet=True,
    )
    assert found.verdict == "identical"
    assert found.replay.repeat.endswith("/1")  # a new one, whatever came
    assert found.replay.environment == {}
    listed = cellrepro.verify(receipt, store=tmp_path / "ours", quiet=True)
    ((got,),) = [one.receipts for one in listed.repeats]
    assert (got.verdict, got.signature.state) == ("identical", "unknown")
    kept = cellrepro.verify(sent.key, store=tmp_path / "ours", quiet=True)
    assert [len(one.receipts) for one in kept.repeats] == [1, 0]
    assert cellrepro.check_store(tmp_path / "ours").problems == []


@pytest.mark.slow
def test_a_different_profile_gives_the_honest_step(sent, tmp_path):
    """With the place where the two part, and what of the environment differs."""
    found = cellrepro.verify(
        sent.file, replay=True, profile="cpu-avx2", store=tmp_path / "ours", quiet=True
    )
    replay = found.replay
    if replay.verdict == Verdict.IDENTICAL:
        pytest.skip("this processor computes the same bits under both profiles")
    assert found.verdict == "different"
    first = replay.first
    assert first.stage in ("forward", "backward", "update")
    assert first.op.startswith("aten.")
    assert "variables.ATEN_CPU_CAPABILITY" in replay.environment
    assert "cpu-avx2" in replay.reasons[0]


@pytest.mark.slow
def test_a_passport_alone_is_computed_again(sent, small_data, tmp_path):
    """The images are given; the verdict is that of the digests."""
    found = cellrepro.verify(
        sent.passport, replay=True, data=small_data, store=tmp_path / "ours", quiet=True
    )
    assert (found.verdict, found.replay.repeat[-2:]) == ("identical", "/0")


@pytest.mark.slow
def test_a_changed_bit_of_the_weights_is_found(sent, tmp_path):
    """And nothing is computed again to be compared with them."""
    store = Store(tmp_path / "ours")
    cellrepro.import_runs(sent.file, store=store.root, quiet=True)
    repeat = store.run(sent.key).repeats[0]
    path = repeat.folder / "weights.safetensors"
    tensors = load_file(path)
    name = next(iter(tensors))
    tensors[name] = tensors[name].copy()
    tensors[name].flat[0] += 1
    path.unlink()
    save_file(tensors, path)
    found = cellrepro.verify(sent.key, replay=True, store=store.root, quiet=True)
    assert (found.verdict, found.replay) == ("different", None)
    assert [one.where for one in found.problems] == [f"runs/{repeat.name}/weights.safetensors"]


@pytest.mark.slow
def test_only_a_replay_tells_a_made_up_passport(sent, small_data, tmp_path):
    """One that contradicts nothing, and says what never came out."""
    passport = tmp_path / "forged.intoto.jsonl"
    document = json.loads(sent.passport.read_text())
    document["subject"][0]["digest"]["sha256"] = "1" * 64
    passport.write_text(json.dumps(document) + "\n")
    options = {"store": tmp_path / "ours", "quiet": True}
    assert cellrepro.verify(passport, **options).verdict == "vacuous"
    found = cellrepro.verify(passport, replay=True, data=small_data, **options)
    assert (found.verdict, found.replay.weights_equal) == ("different", False)
    assert "only its passport" in " ".join(found.replay.reasons)
    document["subject"] = document["subject"][1:]  # of a training, and it names no weights
    passport.write_text(json.dumps(document) + "\n")
    options["store"] = tmp_path / "new"
    found = cellrepro.verify(passport, replay=True, data=small_data, **options)
    assert (found.verdict, found.replay.weights_equal) == ("different", False)
