"""Finished runs in MLflow, of a real server; and what is said where there is none."""

import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from importlib import util
from pathlib import Path

import pytest

import cellrepro
from cellrepro import lab_elsewhere
from cellrepro.exchange import tracking
from cellrepro.exchange.passport_files import export_passports
from cellrepro.extras import NeedsExtra, needs
from cellrepro.store.store import Store
from samebits.digests import file_digest
from samebits.errors import BadInput
from stores import add_run, some_training, squares, three

ROOT = Path(__file__).parents[2]

needs_no_client = pytest.mark.skipif(
    util.find_spec("mlflow") is not None, reason="the client is installed"
)


@needs_no_client
def test_without_the_client_the_message_names_the_extra(tmp_path, invoke):
    run = add_run(Store(tmp_path), [(1.0, three())])
    with pytest.raises(NeedsExtra, match=r'needs mlflow.*pip install "cellrepro\[mlflow\]"'):
        cellrepro.track(f"{run.key}/0", store=tmp_path)
    answer = invoke("track", run.key, "--store", tmp_path)
    assert (answer.code, answer.out) == (3, "")
    assert 'pip install "cellrepro[mlflow]"' in answer.err


def test_a_lab_elsewhere_is_not_asked_for_what_it_does_not_bring(monkeypatch):
    def never(*_):
        raise AssertionError("handed over")

    class Elsewhere:
        is_here = False

    monkeypatch.setattr("cellrepro.process.lab.known_lab", Elsewhere)
    monkeypatch.setattr(lab_elsewhere, "handed_to", never)

    def work():
        raise needs(["mlflow"], what="this")

    with pytest.raises(NeedsExtra, match="mlflow"):
        lab_elsewhere.carried_out("compare", {}, work=work)


@pytest.mark.parametrize(
    ("references", "options", "said"),
    [
        ([], {}, "no run was named"),
        (["{key}/3"], {}, "repeat 3 of {key}"),
        (["{key}/0", "nothing"], {}, "it names no run"),
        (["{key}/0"], {"notebook": True}, "has no notebook.ipynb; leave --notebook out"),
    ],
    ids=["none", "no such repeat", "no such run", "no notebook"],
)
def test_wrong_references_are_refused_before_the_tracker_is_asked(
    references, options, said, tmp_path
):
    run = add_run(Store(tmp_path), [(1.0, three())])
    named = [reference.format(key=run.key) for reference in references]
    with pytest.raises(BadInput, match=said.format(key=run.key)):
        cellrepro.track(*named, store=tmp_path, **options)


def test_a_damaged_run_is_not_logged(tmp_path):
    run = add_run(Store(tmp_path), [(1.0, three())])
    path = run.repeats[0].folder / "weights.safetensors"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(BadInput, match=r"weights\.safetensors"):
        cellrepro.track(run.key, store=tmp_path)


def test_variables_are_borrowed(monkeypatch):
    """Telemetry is off but for who set it, and nothing is left."""
    for name in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    with tracking.variables_of_the_client():
        assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert dict(os.environ) == before
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "false")
    with tracking.variables_of_the_client():
        assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "false"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "false"


def blocks_of_the_page():
    """The Python on docs/trackers.md."""
    page = (ROOT / "docs" / "trackers.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


# -- the real server, in an environment of its own -----------------------------------------

_READ_BACK = """
import json, sys
from mlflow import MlflowClient

client = MlflowClient(sys.argv[1])
experiments = client.search_experiments()
found = []
for run in client.search_runs([e.experiment_id for e in experiments]):
    history = lambda name: [(m.step, str(m.value)) for m in
                            client.get_metric_history(run.info.run_id, name)]
    found.append({
        "id": run.info.run_id,
        "experiment": client.get_experiment(run.info.experiment_id).name,
        "status": run.info.status,
        "params": run.data.params,
        "tags": run.data.tags,
        "train_loss": history("train_loss"),
        "learning_rate": history("learning_rate"),
        "metrics": {name: str(value) for name, value in run.data.metrics.items()},
        "files": [a.path for a in client.list_artifacts(run.info.run_id)],
    })
print(json.dumps(found))
"""
_STEPS = """
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1])
events.Reload()
print([value.step for value in events.Tensors("train_loss")])
"""
_BEGIN = """
import sys
from mlflow import MlflowClient
from mlflow.entities import Metric

client = MlflowClient(sys.argv[1])
experiment = client.create_experiment("cells")
run = client.create_run(experiment, tags={"cellrepro.manifest": sys.argv[2]})
client.log_batch(run.info.run_id, metrics=[Metric("train_loss", 2.0, int(sys.argv[3]), 0)])
print(run.info.run_id)
"""


def _run(*command, check=True, **variables):
    environment = {**os.environ, **variables, "MLFLOW_DISABLE_TELEMETRY": "true"}
    environment.pop("PYTHONPATH", None)
    words = [*map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, check=check, env=environment)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The Python of an environment with MLflow and the core of this package."""
    if util.find_spec("uv") is None:
        pytest.skip("needs uv")
    uv = (sys.executable, "-m", "uv")
    folder = tmp_path_factory.mktemp("mlflow") / "environment"
    _run(*uv, "venv", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    wheels = folder / "wheels"
    _run(*uv, "build", "--wheel", "--out-dir", wheels, ROOT)
    (wheel,) = wheels.glob("*.whl")
    wanted = (f"cellrepro[mlflow] @ file://{wheel}", "mlflow>=3.7", "tensorboard", "wandb")
    done = _run(*uv, "pip", "install", "--python", python, *wanted, check=False)
    if done.returncode:
        pytest.skip(f"no package registry answers: {done.stderr[-200:]}")
    return python


@pytest.fixture
def server(python, tmp_path):
    """The address of a server with a database of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path / "server"
    folder.mkdir()
    words = [python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", port]
    words += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--workers", 1]
    words += ["--artifacts-destination", folder / "artifacts"]
    without = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    environment = {**os.environ, **without}
    environment.pop("PYTHONPATH", None)
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [*map(str, words)],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as process,
    ):
        address = f"http://127.0.0.1:{port}"
        try:
            _wait_for(f"{address}/health", process)
            yield address
        finally:
            os.killpg(process.pid, signal.SIGTERM)


def _wait_for(url, process):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError("the server does not answer")


@pytest.mark.slow
def test_runs_of_a_store_in_a_real_server(python, server, tmp_path):
    """Logged once, read back, completed as the store grows, and told where nothing answers."""
    root = tmp_path / "outputs"
    store = Store(root)
    diverged = some_training(math.nan)
    diverged.ap50_after = {2: 0.25}
    run = add_run(store, [(1.0, three()), (1.0, three())], manifest={"training": diverged})
    segmented = add_run(store, [(None, three())], task="segment", epochs=0)
    command = (python, "-m", "cellrepro", "track")
    common = ("--store", root, "--experiment", "cells")
    at = {"MLFLOW_TRACKING_URI": server}

    def tracked(*words):
        return json.loads(_run(*command, *words, *common, "--json", **at).stdout)

    def read_back():
        runs = json.loads(_run(python, "-c", _READ_BACK, server).stdout)
        return {found["tags"]["cellrepro.repeat"]: found for found in runs}

    # One whose logging was interrupted after its first loss: it is gone on with.
    first = run.repeats[0]
    manifest_digest = file_digest(first.folder / "manifest.json")
    ended = 1_793_534_400_000 + 8200
    begun = _run(python, "-c", _BEGIN, server, manifest_digest, ended).stdout.strip()
    document = tracked(f"{run.key}/0", segmented.key)
    runs = {found["repeat"]: found for found in document["runs"]}
    assert runs[first.name]["run"] == begun
    assert [found["how"] for found in document["runs"]] == ["logged", "logged"]
    assert document["runs"][0]["url"].startswith(f"{server}/#/experiments/")

    found = read_back()
    assert found.keys() == {first.name, segmented.repeats[0].name}
    training = found[first.name]
    assert (training["experiment"], training["status"]) == ("cells", "FINISHED")
    assert training["train_loss"] == [[0, "2.0"], [1, "1.5"], [2, "nan"]]  # none of them twice
    assert training["learning_rate"] == [[0, "0.0"], [1, "0.5"], [2, "1.0"]]
    assert training["params"]["seed"] == "0"
    assert training["tags"]["cellrepro.machine"] == first.machine
    assert training["tags"]["cellrepro.verdict"] == "identical"
    assert training["metrics"]["n_objects"] == "6.0"
    assert training["files"] == ["manifest.json", "passport.intoto.jsonl"]
    segmentation = found[segmented.repeats[0].name]
    assert "cellrepro.verdict" not in segmentation["tags"]  # one repeat alone has none
    assert segmentation["params"]["settings.flow_threshold"] == "0.4"
    assert segmentation["train_loss"] == []

    # Nothing twice; a file that is asked for later is added, and so is the verdict of more repeats.
    again = tracked(f"{run.key}/0", segmented.key)["runs"]
    assert [found["how"] for found in again] == ["already there", "already there"]
    renumbered = three(img_c=squares(numbers=(7, 3)))
    with_weights = tracked(f"{run.key}/0", "--weights")["runs"][0]
    assert (with_weights["how"], with_weights["added"]) == ("completed", ["weights.safetensors"])
    add_run(store, [(None, three()), (None, renumbered)], task="segment", epochs=0)
    grown = tracked(f"{segmented.key}/0")["runs"][0]
    assert (grown["how"], grown["added"]) == (
        "completed",
        ["cellrepro.verdict", "cellrepro.passport"],
    )
    found = read_back()
    assert len(found) == 2
    assert found[first.name]["files"] == [
        "manifest.json",
        "passport.intoto.jsonl",
        "weights.safetensors",
    ]
    assert found[grown["repeat"]]["tags"]["cellrepro.verdict"] == "same-objects"

    assert tracked(segmented.key)["runs"][1]["how"] == "logged"  # KEY alone: all its repeats
    exported = export_passports(first.name, tmp_path / "p.intoto.jsonl", store=root)
    assert found[first.name]["tags"]["cellrepro.passport"] == exported.passports[first.name]

    nowhere = ("--tracking-uri", "http://me:secret@127.0.0.1:9")
    refused = _run(*command, f"{run.key}/1", *common, *nowhere, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "http://127.0.0.1:9 did not take the runs" in refused.stderr
    assert "secret" not in refused.stderr


@pytest.mark.slow
def test_the_python_of_the_page_runs(python, tmp_path):
    """As written, in the folder of the store, but for the name of the run."""
    run = add_run(Store(tmp_path / "outputs"), [(1.0, three())])
    for number, block in enumerate(blocks_of_the_page()):
        script = tmp_path / f"{number}.py"
        script.write_text(block.replace("KEY/0", f"{run.key}/0"), encoding="utf-8")
        variables = {**os.environ, "WANDB_SILENT": "true"}
        variables.pop("PYTHONPATH", None)
        done = subprocess.run(
            [str(python), str(script)], cwd=tmp_path, env=variables, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    (events,) = (tmp_path / "tensorboard").rglob("events.*")
    assert _run(python, "-c", _STEPS, events).stdout.strip() == "[0, 1, 2]"
    assert list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
