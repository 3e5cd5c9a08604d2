"""Findings computed again from the evidence, in another way; studies and pages say the same."""

import ast
import importlib
import itertools
import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import findings
import nbformat
import numpy as np
import papermill
import pytest
import tifffile
from evidence_tables import forecasts, table
from evidence_tables.pairs import WEIGHTS

from cellrepro import BadInput

PROJECT = Path(__file__).parents[1]
EVIDENCE = PROJECT / "evidence" / "runs"
PAGE = PROJECT / "docs" / "findings.md"
pytestmark = pytest.mark.skipif(not EVIDENCE.exists(), reason="evidence is not here")


def repeats(**asked):
    """Folders and manifests of the runs whose specs hold these values."""
    found = []
    for path in sorted(EVIDENCE.glob("*/*/*/manifest.json")):
        spec = json.loads((path.parents[2] / "spec.json").read_text())
        if all(spec[name] == value for name, value in asked.items()):
            found.append((path.parent, json.loads(path.read_text())))
    return found


def row_of(section, label):
    """A row of the page's tables."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}")[2].partition("\n## ")[0]
    return next(line for line in text.splitlines() if line.startswith(f"| {label} |"))


def numbers(text):
    return [float(one.replace(" ", "")) for one in re.findall(r"\d[\d ]*\.?\d*", text)]


def n_matched(a, b):
    """Pairs of objects that overlap by more than half: no object is in two of them."""
    pairs, n = np.unique(np.stack([a.ravel(), b.ravel()]), axis=1, return_counts=True)
    sizes = [dict(zip(*np.unique(side, return_counts=True), strict=True)) for side in (a, b)]
    return sum(
        one > 0 and other > 0 and shared / (sizes[0][one] + sizes[1][other] - shared) > 0.5
        for (one, other), shared in zip(pairs.T.tolist(), n.tolist(), strict=True)
    )


def share_changed(one, other):
    """Of the objects of two repeats those without a match."""
    matched = total = 0
    for name in (one / "masks").iterdir():
        a, b = (tifffile.imread(side / "masks" / name.name) for side in (one, other))
        matched += n_matched(a, b)
        total += len(np.unique(a[a > 0])) + len(np.unique(b[b > 0]))
    return 1 - 2 * matched / total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "label", "asked"),
    [
        ("1.", "mode off", {"epochs": 40, "mode": "off"}),
        ("1.", "mode fast", {"epochs": 40, "mode": "fast", "seed": 42}),
        ("1.", "mode strict", {"epochs": 40, "mode": "strict"}),
        ("2.", "mode fast, cpu", {"epochs": 500, "mode": "fast", "profile": "cpu"}),
        ("2.", "mode strict, cpu", {"epochs": 500, "mode": "strict", "profile": "cpu"}),
    ],
)
def test_cells_that_change_between_repeats(section, label, asked):
    found = repeats(data="nuclei", model="tiny", **asked)
    pairs = [
        (one, other)
        for one, other in itertools.combinations(found, 2)
        if one[0].parents[1] == other[0].parents[1]  # of one specification
    ]
    n_pairs, n_identical, percent, *_ = numbers(row_of(section, f"repeats, {label}"))
    expected = np.mean([share_changed(one, other) for (one, _), (other, _) in pairs])
    assert n_pairs == len(pairs)
    assert n_identical == sum(ended_in(one) == ended_in(other) for (_, one), (_, other) in pairs)
    assert percent == pytest.approx(100 * expected, rel=0.05, abs=1e-9)


@pytest.mark.parametrize(("depth", "model"), [(4, "tiny-4"), (12, "tiny-12")])
def test_cells_that_change_between_repeats_of_a_deeper_network(depth, model):
    found = repeats(data="nuclei", model=model, epochs=40, mode="fast")
    pairs = list(zip(found[::2], found[1::2], strict=True))
    assert all(one[0].parents[1] == other[0].parents[1] for one, other in pairs)
    expected = [share_changed(one, other) for (one, _), (other, _) in pairs]
    told = row_of("3.", depth).split("|")[7]
    assert len(expected) == 3
    assert numbers(told)[0] == pytest.approx(100 * np.mean(expected), rel=0.05, abs=1e-9)


def ended_in(manifest):
    """Digests of weights and masks."""
    masks = {name: one["digest"] for name, one in manifest["masks"].items()}
    return manifest["weights"]["digest"], masks


def test_how_far_counts_of_two_seeds_differ():
    found = repeats(data="nuclei", epochs=200, model="tiny", mode="fast")
    firsts = [manifest for _, manifest in found if manifest["repeat"] == 0]
    counts = [sum(one["n_objects"] for one in m["masks"].values()) for m in firsts]
    apart = [abs(a - b) for a, b in itertools.combinations(counts, 2)]
    row = row_of("5.", "seed (mode fast), 200 epochs")
    n_pairs, mean, median, largest = numbers(row)[1:]
    assert n_pairs == len(apart)
    assert mean == pytest.approx(np.mean(counts), rel=0.01)
    expected = np.array([np.median(apart), max(apart)])
    assert [median, largest] == pytest.approx(100 * expected / np.mean(counts), rel=0.05)


NOTEBOOKS = [findings.OVERVIEW, *findings.STUDIES, findings.ANSWERS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_study_is_one_notebook(path, monkeypatch):
    """Its question first, parameters of plain literals, executed, nothing of a machine's own."""
    monkeypatch.syspath_prepend(str(PROJECT / "studies"))
    cells = nbformat.read(path, 4).cells
    assert cells[0].source.startswith("# ")
    assert "?" in cells[0].source or path == findings.ANSWERS
    for trace in ("/home/", "/root/", "/tmp/", "/Users/", str(Path.cwd())):
        assert trace not in path.read_text(encoding="utf-8")
    code = [cell for cell in cells if cell.cell_type == "code"]
    (parameters,) = (cell for cell in code if "parameters" in cell.metadata.get("tags", []))
    assert {type(one) for one in ast.parse(parameters.source).body} == {ast.AnnAssign}
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    imports = [one for cell in code for one in ast.parse(cell.source).body]
    for one in [one for one in imports if isinstance(one, ast.ImportFrom)]:
        module = importlib.import_module(one.module)
        assert not [name.name for name in one.names if not has_name(module, name.name)], one.module
    kinds = {output.output_type for cell in code for output in cell.outputs}
    assert kinds == {"execute_result"}  # no error, no warning
    figures = [o for cell in code for o in cell.outputs if "image/png" in o.data]
    assert all(figure.metadata["image/png"]["alt"] for figure in figures)


def has_name(module, name):
    """Whether a module gives a name, which may be that of a module in it."""
    return hasattr(module, name) or find_spec(f"{module.__name__}.{name}") is not None


def test_the_pages_are_those_of_the_notebooks():
    for name, content in findings.pages().items():
        assert (PROJECT / "docs" / name).read_bytes() == content, name


def test_every_study_is_in_the_overview_and_in_the_answers():
    for page in ("findings.md", "answers.md"):
        text = (PROJECT / "docs" / page).read_text(encoding="utf-8")
        for number in range(1, len(findings.STUDIES) + 1):
            assert f"#{number}-" in text
        assert ".ipynb" not in text
        assert "../docs" not in text


def test_a_study_of_other_evidence(tmp_path):
    """A changed parameter is all that it takes; the numbers follow."""
    costs = (PROJECT / "evidence" / "cost.csv").read_text()
    (tmp_path / "evidence" / "runs").mkdir(parents=True)
    (tmp_path / "evidence" / "cost.csv").write_text(costs.replace(",cpu-1thread,", ",cpu-avx2,"))
    executed = papermill.execute_notebook(
        str(PROJECT / "studies" / "4_cost.ipynb"),
        str(tmp_path / "executed.ipynb"),
        {"evidence_folder": str(tmp_path / "evidence")},
        cwd=str(PROJECT / "studies"),
        progress_bar=False,
    )
    shown = "".join(
        o.data.get("text/markdown", "") for c in executed.cells for o in c.get("outputs", [])
    )
    assert shown.count("| cpu-avx2 |") == costs.count(",cpu-1thread,") > 0


def test_a_store_without_the_runs_of_a_study_is_refused(monkeypatch):
    monkeypatch.syspath_prepend(str(PROJECT / "studies"))
    import shared

    evidence = shared.Evidence(str(PROJECT / "evidence"))
    assert len(evidence.trainings("nuclei", 500)) == 12
    assert evidence.trainings("nuclei", 500, "vit-l") == []
    with pytest.raises(BadInput, match="no training on 'worms' of 500 epochs; expected a store"):
        evidence.trainings("worms", 500)


@pytest.mark.slow
def test_the_pages_are_written_anew_from_evidence_alone(tmp_path):
    for folder in ("evidence", "scripts", "studies"):
        shutil.copytree(PROJECT / folder, tmp_path / folder)
    (tmp_path / "docs" / "findings").mkdir(parents=True)
    subprocess.run([sys.executable, tmp_path / "scripts" / "findings.py"], check=True)
    for path in NOTEBOOKS:
        assert (tmp_path / "studies" / path.name).read_text() == path.read_text()
    for path in [*(PROJECT / "docs" / "findings").glob("*.csv"), PAGE]:
        assert (tmp_path / path.relative_to(PROJECT)).read_text() == path.read_text()


def test_a_store_made_anew_is_checked(capsys, monkeypatch):
    """Against itself every strict run is equal; nothing to compare is no success."""
    check = ["findings.py", "--check"]
    monkeypatch.setattr(sys, "argv", [*check, str(PROJECT / "evidence")])
    assert findings.main() == 0
    assert int(capsys.readouterr().out.split()[0]) > 20


def test_a_measured_row_takes_the_place_of_the_one_known_by_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "EVIDENCE", tmp_path)
    first = {"images": "nuclei", "a": "k/m/0", "b": "k/m/1", "max_abs": 1.5}
    WEIGHTS.keep(first, first | {"b": "k/m/10"})
    WEIGHTS.keep(first | {"b": "k/m/2"}, first | {"max_abs": None})
    assert (tmp_path / "weights.csv").read_text().splitlines() == [
        "images,a,b,max_abs",
        "nuclei,k/m/0,k/m/1,",
        "nuclei,k/m/0,k/m/2,1.5",
        "nuclei,k/m/0,k/m/10,1.5",
    ]


def kept_pass(folder, profile, name, *, logit, error, has_second_cell):
    """A file of one image, with one pixel near the threshold, one candidate, and two cells."""
    place = folder / "toy" / "net" / "float32" / f"{profile}@2.15.0"
    place.mkdir(parents=True, exist_ok=True)
    masks = np.zeros((6, 12), np.int32)
    masks[1:5, 1:5] = 1
    masks[1:5, 7:11] = 2 * has_second_cell
    probability = np.full((6, 12), 9.0)
    probability[0, 0] = logit
    kept = {
        "probability": probability,
        "flows": np.zeros((2, 6, 12)),
        "masks": masks,
        "candidates": np.ones((6, 12), int),
        "errors": np.array([error]),
    }
    arrays = {f"one:{kind}": values for kind, values in kept.items()}
    np.savez(place / f"{name}.npz", seconds=1.0, **arrays)


def test_of_what_differs_on_a_machine_that_counts_which_lies_in_the_band(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "EVIDENCE", tmp_path)
    monkeypatch.setattr(forecasts, "N_DRAWS", (1, 2, 3))
    kept_pass(tmp_path, "cpu", "usual", logit=0, error=0.4, has_second_cell=True)
    kept_pass(tmp_path, "cpu-avx2", "usual", logit=0, error=0.4, has_second_cell=True)
    kept_pass(tmp_path, "cpu-1thread", "usual", logit=4, error=0.2, has_second_cell=False)
    kept_pass(tmp_path, "cpu", "0", logit=-1, error=0.3, has_second_cell=True)
    kept_pass(tmp_path, "cpu", "1", logit=1, error=0.35, has_second_cell=False)
    kept_pass(tmp_path, "cpu", "2", logit=5, error=0.1, has_second_cell=True)
    forecasts.forecast(tmp_path)
    rows = (tmp_path / "forecast_coverage.csv").read_text().splitlines()
    assert [row.removeprefix("toy,net,float32,") for row in rows[1:]] == [
        # pixels and cells that hang on a threshold, then those of the masks, and of these foretold
        "another draw,2.15.0,1,0,0.333333,0,0,0,0",
        "another draw,2.15.0,2,0.2,0.333333,0,0,0,0",
        "cpu-1thread,2.15.0,1,0,0.5,16,0,1,0",
        "cpu-1thread,2.15.0,2,0.25,0.5,16,16,1,1",
        "cpu-1thread,2.15.0,3,1,1,16,16,1,1",
    ]
