"""Several ranks in one training: equal to themselves, named when one is lost."""

import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from cellrepro.comparison.spread_axes import RANKS_DIFFER
from cellrepro.model.watches import Watch
from cellrepro.process.process_ends import RunError
from cellrepro.run import data_parallel, rank_exchange
from cellrepro.run.options import TrainingOptions
from cellrepro.run.planning import plan_training
from cellrepro.run.rank_exchange import SECONDS_VARIABLE, Groups, RankTeam
from cellrepro.store.store import Store
from conftest import MAIN, options, run_command
from samebits.errors import BadInput
from small_training import begun

FEW = {"epochs": 3, "images_per_epoch": 2, "batch_size": 2, "learning_rate": 0.01}
FOLLOW = "cellrepro.run.data_parallel:follow"


def command(data, store, *more, **fields):
    return ("train", data, "--json", "--store", store, *more, *options(**{**FEW, **fields}))


# -- the exchange --------------------------------------------------------------------------

EXCHANGE = """
import pickle, sys
from pathlib import Path
import numpy as np, torch
from cellrepro.model.gradient_sum import GradientSum
from cellrepro.run.rank_exchange import RankTeam
from cellrepro.run.data_parallel import in_touch
place, rank = Path(sys.argv[1]), int(sys.argv[2])
generator = np.random.default_rng(rank)
network = torch.nn.ParameterList([torch.zeros(40, 7), torch.zeros(9), torch.zeros(3)])
n_images = [3, 1, 0][rank]
own = torch.from_numpy(generator.normal(size=(40, 7)).astype("float32"))
if n_images:
    network[0].grad = own.clone()
if rank == 1:
    network[1].grad = torch.ones(9)
with in_touch(place / "meeting", rank, 3, torch.device("cpu")) as groups:
    team = RankTeam(rank, 3, groups)
    loss, n = team.share(network, float(rank), n_images)
    said = ""
    team.compare(network)
    if rank == 2:
        network[0].data[0, 0] = 1e-30
    try:
        team.compare(network)
    except Exception as error:
        said = str(error)
    grads = [None if one.grad is None else one.grad.numpy().copy() for one in network]
    total = GradientSum(network)
    total.taken()
    if rank < 2:
        network[0].grad = own
    losses = team.add(total, float(rank) if rank < 2 else None)
    total.leave_mean(2)
left = (loss, n, grads, said, len(team.generators), losses, network[0].grad.numpy())
(place / str(rank)).write_bytes(pickle.dumps(left))
"""


def test_gradients_of_all_ranks_in_their_order(tmp_path):
    """Also of a rank without an image, and of weights that only one rank reached; then a rank with
    different weights is named."""
    command = [sys.executable, "-c", EXCHANGE, str(tmp_path)]
    ranks = [subprocess.Popen([*command, str(rank)]) for rank in range(3)]
    assert [rank.wait(60) for rank in ranks] == [0, 0, 0]
    found = [pickle.loads((tmp_path / str(rank)).read_bytes()) for rank in range(3)]
    first, second = (
        np.random.default_rng(rank).normal(size=(40, 7)).astype("float32") for rank in (0, 1)
    )
    expected = first * np.float32(3 / 4) + second * np.float32(1 / 4)
    for loss, n, grads, said, n_generators, losses, mean in found:
        assert (loss, n, n_generators) == (0.25, 4, 3)
        assert said.startswith("rank 2 has different weights than rank 0")
        assert grads[0].tobytes() == expected.tobytes()
        assert grads[1].tolist() == [0.25] * 9
        assert grads[2] is None
        assert losses == [0.0, 1.0]
        assert mean.tobytes() == ((first + second) / np.float32(2)).tobytes()


LEFT_ALONE = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import torch
from cellrepro.process.calling import in_child
from cellrepro.run.data_parallel import in_touch
from cellrepro.run.data_parallel import follow
with ThreadPoolExecutor(1) as threads:
    dies = threads.submit(in_child, follow, None, label="rank 1")  # without what it needs
    try:
        with in_touch(Path(sys.argv[1]) / "meeting", 0, 2, torch.device("cpu"), {1: dies}):
            print("met")
    except Exception as error:
        print(error)
"""


def test_a_rank_that_dies_before_they_meet_ends_the_meeting(tmp_path):
    """PyTorch alone would wait half an hour for it."""
    command = [sys.executable, "-c", LEFT_ALONE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    assert "rank 1 failed" in done.stdout
    assert "TypeError" in done.stdout


class OfPython310(Exception):
    """As `concurrent.futures.TimeoutError` was, which the builtin does not include."""


def test_ranks_that_meet_late_have_met(monkeypatch):
    """By Python 3.10, too."""
    monkeypatch.setattr("concurrent.futures._base.TimeoutError", OfPython310)

    def late():
        time.sleep(0.5)
        return "met"

    assert data_parallel._met(late, {1: Future()}) == "met"


def test_what_ends_the_meeting_is_raised_and_not_waited_for():
    """Here a time limit of the store, while nothing is known of the other ranks."""

    def ends():
        raise TimeoutError("of the store")

    other = Future()
    other.set_result(None)
    with pytest.raises(TimeoutError, match="of the store"):
        data_parallel._met(ends, {1: other})


def test_a_lost_rank_whose_process_goes_on_is_told(monkeypatch):
    monkeypatch.setattr("concurrent.futures._base.TimeoutError", OfPython310)
    monkeypatch.setattr(rank_exchange, "_SECONDS_TO_END", 0.01, raising=False)
    team = RankTeam(0, 2, Groups(None, None), others={1: Future()})
    with pytest.raises(RunError, match="a rank was lost: no answer"), team._naming_the_lost():
        raise RuntimeError("no answer")


# -- the loop ------------------------------------------------------------------------------


class Seen(Watch):
    def __init__(self):
        self.names, self.crops = [], []

    def batch(self, names, crops, images, targets):
        self.names.append(names)
        self.crops.append(crops)


@pytest.mark.usefixtures("one_thread", "generators_free")
def test_one_order_is_dealt_out_and_augmented_by_each():
    def seen(rank):
        team = SimpleNamespace(rank=rank, n_ranks=2, generators=[], compare=lambda network: None)
        team.share = lambda network, loss, n: (loss, n)
        watch = Seen()
        _, loop = begun(watch=lambda network: watch, team=team, batch_size=4, images_per_epoch=4)
        loop.step()
        return watch

    whole = Seen()
    begun(watch=lambda network: whole, batch_size=4, images_per_epoch=4)[1].step()
    first, second = seen(0), seen(1)
    assert [first.names[0], second.names[0]] == [whole.names[0][::2], whole.names[0][1::2]]
    assert first.crops[0] != second.crops[0]
    assert first.crops[0] == seen(0).crops[0]


# -- asked for -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"ranks": 3, "batch_size": 2}, "give batch_size 3 or more"),
        ({"ranks": 2, "batch_size": 2, "ledger": "ops"}, "give 'steps'"),
        ({"ranks": 0}, "ranks is 0"),
    ],
)
def test_what_ranks_cannot_do(small_data, tmp_path, fields, expected):
    with pytest.raises(BadInput, match=expected):
        plan_training(TrainingOptions(data=small_data, store=tmp_path, **fields))


@pytest.mark.parametrize("given", ["half an hour", "-1", "0", "nan", "inf", "1e9"])
def test_a_time_that_is_no_number_is_refused_before_anything_begins(
    small_data, tmp_path, monkeypatch, given
):
    monkeypatch.setenv(SECONDS_VARIABLE, given)
    options = TrainingOptions(data=small_data, store=tmp_path, batch_size=2)
    expected = f"{SECONDS_VARIABLE} is '{given}'; expected how many seconds"
    with pytest.raises(BadInput, match=expected):
        plan_training(options.model_copy(update={"ranks": 2}))
    assert plan_training(options).spec.ranks == 1  # nobody waits
    monkeypatch.setenv(SECONDS_VARIABLE, "")
    assert plan_training(options.model_copy(update={"ranks": 2})).spec.ranks == 2


def test_one_rank_is_the_spec_of_always(small_data, tmp_path):
    plain = plan_training(TrainingOptions(data=small_data, store=tmp_path, batch_size=2)).spec
    assert (
        plan_training(
            TrainingOptions(data=small_data, store=tmp_path, batch_size=2, ranks=1)
        ).spec.key
        == plain.key
    )
    two = plan_training(
        TrainingOptions(data=small_data, store=tmp_path, batch_size=2, ranks=2)
    ).spec
    assert two.key != plain.key
    assert two.label.endswith("ranks 2")


# -- carried out ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory, small_data):
    """Two repeats of a training on two ranks."""
    store = tmp_path_factory.mktemp("ranks") / "outputs"
    answer = run_command(*command(small_data, store, ranks=2, repeats=2))
    assert answer.code in (0, 1), answer.err
    return store, answer


@pytest.mark.slow
def test_two_ranks_repeat_themselves(two_ranks):
    store, answer = two_ranks
    assert answer.json["verdicts"]["weights"] == "identical"
    manifest = Store(store).find(answer.json["key"]).manifest
    assert manifest.weights.n_changed > 100_000
    assert manifest.training.n_steps == 3


@pytest.mark.slow
def test_other_numbers_of_ranks_differ_and_it_is_said(two_ranks, small_data):
    store, two = two_ranks
    keys = {2: two.json["key"]}
    for ranks in (1, 3):
        answer = run_command(*command(small_data, store, ranks=ranks, repeats=2, batch_size=3))
        assert answer.json["verdicts"]["weights"] == "identical"
        keys[ranks] = answer.json["key"]
    compared = run_command("compare", keys[1], keys[3], "--store", store, "--json")
    assert compared.code == 1
    assert {"spec", "weights"} <= {*compared.json["differs"]}
    assert RANKS_DIFFER in compared.json["notes"]
    diverged = run_command("diverge", keys[1], keys[3], "--store", store, "--json")
    assert "several ranks shared each step" in " ".join(diverged.json["notes"])
    report = run_command("report", "--store", store)
    assert report.code == 0, report.err
    page = (store / "report" / "index.html").read_text()
    assert "numbers of ranks" in page
    assert RANKS_DIFFER in page


@pytest.mark.slow
def test_in_mode_portable_the_number_of_ranks_makes_no_difference(small_data, tmp_path):
    """Also of a last batch in which a rank has no image."""
    fields = {"mode": "portable", "batch_size": 3, "images_per_epoch": 5, "repeats": 1}
    answers = {
        ranks: run_command(*command(small_data, tmp_path, **fields, ranks=ranks))
        for ranks in (1, 2, 3)
    }
    weights = {answer.json["repeats"][0]["weights"] for answer in answers.values()}
    assert len(weights) == 1
    keys = [answer.json["key"] for answer in answers.values()]
    compared = run_command("compare", keys[0], keys[2], "--store", tmp_path, "--json")
    assert "weights" not in compared.json["differs"]
    assert RANKS_DIFFER not in compared.json["notes"]
    assert "promises" not in " ".join(compared.json["notes"])


def started(data, store, *more, **variables):
    """A training on two ranks, and its second rank once it is in the second epoch."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", MAIN, *map(str, command(data, store, *more, ranks=2))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )
    until = time.monotonic() + 90
    while not list(store.glob("unfinished/*/*/*/epoch-*")):
        assert time.monotonic() < until
        time.sleep(0.02)
    family = psutil.Process(process.pid).children(recursive=True)
    (rank,) = [one for one in family if FOLLOW in one.cmdline()]
    return process, rank, family


@pytest.mark.slow
def test_a_killed_rank_is_named_and_the_training_goes_on(two_ranks, small_data, tmp_path):
    store, two = tmp_path / "outputs", two_ranks[1].json
    process, rank, family = started(small_data, store)
    rank.kill()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "rank 1 ended the training: rank 1: the system killed the process" in err
    assert psutil.wait_procs(family, timeout=10)[1] == []
    other = run_command(*command(small_data, store, "--resume", ranks=1, repeats=1))
    assert other.code == 2
    assert "ranks is 2 there and 1 here" in other.err
    answer = run_command(*command(small_data, store, "--resume", ranks=2, repeats=1))
    assert answer.json["repeats"][0]["weights"] == two["repeats"][0]["weights"]
    assert answer.json["repeats"][0]["masks"] == two["repeats"][0]["masks"]
    assert Store(store).runs()[0].repeats[0].manifest.training.resumed_at


@pytest.mark.slow
def test_a_hanging_rank_is_named(small_data, tmp_path):
    process, rank, family = started(small_data, tmp_path / "outputs", **{SECONDS_VARIABLE: "4"})
    rank.send_signal(signal.SIGSTOP)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "rank 1 did not answer" in err
    assert psutil.wait_procs(family, timeout=10)[1] == []
