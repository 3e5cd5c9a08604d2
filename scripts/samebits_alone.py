"""The tests of `samebits`, in a copy beside which no laboratory can be imported.

`samebits_alone.py [ARGUMENT ...]` hands its arguments on to pytest. Exit code: pytest's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
ABSENT = '''
"""No part of the laboratory, nor Cellpose, can be imported."""

import sys

from surroundings import generators_free, nothing_left_behind, one_thread


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("cellrepro", "cellpose"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
'''


def main(arguments: list[str]) -> int:
    """Copy, and run the tests there."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch)
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROJECT / "src/samebits", copy / "src/samebits", ignore=ignore)
        shutil.copytree(PROJECT / "tests/samebits", copy / "tests/samebits", ignore=ignore)
        shutil.copy(PROJECT / "tests/surroundings.py", copy / "tests")
        shutil.copy(PROJECT / "pyproject.toml", copy)
        (copy / "conftest.py").write_text(ABSENT)
        command = [sys.executable, "-m", "pytest", "-q"]
        environment = {**os.environ, "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy / 'tests'}"}
        done = subprocess.run([*command, *arguments], cwd=copy, env=environment, check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
