"""Benchmarks: every group runs, each figure is kept as it is measured."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "bench.py"


@pytest.fixture
def bench(monkeypatch):
    """The script as a module, which does not start itself again with a profile's variables."""
    spec = importlib.util.spec_from_file_location("bench", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench", module)  # where dataclasses look their module up
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "_environment", lambda: None)
    return module


@pytest.mark.slow
def test_every_group_in_its_smallest_form(bench, tmp_path):
    """None fails, and each leaves figures of the promised form."""
    file = tmp_path / "bench.json"
    without = {"explorer"} if os.environ.get("CELLREPRO_NO_BROWSER") == "1" else set()
    groups = [name for name in bench.GROUPS if name not in without]
    done = subprocess.run([sys.executable, SCRIPT, *groups, "--smallest", "--json", file])
    rows = json.loads(file.read_text())
    assert [row["how"] for row in rows if row["value"] is None] == []
    assert done.returncode == 0
    assert all(list(row) == ["name", "value", "target", "met", "how"] for row in rows)
    assert len(rows) > 2 * len(groups)


def test_a_group_that_fails_costs_no_other(bench, tmp_path, monkeypatch, capsys):
    """What was measured stays, the failure is a row, and the exit code says so."""
    file, seen = tmp_path / "outputs" / "bench.json", []

    def before(extent):
        yield f"{extent.name}, slow", 3.0, "<= 2", "by hand"
        seen.extend(row["name"] for row in json.loads(file.read_text()))
        raise TypeError("a row lacks a field")

    def after(extent):
        yield "after", 1.0, ">= 1", "by hand"

    monkeypatch.setattr(bench, "GROUPS", {"before": before, "after": after})
    monkeypatch.setattr(sys, "argv", ["bench.py", "--json", str(file)])
    assert bench.main() == 1
    assert seen == ["usual, slow"]
    assert [(row["name"], row["value"], row["met"]) for row in json.loads(file.read_text())] == [
        ("usual, slow", 3.0, False),
        ("before", None, False),
        ("after", 1.0, True),
    ]
    assert "failed: TypeError: a row lacks a field" in capsys.readouterr().out
