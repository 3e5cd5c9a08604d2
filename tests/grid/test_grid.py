"""Many specs through headless notebooks: checked before, kept when they fail, never run twice."""

import json
import os
import re
import shutil
import textwrap
from types import SimpleNamespace

import nbformat
import pytest
import torch
import yaml

from cellrepro.grid.grid import planned, run_grid
from cellrepro.grid.notebook_execution import execute
from cellrepro.grid.packaged_files import find_notebook
from cellrepro.grid.points import read_grid
from cellrepro.process.calling import Children
from cellrepro.process.grid_handover import HANDOVER_FOLDER_VARIABLE
from cellrepro.run import plan_sources, repeats
from cellrepro.store.store import Store
from conftest import options, run_command, write_notebook
from samebits.digests import file_digest
from samebits.errors import BadInput


@pytest.fixture
def write(tmp_path, notebook, small_data):
    """Write a grid file over the small data; returns its path."""

    def to_file(*, fixed=(), **fields):
        path = tmp_path / "grid.yaml"
        fixed = {"data": str(small_data), **dict(fixed)}
        content = {"notebook": str(notebook), "fixed": fixed, **fields}
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    return to_file


@pytest.fixture
def store(tmp_path):
    return tmp_path / "outputs"


# -- read ----------------------------------------------------------------------------------


def test_every_combination_is_a_spec_and_the_notebooks_defaults_count(write, store):
    path = write(
        vary={"seed": [0, 1], "profile": ["cpu", "cpu-1thread"], "mode": ["fast", "strict"]},
        exclude=[{"profile": "cpu-1thread", "mode": "fast"}, {"seed": 1}],
        repeats=2,
    )
    grid = read_grid(path, store=store)
    varied = [tuple(point.varied.values()) for point in grid.points]
    assert varied == [(0, "cpu", "fast"), (0, "cpu", "strict"), (0, "cpu-1thread", "strict")]
    assert grid.repeats == 2
    spec = grid.points[0].plan.spec
    assert (spec.epochs, spec.images_per_epoch, spec.learning_rate) == (2, 1, 0.01)
    assert not store.exists()


def test_points_beside_the_combinations(write, store):
    add = [{"seed": 7, "mode": "warn"}, {"epochs": 5}]
    path = write(fixed={"mode": "fast"}, vary={"seed": [0, 1]}, add=add)
    points = read_grid(path, store=store).points
    specs = [(point.plan.spec.seed, point.plan.spec.mode) for point in points]
    assert specs == [(0, "fast"), (1, "fast"), (7, "warn"), (0, "fast")]
    assert points[3].label == "seed 0, epochs 5"


def test_arguments_of_train_seg_are_axes(write, store):
    """Also one that is a table; what has its default is the same spec as without it."""
    chances = {"synth_000": 3}
    path = write(
        notebook="01_seeded_training",
        fixed={"images_per_epoch": 1, "train_probs": chances},
        vary={"weight_decay": [0.1, 0.2], "augmentation": [True, False]},
    )
    specs = [point.plan.spec for point in read_grid(path, store=store).points]
    assert [(one.weight_decay, one.augmentation) for one in specs] == [
        *((0.1, True), (0.1, False)),
        *((0.2, True), (0.2, False)),
    ]
    assert {one.train_probs for one in specs} == {tuple(chances.items())}
    assert specs[3].label.endswith("weight decay 0.2, train probs synth_000 3, augmentation off")


def test_settings_of_a_segmentation_are_axes(write, store):
    path = write(
        notebook="06_inference_benchmark",
        fixed={"model": "tiny", "settings": {"flow_threshold": 0, "diameter": 20}},
        vary={"settings.diameter": [30, 60], "settings.normalize.percentile": [[1, 99], [3, 97]]},
    )
    overrides = {"settings.diameter": [45, 60], "settings.augment": True}
    points = read_grid(path, store=store, overrides=overrides).points
    told = [point.plan.spec.settings.not_default() for point in points]
    assert [(one["diameter"], one["normalize.percentile"][0]) for one in told] == [
        *((45, 1), (45, 3)),
        *((60, 1), (60, 3)),
    ]
    assert all(one["flow_threshold"] == 0 and one["augment"] for one in told)
    assert points[0].parameters["settings"]["diameter"] == 45
    with pytest.raises(BadInput, match="diametr: no such setting; do you mean diameter"):
        read_grid(path, store=store, overrides={"settings.diametr": 3})


def test_set_replaces_a_value_or_an_axis(write, store):
    path = write(
        fixed={"epochs": 3},
        vary={"seed": [0, 1, 2], "mode": ["fast", "strict"]},
        exclude=[{"seed": 0, "mode": "fast"}],
    )
    overrides = {"seed": [0], "epochs": [4, 5], "mode": "strict"}
    grid = read_grid(path, store=store, overrides=overrides, repeats=4)
    assert grid.repeats == 4
    found = [(p.plan.spec.seed, p.plan.spec.mode, p.plan.spec.epochs) for p in grid.points]
    assert found == [(0, "strict", 4), (0, "strict", 5)]


def test_relative_paths_mean_what_they_meant_here(write, store, small_data, monkeypatch):
    monkeypatch.chdir(small_data.parent)
    (point,) = read_grid(write(fixed={"data": "nuclei"}), store="here").points
    assert point.parameters["data"] == str(small_data)
    assert point.parameters["store"] == str(small_data.parent / "here")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"fixed": {"epoch": 3}}, r"takes .*epochs.*, not epoch \(do you mean epochs\?\)$"),
        ({"fixed": {"seed": 1}, "vary": {"seed": [0]}}, "seed is both fixed and varied"),
        ({"fixed": {"repeats": 2}}, "repeats is set by the grid itself"),
        ({"add": [{"epoch": 3}]}, r"minimal.ipynb takes .*, not epoch \(do you mean epochs\?\)$"),
        ({"exclude": [{"seed": 1}]}, "`exclude` names seed, which does not vary"),
        ({"vary": {"seed": []}}, "`vary` has no value for seed"),
        ({"vary": {"seed": [1]}, "exclude": [{"seed": 1}]}, "leaves no spec to run"),
        ({"vary": {"behave": ["well", "raise"]}}, "behave well and behave raise are the same spec"),
        ({"vary": {"seed": 3}}, r"vary.seed is 3"),
        ({"repeats": 0}, "repeats is 0"),
        ({"fixed": {"data": "/absent"}}, "/absent"),
        (
            {"fixed": {"profile": None, "environment.MKL_CBWR": "AVX2"}},
            "^profile is None; expected text",
        ),
        ({"notebook": "/absent.ipynb"}, "no notebook '/absent.ipynb'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_refused_before_anything_runs(write, store, no_child, fields, expected):
    with pytest.raises(BadInput, match=expected):
        read_grid(write(**fields), store=store)
    assert not store.exists()


def test_images_and_weights_are_read_once_for_all_specs(
    write, store, small_store, tmp_path, monkeypatch
):
    """Of one reading of a grid: the next one sees what has changed since."""
    read = []

    def counting(function):
        def counted(*arguments, **options):
            read.append(function.__name__)
            return function(*arguments, **options)

        return counted

    for name in ("read_folder", "find_model"):
        monkeypatch.setattr(plan_sources, name, counting(getattr(plan_sources, name)))
    data = tmp_path / "nuclei"
    shutil.copytree(small_store.data, data)
    fixed = {"data": str(data), "model": str(small_store.weights)}
    path = write(fixed=fixed, vary={"seed": [0, 1, 2], "mode": ["fast", "strict"]})
    before = read_grid(path, store=store).points
    assert (len(before), sorted(read)) == (6, ["find_model", "read_folder"])
    image = next((data / "test").glob("*_masks.tif"))
    image.unlink()
    image.with_name(image.name.replace("_masks", "")).unlink()
    after = read_grid(path, store=store).points
    assert {point.plan.n_images for point in before} == {1}
    assert not {one.plan.spec.key for one in before} & {one.plan.spec.key for one in after}


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="this machine has the device")
def test_what_this_machine_cannot_carry_out(write, store, capsys):
    """It is no fault of the file: the same grid may run elsewhere."""
    path = write(vary={"profile": ["cpu", "mps"]}, repeats=3)
    runs = planned(read_grid(path, store=store))
    assert [run.status for run in runs] == ["planned", "not-here"]
    (run,) = run_grid(read_grid(path, store=store, overrides={"profile": ["mps"]}))
    assert (run.status, run.machine) == ("failed", "")
    assert "needs the device 'mps'" in run.reason == runs[1].reason
    assert "grid: 3/3" in capsys.readouterr().err
    assert not (store / "runs").exists()


@pytest.mark.filterwarnings("ignore::UserWarning:papermill")
def test_notebooks_are_found_and_read(write, tmp_path, monkeypatch):
    computed = write_notebook(tmp_path / "computed.ipynb", parameters="data = 'x'\nseed = 1 + 1")
    with pytest.raises(BadInput, match=r"computed\.ipynb cannot be read as a notebook whose"):
        read_grid(write(notebook=str(computed)))
    path = write_notebook(tmp_path / "notebooks" / "mine.ipynb")
    monkeypatch.chdir(tmp_path)
    assert find_notebook("mine") == find_notebook("notebooks/mine.ipynb") == path
    assert find_notebook("mine", near=tmp_path / "grids") == path
    with pytest.raises(BadInput, match=r"no notebook 'other'; .* mine"):
        find_notebook("other")


def test_a_dry_run_does_nothing(write, store, no_child, invoke):
    path = write(vary={"seed": [0, 1]})
    answer = invoke("grid", path, "--dry-run", "--set", "mode=fast", "--store", store, "--json")
    assert answer.code == 0
    assert [run["status"] for run in answer.json["runs"]] == ["planned", "planned"]
    assert answer.json["runs"][0]["folder"].startswith(str(store))
    with pytest.raises(BadInput, match="workers"):
        run_grid(read_grid(path, store=store), workers=0)
    with pytest.raises(BadInput, match=r"minutes \(--time-limit\) is 0; expected a number above 0"):
        run_grid(read_grid(path, store=store), minutes=0)
    assert not store.exists()


@pytest.mark.parametrize("pair", ["seed", "seed={a", "seed=[0, {}]"])
def test_bad_overrides(write, store, no_child, invoke, pair):
    answer = invoke("grid", write(), "--set", pair, "--store", store, "--json")
    assert (answer.code, answer.out) == (2, "")
    assert "seed" in answer.err
    assert not store.exists()


# -- carried out ---------------------------------------------------------------------------

SHORT = options(seed=4, epochs=2, images_per_epoch=1, learning_rate=0.01, repeats=1)
BEHAVIOURS = ["raise", "kill", "nothing", "other seed", "well"]


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory, notebook, small_data):
    """One notebook in five behaviours, two at a time."""
    folder = tmp_path_factory.mktemp("carried_out")
    store, path = folder / "outputs", folder / "grid.yaml"
    fixed, vary = {"data": str(small_data), "behave": "by seed"}, {"seed": [0, 1, 2, 3, 4]}
    path.write_text(yaml.safe_dump({"notebook": str(notebook), "fixed": fixed, "vary": vary}))
    place = {"cwd": notebook.parent}
    answer = run_command("grid", path, "--workers", 2, "--store", store, "--json", **place)
    assert answer.code == 1, answer.err
    runs = dict(zip(BEHAVIOURS, answer.json["runs"], strict=True))
    return SimpleNamespace(store=store, path=path, answer=answer, runs=runs)


def injected(notebook):
    """The source of the cell with the parameters that the grid gave."""
    cells = nbformat.read(notebook, 4).cells
    (cell,) = [one for one in cells if "injected-parameters" in one.metadata.get("tags", [])]
    return cell.source


def test_a_failing_notebook_is_kept_and_does_not_stop_the_others(carried_out):
    runs = carried_out.runs
    assert [run["status"] for run in runs.values()] == ["failed"] * 4 + ["done"]
    assert runs["raise"]["reason"] == "ValueError: seed 0 is not for me"
    assert "the kernel was killed" in runs["kill"]["reason"]
    assert "ended without a run instead of" in runs["nothing"]["reason"]
    others = [run.key for run in Store(carried_out.store).runs() if run.spec.seed == 103]
    told = runs["other seed"]["reason"]
    assert re.match(
        rf"the notebook made {others[0]}/\S+/0 instead of {runs['other seed']['key']}/0", told
    )
    for seed, one in enumerate(list(runs.values())[:4]):
        folder = carried_out.store / "failed" / one["key"] / one["machine"] / "0"
        assert one["folder"] == str(folder)
        record = json.loads((folder / "failure.json").read_text())
        assert (record["repeat"], record["reason"]) == (0, one["reason"])
        assert f"seed = {seed}" in injected(folder / "notebook.ipynb")
    stored = {run.key for run in Store(carried_out.store).runs()}
    assert stored == {runs["well"]["key"], *others}
    assert not (carried_out.store / ".staging").exists()
    assert "grid: 5/5" in carried_out.answer.err


def test_the_store_keeps_the_executed_notebook(carried_out, notebook, wholeness):
    key = carried_out.runs["well"]["key"]
    assert f"{key}/0" in wholeness(carried_out.store)
    repeat = Store(carried_out.store).find(f"{key}/0")
    executed = nbformat.read(repeat.folder / "notebook.ipynb", 4)
    assert "seed = 4" in injected(repeat.folder / "notebook.ipynb")
    said = [output for cell in executed.cells for output in cell.outputs]
    assert {output.name for output in said} == {"stdout"}  # nothing of what libraries print
    # One print may arrive in pieces.
    assert "".join(output.text for output in said).endswith(f"trained {key} here\n")
    assert all(cell.outputs == [] for cell in nbformat.read(notebook, 4).cells)


def test_kernels_that_start_at_once_share_no_port(tmp_path):
    """Two can be given one free TCP port; the second to take it dies."""
    ask = "from ipykernel import get_connection_info\nprint(get_connection_info())"
    notebook = write_notebook(tmp_path / "asks.ipynb", body=ask)
    children = Children()
    execute(notebook, tmp_path / "told.ipynb", {}, environment=os.environ, children=children)
    (told,) = nbformat.read(tmp_path / "told.ipynb", 4).cells[-1].outputs
    assert json.loads(told.text)["transport"] == "ipc"


@pytest.mark.slow
def test_the_benchmark_notebook_in_a_grid(small_store, tmp_path):
    """Of its first repeat nothing is stored yet when it shows its rates; those of other sizes are
    further runs."""
    fixed = {"data": str(small_store.data), "model": str(small_store.weights)}
    fixed |= {"sizes": [64], "batch_sizes": [1], "size_repeats": 1}
    content = {"notebook": "06_inference_benchmark", "fixed": fixed, "repeats": 1}
    path = tmp_path / "grid.yaml"
    path.write_text(yaml.safe_dump(content))
    answer = run_command("grid", path, "--store", tmp_path / "outputs", "--json")
    assert [run["status"] for run in answer.json["runs"]] == ["done"], answer.err
    assert len(Store(tmp_path / "outputs").runs()) == 2


@pytest.mark.slow
def test_further_runs_of_a_grids_notebook_are_stored_as_usual(write, tmp_path, wholeness):
    """Before its own and after it, under a different profile, and its own once more."""
    body = """
        import cellrepro
        few = {"epochs": epochs, "images_per_epoch": 1, "repeats": 1, "store": store, "quiet": True}
        before = cellrepro.train(data, seed=seed + 1, profile="cpu-1thread", **few)
        own = cellrepro.train(data, seed=seed, profile=profile, **few)
        again = cellrepro.train(data, seed=seed, profile=profile, **few)
        after = cellrepro.train(data, seed=seed + 2, profile=profile, **few)
        print([len({own.key, again.key}), own.repeats == again.repeats])
    """
    notebook = write_notebook(tmp_path / "several.ipynb", body=textwrap.dedent(body))
    store = tmp_path / "outputs"
    path = write(notebook=str(notebook), fixed={"learning_rate": None})
    answer = run_command("grid", path, "--store", store, "--json")
    (run,) = answer.json["runs"]
    assert run["status"] == "done", run["reason"]
    stored = {one.spec.seed: one.repeats[0] for one in Store(store).runs()}
    assert sorted(stored) == [0, 1, 2]
    assert len(wholeness(store)) == 3
    assert stored[0].manifest.key == run["key"]
    kept = {seed: (repeat.folder / "notebook.ipynb").exists() for seed, repeat in stored.items()}
    assert kept == {0: True, 1: False, 2: False}
    told = nbformat.read(stored[0].folder / "notebook.ipynb", 4).cells[-1].outputs
    assert "[1, True]" in "".join(output.text for output in told)


@pytest.fixture
def again(carried_out, tmp_path):
    """The same grid, of the well-behaved spec alone, over a copy of what was stored."""
    content = yaml.safe_load(carried_out.path.read_text())
    content["fixed"] |= {"behave": "well", "seed": 4}
    content["vary"] = {}
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(content))
    shutil.copytree(carried_out.store, tmp_path / "outputs")
    return tmp_path / "again.yaml", tmp_path / "outputs"


def test_present_ones_are_not_run_again(again, no_child, invoke, listing, small_data):
    path, store = again
    before = listing(store)
    answer = invoke("grid", path, "--store", store, "--json")
    assert (answer.code, answer.json["runs"][0]["status"]) == (0, "present")
    of_train = invoke("train", small_data, *SHORT, "--store", store, "--json")
    assert (of_train.code, len(of_train.json["repeats"])) == (0, 1)  # one key, whoever filled it
    assert listing(store) == before


@pytest.mark.slow
def test_a_repeat_of_the_grid_is_one_of_the_train_command(carried_out, small_data, tmp_path):
    """The grid's notebook trains in its own kernel; all that is digested is the worker's."""
    key = carried_out.runs["well"]["key"]
    store = tmp_path / "outputs"
    answer = run_command("train", small_data, *SHORT, "--store", store, "--json")
    assert answer.json["key"] == key
    sides = []
    for root in (carried_out.store, store):
        (repeat,) = Store(root).run(key).repeats
        plain = repeat.manifest.model_dump(exclude={"started", "seconds", "peak_memory", "files"})
        for record in plain["masks"].values():
            del record["seconds"]
        sides.append((plain, file_digest(repeat.folder / "ledger.parquet")))
    assert sides[0] == sides[1]


def test_what_has_computed_before_gives_its_work_to_a_worker(write, store, monkeypatch):
    """Switches of the notebook's own would be in force; so would another environment."""
    (point,) = read_grid(write(), store=store).points
    assert not repeats.computes_here(point.plan)  # no grid started this process
    monkeypatch.setenv(HANDOVER_FOLDER_VARIABLE, "held")
    monkeypatch.setattr(repeats, "sys", SimpleNamespace(modules={}))
    assert not repeats.computes_here(point.plan)  # started without the profile's variables
    monkeypatch.setattr(repeats, "require_at_startup", lambda variables: None)
    assert repeats.computes_here(point.plan)
    monkeypatch.setattr(repeats.sys, "modules", {"torch": None})
    assert not repeats.computes_here(point.plan)
