"""The script for a GPU runs whole on a CPU, and keeps what it has found."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "gpu_checks.py"


@pytest.mark.slow
def test_on_the_processor(tmp_path):
    out = tmp_path / "found.json"
    command = [sys.executable, str(SCRIPT), "--profile", "cpu", "--epochs", "2", "--out", str(out)]
    checks = ["strict-repeats", "audit-strict", "warnings"]
    done = subprocess.run([*command, "--only", *checks], capture_output=True, text=True)
    found = json.loads(out.read_text())["checks"]
    assert done.returncode == 0, found
    assert list(found) == checks
    assert [outcome["status"] for outcome in found.values()] == ["passed", "passed", "seen"]
