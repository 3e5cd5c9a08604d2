"""The committed notebooks: executed, parameterised, and telling (nbval compares their cells)."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from cellrepro.lab import defaults
from cellrepro.lab.notebook_process import find_notebook, notebook_parameters

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
CHECKED = "nbval-check-output"
EXPECTED = (
    "00_setup",
    "01_seeded_training",
    "02_mask_comparison",
    "03_determinism_warnings",
    "04_cross_device_report",
    "05_first_divergence",
    "06_inference_benchmark",
    "07_explorer",
)


def test_all_run_and_say_what_they_said():
    """One after the other in one folder, since later ones look at runs of earlier ones."""
    script = Path(__file__).parents[1] / "scripts" / "check_notebooks.py"
    as_committed = ["--as-committed"] if os.environ.get("CELLREPRO_NOTEBOOKS") else []
    done = subprocess.run(
        [sys.executable, str(script), *as_committed], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]


def test_all_notebooks_are_there():
    assert [path.stem for path in NOTEBOOKS] == list(EXPECTED)


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return request.param


def _code_cells(path):
    return [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]


def _tags(cell):
    return cell.metadata.get("tags", [])


def test_one_parameters_cell_of_plain_literals(notebook):
    """The grid names specs from these defaults."""
    cells = [cell for cell in _code_cells(notebook) if "parameters" in _tags(cell)]
    assert len(cells) == 1
    for statement in ast.parse(cells[0].source).body:
        assert isinstance(statement, ast.AnnAssign)
    assert notebook_parameters(notebook)


@pytest.mark.parametrize(
    ("name", "repeats"),
    [
        ("01_seeded_training", defaults.TRAININGS),
        ("06_inference_benchmark", defaults.SEGMENTATIONS),
    ],
)
def test_defaults_are_those_of_the_commands(name, repeats):
    found = notebook_parameters(find_notebook(name))
    of_commands = {
        "seed": defaults.SEED,
        "data_seed": defaults.DATA_SEED,
        "epochs": defaults.EPOCHS,
        "batch_size": defaults.BATCH_SIZE,
        "profile": defaults.PROFILE,
        "mode": defaults.MODE,
        "ledger": defaults.LEDGER,
        "repeats": repeats,
        "store": f"../{defaults.STORE}",
    }
    shared = of_commands.keys() & found.keys()
    assert {"seed", "profile", "mode", "repeats", "ledger", "store"} <= shared
    assert {n: found[n] for n in shared} == {n: of_commands[n] for n in shared}


def test_committed_as_executed(notebook):
    """nbval passes over a cell that was never executed."""
    counts = [cell.execution_count for cell in _code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    errors = [o for cell in _code_cells(notebook) for o in cell.outputs if o.output_type == "error"]
    assert errors == []


def test_checked_cells_hold_output(notebook):
    checked = [cell for cell in _code_cells(notebook) if CHECKED in _tags(cell)]
    assert checked, "tag at least one telling cell"
    for cell in checked:
        text = "".join(o.get("text", "") for o in cell.outputs if o.output_type == "stream")
        assert text.strip(), cell.source


def test_checked_output_is_the_same_everywhere(notebook):
    """No digest, time or path in a cell that must come out the same on every machine."""
    for cell in _code_cells(notebook):
        if CHECKED in _tags(cell):
            text = "".join(o.get("text", "") for o in cell.outputs if o.output_type == "stream")
            for word in text.split():
                assert "/" not in word, word
                assert not (len(word) >= 12 and set(word) <= set("0123456789abcdef")), word


def test_says_its_question_first(notebook):
    first = nbformat.read(notebook, 4).cells[0]
    assert first.cell_type == "markdown"
    assert first.source.splitlines()[0].startswith("# ")
    assert "?" in first.source.splitlines()[0]


def test_holds_no_path_of_the_machine_that_executed_it(notebook):
    text = notebook.read_text(encoding="utf-8")
    for trace in ("/home/", "/root/", "/tmp/", "/Users/", str(Path.cwd())):
        assert trace not in text
