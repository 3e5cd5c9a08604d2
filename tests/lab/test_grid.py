"""Many specs through headless notebooks: checked before, kept when they fail, never run twice."""

import json
import shutil
from types import SimpleNamespace

import nbformat
import pytest
import torch
import yaml

from cellrepro.determinism import profiles
from cellrepro.determinism.profiles import load
from cellrepro.errors import BadInput
from cellrepro.lab import grid as module
from cellrepro.lab import run
from cellrepro.lab.grid import find_notebook, planned, read_grid, run_grid
from cellrepro.lab.machine import HOLD_VARIABLE, machine_here
from cellrepro.store.digests import file_digest
from cellrepro.store.store import Store


@pytest.fixture
def write(tmp_path, notebook, small_data):
    """Write a grid file over the small data; returns its path."""

    def to_file(*, fixed=(), **fields):
        path = tmp_path / "grid.yaml"
        content = {
            "notebook": str(notebook),
            "fixed": {"data": str(small_data), **dict(fixed)},
            **fields,
        }
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    return to_file


@pytest.fixture
def store(tmp_path):
    return tmp_path / "outputs"


@pytest.fixture
def no_child(monkeypatch):
    """Fail if a process is started, but for a look at the machine, once."""
    machine_here(load("cpu"))

    def refuse(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(module.subprocess, "Popen", refuse)


# -- read ----------------------------------------------------------------------------------


def test_every_combination_is_a_spec(write, store):
    grid = read_grid(
        write(vary={"seed": [0, 1], "mode": ["fast", "warn", "strict"]}, repeats=2), store=store
    )
    assert [tuple(point.varied.values()) for point in grid.points] == [
        (seed, mode) for seed in (0, 1) for mode in ("fast", "warn", "strict")
    ]
    assert len({point.plan.spec.key for point in grid.points}) == 6
    assert grid.repeats == 2
    assert not store.exists()


def test_the_notebooks_defaults_count(write, store):
    (point,) = read_grid(write(), store=store).points
    spec = point.plan.spec
    assert (spec.epochs, spec.images_per_epoch, spec.learning_rate) == (2, 1, 0.01)
    assert point.label == "the one spec"


def test_excluded_combinations_are_left_out(write, store):
    path = write(
        vary={"seed": [0, 1], "profile": ["cpu", "cpu-1thread"], "mode": ["fast", "strict"]},
        exclude=[{"profile": "cpu-1thread", "mode": "fast"}, {"seed": 1}],
    )
    varied = [tuple(point.varied.values()) for point in read_grid(path, store=store).points]
    assert varied == [(0, "cpu", "fast"), (0, "cpu", "strict"), (0, "cpu-1thread", "strict")]


def test_set_replaces_what_the_file_says(write, store):
    path = write(fixed={"epochs": 3}, vary={"seed": [0, 1]})
    grid = read_grid(path, store=store, overrides={"epochs": 4, "seed": 7})
    (point,) = grid.points
    assert (point.plan.spec.epochs, point.plan.spec.seed) == (4, 7)


def test_set_with_a_list_replaces_an_axis(write, store):
    path = write(
        fixed={"epochs": 3},
        vary={"seed": [0, 1, 2], "mode": ["fast", "strict"]},
        exclude=[{"seed": 0, "mode": "fast"}],
    )
    overrides = {"seed": [0], "epochs": [4, 5], "mode": "strict"}
    grid = read_grid(path, store=store, overrides=overrides)
    found = [(p.plan.spec.seed, p.plan.spec.mode, p.plan.spec.epochs) for p in grid.points]
    assert found == [(0, "strict", 4), (0, "strict", 5)]


def test_no_device_waits_for_another(write, store):
    """A queue each: a GPU begins at once although the processor's points come first."""
    grid = read_grid(write(vary={"seed": [0, 1], "profile": ["cpu", "cuda"]}), store=store)
    points = sorted(grid.points, key=lambda point: point.varied["profile"])
    queues = module._Queues(points, None)
    assert (queues.n_threads, queues.take(), queues.take(), queues.take()) == (2, 0, 2, None)
    queues.done(2)
    assert (queues.take(), queues.take()) == (3, None)
    queues = module._Queues(points, 3)
    assert [queues.take() for _ in range(4)] == [0, 2, 1, 3]


def test_relative_paths_mean_what_they_meant_here(write, store, small_data, monkeypatch):
    monkeypatch.chdir(small_data.parent)
    (point,) = read_grid(write(fixed={"data": "nuclei"}), store="here").points
    assert point.parameters["data"] == str(small_data)
    assert point.parameters["store"] == str(small_data.parent / "here")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"fixed": {"epoch": 3}}, r"minimal.ipynb takes .*epochs.*, not epoch$"),
        ({"vary": {"sead": [0, 1]}}, r"takes .*seed.*, not sead$"),
        ({"fixed": {"a": 1}, "vary": {"b": [1]}}, r"not a, b$"),
        ({"fixed": {"seed": 1}, "vary": {"seed": [0]}}, "seed is both fixed and varied"),
        ({"fixed": {"repeats": 2}}, "repeats is set by the grid itself"),
        ({"fixed": {"store": "there"}}, "store is set by the grid itself"),
        ({"exclude": [{"seed": 1}]}, "`exclude` names seed, which does not vary"),
        ({"vary": {"seed": []}}, "`vary` has no value for seed"),
        ({"vary": {"seed": [1]}, "exclude": [{"seed": 1}]}, "leaves no spec to run"),
        ({"vary": {"seed": [1, 1]}}, "seed 1 and seed 1 are the same spec"),
        ({"vary": {"behave": ["well", "raise"]}}, "behave well and behave raise are the same spec"),
        ({"vary": {"seed": 3}}, r"vary.seed is 3"),
        ({"repeats": 0}, "repeats is 0"),
        ({"repeat": 2}, "repeat is 2"),
        ({"fixed": {"data": "/absent"}}, "/absent"),
        ({"vary": {"profile": ["cpu", "gpu9"]}}, "unknown profile 'gpu9'"),
        ({"vary": {"mode": ["strict", "loose"]}}, "'loose'"),
        ({"vary": {"seed": [0, -1]}}, "seed is -1"),
        ({"vary": {"model": ["tiny", None]}}, "model is None"),
        ({"vary": {"model": ["tiny", 7]}}, "model is 7"),
        ({"fixed": {"epochs": "many"}}, "epochs is 'many'"),
        ({"fixed": {"epochs": 0}}, "epochs is 0"),
        ({"notebook": "/absent.ipynb"}, "no notebook '/absent.ipynb'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_refused_before_anything_runs(write, store, no_child, fields, expected):
    with pytest.raises(BadInput, match=expected):
        read_grid(write(**fields), store=store)
    assert not store.exists()


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="this machine has the device")
def test_what_this_machine_cannot_carry_out(write, store, capsys):
    """It is no fault of the file: the same grid may run elsewhere."""
    path = write(vary={"profile": ["cpu", "mps"]}, repeats=3)
    runs = planned(read_grid(path, store=store), store=store)
    assert [run.status for run in runs] == ["planned", "not-here"]
    assert "needs the device 'mps'" in runs[1].reason
    assert not store.exists()
    only = read_grid(path, store=store, overrides={"profile": ["mps"]})
    (run,) = run_grid(only, store=store)
    assert (run.status, run.machine) == ("failed", "")
    said = capsys.readouterr().err
    assert f"{run.key}/0 profile mps: failed" in said
    for index in (1, 2):
        assert f"{run.key}/{index} profile mps: not run" in said
    (failure,) = Store(store).failures()
    assert (failure["folder"], failure["repeat"]) == (str(run.folder), 0)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "cannot be read as a notebook"),
        ("{}", "cannot be read as a notebook"),
        ("no JSON", "cannot be read as a notebook"),
        ('{"cells": []', "cannot be read as a notebook"),
        ("[]", "cannot be read as a notebook"),
    ],
    ids=["empty", "no cells", "text", "cut short", "list"],
)
@pytest.mark.filterwarnings("ignore::UserWarning:papermill")
def test_a_file_that_is_no_notebook(write, store, tmp_path, content, expected):
    (tmp_path / "odd.ipynb").write_text(content)
    with pytest.raises(BadInput, match=rf"odd.ipynb {expected}"):
        read_grid(write(notebook=str(tmp_path / "odd.ipynb")), store=store)


def test_a_notebook_without_parameters(write, store, tmp_path):
    path = tmp_path / "plain.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 + 1")]), path)
    with pytest.raises(BadInput, match=r"plain.ipynb (takes no parameters|cannot be read)"):
        read_grid(write(notebook=str(path)), store=store)


def test_a_default_that_is_no_literal(write, store, tmp_path, write_notebook):
    path = write_notebook(tmp_path / "odd.ipynb", parameters="data = 'x'\nseed = 1 + 1\nepochs = 2")
    with pytest.raises(BadInput, match=r"parameter seed is .*; expected a plain literal"):
        read_grid(write(notebook=str(path)), store=store)


def test_notebooks_are_found_by_name(tmp_path, write_notebook, monkeypatch):
    path = write_notebook(tmp_path / "notebooks" / "mine.ipynb")
    monkeypatch.chdir(tmp_path)
    assert find_notebook("mine") == find_notebook("mine.ipynb") == path
    assert find_notebook("notebooks/mine.ipynb") == path
    assert find_notebook("mine", near=tmp_path / "grids") == path
    with pytest.raises(BadInput, match=r"no notebook 'other'; .* mine"):
        find_notebook("other")


@pytest.mark.parametrize("workers", [0, -1])
def test_refuses_workers(write, store, no_child, workers):
    with pytest.raises(BadInput, match=rf"workers is {workers}; expected 1 or more"):
        run_grid(read_grid(write(), store=store), store=store, workers=workers)
    assert not store.exists()


def test_a_dry_run_does_nothing(write, store, no_child, invoke):
    path = write(vary={"seed": [0, 1]})
    runs = planned(read_grid(path, store=store), store=store)
    assert [run.status for run in runs] == ["planned", "planned"]
    answer = invoke("grid", path, "--dry-run", "--set", "mode=fast", "--store", store, "--json")
    assert answer.code == 0
    assert [run["status"] for run in answer.json["runs"]] == ["planned", "planned"]
    assert answer.json["runs"][0]["key"] != runs[0].key
    assert answer.json["runs"][0]["folder"].startswith(str(store))
    assert not store.exists()


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ("seed", "expected NAME=VALUE"),
        ("=3", "expected NAME=VALUE"),
        ("seed={a", "is not YAML"),
        ("sead=3", "not sead"),
        ("seed=[0, {}]", "seed is "),
        ("seed=[]", "no value for seed"),
        ("data=/absent", "/absent"),
    ],
)
def test_bad_overrides(write, store, no_child, invoke, pair, expected):
    answer = invoke("grid", write(), "--set", pair, "--store", store, "--json")
    assert (answer.code, answer.out) == (2, "")
    assert expected in answer.err
    assert not store.exists()


# -- carried out ---------------------------------------------------------------------------

BEHAVIOURS = ["raise", "kill", "nothing", "other seed", "well"]


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory, notebook, small_data):
    """One notebook in five behaviours, each with a seed of its own, two at a time."""
    from conftest import run_command

    folder = tmp_path_factory.mktemp("carried_out")
    store = folder / "outputs"
    pairs = [{"seed": seed, "behave": behave} for seed, behave in enumerate(BEHAVIOURS)]
    path = folder / "grid.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "notebook": str(notebook),
                "fixed": {"data": str(small_data)},
                "vary": {"seed": list(range(5)), "behave": BEHAVIOURS},
                "exclude": [
                    {"seed": seed, "behave": behave}
                    for seed in range(5)
                    for behave in BEHAVIOURS
                    if {"seed": seed, "behave": behave} not in pairs
                ],
            }
        )
    )
    answer = run_command(
        "grid", path, "--workers", 2, "--store", store, "--json", cwd=notebook.parent
    )
    return SimpleNamespace(store=store, path=path, answer=answer, folder=folder)


@pytest.fixture
def runs(carried_out):
    """By behaviour, what the command answered."""
    return {run["varied"]["behave"]: run for run in carried_out.answer.json["runs"]}


@pytest.mark.slow
def test_a_failing_notebook_does_not_stop_the_others(carried_out, runs):
    assert carried_out.answer.code == 1
    assert {name: run["status"] for name, run in runs.items()} == {
        "raise": "failed",
        "kill": "failed",
        "nothing": "failed",
        "other seed": "failed",
        "well": "done",
    }
    assert [run.key for run in Store(carried_out.store).runs()] == [runs["well"]["key"]]
    assert not (carried_out.store / ".staging").exists()


@pytest.mark.slow
def test_failures_say_why(runs):
    assert runs["raise"]["reason"] == "ValueError: seed 0 is not for me"
    assert "the kernel was killed" in runs["kill"]["reason"]
    assert "never called cellrepro.train" in runs["nothing"]["reason"]
    key = runs["other seed"]["key"]
    assert f"instead of {key}/0" in runs["other seed"]["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("behave", BEHAVIOURS[:4])
def test_what_a_failure_left_is_kept(carried_out, runs, behave):
    run = runs[behave]
    folder = carried_out.store / "failed" / run["key"] / run["machine"] / "0"
    assert run["folder"] == str(folder)
    record = json.loads((folder / "failure.json").read_text())
    assert (record["key"], record["repeat"]) == (run["key"], 0)
    assert record["reason"] == run["reason"]
    assert record["spec"]["seed"] == run["varied"]["seed"]
    kept = nbformat.read(folder / "notebook.ipynb", 4)
    assert any("injected-parameters" in cell.metadata.get("tags", []) for cell in kept.cells)


@pytest.mark.slow
def test_a_killed_kernel_is_a_failure_although_its_notebook_says_completed(carried_out, runs):
    """Papermill 2.7.0 writes ``exception: null`` and ``completed``; if that changes, be glad."""
    path = (
        carried_out.store
        / "failed"
        / runs["kill"]["key"]
        / runs["kill"]["machine"]
        / "0"
        / "notebook.ipynb"
    )
    metadata = nbformat.read(path, 4).metadata.papermill
    assert not metadata.exception
    assert runs["kill"]["status"] == "failed"


@pytest.mark.slow
def test_the_store_keeps_the_executed_notebook(carried_out, runs, wholeness):
    key = runs["well"]["key"]
    assert wholeness(carried_out.store) == [f"{key}/0"]
    _, repeat = Store(carried_out.store).find(f"{key}/0")
    path = repeat.folder / "notebook.ipynb"
    assert repeat.manifest.files["notebook.ipynb"] == file_digest(path)
    executed = nbformat.read(path, 4)
    (injected,) = [
        cell for cell in executed.cells if "injected-parameters" in cell.metadata.get("tags", [])
    ]
    assert "seed = 4" in injected.source
    assert f"trained {key}" in str(executed.cells[-1].outputs)
    assert runs["well"]["folder"] == str(carried_out.store / "runs" / key)


@pytest.mark.slow
def test_the_source_notebook_and_its_folder_are_left_alone(carried_out, notebook):
    assert [item.name for item in notebook.parent.iterdir()] == [notebook.name]
    assert all(cell.outputs == [] for cell in nbformat.read(notebook, 4).cells)
    assert {item.name for item in carried_out.folder.iterdir()} == {"grid.yaml", "outputs"}


@pytest.mark.slow
def test_progress_and_failures_go_to_standard_error(carried_out):
    assert carried_out.answer.out.startswith("{")
    assert "grid: 5/5" in carried_out.answer.err
    assert (
        carried_out.answer.err.count("\nfailed   ") + carried_out.answer.err.startswith("failed   ")
        == 4
    )


@pytest.fixture
def again(carried_out, tmp_path):
    """The same grid, of the well-behaved spec alone, over a copy of what was stored."""
    content = yaml.safe_load(carried_out.path.read_text())
    content["fixed"] |= {"behave": "well"}
    content |= {"vary": {"seed": [4]}, "exclude": []}
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    shutil.copytree(carried_out.store, tmp_path / "outputs")
    return tmp_path / "again.yaml", tmp_path / "outputs"


@pytest.mark.slow
def test_present_ones_are_not_run_again(again, no_child, invoke, listing):
    path, store = again
    before = listing(store)
    for extra in ([], ["--dry-run"]):
        answer = invoke("grid", path, "--store", store, "--json", *extra)
        assert answer.code == 0
        assert [run["status"] for run in answer.json["runs"]] == ["present"]
        assert listing(store) == before
    words = invoke("grid", path, "--store", store)
    assert words.out.startswith("present  ")


@pytest.mark.slow
def test_the_train_command_sees_what_the_grid_stored(again, invoke, no_child, small_data):
    """One store, one key, whoever filled it."""
    _, store = again
    answer = invoke(
        *("train", small_data, "--seed", 4, "--epochs", 2, "--images-per-epoch", 1),
        *("--learning-rate", 0.01, "--repeats", 1, "--store", store, "--json"),
    )
    assert answer.code == 0
    assert [repeat["index"] for repeat in answer.json["repeats"]] == [0]


@pytest.mark.slow
def test_a_repeat_of_the_grid_is_one_of_the_train_command(
    carried_out, runs, command, small_data, tmp_path
):
    """The grid's notebook trains in its own kernel; all that is digested is the worker's."""
    key = runs["well"]["key"]
    answer = command(
        *("train", small_data, "--seed", 4, "--epochs", 2, "--images-per-epoch", 1),
        *("--learning-rate", 0.01, "--repeats", 1, "--store", tmp_path / "outputs", "--json"),
    )
    assert (answer.json["key"], answer.json["repeats"][0]["machine"]) == (
        key,
        runs["well"]["machine"],
    )
    sides = []
    for store in (carried_out.store, tmp_path / "outputs"):
        (repeat,) = Store(store).run(key).repeats
        plain = repeat.manifest.model_dump(exclude={"started", "seconds", "peak_memory", "files"})
        for record in plain["masks"].values():
            del record["seconds"]
        ledger = {path.name: file_digest(path) for path in repeat.folder.glob("ledger*")}
        assert ledger
        sides.append((plain, ledger))
    assert sides[0] == sides[1]
    notebook = nbformat.read(repeat_notebook(carried_out.store, key), as_version=4)
    said = [output for cell in notebook.cells for output in cell.outputs]
    assert {output.name for output in said} == {"stdout"}  # nothing of what libraries print
    assert said[-1].text.endswith(f"trained {key} here\n")


def repeat_notebook(store, key):
    """The executed notebook of a run's only repeat."""
    (repeat,) = Store(store).run(key).repeats
    return repeat.folder / "notebook.ipynb"


def test_what_has_computed_before_gives_its_work_to_a_worker(write, store, monkeypatch):
    """Settings of the notebook's own would be in force; so would another environment."""
    (point, *_) = read_grid(write(), store=store).points
    assert not run._started_for(point.plan)  # no grid started this process
    monkeypatch.setenv(HOLD_VARIABLE, "held")
    monkeypatch.setattr(profiles, "require_at_profiles", lambda variables: None)
    monkeypatch.setattr(run, "sys", SimpleNamespace(modules={}))
    assert run._started_for(point.plan)
    for name in ("torch", "cellpose"):
        monkeypatch.setattr(run, "sys", SimpleNamespace(modules={name: None}))
        assert not run._started_for(point.plan)
    monkeypatch.undo()
    monkeypatch.setenv(HOLD_VARIABLE, "held")
    monkeypatch.setattr(run, "sys", SimpleNamespace(modules={}))
    assert not run._started_for(point.plan)  # started without the profile's variables


@pytest.mark.slow
def test_only_the_missing_repeat_is_run_and_a_failure_forgotten(again, wholeness):
    path, store = again
    content = yaml.safe_load(path.read_text()) | {"repeats": 2}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    grid = read_grid(path, store=store)
    spec = grid.points[0].plan.spec
    machine = grid.points[0].plan.machine
    with Store(store).staging() as area:
        Store(store).keep_failure(
            area, spec, machine=machine, repeat=1, reason="the power went out"
        )
    before = (store / "runs" / spec.key / machine / "0").stat().st_mtime_ns
    (run,) = run_grid(grid, store=store, quiet=True)
    assert run.status == "done"
    assert wholeness(store) == [f"{spec.key}/0", f"{spec.key}/1"]
    assert (store / "runs" / spec.key / machine / "0").stat().st_mtime_ns == before
    first, second = Store(store).run(spec.key).repeats
    assert first.manifest.weights == second.manifest.weights
    assert not (store / "failed" / spec.key).exists()
