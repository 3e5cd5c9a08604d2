"""A first network is trained until it finds cells: it is the run of as many epochs, bit for bit."""

import signal
import subprocess
import sys
import time
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from cellrepro.images.folder import read_folder
from cellrepro.images.synthetic_sets import labelled_nuclei
from cellrepro.model.epoch_schedule import learning_rates
from cellrepro.run import train, training_until_found
from cellrepro.run.until_found import (
    FOUND,
    LAST_FREE_EPOCH,
    LOOKS,
    MOST_EPOCHS,
    Goal,
    Seeker,
    some_of,
)
from cellrepro.store.store import Store

N_DRAWS = 4
ANY = Goal(score=0.0)
"""Reached at the first look."""


@pytest.fixture
def few_draws(monkeypatch):
    monkeypatch.setattr(training_until_found, "DRAWS_PER_EPOCH", N_DRAWS)


def found(data, store, goal=ANY):
    return training_until_found.train_until_found(data, store=store, goal=goal, quiet=True)


def digests(repeat):
    """Of all that a training leaves, but the times in its manifest."""
    return repeat.manifest.files


@pytest.mark.slow
def test_is_the_run_of_as_many_epochs(few_draws, small_data, tmp_path, wholeness):
    outcome = found(small_data, tmp_path / "found")
    (repeat,) = outcome.repeats
    until = repeat.manifest.training.until
    assert (until.ended, [look.epochs for look in until.looks]) == ("score", [LOOKS[0]])
    assert until.looks[0].train >= 0
    assert until.looks[0].test >= 0
    asked = {"epochs": LOOKS[0], "images_per_epoch": N_DRAWS, "repeats": 1, "quiet": True}
    plain = train.train(small_data, store=tmp_path / "plain", **asked)
    assert outcome.key == plain.key == repeat.spec.key
    assert digests(repeat) == digests(plain.repeats[0])
    assert repeat.manifest.masks_digest == plain.repeats[0].manifest.masks_digest
    assert len(wholeness(tmp_path / "found")) == 1
    assert not Store(tmp_path / "found").unfinished_specs()


@pytest.mark.slow
def test_is_made_once(few_draws, monkeypatch, small_data, tmp_path):
    """What was stored for the same goal is taken; another goal is another training."""
    first = found(small_data, tmp_path)
    monkeypatch.setattr(
        training_until_found, "carry_out", lambda *plan, **options: pytest.fail("trained")
    )
    assert found(small_data, tmp_path).repeats == first.repeats
    with pytest.raises(pytest.fail.Exception):
        found(small_data, tmp_path, Goal(score=0.1))


@pytest.mark.slow
def test_time_is_over(few_draws, small_data, tmp_path):
    """The training ends after the fewest epochs that train something, and is stored."""
    outcome = found(small_data, tmp_path, Goal(score=1.1, seconds=0))
    (repeat,) = outcome.repeats
    assert (repeat.manifest.training.until.ended, repeat.spec.epochs) == ("time", 2)


KILLED = """\
import sys
from cellrepro.run import training_until_found
from cellrepro.run.until_found import Goal
training_until_found.DRAWS_PER_EPOCH = int(sys.argv[3])
training_until_found.train_until_found(sys.argv[1], store=sys.argv[2], goal=Goal(score=0.0))
"""


@pytest.mark.slow
def test_a_killed_one_goes_on(few_draws, small_data, tmp_path):
    expected = found(small_data, tmp_path / "whole").repeats[0]
    store = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, small_data, store, N_DRAWS]
    with subprocess.Popen([*map(str, command)], stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 120
        while not list(store.glob("unfinished/*/*/*/epoch-*")) and time.monotonic() < until:
            time.sleep(0.01)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
    with suppress(psutil.Error):
        psutil.wait_procs(children, timeout=15)
    assert not Store(store).runs()
    repeat = found(small_data, store).repeats[0]
    assert repeat.manifest.training.resumed_at
    assert repeat.name == expected.name
    assert repeat.manifest.weights == expected.manifest.weights
    assert repeat.manifest.masks_digest == expected.manifest.masks_digest


def seeker(train_scores, test_scores=None):
    """One over scores that are given in order, with or without test images."""
    images = labelled_nuclei(1)
    folder = SimpleNamespace(train=images, test=images if test_scores is not None else ())
    scores = iter(
        train_scores
        if test_scores is None
        else [score for both in zip(train_scores, test_scores, strict=True) for score in both]
    )
    sentences = []
    return Seeker(FOUND, folder, score=lambda images: next(scores), say=sentences.append), sentences


@pytest.mark.parametrize(
    ("train", "test", "expected"),
    [
        ([0.2, 0.5], None, LOOKS[1]),
        ([0.6, 0.7, 0.7], [0.1, 0.4, 0.5], LOOKS[2]),
        (
            [None, 0.4, 0.9],
            [
                None,
                0.9,
                None,
            ],
            None,
        ),
    ],
    ids=["no test images", "test images lag behind", "nothing drawn is nothing found"],
)
def test_ends_when_both_find_cells(train, test, expected):
    train = train + [0.0] * (len(LOOKS) - len(train))
    test = None if test is None else test + [0.0] * (len(LOOKS) - len(test))
    watched, sentences = seeker(train, test)
    ends = [n for n in range(1, MOST_EPOCHS + 1) if watched.is_enough(n)]
    assert ends[:1] == ([] if expected is None else [expected])
    assert watched.record.ended == ("epochs" if expected is None else "score")
    assert "score (AP@0.5) " in sentences[0]


def test_epochs_that_belong_together(monkeypatch):
    """Where the time left is too short for the last epochs, none of them is begun."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    ends = []
    for seconds_of_an_epoch in (3.9, 4.1):
        watched, _ = seeker([0.0] * len(LOOKS))
        start = clock.now
        for n in range(1, MOST_EPOCHS + 1):
            clock.now = start + n * seconds_of_an_epoch
            if watched.is_enough(n):
                break
        ends.append((n, watched.record.ended))
    assert ends == [(MOST_EPOCHS, "epochs"), (LAST_FREE_EPOCH, "time")]


def test_rates_do_not_depend_on_the_epochs_to_come():
    whole = learning_rates(MOST_EPOCHS, 1e-3)
    for n in range(1, LAST_FREE_EPOCH + 1):
        assert np.array_equal(learning_rates(n, 1e-3), whole[:n])
    assert len(whole) == MOST_EPOCHS


def test_looks_at_few_pixels(small_data):
    """At most twelve images, fewer of large ones, and at least one."""
    small = labelled_nuclei(1) * 30
    assert len(some_of(small)) == 12
    large = [SimpleNamespace(image=np.zeros((2048, 2048, 3), np.uint8))] * 9
    assert len(some_of(large)) == 1
    assert some_of(()) == ()
    assert len(some_of(read_folder(small_data, to_train=True).train)) == 3
