"""Two findings computed again from the evidence, in another way; the page must say the same."""

import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile

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
    """Of the objects of two repeats those without a counterpart."""
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


@pytest.mark.slow
def test_the_page_is_written_anew_from_evidence_alone(tmp_path):
    shutil.copytree(PROJECT / "evidence", tmp_path / "evidence")
    shutil.copytree(PROJECT / "scripts", tmp_path / "scripts")
    (tmp_path / "docs").mkdir()
    pages = ["findings.md", "answers.md"]
    for page in pages:
        shutil.copy(PROJECT / "docs" / f"{page}.j2", tmp_path / "docs")
    subprocess.run([sys.executable, tmp_path / "scripts" / "findings.py"], check=True)
    for page in pages:
        assert (tmp_path / "docs" / page).read_text() == (PROJECT / "docs" / page).read_text()
    for table in (PROJECT / "docs" / "findings").glob("*.csv"):
        assert (tmp_path / "docs" / "findings" / table.name).read_text() == table.read_text()
