"""A recorded run planned again where it was not made: the same spec, and nothing else."""

import shutil

import pytest
import yaml

from cellrepro.exchange.input_lookup import NETWORKS
from cellrepro.exchange.plan_again import RecordedRun, plan_again
from cellrepro.exchange.replay_request import ReplayRequest
from cellrepro.run.function_segmenter import plan_function
from cellrepro.run.options import SegmentationOptions, TrainingOptions, WrapOptions
from cellrepro.run.planning import plan_segmentation, plan_training
from cellrepro.run.program_segmenter import plan_program
from cellrepro.store.store import Store
from samebits.errors import BadInput, NotPossibleHere
from stores import add_run, three


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "outputs")


@pytest.fixture
def elsewhere(small_data, tmp_path):
    """The same images in a folder of another name."""
    return shutil.copytree(small_data, tmp_path / "0123456789abcdef")


def recorded(spec):
    return RecordedRun(f"{spec.key}/basel-01234567/0", spec)


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
