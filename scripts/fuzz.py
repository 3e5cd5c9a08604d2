"""Fuzz every parser of what comes from outside, one after the other; `make fuzz` calls this.

    python scripts/fuzz.py                       # all targets, an hour together
    python scripts/fuzz.py --seconds 600 bundle  # one target, ten minutes

Atheris makes up inputs and watches which lines they reach. It lives in an environment of its own,
which sees the packages of this one. The targets are those of tests/exchange/fuzz_targets.py. What
is found lies in outputs/fuzz/found/TARGET, one file for each input; put it into
tests/exchange/corpus/TARGET once it is mended, where pytest looks at it from then on.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PROJECT = Path(__file__).resolve().parents[1]
OF_TESTS = PROJECT / "tests" / "exchange"
SEARCHED = ("src", "tests", "tests/comparison", "tests/store", "tests/exchange", "scripts")
FUZZ = PROJECT / "outputs" / "fuzz"
ENVIRONMENT = FUZZ / "environment"
ATHERIS = "atheris==3.0.0" if sys.version_info < (3, 12) else "atheris>=3.1"
"""3.0.0 is the last one for Python 3.11."""

SECONDS_OF_AN_INPUT = 20
MOST_MEGABYTES = 3000

sys.path[:0] = [str(PROJECT / folder) for folder in SEARCHED]

from fuzz_targets import CORPUS, MOST_BYTES, TARGETS, USUAL_MOST_BYTES  # noqa: E402


def main() -> int:
    """Fuzz the targets that are named, or all; 1 where something was found."""
    parser = argparse.ArgumentParser(description="Fuzz every parser of what comes from outside.")
    parser.add_argument("targets", nargs="*", help="default all", choices=[[], *TARGETS])
    parser.add_argument("--seconds", type=int, default=3600, help="of all targets together")
    arguments = parser.parse_args()
    targets: Sequence[str] = arguments.targets or list(TARGETS)
    python = python_with_atheris()
    found = []
    for name in targets:
        seconds = max(1, arguments.seconds // len(targets))
        print(f"{name}: {seconds} seconds", flush=True)
        found += fuzz(python, name, seconds)
    for path in found:
        print(f"found: {path}")
    return 1 if found else 0


def python_with_atheris() -> Path:
    """The Python of the environment with Atheris, which is made where there is none."""
    python = ENVIRONMENT / "bin" / "python"
    ready = ENVIRONMENT / ".ready"
    if not ready.exists():
        uv = [sys.executable, "-m", "uv"]
        made = [*uv, "venv", "--clear", "--python", sys.executable, ENVIRONMENT]
        subprocess.run(made, check=True)
        subprocess.run([*uv, "pip", "install", "--python", python, ATHERIS], check=True)
        (packages,) = ENVIRONMENT.glob("lib/python*/site-packages")
        (packages / "beside.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        ready.touch()
    return python


def fuzz(python: Path, name: str, seconds: int) -> list[Path]:
    """Give a target made-up inputs for so long; the files of those that it fails on."""
    found = FUZZ / "found" / name
    grown = FUZZ / "corpus" / name
    for folder in (found, grown):
        folder.mkdir(parents=True, exist_ok=True)
    before = {*found.iterdir()}
    options = [
        f"-max_total_time={seconds}",
        f"-artifact_prefix={found}{os.sep}",
        *limits(name),
        grown,  # what is new goes here
        *committed(name),
    ]
    with (FUZZ / f"{name}.log").open("wb") as log:
        run_target(python, name, options, log=log)
    return sorted({*found.iterdir()} - before)


def committed(name: str) -> list[Path]:
    return [CORPUS / name] if (CORPUS / name).exists() else []


def limits(name: str) -> list[str]:
    return [
        f"-max_len={MOST_BYTES.get(name, USUAL_MOST_BYTES)}",
        f"-timeout={SECONDS_OF_AN_INPUT}",
        f"-rss_limit_mb={MOST_MEGABYTES}",
    ]


def run_target(python: Path, name: str, options: Sequence[object], *, log: IO[bytes]) -> None:
    command = [python, OF_TESTS / "fuzz_targets.py", name, *options]
    variables = {
        "PYTHONPATH": os.pathsep.join(str(PROJECT / folder) for folder in SEARCHED),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    with scratch_folder() as scratch:
        subprocess.run(
            [str(word) for word in command],
            env={**os.environ, **variables, "TMPDIR": str(scratch)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """In memory where there is such a place: a file is written for each input."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="cellrepro-fuzz-", dir=place) as folder:
        yield Path(folder)


if __name__ == "__main__":
    sys.exit(main())
