"""Kill -9 at any moment: no half run, no orphan, and the same command then completes."""

import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest
import yaml

from cellrepro.store.store import Store

pytestmark = pytest.mark.slow

MAIN = "from cellrepro.cli import main; main()"
SMALL = ["--epochs", "4", "--images-per-epoch", "16", "--learning-rate", "0.01"]
N_MOMENTS = 4
WORK = "cellrepro.run.worker:make_repeat"


def start(*arguments, pipe=subprocess.DEVNULL):
    command = [sys.executable, "-P", "-c", MAIN, *map(str, arguments)]
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)


def kill(process):
    """Kill -9 one process alone; returns those it had started, which nobody told to stop."""
    orphans = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    return orphans


def test_killed_trainings(small_store, tmp_path, command, wholeness):
    expected = small_store.answer.json["repeats"]
    n_orphans, generator = 0, random.Random(20261120)
    for number in range(N_MOMENTS):  # a moment in each part of the time that it takes
        store = tmp_path / str(number)
        process = start("train", small_store.data, *SMALL, "--store", store)
        part = 0.6 * small_store.answer.seconds / N_MOMENTS
        time.sleep((number + generator.random()) * part)
        orphans = kill(process)
        n_orphans += len(orphans)
        assert psutil.wait_procs(orphans, timeout=10)[1] == [], "a worker went on by itself"
        for name in wholeness(store):
            key, index = name.split("/")
            manifest = Store(store).run(key).repeats[int(index)].manifest
            assert manifest.weights.digest == expected[int(index)]["weights"]
    assert n_orphans > 1, "no moment hit a worker at work; the test would prove nothing"

    # In the last store one repeat may be there; the same command makes what is missing.
    answer = command("train", small_store.data, *SMALL, "--store", store, "--json")
    assert (answer.code, answer.json["verdict"]) == (0, "identical")
    for made, wanted in zip(answer.json["repeats"], expected, strict=True):
        assert (made["weights"], made["masks"]) == (wanted["weights"], wanted["masks"])
    assert len(wholeness(store)) == 2
    assert {item.name for item in store.iterdir()} == {"runs", "data"}, "swept and tidy"


def test_a_killed_worker_is_no_run(small_data, tmp_path, listing):
    """The other way round: the worker is killed, as the system does when memory is short."""
    store = tmp_path / "outputs"
    process = start("train", small_data, "--store", store, *SMALL, pipe=subprocess.PIPE)
    workers, until = [], time.monotonic() + 60
    while not workers and time.monotonic() < until:
        time.sleep(0.05)
        with suppress(psutil.Error):  # one of them has just ended
            children = psutil.Process(process.pid).children(recursive=True)
            workers = [child for child in children if WORK in child.cmdline()]
    workers[0].send_signal(signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert out == ""
    assert "cellrepro: train repeat 1/2: the system killed the process (signal 9)" in err
    assert list(tmp_path.iterdir()) == []


def test_a_killed_grid(small_store, tmp_path, notebook, command, wholeness):
    """The grid and the kernel that trains: both end, nothing is stored."""
    path, store = tmp_path / "grid.yaml", tmp_path / "outputs"
    fixed = {"data": str(small_store.data), "epochs": 4, "images_per_epoch": 16}
    path.write_text(yaml.safe_dump({"notebook": str(notebook), "fixed": fixed}))
    process = start("grid", path, "--store", store)
    until = time.monotonic() + 120
    while not list(store.glob("unfinished/*/*/*/epoch-*")) and time.monotonic() < until:
        time.sleep(0.02)
    orphans = kill(process)
    assert len(orphans) == 1, "the kernel computes, and nothing else is started for a repeat"
    assert psutil.wait_procs(orphans, timeout=15)[1] == [], "it went on by itself"
    assert wholeness(store) == []
    answer = command("grid", path, "--store", store, "--json")
    assert answer.code == 0, answer.err
    (run,) = answer.json["runs"]
    assert (run["status"], run["key"]) == ("done", small_store.key)
    repeat = Store(store).find(f"{run['key']}/0")
    assert repeat.manifest.weights.digest == small_store.answer.json["repeats"][0]["weights"]
    assert repeat.manifest.training.resumed_at, "it began anew instead of going on"
    assert {item.name for item in store.iterdir()} == {"runs", "data"}
