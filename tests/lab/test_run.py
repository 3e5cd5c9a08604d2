"""One spec carried out in processes of its own, refused before, or ended in between."""

import os
import re
import shutil
import socket
import subprocess
import sys
import warnings
from importlib import metadata
from pathlib import Path
from unittest.mock import patch

import psutil
import pytest
import torch

import cellrepro
from cellrepro.compare.verdicts import Verdict
from cellrepro.determinism.profiles import Profile, load
from cellrepro.errors import BadInput, CellreproError, NotPossibleHere
from cellrepro.lab import process as child
from cellrepro.lab import run
from cellrepro.lab.checkpointing import Keeping
from cellrepro.lab.machine import machine_here
from cellrepro.lab.run import carry_out, plan_segmentation, plan_training
from cellrepro.model.network import find_model
from cellrepro.store.store import Store
from cellrepro.trace.torch_warnings import WarningLog
from conftest import options, run_command

SMALL = {"epochs": 4, "images_per_epoch": 16, "learning_rate": 0.01}


@pytest.fixture
def no_worker(monkeypatch):
    """Fail if a process is started, but for a look at the machine, once."""
    machine_here(load("cpu"))

    def refuse(*_, **__):
        raise AssertionError("a worker was started")

    monkeypatch.setattr(child.subprocess, "Popen", refuse)


# -- planned -------------------------------------------------------------------------------


def test_planning_writes_nothing(small_data, tmp_path, listing):
    before = listing(small_data)
    plan = plan_training(small_data, store=tmp_path / "outputs")
    assert list(tmp_path.iterdir()) == []
    assert listing(small_data) == before
    assert plan.spec.data == "nuclei"
    assert plan.spec.data_digest == plan.folder.digest
    assert plan.notices == ()


def test_defaults_of_tiny(small_data):
    spec = plan_training(small_data).spec
    assert (spec.learning_rate, spec.images_per_epoch) == (1e-3, 48)
    assert (spec.mode, spec.profile, spec.data_seed) == ("strict", "cpu", "cellpose")
    assert spec.profile_settings["threads"] == 2


def test_defaults_of_cellposes_networks(small_data):
    spec = plan_training(small_data, model="cpsam").spec
    assert (spec.learning_rate, spec.images_per_epoch) == (1e-5, None)


def test_a_stored_run_goes_on_as_what_it_is(small_store):
    spec = plan_training(small_store.data, model=small_store.key, store=small_store.root).spec
    assert (spec.learning_rate, spec.images_per_epoch) == (1e-3, 48)
    assert spec.model == f"{small_store.key}/{small_store.machine}/0"
    assert spec.model_digest == small_store.answer.json["repeats"][0]["weights"]


def test_says_beforehand_what_will_be_vacuous(small_data):
    (notice,) = plan_training(small_data, epochs=1).notices
    assert notice.startswith("this run will be vacuous: 1 epoch trains nothing")
    (notice,) = plan_training(small_data, learning_rate=0).notices
    assert "a learning rate of 0" in notice
    (notice,) = plan_segmentation(small_data).notices
    assert "finds no cells" in notice


def test_segmenting_needs_no_masks(small_data, tmp_path):
    shutil.copy(next((small_data / "test").glob("*[0-9].tif")), tmp_path / "alone.tif")
    assert plan_segmentation(tmp_path).spec.task == "segment"
    with pytest.raises(BadInput):
        plan_training(tmp_path)


@pytest.mark.parametrize("repeats", [0, -1, True, 2.0, "2", None], ids=repr)
def test_refuses_repeats(small_data, tmp_path, no_worker, repeats):
    with pytest.raises(BadInput, match=r"repeats is .*; expected a whole number, 1 or more"):
        cellrepro.train(small_data, repeats=repeats, store=tmp_path / "outputs")
    assert list(tmp_path.iterdir()) == []


# -- carried out ---------------------------------------------------------------------------


def test_stored_repeats_are_not_run_again(small_store, no_worker, listing):
    before = listing(small_store.root)
    outcome = cellrepro.train(small_store.data, store=small_store.root, repeats=2, **SMALL)
    assert listing(small_store.root) == before
    assert outcome.key == small_store.key
    assert outcome.folder == small_store.root / "runs" / small_store.key
    assert outcome.judgement.overall is Verdict.IDENTICAL
    assert [repeat.index for repeat in outcome.repeats] == [0, 1]


@pytest.mark.slow
def test_another_machine_runs_its_own_repeats(small_store, tmp_path, monkeypatch):
    """A copied store holds the first machine's repeats; the second adds and judges its own."""
    shutil.copytree(small_store.root, tmp_path / "copy")
    monkeypatch.setenv("CELLREPRO_MACHINE", "other-lab")
    answer = run_command(
        *("train", small_store.data, "--json"),
        *options(**SMALL, repeats=1, store=tmp_path / "copy"),
    )
    (repeat,) = answer.json["repeats"]
    assert re.fullmatch("other-lab-[0-9a-f]{8}", repeat["machine"])
    assert answer.json["verdict"] is None  # of its own repeats there is one
    run = Store(tmp_path / "copy").run(small_store.key)
    assert {name: list(repeats) for name, repeats in run.machines.items()} == {
        small_store.machine: [0, 1],
        repeat["machine"]: [0],
    }
    assert Store(tmp_path / "copy").find(run.key)[1].machine == repeat["machine"]
    listed = run_command("list", "--json", "--store", tmp_path / "copy").json["runs"]
    assert [(row["machine"], row["repeats"]) for row in listed] == [
        (name, list(repeats)) for name, repeats in run.machines.items()
    ]


@pytest.mark.slow
def test_a_run_with_a_cublas_workspace_of_its_own(small_data, tmp_path, monkeypatch, capsys):
    """The profile's is honoured, and what the shell says in vain is said before the run."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2")
    path = tmp_path / "small.yaml"
    path.write_text('threads: 2\nenvironment: {CUBLAS_WORKSPACE_CONFIG: ":16:8"}\n')
    outcome = cellrepro.train(
        small_data, profile=str(path), repeats=1, store=tmp_path / "outputs", epochs=2,
        images_per_epoch=1,
    )  # fmt: skip
    assert outcome.repeats[0].manifest.variables["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    said = capsys.readouterr().err
    assert "CUBLAS_WORKSPACE_CONFIG=:4096:2 (:16:8 instead)" in said
    assert said.index("instead") < said.index("train")


def test_what_a_run_records(small_store):
    _, repeat = Store(small_store.root).find(f"{small_store.key}/1")
    manifest = repeat.manifest
    assert (manifest.repeat, manifest.vacuous) == (1, [])
    assert (manifest.device, manifest.threads) == ("cpu", 2)
    machine = manifest.machine
    assert machine.name == small_store.machine == machine_here(load("cpu")).name
    assert machine.numeric_class == manifest.numeric_class["name"]
    assert machine.versions["cellpose"] == metadata.version("cellpose")
    assert socket.gethostname() not in machine.name
    assert manifest.distributions["pydantic"] == metadata.version("pydantic")
    assert len(manifest.distributions) > 100
    assert manifest.cuda.keys() == {"driver", "runtime", "cudnn"}
    assert manifest.cuda["runtime"] == torch.version.cuda
    assert 10**8 < manifest.peak_memory["process"] < 10**11
    assert manifest.variables["OMP_NUM_THREADS"] == "2"
    assert manifest.variables["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert manifest.switches["deterministic_algorithms"]
    assert not manifest.switches["cuda_matmul_allow_tf32"]
    assert manifest.seeds == {"python": 0, "numpy": 0, "torch": 0, "data": "cellpose"}
    assert (manifest.data.n_train, manifest.data.n_test, manifest.data.segmented) == (3, 1, "test")
    assert manifest.data.files.keys() == {
        path.relative_to(small_store.data).as_posix() for path in small_store.data.rglob("*.tif")
    }
    assert manifest.training.n_steps == 4 * 16
    assert manifest.training.learning_rates == pytest.approx([0, 0.01 / 9, 0.02 / 9, 0.03 / 9])
    assert manifest.training.test_losses[0] > 0
    assert manifest.training.test_losses[1:] == [None] * 3
    assert 0.5 * manifest.model.n_parameters < manifest.weights.n_changed
    assert manifest.weights.n_changed < manifest.model.n_parameters
    (record,) = manifest.masks.values()
    assert record.n_objects == repeat.masks("synth_003").max() > 5
    assert 0 < record.ap50 < 1
    assert manifest.versions["cellpose"]
    assert manifest.host["cores"] >= 1


def test_the_images_that_were_segmented_are_kept(small_store):
    import tifffile

    store = Store(small_store.root)
    digest = store.run(small_store.key).spec.data_digest
    folder = small_store.data / "test"
    expected = tifffile.imread(folder / "synth_003.tif")
    assert (store.image(digest, "synth_003") == expected).all()
    expected = tifffile.imread(folder / "synth_003_masks.tif")
    assert (store.truth(digest, "synth_003") == expected).all()


@pytest.mark.slow
def test_the_callers_surroundings_do_not_matter(small_store, tmp_path, command):
    """Other numeric variables, another folder, one with a module of a taken name in it."""
    (tmp_path / "random.py").write_text("raise ImportError('not this one')")
    (tmp_path / "cellpose.py").write_text("raise ImportError('nor this one')")
    answer = command(
        "train",
        os.path.relpath(small_store.data, tmp_path),
        *("--json", "--repeats", "1", "--store", "here"),
        *("--epochs", "4", "--images-per-epoch", "16", "--learning-rate", "1e-2"),
        cwd=tmp_path,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "OMP_THREAD_LIMIT": "1",
            "OMP_DYNAMIC": "TRUE",
            "ATEN_CPU_CAPABILITY": "default",
            "ONEDNN_MAX_CPU_ISA": "SSE41",
            "PYTHONHASHSEED": "5",
        },
    )
    assert answer.code == 0, answer.err
    assert answer.json["key"] == small_store.key
    (actual,), expected = answer.json["repeats"], small_store.answer.json["repeats"][0]
    assert actual["weights"] == expected["weights"]
    assert actual["masks"] == expected["masks"]
    assert Path(tmp_path, "here", "runs", small_store.key, small_store.machine, "0").is_dir()


@pytest.mark.slow
def test_a_training_that_diverges_is_stored_as_such(small_data, tmp_path, wholeness):
    """Losses of NaN are results too, and have no number in JSON."""
    outcome = cellrepro.train(
        small_data,
        store=tmp_path,
        repeats=1,
        epochs=3,
        images_per_epoch=2,
        learning_rate=1e30,
        quiet=True,
    )
    (repeat,) = Store(tmp_path).run(outcome.key).repeats
    losses = repeat.manifest.training.train_losses
    assert losses[0] < 10
    assert losses[-1] != losses[-1]
    assert "no object was found" in "; ".join(repeat.manifest.vacuous)
    assert wholeness(tmp_path) == [f"{outcome.key}/0"]


def test_an_interrupted_run_ends_its_worker_and_leaves_nothing(small_data, tmp_path, monkeypatch):
    workers = []

    class Bar:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def note(self, _):
            children = psutil.Process().children(recursive=True)
            work = "cellrepro.lab.worker:carry_out"
            workers.extend(child for child in children if work in child.cmdline())
            raise KeyboardInterrupt

    monkeypatch.setattr(run, "progress", lambda *_, **__: Bar())
    with pytest.raises(KeyboardInterrupt):
        cellrepro.train(small_data, store=tmp_path / "outputs", epochs=2)
    assert len(workers) == 1
    assert psutil.wait_procs(workers, timeout=5)[1] == []
    assert list(tmp_path.iterdir()) == []


# -- how a worker ends ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "event", "expected", "exit_code"),
    [
        (
            2,
            {"event": "refused", "kind": "BadInput", "message": "no such thing"},
            r"^no such thing$",
            2,
        ),
        (
            3,
            {"event": "refused", "kind": "NotPossibleHere", "message": "no GPU"},
            r"^no GPU$",
            3,
        ),
        (1, "MemoryError: ", "memory is short .*smaller --batch-size", 3),
        (1, "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "memory is short", 3),
        (1, "RuntimeError: [enforce fail] DefaultCPUAllocator: not enough memory", "is short", 3),
        (1, "RuntimeError: std::bad_alloc", "memory is short", 3),
        (
            1,
            "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to "
            "allocate 16777216 bytes. Error code 12 (Cannot allocate memory)",
            "memory is short",
            3,
        ),
        (1, "ImportError: libtorch_cpu.so: failed to map segment from shared object", "short", 3),
        (1, "OSError: [Errno 28] No space left on device: 'w'", "no space is left on the disk", 3),
        (1, "SafetensorError: I/O error: No space left on device (os error 28)", "--store", 3),
        (1, "OSError: [Errno 122] Disk quota exceeded", "no space is left on the disk", 3),
        (
            1,
            "RuntimeError: put_ does not have a deterministic implementation",
            "mode strict needs a deterministic implementation .*--mode warn",
            3,
        ),
        (-9, None, "the system killed the process", 3),
        (1, "ZeroDivisionError: division by zero", "failed: ZeroDivisionError.*last words", 1),
        (-11, None, "failed: exit code -11 and no answer; its last words:\nthe end", 1),
        (0, None, "failed: exit code 0 and no answer", 1),
    ],
    ids=[
        "refused",
        "not possible",
        "memory",
        "GPU memory",
        "allocator on Windows",
        "C++",
        "allocator on Linux",
        "libraries",
        "disk",
        "disk, by safetensors",
        "quota",
        "no deterministic way",
        "killed",
        "crashed",
        "segmentation fault",
        "ended well without an answer",
    ],
)
def test_how_an_end_is_told(code, event, expected, exit_code):
    if isinstance(event, str):
        event = {"event": "crashed", "message": event}
    with pytest.raises(CellreproError, match=rf"(?s){expected}") as told:
        child.check_end(code, event, "the end", "train repeat 1/2")
    assert told.value.exit_code == exit_code


def test_a_good_end_says_nothing():
    child.check_end(0, {"event": "done", "answer": None}, "", "train repeat 1/2")


def test_a_switch_that_moved_costs_no_run(tmp_path, small_data, monkeypatch, capfd, wholeness):
    """It is stored, and manifest, verdict and user are told what did not hold to its end."""
    (tmp_path / "moving.py").write_text(
        "import torch\n"
        "from cellrepro.lab import worker\n"
        "segment = worker._segment\n"
        "def moving(*given):\n"
        "    torch.backends.cudnn.benchmark = True\n"
        "    return segment(*given)\n"
        "worker._segment = moving\n"
        "carry_out = worker.carry_out\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    call = child.call

    def another(work, *given, **options):
        work = work.replace("cellrepro.lab.worker", "moving")
        return call(work, *given, **options)

    monkeypatch.setattr(child, "call", another)
    outcome = run.segment(small_data, repeats=1, store=tmp_path / "outputs")
    assert wholeness(tmp_path / "outputs") == [f"{outcome.key}/0"]
    assert outcome.repeats[0].manifest.moved == {"cudnn_benchmark": True}
    said = "the switch cudnn_benchmark moved from False to True during repeat 0"
    assert any(said in reason for reason in outcome.judgement.reasons)
    assert f"note: {said}" in capfd.readouterr().err


# -- inside the worker ---------------------------------------------------------------------


@pytest.fixture
def carried_out(tmp_path):
    """Carry out a plan in this process, up to where it refuses."""

    def carry_out(plan):
        (tmp_path / "staged").mkdir(exist_ok=True)
        given = {"repeat": 0, "staged": tmp_path / "staged", "keeping": Keeping()}
        with patch.object(Profile, "enter", return_value=torch.device("cpu")):
            child.call(
                "cellrepro.lab.worker:carry_out",
                plan.request.setup,
                label="it",
                here=True,
                request=plan.request,
                **given,
            )

    return carry_out


def test_data_that_changed_since_the_plan_are_refused(carried_out, small_data, tmp_path):
    data = tmp_path / "nuclei"
    shutil.copytree(small_data, data)
    plan = plan_training(data)
    next((data / "test").glob("*_masks.tif")).unlink()
    next((data / "test").glob("*.tif")).unlink()
    with pytest.raises(BadInput, match=r"the images in .* changed while the run was starting"):
        carried_out(plan)


def test_weights_that_changed_since_the_plan_are_refused(
    carried_out, small_data, small_store, tmp_path
):
    path = tmp_path / "w.safetensors"
    shutil.copy(small_store.weights, path)
    plan = plan_training(small_data, model=str(path))
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(BadInput, match=r"w.safetensors changed while the run was starting"):
        carried_out(plan)


def test_warnings_are_counted_by_kind_place_and_phase():
    log = WarningLog()
    with log.listening():
        for phase in ("data", "train"):
            log.phase = phase
            for _ in range(3):
                warnings.warn("put_ has no deterministic implementation", UserWarning, stacklevel=1)
        warnings.warn("another", FutureWarning, stacklevel=1)
    records = log.records()
    assert [(r.phase, r.category, r.count) for r in records] == [
        ("data", "UserWarning", 3),
        ("train", "UserWarning", 3),
        ("train", "FutureWarning", 1),
    ]
    assert records[0].file == __file__


def test_a_worker_ends_with_its_caller(tmp_path):
    """Its standard input closes when the caller goes, however it goes."""
    script = (
        "import time\n"
        "from cellrepro.lab.process import end_with_caller\n"
        "end_with_caller()\n"
        "print('on', flush=True)\n"
        "time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout.readline() == b"on\n"
        process.stdin.close()
        assert process.wait(timeout=10) == 1


def test_refusals_are_told_apart():
    assert issubclass(BadInput, ValueError)
    assert issubclass(NotPossibleHere, RuntimeError)
    assert (BadInput.exit_code, NotPossibleHere.exit_code) == (2, 3)


def test_a_plan_carried_out_quietly_says_nothing(small_store, no_worker, capsys):
    plan = plan_training(small_store.data, store=small_store.root, **SMALL)
    store = Store(small_store.root)
    assert carry_out(plan, store=store, repeats=1, quiet=True).judgement.overall is None
    assert capsys.readouterr() == ("", "")
    assert find_model(small_store.key, store).architecture == "tiny"
