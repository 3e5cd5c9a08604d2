"""Put each known fault into a copy of the code; the tests must notice it: ``make test-faults``."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "tests"))

from faults.by_name import Fault, faults  # noqa: E402

COPIED = ("src", "tests", "scripts", "notebooks", "grids", "docs", "pyproject.toml", "Makefile")
COPIED_IF_THERE = (
    "data",
    "examples",
    "README.md",
    "CONTRIBUTING.md",
    "requirements.lock",
    "setup.py",
)


def copied(code: Path, copy: Path) -> None:
    """Copy what the tests need; beside it a link to the images that stand beside the project."""
    copy.mkdir(parents=True)
    for name in (*COPIED, *(name for name in COPIED_IF_THERE if (code / name).exists())):
        source = code / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    if (code.parent / "shared").is_dir():
        (copy.parent / "shared").symlink_to(code.parent / "shared")


def first_failure(code: Path, fault: Fault) -> str:
    """What its tests say of a copy of the code with the fault in it; empty where they pass."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, "copy", "code")
        copied(code, copy)
        with (copy / fault.file).open("a", encoding="utf-8") as file:
            file.write(fault.lines(copy / "tests"))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, *fault.tests],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy / "src")},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{fault.name}: the tests did not run\n{done.stdout[-2000:]}{done.stderr}")
    if done.returncode == 0:
        return ""
    errors = [line for line in done.stdout.splitlines() if line.startswith("E  ")]
    return errors[0].removeprefix("E").strip() if errors else "failed"


def main() -> int:
    """Apply them one after the other; 1 where one was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--room", help="only the faults of one room")
    parser.add_argument("--only", nargs="*", help="only these faults")
    parser.add_argument("--list", action="store_true", help="show them")
    arguments = parser.parse_args()
    chosen = [
        fault
        for fault in faults()
        if arguments.room in (None, fault.room)
        and (arguments.only is None or fault.name in arguments.only)
    ]
    if arguments.list:
        for fault in chosen:
            print(f"{fault.room}: {fault.name}: {fault.promise}")
        return 0
    missed = []
    for fault in chosen:
        failure = first_failure(PROJECT, fault)
        print(f"{'noticed' if failure else 'MISSED '} {fault.room}: {fault.name}", flush=True)
        print(f"        {failure}")
        if not failure:
            missed.append(fault.name)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} faults noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
