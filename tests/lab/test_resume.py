"""A training that is killed and goes on, and what cannot be asked of one."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest

from cellrepro.lab import process as child
from cellrepro.store import checkpoints
from cellrepro.store.digests import file_digest
from cellrepro.store.ledger import LEDGER
from conftest import _MAIN, SMALL, options


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
def test_training_refuses(small_data, tmp_path, invoke, monkeypatch, options, message):
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
