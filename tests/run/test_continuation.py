"""Beyond a finished training: one long run where the schedule allows it, else told and named."""

import shutil

import pytest

from cellrepro.model.epoch_schedule import learning_rates
from cellrepro.run.options import TrainingOptions
from cellrepro.run.planning import plan_training
from cellrepro.store.store import Store
from command_line import carried_out
from conftest import options, run_command
from samebits.errors import BadInput

FIRST, LONG = 3, 5  # epochs
SHORT = {"images_per_epoch": 1, "profile": "cpu-1thread", "repeats": 1, "checkpoint_every": 0}


@pytest.fixture(scope="module")
def finished(small_data, tmp_path_factory):
    """A store with a few epochs, which kept their last checkpoint, and with more in one go."""
    root = tmp_path_factory.mktemp("continued") / "outputs"
    for epochs, kept in ((FIRST, "last"), (LONG, "none")):
        asked = options(epochs=epochs, store=root, keep_checkpoints=kept, **SHORT)
        code, _, problems = carried_out("train", small_data, "--json", *asked)
        assert code in (0, 1), problems
    short, long = sorted(Store(root).runs(), key=lambda run: run.spec.epochs)
    return root, short.repeats[0], long.repeats[0]


def test_it_ends_as_one_long_training(finished, small_data, invoke):
    """Weights, masks, ledger and key; asked for again it is there."""
    root, short, long = finished
    for _ in range(2):
        asked = options(epochs=LONG, store=root, checkpoint_every=0)
        answer = invoke("train", small_data, "--continue", short.name, *asked)
        assert answer.code in (0, 1), answer.err
    _, again = Store(root).find_run(long.spec.key).repeats
    assert again.manifest.training.continued_from == short.name
    for name in ("weights.safetensors", "ledger.parquet"):
        assert (again.folder / name).read_bytes() == (long.folder / name).read_bytes()
    assert again.manifest.masks_digest == long.manifest.masks_digest


def test_the_plan_is_that_of_one_long_training(finished, small_data):
    root, short, _ = finished
    planned = plan_training(
        TrainingOptions(data=small_data, continued_from=short.name, store=root, epochs=100)
    )
    assert (planned.spec.continued_from, planned.recording.resume) == (None, True)
    same = {name: SHORT[name] for name in ("images_per_epoch", "profile")}
    assert (
        planned.spec.key
        == plan_training(TrainingOptions(data=small_data, **same, store=root, epochs=100)).spec.key
    )


@pytest.mark.slow
def test_another_schedule_is_told_and_has_a_key_of_its_own(small_data, tmp_path):
    """In 100 epochs the last 50 are halved, step by step; the 51st was not."""
    asked = options(store=tmp_path / "o", keep_checkpoints="last", **SHORT)
    assert run_command("train", small_data, "--epochs", 51, *asked).code in (0, 1)
    (first,) = Store(tmp_path / "o").runs()
    name = first.repeats[0].name
    answer = run_command(
        *("train", small_data, "--continue", name, "--epochs", 100, "--store", tmp_path / "o")
    )
    assert f"1 epoch of {name} (51 to 51) had a different learning rate" in answer.err
    other = next(run for run in Store(tmp_path / "o").runs() if run.spec.key != first.key)
    assert other.spec.continued_from == name
    rates = other.repeats[0].manifest.training.learning_rates
    assert rates[50] == 1e-3  # as it was
    assert rates[51:] == learning_rates(100, 1e-3)[51:].tolist()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"epochs": FIRST}, f"epochs is {FIRST} there and {FIRST} here, expected more"),
        ({"epochs": LONG, "seed": 3}, "seed is 0 there and 3 here"),
        ({"epochs": LONG, "weight_decay": 0.3}, "weight_decay is 0.1 there and 0.3 here"),
        ({"epochs": LONG, "continued_from": "long"}, "is no training that kept the checkpoint"),
        ({"epochs": LONG, "keep_checkpoints": "first"}, "expected none, last or all"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_continued_is_refused(finished, small_data, given, expected):
    root, short, long = finished
    name = long.name if "continued_from" in given else short.name
    with pytest.raises(BadInput, match=expected):
        plan_training(
            TrainingOptions(data=small_data, **{**given, "store": root, "continued_from": name})
        )


def test_an_option_that_is_given_is_never_passed_over(finished, small_data, invoke):
    """Also where it has the default that another training had not."""
    root, short, _ = finished
    asked = ("train", small_data, "--continue", short.name, "--epochs", LONG, "--store", root)
    refused = invoke(*asked, "--profile", "cpu")
    assert (refused.code, "profile is 'cpu-1thread' there and 'cpu' here" in refused.err) == (
        2,
        True,
    )
    assert invoke(*asked, "--repeats", 2).code == 2


def test_a_changed_checkpoint_is_refused(finished, small_data, tmp_path):
    root, short, _ = finished
    other = shutil.copytree(root, tmp_path / "outputs")
    (state,) = (other / "runs").glob("*/*/*/checkpoints/*/state.safetensors")
    content = bytearray(state.read_bytes())
    content[-1] ^= 1
    state.chmod(0o600)
    state.write_bytes(content)
    with pytest.raises(BadInput, match="changed since it was written"):
        plan_training(
            TrainingOptions(data=small_data, continued_from=short.name, store=other, epochs=LONG)
        )
