"""Other versions of Cellpose, each in an environment of its own."""

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from cellrepro.grid.task_options import options_by_name
from cellrepro.process import cellpose_versions, locked_environment
from cellrepro.process.cellpose_versions import CACHE_VARIABLE, LOCK, python_of
from cellrepro.run.options import SegmentationOptions, TrainingOptions
from cellrepro.run.planning import plan_segmentation
from cellrepro.store.store import Store
from conftest import run_command, write_notebook
from samebits.errors import NotPossibleHere

OLD, OLDER = "4.0.9", "3.1.1.2"


def test_what_versions_cannot_do(small_data, tmp_path, invoke, monkeypatch):
    """A version is whole, segments only, and needs uv; a name may be one that it knows."""
    place = ("--store", tmp_path / "outputs")
    with pytest.raises(ValueError, match="the lab trains with the version that is installed"):
        options_by_name(TrainingOptions, {"data": small_data, "cellpose": OLD})
    bad = invoke("segment", small_data, "--cellpose", "newest", *place)
    assert (bad.code, "cellpose is 'newest'" in bad.err) == (2, True)
    plan = plan_segmentation(SegmentationOptions(data=small_data, model="cyto3", cellpose=OLDER))
    assert (plan.request.model.label, plan.request.setup.cellpose) == ("cyto3", OLDER)
    with pytest.raises(ValueError, match="unknown model 'cyto3'"):
        plan_segmentation(SegmentationOptions(data=small_data, model="cyto3"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(locked_environment.util, "find_spec", lambda name: None)
    monkeypatch.setattr(locked_environment.shutil, "which", lambda name: None)
    with pytest.raises(NotPossibleHere, match="pip install uv"):
        python_of(OLD)
    assert not (tmp_path / "outputs").exists()


def test_the_installed_version_needs_no_environment(small_data, monkeypatch):
    version = cellpose_versions.metadata.version("cellpose")
    plan = plan_segmentation(SegmentationOptions(data=small_data, cellpose=version))
    assert plan.request.setup.cellpose is None
    assert plan.spec.cellpose == version
    assert plan.spec.key != plan_segmentation(SegmentationOptions(data=small_data)).spec.key


def test_two_checkouts_keep_out_of_each_others_children(tmp_path, monkeypatch):
    """A child goes on importing while it runs: what it was started with must stay."""
    package = Path(cellpose_versions.__file__).resolve().parents[1]
    question = "import cellrepro.errors as e, cellrepro; print(e.__file__, cellrepro.BadInput)"

    def answer(source):
        environment = {**os.environ, "PYTHONPATH": str(source)}
        command = [sys.executable, "-c", question]
        return subprocess.check_output(command, env=environment, text=True, cwd=tmp_path).split()

    mine = cellpose_versions._folder_with_this_package(tmp_path)
    assert answer(mine)[0] == str(package / "errors.py")
    assert not [path for path in mine.rglob("*") if path.is_symlink()]  # Windows allows none
    other = tmp_path / "other" / "cellrepro"
    (other / "lab").mkdir(parents=True)
    for name in ("__init__.py", "errors.py"):
        (other / name).write_text("BadInput = 'theirs'")
    monkeypatch.setattr(cellpose_versions, "__file__", str(other / "lab" / "environments.py"))
    theirs = cellpose_versions._folder_with_this_package(tmp_path)
    assert answer(theirs) == [str(other / "errors.py"), "theirs"]
    assert answer(mine)[0] == str(package / "errors.py")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """An empty cache; the environments in it are links, so they are soon made and removed."""
    folder, before = tmp_path_factory.mktemp("cache"), os.environ.get(CACHE_VARIABLE)
    os.environ[CACHE_VARIABLE] = str(folder)
    try:
        python_of.cache_clear()
        python_of(OLD)
        yield folder
    except NotPossibleHere as error:
        pytest.skip(str(error))
    finally:
        python_of.cache_clear()
        del os.environ[CACHE_VARIABLE]
        if before is not None:
            os.environ[CACHE_VARIABLE] = before
        shutil.rmtree(folder, ignore_errors=True)


_CODE = """\
from cellrepro.process.cellpose_versions import python_of
print(python_of("4.0.9").executable)
"""


@pytest.mark.slow
def test_an_environment_is_made_once_and_whole(tmp_path):
    environment = {**os.environ, CACHE_VARIABLE: str(tmp_path)}
    command = [sys.executable, "-c", _CODE]
    killed = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    while not list(tmp_path.glob(".*.part/*")):
        time.sleep(0.01)
    killed.kill()
    killed.wait()
    assert not list(tmp_path.glob(f"cellpose-*/{LOCK}"))

    def run(_):
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(run, range(2)))
    assert len({answer.stdout for answer in answers}) == 1
    assert sum("making an environment" in answer.stderr for answer in answers) == 1
    (lock,) = tmp_path.glob(f"cellpose-*/{LOCK}")
    assert "cellpose==4.0.9" in lock.read_text()
    assert "--hash=sha256:" in lock.read_text()
    assert "://" not in lock.read_text()


PARAMETERS = """\
data = "data/synthetic"
model = "tiny"
cellpose = None
repeats = 1
store = "outputs"
"""
BODY = """\
import cellrepro
cellrepro.segment(data, model=model, cellpose=cellpose, repeats=repeats, store=store)
"""


@pytest.mark.slow
def test_versions_are_an_axis_of_a_grid(cache, small_store, small_data, tmp_path):
    store = tmp_path / "outputs"
    shutil.copytree(small_store.root, store)
    notebook = write_notebook(tmp_path / "segment.ipynb", parameters=PARAMETERS, body=BODY)
    fixed = {"data": str(small_data), "model": f"{small_store.key}/0"}
    content = {"notebook": str(notebook), "fixed": fixed, "vary": {"cellpose": [OLD, None]}}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(content))
    answer = run_command("grid", tmp_path / "grid.yaml", "--store", store, "--json")
    assert answer.code == 0, answer.err
    old, new = (Store(store).find(run["key"]) for run in answer.json["runs"])
    assert old.manifest.versions["cellpose"] == OLD
    assert old.machine != new.machine
    assert old.manifest.n_objects > 10
    compared = run_command("compare", old.name, new.name, "--store", store, "--json").json
    assert {"environment", "spec"} <= {*compared["differs"]}
    assert compared["spec"]["cellpose"] == [OLD, None]
    report = run_command("report", "--store", store)
    assert report.code == 0, report.err
    assert "versions of Cellpose" in (store / "report" / "index.html").read_text()


_MAKE = """
import sys, torch
from cellpose.resnet_torch import CPnet
torch.manual_seed(0)
CPnet([2, 32, 64, 128, 256], 3, sz=3).save_model(sys.argv[1])
"""


@pytest.mark.slow
def test_cellpose_3_has_a_network_of_its_own(cache, small_data, tmp_path):
    python = python_of(OLDER)
    weights = tmp_path / "cyto-like"
    command = [python.executable, "-c", _MAKE, weights]
    environment = {**os.environ, **python.variables}
    subprocess.run(command, env=environment, capture_output=True, check=True)
    place = ("--store", tmp_path / "outputs", "--json", "--repeats", 2, "--cellpose", OLDER)
    answer = run_command("segment", small_data, "--model", weights, *place)
    assert answer.code in (0, 1), answer.err
    assert len(answer.json["agreement"]["masks"]) == 1
    manifest = Store(tmp_path / "outputs").find(answer.json["key"]).manifest
    assert manifest.versions["cellpose"] == OLDER
    assert manifest.model.n_parameters > 1_000_000
    unknown = run_command("segment", small_data, "--model", "cyto9", *place)
    assert unknown.code == 2
    assert "this Cellpose knows no model 'cyto9'; expected cyto3" in unknown.err


@pytest.mark.slow
def test_explain_makes_the_masks_of_an_older_version_again(
    cache, small_store, small_data, tmp_path
):
    """The version alone, or a setting alone, or both: what explains the masks is named."""
    store = tmp_path / "outputs"
    shutil.copytree(small_store.root, store)
    common = (small_data, "--model", f"{small_store.key}/0", "--repeats", 1, "--store", store)
    settings = ("--set", "cellprob_threshold=2", "--set", "diameter=20")
    old, new, both = (
        run_command("segment", *common, *more, "--json").json["key"]
        for more in (("--cellpose", OLD), (), ("--cellpose", OLD, *settings))
    )
    (file,) = (f for f in (small_data / "test").iterdir() if "_masks" not in f.name)

    def causes(a, b):
        answer = run_command("explain", a, b, "--image", file, "--store", store, "--json")
        assert answer.code in (0, 1), answer.err
        assert answer.json["unexplained"] == 0
        assert all(side["pixels_left"] == 0 for side in answer.json["reproduced"].values())
        return {cause["name"] for cause in answer.json["causes"]}

    # With a diameter 4.0.9 makes images smaller before it scales their intensities.
    assert causes(new, both) == {"cellpose", "cellprob_threshold", "diameter"}
    assert causes(old, both) == {"cellprob_threshold", "diameter"}
    assert causes(new, old) <= {"cellpose"}
