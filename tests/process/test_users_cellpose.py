"""The lab in an environment that has a Cellpose already: made for real, as its user would."""

import json
import os
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path

import pytest

from cellrepro.store.store import Store

OLDER = "3.1.1.2"
ROOT = Path(__file__).parents[2]

_MAKE_WEIGHTS = """
import sys, torch
from cellpose.resnet_torch import CPnet
torch.manual_seed(0)
CPnet([2, 32, 64, 128, 256], 3, sz=3).save_model(sys.argv[1])
"""


def _run(*command, check=True):
    """Without the path by which this process may find the package."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [*map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, check=check, env=variables)


@pytest.fixture
def python(tmp_path):
    """The Python of an environment with Cellpose 3 and PyTorch, without torchvision."""
    if util.find_spec("uv") is None:
        pytest.skip("needs uv")
    uv = (sys.executable, "-m", "uv")
    folder = tmp_path / "environment"
    _run(*uv, "venv", "--seed", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    wanted = (f"cellpose=={OLDER}", f"torch=={metadata.version('torch').partition('+')[0]}")
    done = _run(*uv, "pip", "install", "--python", python, *wanted, check=False)
    if done.returncode:
        pytest.skip(f"no package registry answers: {done.stderr[-200:]}")
    return python


@pytest.mark.slow
def test_their_cellpose_stays_and_segments(python, small_data, tmp_path):
    """pip takes nothing away, is content before and after, and that version segments."""

    def installed():
        listed = json.loads(_run(python, "-m", "pip", "list", "--format=json").stdout)
        return {package["name"]: package["version"] for package in listed}

    _run(python, "-m", "pip", "check")
    before = installed()
    _run(sys.executable, "-m", "uv", "build", "--wheel", "--out-dir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    _run(python, "-m", "pip", "install", f"{wheel}[lab]")
    _run(python, "-m", "pip", "check")
    assert before.items() <= installed().items()

    weights = tmp_path / "my_model"
    _run(python, "-c", _MAKE_WEIGHTS, weights)
    store = tmp_path / "outputs"
    common = (python, "-m", "cellrepro")
    options = ("--model", weights, "--store", store, "--repeats", 1, "--json")
    key = json.loads(_run(*common, "segment", small_data, *options, check=False).stdout)["key"]
    assert Store(store).find(key).manifest.versions["cellpose"] == OLDER
    refused = _run(*common, "train", small_data, "--store", store, check=False)
    assert refused.returncode == 3
    assert f"Cellpose {OLDER} is installed" in refused.stderr
    assert "cellrepro setup FOLDER" in refused.stderr
