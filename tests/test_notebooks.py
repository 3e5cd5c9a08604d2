"""The committed notebooks: executed, parameterised, and telling (nbval compares their cells)."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from papermill.iorw import load_notebook_node, write_ipynb
from papermill.parameterize import parameterize_notebook

from cellrepro.grid.notebook_execution import notebook_parameters
from cellrepro.grid.packaged_files import find_notebook
from cellrepro.images.synthetic_sets import write_folder
from cellrepro.run.options import TrainingOptions
from cellrepro.show import Answer
from cellrepro.spec import defaults
from conftest import SMALL

PROJECT = Path(__file__).parents[1]
NOTEBOOKS = sorted((PROJECT / "notebooks").glob("*.ipynb"))


FEW = {"data": "../data/few"}
"""Three images to train on, three to test."""
ONE_THREAD = {"profile": "cpu-1thread"}
"""Less waiting, since other tests run beside it."""
SHORT = {
    "01_seeded_training": {**FEW, **ONE_THREAD, **SMALL},
    "02_mask_comparison": FEW,
    "03_determinism_warnings": {
        **FEW,
        "steps": 1,
        "replays": 4,
        "epochs": 2,
        "images_per_epoch": 4,
        "cost_rounds": 1,
        "store": "../outputs/aside",
    },
    "04_cross_device_report": FEW,
    "05_first_divergence": {
        **FEW,
        "follow_epochs": 2,
        "follow_images": 4,
        "outside": False,
        "store": "../outputs/aside",
    },
    "06_inference_benchmark": {
        **FEW,
        **ONE_THREAD,
        "sizes": [],
    },
    "07_explorer": FEW,
    "08_segmentation_settings": {
        **FEW,
        **ONE_THREAD,
        "vary": {"diameter": [20], "flow_threshold": [0.1], "max_size_fraction": [1]},
    },
}
"""Parameters with which a notebook is checked: enough for what its telling cells say. Trainings too
short to find a cell stand aside, where no other notebook picks them."""


def shorten(path):
    notebook = parameterize_notebook(load_notebook_node(str(path)), SHORT[path.stem])
    write_ipynb(notebook, str(path))


def test_all_run_and_say_what_they_said(tmp_path):
    """One after the other in one folder, since later ones look at runs of earlier ones."""
    write_folder(tmp_path / "data" / "synthetic")
    write_folder(tmp_path / "data" / "few", n_train=3, n_test=3)
    (tmp_path / "notebooks").mkdir()
    copies = [Path(shutil.copy(path, tmp_path / "notebooks")) for path in NOTEBOOKS]
    if not os.environ.get("CELLREPRO_NOTEBOOKS"):
        for path in copies:
            if path.stem in SHORT:
                shorten(path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-c", "pytest.ini", "--rootdir=.", *copies]
    plugins = ["--disable-plugin-autoload", "-p", "nbval.plugin", "-p", "no:cacheprovider"]
    options = ["--nbval-lax", "--nbval-cell-timeout=900"]
    done = subprocess.run(
        [*command, *plugins, *options], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]


def shown_text(output):
    """What was printed, or shown as sentences."""
    return output.get("text") or output.get("data", {}).get("text/markdown", "")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook(path):
    """Its question first, parameters of plain literals, executed, nothing of the machine's own."""
    cells = nbformat.read(path, 4).cells
    question = cells[0].source.splitlines()[0]
    assert (cells[0].cell_type, question[:2], "?" in question) == ("markdown", "# ", True)
    words, picture = cells[1].outputs  # filled in by later cells
    assert shown_text(words)
    assert shown_text(words) != Answer.NOT_YET
    assert "image/png" in picture.data
    for trace in ("/home/", "/root/", "/tmp/", "/Users/", str(Path.cwd())):
        assert trace not in path.read_text(encoding="utf-8")

    code = [cell for cell in cells if cell.cell_type == "code"]
    (parameters,) = (cell for cell in code if "parameters" in cell.metadata.get("tags", []))
    assert {type(one) for one in ast.parse(parameters.source).body} == {ast.AnnAssign}
    assert notebook_parameters(path)
    # nbval passes over a cell that was never executed.
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not [o for cell in code for o in cell.outputs if o.output_type == "error"]

    checked = [cell for cell in code if "nbval-check-output" in cell.metadata.get("tags", [])]
    assert checked, "tag at least one telling cell"
    for cell in checked:
        words = " ".join(shown_text(output) for output in cell.outputs).split()
        assert words, cell.source
        for word in words:  # no digest, time or path: the same on every machine
            assert "/" not in word
            assert not (len(word) >= 12 and set(word) <= set("0123456789abcdef")), word


def test_defaults_are_those_of_the_commands():
    found = notebook_parameters(find_notebook("01_seeded_training"))
    options = TrainingOptions.model_fields
    of_train = {name: options[name].default for name in found if name in options}
    del of_train["data"], of_train["store"]  # relative to the notebook
    assert len(of_train) > 20
    assert {name: found[name] for name in of_train} == of_train
    assert found["repeats"] == defaults.TRAININGS
    assert found["store"] == f"../{defaults.STORE}"
    segmented = notebook_parameters(find_notebook("06_inference_benchmark"))
    assert segmented["repeats"] == defaults.SEGMENTATIONS
