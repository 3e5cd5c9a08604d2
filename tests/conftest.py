"""What every test may use, and what none may leave behind."""

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cellrepro.images.synthetic import write_folder
from cellrepro.store.manifest import (
    DataRecord,
    MachineRecord,
    Manifest,
    MaskRecord,
    ModelRecord,
    TrainingRecord,
    WeightsRecord,
)
from cellrepro.store.spec import Spec

ROOT = Path(__file__).resolve().parents[1]

SMALL = {"epochs": 4, "images_per_epoch": 16, "learning_rate": 0.01}
"""The least training from noise after which `tiny` finds cells: about 4 s, 30 objects."""


def pytest_collection_modifyitems(items):
    """The notebooks first: they take longest, and the other files fill the other core."""
    items.sort(key=lambda item: item.path.name != "test_notebooks.py")


# -- nothing is left behind ----------------------------------------------------------------

_OF_THE_TOOLS = {
    "PYTEST_CURRENT_TEST",
    "LD_LIBRARY_PATH",  # OpenCV 5.0's import prepends its own folder
    "TORCHINDUCTOR_CACHE_DIR",  # PyTorch 2.15 sets it when a deterministic mode is first asked for
}
_SOURCES = {".cff", ".ipynb", ".lock", ".md", ".py", ".toml", ".yaml"}  # a person's, not a test's
_WATCHED = [ROOT, ROOT / "tests", ROOT / "data", Path.home() / ".cellpose"]


def _files():
    return {
        str(item)
        for folder in _WATCHED
        if folder.is_dir()
        for item in folder.iterdir()
        if not item.name.startswith((".", "__")) and item.suffix not in _SOURCES
    }


def _torch():
    """PyTorch, once a test has imported it whole."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and hasattr(torch, "get_rng_state") else None


def _generators():
    states = {"random": random.getstate(), "numpy.random": np.random.get_state()}
    if _torch():
        states["torch"] = _torch().get_rng_state()
    return states


def _switches():
    if not _torch():
        return {}
    from cellrepro.determinism.modes import MOVED_BY_CELLPOSE, switches

    found = {f"torch {name}": value for name, value in switches().items()}
    if "cellpose.vit" not in sys.modules:  # its import moves these; that is no test's fault
        for name in MOVED_BY_CELLPOSE:
            del found[f"torch {name}"]
    found["torch threads"] = _torch().get_num_threads()
    found["torch gradients"] = _torch().is_grad_enabled()
    found["torch dtype"] = _torch().get_default_dtype()
    found["torch oneDNN"] = _torch().backends.mkldnn.enabled
    found["torch hooks on every module"] = len(_torch().nn.modules.module._global_forward_hooks)
    found["torch dispatch modes"] = _torch()._C._len_torch_dispatch_stack()
    return found


def _same(a, b):
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(_same, a, b))
    return np.array_equal(np.asarray(a), np.asarray(b))


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """Fail a test that changes what the next one sees, and put it back."""
    variables, folder, files = dict(os.environ), Path.cwd(), _files()
    generators, switches = _generators(), _switches()
    yield
    left = []
    for name in sorted((variables.keys() | os.environ.keys()) - _OF_THE_TOOLS):
        before, now = variables.get(name), os.environ.get(name)
        if before != now:
            left.append(f"variable {name} is {now!r}, was {before!r}")
            os.environ.pop(name, None)
            if name in variables:
                os.environ[name] = variables[name]
    if Path.cwd() != folder:
        left.append(f"the working folder is {Path.cwd()}, was {folder}")
        os.chdir(folder)
    left += [f"{path} is new" for path in sorted(_files() - files)]
    after = _generators()
    left += [
        f"{name}'s generator has moved"
        for name in generators
        if not _same(generators[name], after[name])
    ]
    random.setstate(generators["random"])
    np.random.set_state(generators["numpy.random"])
    if "torch" in generators:
        _torch().set_rng_state(generators["torch"])
    after = _switches()
    left += [
        f"{name} is {after[name]}, was {value}"
        for name, value in switches.items()
        if after[name] != value
    ]
    if left:
        pytest.fail("the test left behind: " + "; ".join(left), pytrace=False)


@pytest.fixture
def one_thread():
    """PyTorch on one thread: no race, and no waiting for a busy neighbour's core."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def generators_free():
    """For tests that are about moving the generators: theirs are put back."""
    states = _generators()
    yield
    random.setstate(states["random"])
    np.random.set_state(states["numpy.random"])
    if "torch" in states:
        _torch().set_rng_state(states["torch"])


# -- listings ------------------------------------------------------------------------------


def listing(root):
    """Everything below a folder with kind, size and time of change; None if there is nothing."""
    root = Path(root)
    if not root.exists():
        return None
    found = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = path.lstat()
        found[str(path.relative_to(root))] = (status.st_mode, status.st_size, status.st_mtime_ns)
    return found


@pytest.fixture(name="listing")
def _listing():
    return listing


def wholeness(root):
    """The repeats of a store, each checked file by file against its manifest."""
    from cellrepro.store.digests import file_digest

    found = []
    for run in sorted(Path(root, "runs").glob("*")):
        assert Spec.model_validate_json((run / "spec.json").read_bytes()).key == run.name
        machines = [item for item in run.iterdir() if item.name != "spec.json"]
        for repeat in sorted(item for machine in machines for item in machine.iterdir()):
            manifest = Manifest.model_validate_json((repeat / "manifest.json").read_bytes())
            assert (manifest.key, str(manifest.repeat)) == (run.name, repeat.name)
            assert manifest.machine.name == repeat.parent.name
            present = {
                path.relative_to(repeat).as_posix(): file_digest(path)
                for path in repeat.rglob("*")
                if path.is_file() and path.name != "manifest.json"
            }
            assert present == manifest.files
            assert not manifest.weights or manifest.weights.digest == present["weights.safetensors"]
            assert {record.file for record in manifest.masks.values()} <= present.keys()
            found.append(f"{run.name}/{repeat.name}")
    return found


@pytest.fixture(name="wholeness")
def _wholeness():
    return wholeness


# -- made-up manifests ---------------------------------------------------------------------


def some_spec(**changes):
    """A spec that no machine is needed for."""
    fields = {
        "data": "nuclei",
        "data_digest": "d" * 64,
        "model": "tiny",
        "epochs": 3,
        "learning_rate": 0.01,
        "profile": "cpu",
        "profile_settings": {"device": "cpu", "threads": 2},
    }
    return Spec(**{**fields, **changes})


def some_machine(label="abacus", **changes):
    """A machine that nobody has; what is changed makes another one."""
    fields = {
        "identity": label,
        "device": "Abacus 9",
        "numeric_class": "0a",
        "versions": {"torch": "2.15.0"},
    }
    return MachineRecord(label=label, **{**fields, **changes})


def some_manifest(spec=None, *, repeat=0, weights="a", n_changed=7, masks=None, **changes):
    """A manifest with weights and masks of the digests named by single letters.

    ``masks`` maps an image to (digest, canonical digest, number of objects).
    """
    spec = spec or some_spec()
    masks = {"cell": ("b", "c", 3)} if masks is None else masks
    fields = {
        "key": spec.key,
        "repeat": repeat,
        "machine": some_machine(),
        "vacuous": [],
        "started": "2026-11-01T12:00:00+00:00",
        "seconds": {"train": 1.5, "segment": 0.5},
        "peak_memory": {"process": 2**30, "gpu": None},
        "distributions": {"torch": "2.15.0"},
        "cuda": {"driver": None, "runtime": None, "cudnn": None},
        "host": {"processor": "made up", "cores": 2},
        "versions": {"torch": "2.15.0"},
        "device": "cpu",
        "threads": 2,
        "cpu_capability": "AVX2",
        "numeric_libraries": [],
        "variables": {"OMP_NUM_THREADS": "2"},
        "switches": {"deterministic_algorithms": True},
        "seeds": {"torch": spec.seed},
        "data": DataRecord(
            path="/somewhere",
            digest=spec.data_digest,
            files={},
            n_train=3,
            n_test=1,
            segmented="test",
            warnings=[],
        ),
        "model": ModelRecord(
            architecture="tiny", n_parameters=9, dtype="float32", initial_weights="e" * 64
        ),
        "training": TrainingRecord(
            learning_rates=[0.0, 0.1],
            train_losses=[2.0, 1.0],
            test_losses=[2.5, None],
            n_steps=6,
            n_removed=0,
        ),
        "weights": weights and WeightsRecord(digest=weights * 64, n_changed=n_changed),
        "masks": {
            name: MaskRecord(
                file=f"masks/{name}.tif",
                digest=digest * 64,
                canonical_digest=canonical * 64,
                n_objects=n_objects,
                seconds=0.1,
            )
            for name, (digest, canonical, n_objects) in masks.items()
        },
        "warnings": [],
    }
    return Manifest(**{**fields, **changes})


@pytest.fixture
def made_up():
    """Makers of specs and manifests that no machine was needed for."""
    return SimpleNamespace(spec=some_spec, manifest=some_manifest, machine=some_machine)


# -- the command line ----------------------------------------------------------------------


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
    return [
        text
        for name, value in values.items()
        for text in (f"--{name.replace('_', '-')}", str(value))
    ]


_MAIN = "from cellrepro.cli import main; main()"


def run_command(*arguments, **popen):
    """A command in a process of its own."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-P", "-c", _MAIN, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **popen,
    )
    return Answer(done.returncode, done.stdout, done.stderr, time.monotonic() - started)


@pytest.fixture(scope="session")
def command():
    """Run ``cellrepro ARGUMENTS`` in a process of its own."""
    return run_command


@pytest.fixture
def invoke():
    """Run ``cellrepro ARGUMENTS`` in this process, for commands that start no worker."""
    from typer.testing import CliRunner

    from cellrepro.cli import app

    def call(*arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr, 0.0)

    return call


# -- one small folder, one small store -----------------------------------------------------


@pytest.fixture(scope="session")
def small_data(tmp_path_factory):
    """Three training images and a test image of nuclei."""
    folder = tmp_path_factory.mktemp("small") / "nuclei"
    write_folder(folder, n_train=3, n_test=1)
    return folder


@dataclass(frozen=True)
class SmallStore:
    """A store with one run of two repeats, and what the command said while it was made."""

    root: Path
    data: Path
    answer: Answer

    @property
    def key(self):
        return self.answer.json["key"]

    @property
    def machine(self):
        return self.answer.json["repeats"][0]["machine"]

    @property
    def folder(self):
        """Of the repeats."""
        return self.root / "runs" / self.key / self.machine

    @property
    def weights(self):
        return self.folder / "0" / "weights.safetensors"


@pytest.fixture(scope="session")
def small_store(tmp_path_factory, small_data):
    """The product's main job, once: ``cellrepro train`` twice over. Look, don't touch."""
    root = tmp_path_factory.mktemp("small_store") / "outputs"
    answer = run_command("train", small_data, "--json", *options(**SMALL, repeats=2, store=root))
    assert answer.code in (0, 1), answer.err
    before = listing(root)
    yield SmallStore(root, small_data, answer)
    assert listing(root) == before, "a test changed the shared store"


# -- a notebook for the grid ---------------------------------------------------------------

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
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    cells = [new_code_cell(parameters, metadata={"tags": ["parameters"]}), new_code_cell(body)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    return path


@pytest.fixture(scope="session")
def notebook(tmp_path_factory):
    """A notebook that trains, or misbehaves as its parameter ``behave`` says."""
    return write_notebook(tmp_path_factory.mktemp("grid") / "notebooks" / "minimal.ipynb")


@pytest.fixture(name="write_notebook")
def _write_notebook():
    return write_notebook
