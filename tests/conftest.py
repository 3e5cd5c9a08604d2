"""What every test may use, and what none may leave behind."""

import gc
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from filelock import FileLock

from cellrepro.images.synthetic_sets import write_folder
from cellrepro.process.machine_here import machine_here
from cellrepro.profiles.profiles import load
from cellrepro.spec.spec import Spec
from cellrepro.store.manifest import Manifest
from command_line import carried_out
from samebits.digests import file_digest
from stores import some_machine, some_manifest, some_spec
from surroundings import generators_free, nothing_left_behind, one_thread  # noqa: F401

# Two seconds of grammars in every process of the tests, for addresses that no notebook has.
sys.modules.setdefault("rfc3987_syntax", None)
import nbformat  # noqa: E402
from nbformat.v4 import new_code_cell, new_notebook  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]

SMALL = {"epochs": 4, "images_per_epoch": 16, "learning_rate": 0.01}
"""The least training from noise after which `tiny` finds cells: about 4 s, 30 objects."""


def pytest_configure(config):
    """For files of the package and of docs, too, which a hook of this file does not see."""
    config.pluginmanager.register(Collection())


class Collection:
    """Collects less and sorts it: each worker collects all files, half a minute of a processor."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self):
        """Half a million imported objects are no garbage: nobody looks for any among them."""
        gc.disable()
        try:
            return (yield)
        finally:
            gc.freeze()
            gc.enable()

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path):
        """A file without an example is not imported to look for one."""
        collectors = yield
        if b">>> " in file_path.read_bytes():
            return collectors
        return [one for one in collectors if type(one) is pytest.Module]

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        """The second worker begins at the other end, and finds half of the files compiled."""
        report = yield
        if os.environ.get("PYTEST_XDIST_WORKER") == "gw1" and isinstance(collector, pytest.Dir):
            report.result.reverse()
        return report

    def pytest_collection_modifyitems(self, items):
        """The notebooks first: they take longest, and the other files fill the other core.

        All workers have to agree on the order; a file may have tests and examples.
        """
        items.sort(
            key=lambda item: (item.path.name != "test_notebooks.py", item.path, type(item).__name__)
        )


@pytest.fixture
def no_child(monkeypatch):
    """Fail if a process is started, but for a look at the machine, once."""
    machine_here(load("cpu"))
    refuse = Mock(side_effect=AssertionError("a process was started"))
    monkeypatch.setattr(subprocess, "Popen", refuse)


def listing(root):
    """Everything below a folder with kind, size and time of change; None if there is nothing."""
    root = Path(root)
    if not root.exists():
        return None
    states = {path: path.lstat() for path in [root, *root.rglob("*")]}
    return {path: (s.st_mode, s.st_size, s.st_mtime_ns) for path, s in states.items()}


def wholeness(root):
    """The repeats of a store, each checked file by file against its manifest."""
    found = []
    for run in sorted(Path(root, "runs").glob("*")):
        assert Spec.model_validate_json((run / "spec.json").read_bytes()).key == run.name
        for repeat in sorted(run.glob("*/*")):
            manifest = Manifest.model_validate_json((repeat / "manifest.json").read_bytes())
            assert (manifest.key, str(manifest.repeat)) == (run.name, repeat.name)
            assert manifest.machine.name == repeat.parent.name
            present = {
                path.relative_to(repeat).as_posix(): file_digest(path)
                for path in repeat.rglob("*")
                if path.is_file() and path.name not in ("manifest.json", "SHA256SUMS")
            }
            assert present == manifest.files
            found.append(f"{run.name}/{repeat.name}")
    return found


@dataclass(frozen=True)
class Answer:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def json(self):
        return json.loads(self.out)


def options(**values):
    """Keyword arguments as command-line options."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]


MAIN = "from cellrepro.cli import main; main()"


def run_command(*arguments, **popen):
    """A command in a process of its own."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-P", "-c", MAIN, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **popen,
    )
    return Answer(done.returncode, done.stdout, done.stderr, time.monotonic() - started)


def _fixture(value, name):
    return pytest.fixture(lambda: value, scope="session", name=name)


_command = _fixture(run_command, "command")
_listing = _fixture(listing, "listing")
_wholeness = _fixture(wholeness, "wholeness")
_makers = SimpleNamespace(spec=some_spec, manifest=some_manifest, machine=some_machine)
_made_up = _fixture(_makers, "made_up")


@pytest.fixture
def invoke():
    """Run ``cellrepro ARGUMENTS`` in this process, for commands that start no worker."""

    def call(*arguments):
        return Answer(*carried_out(*arguments), 0.0)

    return call


@pytest.fixture(scope="session")
def browser():
    """One for all tests that look at a page."""
    from lab_server import chromium

    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """A folder that all workers share, and its lock: the first one makes what the others take."""
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if is_worker else base) / "made_once"
    folder.mkdir(exist_ok=True)
    return folder, FileLock(folder / "lock")


@pytest.fixture(scope="session")
def small_data(made_once):
    """Three training images and a test image of nuclei. Look, don't touch."""
    shared, lock = made_once
    folder = shared / "nuclei"
    with lock:
        if not folder.exists():
            write_folder(folder, n_train=3, n_test=1)
    return folder


def _trained_once(shared, data):
    """The product's main job: a run of two repeats, and what its command said."""
    root = shared / "outputs"
    said = shared / "said.json"
    if not said.exists():
        checkpoints = ("--keep-checkpoints", *options(checkpoint_every=3))
        training = options(**SMALL, repeats=2, store=root)
        answer = run_command("train", data, "--json", *checkpoints, *training)
        assert answer.code in (0, 1), answer.err
        said.write_text(json.dumps(asdict(answer)))
    return root, Answer(**json.loads(said.read_text()))


@pytest.fixture(scope="session")
def small_store(tmp_path_factory, small_data, made_once):
    """A worker's own copy of a run of two repeats. Look, don't touch."""
    shared, lock = made_once
    with lock:
        original, answer = _trained_once(shared, small_data)
    root = tmp_path_factory.mktemp("small_store") / "outputs"
    shutil.copytree(original, root)
    answer = replace(answer, out=answer.out.replace(str(original), str(root)))
    key = answer.json["key"]
    machine = answer.json["repeats"][0]["machine"]
    folder = root / "runs" / key / machine
    before = listing(root)
    yield SimpleNamespace(
        root=root, data=small_data, answer=answer, key=key, machine=machine, folder=folder,
        weights=folder / "0" / "weights.safetensors",
    )  # fmt: skip
    assert listing(root) == before, "a test changed the shared store"


_PARAMETERS = """\
data = "data/synthetic"
model = "tiny"
seed = 0
epochs = 2
images_per_epoch = 1
learning_rate = 0.01
profile = "cpu"
mode = "strict"
repeats = 1
store = "outputs"
behave = "well"
"""
_BODY = """\
import os, sys, cellrepro
if behave == "by seed":
    behave = ["raise", "kill", "nothing", "other seed", "well"][seed]
if behave == "raise":
    raise ValueError(f"seed {seed} is not for me")
if behave == "kill":
    os.kill(os.getpid(), 9)
if behave == "other seed":
    seed += 100
if behave != "nothing":
    outcome = cellrepro.train(
        data, model=model, seed=seed, epochs=epochs, images_per_epoch=images_per_epoch,
        learning_rate=learning_rate, profile=profile, mode=mode, repeats=repeats, store=store,
    )
    print("trained", outcome.key, "here" if "cellpose" in sys.modules else "elsewhere")
"""


def write_notebook(path, *, parameters=_PARAMETERS, body=_BODY):
    """A notebook as small as the grid takes one."""
    cells = [new_code_cell(parameters, metadata={"tags": ["parameters"]}), new_code_cell(body)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    return path


@pytest.fixture(scope="session")
def notebook(tmp_path_factory):
    """A notebook that trains, or misbehaves as its parameter ``behave`` says."""
    return write_notebook(tmp_path_factory.mktemp("grid") / "notebooks" / "minimal.ipynb")
