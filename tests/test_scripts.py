"""Scripts run whole in their smallest form; each figure and finding is kept as it is made."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
pytestmark = pytest.mark.slow


@pytest.mark.skipif("CELLREPRO_NO_BROWSER" in os.environ, reason="one group is of the explorer")
def test_every_group_of_benchmarks(tmp_path):
    """None fails, and each leaves figures of the promised form."""
    file = tmp_path / "outputs" / "bench.json"
    command = [sys.executable, SCRIPTS / "bench.py", "--smallest", "--json", file]
    assert subprocess.run(command).returncode == 0
    rows = json.loads(file.read_text())
    assert len(rows) > 20
    assert all(list(row) == ["name", "value", "target", "met", "how"] for row in rows)
    assert [row["how"] for row in rows if row["value"] is None] == []


def test_the_checks_for_a_gpu_on_the_processor(tmp_path):
    out = tmp_path / "found.json"
    command = [sys.executable, SCRIPTS / "gpu_checks.py", "--profile", "cpu", "--epochs", "2"]
    names = ["strict-repeats", "audit-strict", "warnings"]
    done = subprocess.run([*command, "--out", out, "--only", *names])
    found = json.loads(out.read_text())["checks"]
    assert done.returncode == 0, found
    assert [found[name]["status"] for name in names] == ["passed", "passed", "seen"]
