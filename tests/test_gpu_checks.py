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
    command = [sys.executable, SCRIPT, "--profile", "cpu", "--epochs", "2", "--out", out, "--only"]
    done = subprocess.run([*command, "strict-repeats", "audit-strict", "warnings"])
    found = json.loads(out.read_text())["checks"]
    assert done.returncode == 0, found
    assert {name: outcome["status"] for name, outcome in found.items()} == {
        "strict-repeats": "passed",
        "audit-strict": "passed",
        "warnings": "seen",
    }
