"""One spec carried out in processes of its own, refused before, or ended in between."""

import importlib
import json
import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest
import torch

import cellrepro
from cellrepro.extras import needs
from cellrepro.images.folder import read_folder
from cellrepro.model.network import seeded_network
from cellrepro.process import calling
from cellrepro.process.child import Event
from cellrepro.process.machine_here import machine_here
from cellrepro.process.process_ends import RunError, ended_with, reworded
from cellrepro.process.setup import Setup
from cellrepro.profiles import numeric_variables, profiles
from cellrepro.profiles.profiles import load
from cellrepro.progress_count import Progress
from cellrepro.run import repeats, segment
from cellrepro.run.options import SegmentationOptions, TrainingOptions
from cellrepro.run.planning import plan_segmentation, plan_training
from cellrepro.store.checkpoints import BrokenCheckpoint
from cellrepro.store.ledger import LEDGER, STAGES, LedgerRow
from cellrepro.store.row_tables import read_rows
from cellrepro.store.store import Store
from conftest import SMALL, options, run_command
from samebits.arithmetic.portable_mode import NotPortable
from samebits.errors import BadInput, NotPossibleHere
from samebits.generator_states import generators_kept
from samebits.tensor_digests import tensors_digest
from samebits.trace.observer import Site

# -- planned -------------------------------------------------------------------------------


def test_defaults_follow_the_network(small_data, small_store):
    spec = plan_training(TrainingOptions(data=small_data)).spec
    assert (spec.learning_rate, spec.images_per_epoch) == (1e-3, 48)
    assert (spec.mode, spec.profile, spec.data_seed) == ("strict", "cpu", "cellpose")
    spec = plan_training(TrainingOptions(data=small_data, model="cpsam")).spec
    assert (spec.learning_rate, spec.images_per_epoch) == (1e-5, None)
    spec = plan_training(
        TrainingOptions(data=small_data, model=small_store.key, store=small_store.root)
    ).spec
    assert (spec.learning_rate, spec.images_per_epoch) == (1e-3, 48)
    assert spec.model == f"{small_store.key}/{small_store.machine}/0"
    assert spec.model_digest == small_store.answer.json["repeats"][0]["weights"]


def test_without_a_model_cellpose_segments_with_its_own(small_data):
    """Of the version that segments; the spec is that of the network by its name."""
    usual = plan_segmentation(SegmentationOptions(data=small_data)).spec
    assert usual.model == "cpsam_v2"
    named = plan_segmentation(SegmentationOptions(data=small_data, model="cpsam_v2")).spec
    assert usual.key == named.key
    for version, network in (("4.0.9", "cpsam"), ("3.1.1.2", "cyto3")):
        plan = plan_segmentation(SegmentationOptions(data=small_data, cellpose=version))
        assert plan.spec.model == network


def test_says_beforehand_what_will_be_vacuous(small_data, tmp_path, monkeypatch):
    for (
        name
    ) in numeric_variables.NUMERIC_VARIABLES:  # what they are set to here is a notice of its own
        monkeypatch.delenv(name, raising=False)
    (notice,) = plan_training(TrainingOptions(data=small_data, epochs=1)).notices
    assert notice.startswith("this run will be vacuous: 1 epoch trains nothing")
    shutil.copy(next((small_data / "test").glob("*[0-9].tif")), tmp_path / "alone.tif")
    (notice,) = plan_segmentation(
        SegmentationOptions(data=tmp_path, model="tiny")  # needs no masks
    ).notices
    assert "has learnt nothing yet" in notice


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"repeats": 0}, "repeats must be a whole number of at least 1, got 0"),
        ({"checkpoint_every": -1}, "checkpoint_every is -1"),
        ({"keep_checkpoints": True, "checkpoint_every": 0}, "keep_checkpoints is 'all' with 0"),
        ({"operation_steps": [1]}, r"operation_steps is \(1,\), and ledger is not 'ops'"),
        ({"operation_steps": [-1], "ledger": "ops"}, "operation_steps.0 is -1"),
        ({"loose": "relu"}, "mode strict does not hold"),
    ],
    ids=str,
)
def test_refuses_before_anything_is_started(small_data, tmp_path, no_child, asked, message):
    with pytest.raises(BadInput, match=message):
        cellrepro.train(small_data, store=tmp_path / "outputs", **asked)
    assert list(tmp_path.iterdir()) == []


def test_of_an_unfinished_training_whose_spec_is_damaged_that_is_said(
    small_data, tmp_path, no_child
):
    folder = tmp_path / "outputs" / "unfinished" / "key" / "machine" / "0"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text("{")
    expected = "only key/machine/0: its spec cannot be read; train without resume"
    with pytest.raises(BadInput, match=expected):
        cellrepro.train(small_data, store=tmp_path / "outputs", resume=True, quiet=True)


# -- carried out ---------------------------------------------------------------------------


@pytest.mark.slow
def test_the_callers_environment_does_not_matter(small_store, tmp_path):
    """Other numeric variables, another folder, one with a module of a taken name in it."""
    (tmp_path / "random.py").write_text("raise ImportError('not this one')")
    (tmp_path / "cellpose.py").write_text("raise ImportError('nor this one')")
    variables = {
        "OMP_NUM_THREADS": "1",
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:2",
    }
    answer = run_command(
        *("train", os.path.relpath(small_store.data, tmp_path), "--json"),
        *options(**SMALL, repeats=1, store="here"),
        cwd=tmp_path,
        env={**os.environ, **variables},
    )
    assert (answer.code, answer.json["key"]) == (0, small_store.key)
    (actual,), expected = answer.json["repeats"], small_store.answer.json["repeats"][0]
    assert (actual["weights"], actual["masks"]) == (expected["weights"], expected["masks"])
    assert Path(tmp_path, "here", "runs", small_store.key, small_store.machine, "0").is_dir()
    assert "CUBLAS_WORKSPACE_CONFIG=:4096:2 (:4096:8 instead)" in answer.err


def test_what_a_run_records(small_store):
    store = Store(small_store.root)
    repeat = store.find(f"{small_store.key}/1")
    manifest = repeat.manifest
    assert (manifest.repeat, manifest.vacuous, manifest.moved) == (1, [], {})
    assert (manifest.device, manifest.threads) == ("cpu", 2)
    assert manifest.machine.name == small_store.machine == machine_here(load("cpu")).name
    assert manifest.variables["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert manifest.switches["deterministic_algorithms"]
    assert (manifest.data.n_train, manifest.data.n_test, manifest.data.segmented) == (3, 1, "test")
    assert manifest.training.n_steps == 4 * 16
    assert manifest.training.learning_rates == pytest.approx([0, 0.01 / 9, 0.02 / 9, 0.03 / 9])
    assert 0 < manifest.weights.n_changed < manifest.model.n_parameters
    (record,) = manifest.masks.values()
    assert record.n_objects == repeat.masks("synth_003").max() > 5
    assert set(manifest.seconds) == {"import", "data", "model", "train", "segment", "score"}
    (image,) = read_folder(small_store.data).test
    assert (store.image(repeat.spec.data_digest, image.name) == image.image).all()
    assert (store.truth(repeat.spec.data_digest, image.name) == image.masks).all()


def test_the_ledger_of_a_run_follows_the_chain(small_store):
    """From environment to masks; outlines before labels, the smaller difference."""
    repeat = Store(small_store.root).find(f"{small_store.key}/0")
    entries = read_rows(repeat.folder / LEDGER, LedgerRow)
    assert list(dict.fromkeys(entry.stage for entry in entries)) == list(STAGES)
    of_spec = {one.name: json.loads(one.detail or "null") for one in entries if one.stage == "spec"}
    assert of_spec == repeat.spec.model_dump(mode="json")
    record = repeat.manifest.masks["synth_003"]
    assert [(entry.name, entry.digest) for entry in entries if entry.stage == "masks"] == [
        ("synth_003 outlines", record.canonical_digest),
        ("synth_003 labels", record.digest),
    ]
    assert {entry.step for entry in entries if entry.stage == "backward"} == set(range(64))


def test_a_training_that_diverges_is_stored_as_such(small_data, tmp_path, wholeness):
    """Losses of NaN are results too, and have no number in JSON."""
    given = {"epochs": 3, "images_per_epoch": 2, "learning_rate": 1e30}
    outcome = cellrepro.train(small_data, store=tmp_path, repeats=1, quiet=True, **given)
    (repeat,) = Store(tmp_path).run(outcome.key).repeats
    assert repeat.manifest.training.train_losses[-1] != repeat.manifest.training.train_losses[-1]
    assert "no object was found" in "; ".join(repeat.manifest.vacuous)
    assert wholeness(tmp_path) == [f"{outcome.key}/0"]


def test_a_segmentation_leaves_no_network_and_no_image_that_is_stored(
    small_store, small_data, tmp_path, monkeypatch
):
    """It needs the digest of its network alone, and each image once for the whole store."""
    plan = plan_segmentation(
        SegmentationOptions(data=small_data, model=str(small_store.weights), store=tmp_path)
    )
    _, record = plan.request.build(torch.device("cpu"), tmp_path / "no such folder")
    assert record.initial_weights == plan.spec.model_digest
    asked = []

    def in_child(task, *arguments, **options):
        asked.append(task.keywords["with_images"])
        raise BadInput("enough")

    monkeypatch.setattr(repeats, "in_child", in_child)
    with_images = shutil.copytree(small_store.root, tmp_path / "copy")
    for store in (with_images, tmp_path / "empty"):
        with pytest.raises(BadInput, match="enough"):
            segment.segment(small_data, model=str(small_store.weights), store=store, quiet=True)
    assert asked == [False, True]


def test_an_interrupted_run_ends_its_worker_and_leaves_nothing(small_data, tmp_path, monkeypatch):
    workers = []

    def note(bar, text):
        children = psutil.Process().children(recursive=True)
        work = "cellrepro.run.worker:make_repeat"
        workers.extend(child for child in children if work in child.cmdline())
        raise KeyboardInterrupt

    monkeypatch.setattr("cellrepro.progress_log.Lines.note", note)
    with pytest.raises(KeyboardInterrupt):
        cellrepro.train(small_data, store=tmp_path / "outputs", epochs=2)
    assert len(workers) == 1
    assert psutil.wait_procs(workers, timeout=5)[1] == []
    assert list(tmp_path.iterdir()) == []


def test_a_switch_that_moved_costs_no_run(
    tmp_path, small_data, module_for_children, monkeypatch, capfd, wholeness
):
    """It is stored, and manifest, verdict and user are told what did not hold to its end."""
    moving = module_for_children(
        "moving",
        "from cellrepro.run import worker\n"
        "def carry_out(child, **arguments):\n"
        "    import torch\n"
        "    from cellrepro.model import inference\n"
        "    segment = inference.segment\n"
        "    def and_move(*images, **settings):\n"
        "        torch.backends.cudnn.benchmark = True\n"
        "        return segment(*images, **settings)\n"
        "    inference.segment = and_move\n"
        "    return worker.make_repeat(child, **arguments)\n",
    )

    def in_child(task, *arguments, **options):
        return calling.in_child(partial(moving.carry_out, **task.keywords), *arguments, **options)

    monkeypatch.setattr(repeats, "in_child", in_child)
    outcome = segment.segment(small_data, model="tiny", repeats=1, store=tmp_path / "outputs")
    assert wholeness(tmp_path / "outputs") == [f"{outcome.key}/0"]
    assert outcome.repeats[0].manifest.moved == {"cudnn_benchmark": True}
    said = "the switch cudnn_benchmark moved from False to True during repeat 0"
    assert any(said in reason for reason in outcome.judgement.reasons)
    assert f"note: {said}" in capfd.readouterr().err


@pytest.mark.slow
def test_what_changed_since_the_plan_is_refused(small_data, small_store, tmp_path):
    data, weights = tmp_path / "nuclei", tmp_path / "w.safetensors"
    shutil.copytree(small_data, data)
    weights.write_bytes(small_store.weights.read_bytes())
    short = {"epochs": 1, "images_per_epoch": 1, "store": tmp_path / "outputs"}
    plans = (
        plan_training(TrainingOptions(data=data, **short)),
        plan_training(TrainingOptions(data=small_data, model=str(weights), **short)),
    )
    for path in (data / "test").iterdir():
        path.unlink()
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    for plan, what in zip(plans, ("the images in .*nuclei", "the weights .*w.saf"), strict=True):
        with pytest.raises(BadInput, match=f"{what}.* changed while the run was starting"):
            repeats.carry_out(plan, repeats=1, quiet=True)
    assert not (tmp_path / "outputs" / "runs").exists()


# -- how a child ends ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "why", "expected", "exit_code"),
    [
        (1, "OSError: [Errno 28] No space left on device: 'w'", "no space is left on the disk", 3),
        (1, "RuntimeError: put_ does not have a deterministic implementation", "mode strict", 3),
        (-9, "exit code -9 and no answer", "the system killed the process", 3),
        (1, "ZeroDivisionError: division by zero", "failed: ZeroDivisionError.*last words", 1),
    ],
    ids=["disk", "strict", "killed", "a fault"],
)
def test_how_an_end_is_told(code, why, expected, exit_code):
    told = ended_with(why, label="train repeat 1/2", code=code, log="the end")
    assert re.search(rf"(?s){expected}", str(told))
    assert told.exit_code == exit_code
    again = pickle.loads(pickle.dumps(told))
    assert (str(again), again.status, again.exit_code) == (str(told), told.status, exit_code)


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (NotPortable(Site("aten.sort", None, "a.py:1", "forward"), "has no portable form"), 3),
        (BrokenCheckpoint("epoch-1 is no whole checkpoint"), 2),
        (needs(["zarr"], what="this"), 3),
        (RunError("killed", "", label="rank 1"), 3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_told_in_other_words_keeps_what_it_says_and_its_exit_code(error, exit_code):
    told = reworded(error, f"rank 1 ended the training: {error}")
    for copy in (told, pickle.loads(pickle.dumps(told))):
        assert str(copy) == f"rank 1 ended the training: {error}"
        assert copy.exit_code == exit_code
        assert getattr(copy, "modules", None) == getattr(error, "modules", None)
        assert getattr(copy, "status", None) == getattr(error, "status", None)


@pytest.fixture
def module_for_children(tmp_path, monkeypatch):
    """Write a module that this process and its children can import."""

    def written(name, source):
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return written


def test_a_child_takes_and_answers_what_it_is_given(module_for_children):
    """Of whatever kind, with its events in between; an end without an answer is none."""
    away = module_for_children(
        "away",
        "import os\n"
        "from samebits.errors import NotPossibleHere\n"
        "def double(child, *, given):\n"
        "    child.phase('one')\n"
        "    print('what libraries print')\n"
        "    return {path: (n, n) for path, n in given.items()}\n"
        "def gone(child):\n"
        "    os._exit(0)\n"
        "def refusing(child):\n"
        "    raise NotPossibleHere('no GPU')\n"
        "def failing(child):\n"
        "    raise MemoryError('of a fault')\n",
    )
    events = []
    double = partial(away.double, given={Path("a"): 2})
    answer = calling.in_child(double, None, label="it", steps=1, quiet=True, on_event=events.append)
    assert answer == {Path("a"): (2, 2)}
    assert events == [Event("phase", "one")]
    with pytest.raises(RunError, match="it failed: exit code 0 and no answer"):
        calling.in_child(away.gone, None, label="it")
    with pytest.raises(NotPossibleHere, match="no GPU"):
        calling.in_child(away.refusing, None, label="it")
    with pytest.raises(RunError, match="memory is short") as ended:
        calling.in_child(away.failing, None, label="it")
    assert ended.value.status == "out-of-memory"


def test_a_bar_counts_what_is_done_not_what_begins():
    bar = Progress(2, "images")
    listener = calling.counting(bar)
    for kind in ("phase", "done", "now", "phase", "done"):
        listener(Event(kind, "an image"))
    assert (bar.done, bar.total) == (2, 2)


def test_whatever_a_child_prints_its_end_is_told(tmp_path, module_for_children):
    """Before it begins, in any encoding, and where its answer does not fit on the disk."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nprint('{}')\nprint('half a line', end='')\nsys.stdout.flush()\n"
    )
    printing = module_for_children(
        "printing",
        "import os, resource\n"
        "def well(child):\n"
        "    child.phase('one')\n"
        "    return 3\n"
        "def failing(child):\n"
        "    os.write(2, 'zu groß für mich\\n'.encode('latin-1'))\n"
        "    raise ValueError('the real reason')\n"
        "def too_much(child):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "    return bytes(10_000)\n"
        "def unheard_of(child):\n"
        "    return lambda: 3\n",
    )
    events = []
    assert calling.in_child(printing.well, None, label="it", on_event=events.append) == 3
    assert events == [Event("phase", "one")]
    for work, why in {
        printing.failing: r"(?s)it failed: ValueError\('the real reason'\); .*zu gro.* f.*r mich",
        printing.too_much: r"its answer cannot be written to .* TMPDIR .*: .*File too large",
        printing.unheard_of: "it failed: its answer cannot be sent",
    }.items():
        with pytest.raises(RunError, match=why):
            calling.in_child(work, None, label="it")


def test_a_child_ends_with_its_caller():
    """Its standard input closes when the caller goes, however it goes."""
    script = (
        "import time\n"
        "from cellrepro.process.child import end_with_caller\n"
        "end_with_caller()\n"
        "print('on', flush=True)\n"
        "time.sleep(60)"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as child:
        assert child.stdout.readline() == b"on\n"
        child.stdin.close()
        assert child.wait(timeout=10) == 1


def test_mode_off_draws_anew_every_time():
    """Initial weights and generators; a different mode begins alike."""

    def begun(mode):
        setup = Setup(profiles.load("cpu"), mode, None if mode == "off" else 0)
        setup.seed_all()
        network = seeded_network("tiny", seed=setup.seed)
        return torch.rand(1).item(), tensors_digest(network.state_dict())

    with generators_kept():
        assert begun("fast") == begun("fast")
        assert not {*begun("off")} & {*begun("off"), *begun("fast")}


def test_a_training_that_differs_names_the_command_that_finds_where(small_data, invoke, tmp_path):
    """Mode off seeds nothing, so that two repeats never start alike."""
    asked = options(mode="off", epochs=2, images_per_epoch=2, repeats=2, store=tmp_path / "store")
    answer = invoke("train", small_data, *asked)
    assert answer.code == 1
    (command,) = re.findall(r"the first step at which they differ: cellrepro (.*)", answer.out)
    verb, a, b, *of_store = shlex.split(command)
    assert (verb, of_store[0]) == ("diverge", "--store")
    compared = invoke("compare", a, b, *of_store)
    assert compared.out.startswith("different: ")
    assert "weights" in compared.out.splitlines()[0]
