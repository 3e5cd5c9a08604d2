"""Apply each known fault to a copy of the code, and show that the tests notice it.

``make test-faults``. A fault is an entry of ``ROOM.yaml`` beside this file: the behaviour that it
breaks, a change of text in one file, and the tests that must then fail.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
COPIED = ("src", "tests", "scripts", "notebooks", "grids", "docs", "pyproject.toml", "Makefile")
COPIED_IF_THERE = (
    "data",
    "examples",
    "README.md",
    "CONTRIBUTING.md",
    "requirements.lock",
    "setup.py",
)


@dataclass(frozen=True)
class Fault:
    """One change that the tests must notice."""

    room: str
    name: str
    behaviour: str
    file: str
    old: str
    new: str
    tests: list[str]


def faults() -> list[Fault]:
    """Every fault of every room."""
    return [
        Fault(room=path.stem, **entry)
        for path in sorted(HERE.glob("*.yaml"))
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))
    ]


def broken(code: Path, fault: Fault) -> str:
    """The text of the file with the fault in it."""
    text = (code / fault.file).read_text(encoding="utf-8")
    if text.count(fault.old) != 1:
        raise SystemExit(
            f"{fault.name}: its text stands {text.count(fault.old)} times in {fault.file}, "
            f"expected once; write the fault anew in {fault.room}.yaml"
        )
    return text.replace(fault.old, fault.new)


def notices(code: Path, fault: Fault) -> bool:
    """Whether the tests that it names fail on a copy of the code with the fault in it."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, "copy", "code")
        copy.mkdir(parents=True)
        for name in (*COPIED, *(name for name in COPIED_IF_THERE if (code / name).exists())):
            source = code / name
            ignored = shutil.ignore_patterns("__pycache__")
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=ignored)
            else:
                shutil.copy(source, copy / name)
        if (code.parent / "shared").is_dir():
            (copy.parent / "shared").symlink_to(code.parent / "shared")
        (copy / fault.file).write_text(broken(code, fault), encoding="utf-8")
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
    return done.returncode == 1


def main() -> int:
    """Apply them one after the other; 1 where one was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--room", help="only the faults of one room")
    parser.add_argument("--only", nargs="*", help="only these faults")
    parser.add_argument("--list", action="store_true", help="show them, and that each applies")
    arguments = parser.parse_args()
    chosen = [
        fault
        for fault in faults()
        if arguments.room in (None, fault.room)
        and (arguments.only is None or fault.name in arguments.only)
    ]
    missed = []
    for fault in chosen:
        if arguments.list:
            broken(PROJECT, fault)
            print(f"{fault.room}: {fault.name}: {fault.behaviour}")
            continue
        noticed = notices(PROJECT, fault)
        print(f"{'noticed' if noticed else 'MISSED '} {fault.room}: {fault.name}", flush=True)
        missed += [] if noticed else [fault.name]
    if not arguments.list:
        print(f"{len(chosen) - len(missed)} of {len(chosen)} faults noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
