"""A killed training goes on to the same bits and the same ledgers, or says why it cannot."""

import copy
import json
import re
import shutil
from dataclasses import replace

import pytest
import torch

from cellrepro.run.options import RecordingOptions
from cellrepro.run.training_recorder import TrainingRecorder
from cellrepro.store import checkpoints
from cellrepro.store.checkpoints import CHECKPOINTS
from cellrepro.store.ledger import DRAWS, LEDGER, OPERATIONS, LedgerRow
from cellrepro.store.row_tables import read_rows
from samebits import generator_states
from samebits.errors import BadInput
from samebits.generator_states import generators_kept
from samebits.seeds import seed_everything
from samebits.trace.operation_ledger import OperationRow
from samebits.trace.random_draws import Draw
from small_training import ORIGIN, begun, change_byte, change_plain, outcome, walked

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")


def test_back_to_the_middle_of_an_epoch():
    """Its images drawn, in batches, and in an order of their own."""
    options = {"images_per_epoch": 3, "batch_size": 2, "data_seed": 9, "n_epochs": 2}
    network, loop = begun(**options)
    walked(network, loop, to=3)
    assert loop.state().position["position"] > 0
    weights = copy.deepcopy(network.state_dict())
    state, generators = copy.deepcopy(loop.state()), generator_states.capture()
    expected = walked(network, loop)
    for one, again in ((network, loop), begun(seed=78, **options)):
        one.load_state_dict(weights)
        again.restore(copy.deepcopy(state))
        generator_states.restore(generators)
        assert walked(one, again) == expected
    assert json.loads(json.dumps(state.position)) == state.position


def test_a_restored_network_is_in_training():
    """A layer would otherwise never be dropped again: the network is only told at an epoch."""
    network, loop = begun()
    walked(network, loop, to=1)
    other, again = begun()
    other.eval()
    again.restore(loop.state())
    assert all(module.training for module in other.modules())


# -- the recorder ----------------------------------------------------------------------------


class Killed(Exception):
    pass


def kept_training(place, *, name="staged", die=None, level="steps", origin=ORIGIN, **recording):
    """A training as the worker does it; it dies after as many steps as ``die`` says."""
    staged = place / name
    staged.mkdir()
    options = RecordingOptions(**{"checkpoint_every": 1, **recording})
    unfinished = place / "unfinished"
    recorder = TrainingRecorder(options, staged, level=level, seed=3, unfinished=unfinished)

    def ended(epoch):
        recorder.epoch_ended(network, loop)

    network, loop = begun(seed=3, on_epoch=ended, watch=recorder.watch)
    if level != "off":
        recorder.ledger.add("spec", "seed", "aa", detail=3)
    notes = recorder.begin(origin, network, loop)
    while not loop.finished:
        if loop.training.n_steps == die:
            raise Killed
        loop.step()
    if level != "off":
        recorder.ledger.step = loop.training.n_steps
        recorder.ledger.add("masks", "a labels", "bb")
    recorder.finish()
    return outcome(network, loop), recorder.resumed, notes


def killed_training(place, *, die=3, name="first", **options):
    with pytest.raises(Killed):
        kept_training(place, name=name, die=die, **options)


def rows(staged):
    """The ledgers that a repeat was left with."""
    kinds = {LEDGER: LedgerRow, OPERATIONS: OperationRow, DRAWS: Draw}
    return [read_rows(staged / name, kind) for name, kind in kinds.items()]


def files(staged):
    return {path.name: path.read_bytes() for path in staged.iterdir()}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """How an unkilled training ends, its ledgers' rows, and the files it left."""
    place = tmp_path_factory.mktemp("whole")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with generators_kept():
        found, _, _ = kept_training(place, level="ops")
    torch.set_num_threads(threads)
    return found, rows(place / "staged"), files(place / "staged")


@pytest.mark.parametrize(
    ("deaths", "every", "resumed"),
    [([5], 2, [2]), ([2, 5], 1, [1, 2])],
    ids=["checkpoints every 2", "twice"],
)
def test_a_killed_training_leaves_what_an_unkilled_one_does(
    tmp_path, whole_run, deaths, every, resumed
):
    options = {"level": "ops", "checkpoint_every": every}
    for n, die in enumerate(deaths):
        killed_training(tmp_path, name=f"staged {n}", die=die, resume=n > 0, **options)
    found, told, _ = kept_training(tmp_path, resume=True, **options)
    assert (found, told) == (whole_run[0], resumed)
    assert files(tmp_path / "staged") == whole_run[2]


def test_killed_after_its_last_step(tmp_path, whole_run):
    """All is done, but not yet in the store."""
    kept_training(tmp_path, name="first", level="ops")
    assert kept_training(tmp_path, level="ops", resume=True)[:2] == (whole_run[0], [3])
    assert files(tmp_path / "staged") == whole_run[2]


def test_a_training_without_a_seed_goes_on_from_the_weights_it_drew(tmp_path, whole_run):
    """In mode off every process draws other ones."""
    drawn = replace(ORIGIN, spec={**ORIGIN.spec, "seed": None, "model_digest": None})
    killed_training(tmp_path, origin=drawn)
    other = replace(drawn, initial_weights="f" * 64)
    found, resumed, _ = kept_training(tmp_path, resume=True, origin=other, keep_checkpoints="all")
    assert (found, resumed) == (whole_run[0], [1])
    for folder in checkpoints.folders(tmp_path / "staged" / CHECKPOINTS):
        assert checkpoints.read_plain(folder).origin == drawn


def test_without_resume_it_starts_anew(tmp_path, whole_run):
    killed_training(tmp_path)
    assert checkpoints.folders(tmp_path / "unfinished")
    killed_training(tmp_path, name="second", die=1)
    assert checkpoints.folders(tmp_path / "unfinished") == []
    assert kept_training(tmp_path, resume=True) == (whole_run[0], [], [])
    assert files(tmp_path / "staged") == {LEDGER: whole_run[2][LEDGER]}


def test_only_the_last_checkpoint_is_kept_or_all_of_them(tmp_path):
    kept_training(tmp_path, name="one", level="off")
    (last,) = checkpoints.folders(tmp_path / "unfinished")
    assert (last.name, list((tmp_path / "one").iterdir())) == ("epoch-00003", [])
    kept_training(tmp_path, name="all", level="off", keep_checkpoints="all")
    found = checkpoints.folders(tmp_path / "all" / CHECKPOINTS)
    assert [checkpoints.read_plain(folder).epoch for folder in found] == [1, 2, 3]
    for folder in found:  # handed over without being written again
        first = tmp_path / "unfinished" / folder.name / checkpoints.STATE
        assert (folder / checkpoints.STATE).samefile(first)


def test_operations_of_chosen_steps(tmp_path, whole_run):
    """They are judged against float64 as well."""
    kept_training(tmp_path, level="ops", operation_steps=(0, 3))
    whole, found = whole_run[1], rows(tmp_path / "staged")
    assert found[0] == whole[0]
    operations, draws = ([row for row in every if row.step in (0, 3)] for every in whole[1:])
    assert found[2] == draws
    assert any(row.ulp is not None for row in found[1])
    unjudged = {"ulp": None, "limit": None, "problem": None}
    assert [replace(row, **unjudged) for row in found[1]] == operations


def test_an_older_checkpoint_is_taken_and_told(tmp_path, whole_run):
    """The result is the same; that the nearer one was passed over is no secret."""
    killed_training(tmp_path, die=5, level="ops", keep_checkpoints="all")
    change_byte(tmp_path / "unfinished" / "epoch-00002")
    found, resumed, notes = kept_training(tmp_path, level="ops", resume=True)
    assert (found, resumed) == (whole_run[0], [1])
    assert re.search("epoch-00002/state.safetensors changed since .*; an older", notes[0])


def other_generators(unfinished):
    with generators_kept():
        seed_everything(4)
        change_plain(generators=generator_states.capture())(unfinished / "epoch-00001")


@pytest.mark.parametrize(
    ("spoil", "epochs", "message"),
    [
        (lambda unfinished: None, 4, "epochs is 3 there and 4 here"),
        (other_generators, 3, "is not of seed 3: torch's generator has seed 4"),
        (lambda u: shutil.rmtree(u / "rows"), 3, r"holds 0 rows of the ledger, the checkpoint"),
    ],
    ids=["another training", "a different seed", "lost rows"],
)
def test_what_cannot_be_gone_on_with_is_refused(tmp_path, spoil, epochs, message):
    killed_training(tmp_path)
    spoil(tmp_path / "unfinished")
    origin = replace(ORIGIN, spec={**ORIGIN.spec, "epochs": epochs})
    with pytest.raises(BadInput, match=message):
        kept_training(tmp_path, resume=True, origin=origin)
    assert checkpoints.folders(tmp_path / "unfinished")  # still there
