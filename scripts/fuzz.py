"""Fuzz every parser of what comes from outside, one after the other; `make fuzz` calls this.

    python scripts/fuzz.py                       # all targets, an hour together
    python scripts/fuzz.py --seconds 600 bundle  # one target, ten minutes
    python scripts/fuzz.py --shrink              # the corpus made small again, at most 100 kB

Atheris makes up inputs and watches which lines they reach. It lives in an environment of its own,
which sees the packages of this one. The targets are those of tests/exchange/fuzz_targets.py. What
is found lies in outputs/fuzz/found/TARGET, one file for each input; put it into
tests/exchange/corpus/TARGET once it is mended, where pytest looks at it from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
OF_TESTS = PROJECT / "tests" / "exchange"
SEARCHED = ("src", "tests", "tests/comparison", "tests/store", "tests/exchange", "scripts")
FUZZ = PROJECT / "outputs" / "fuzz"
ENVIRONMENT = FUZZ / "environment"
ATHERIS = "atheris==3.0.0" if sys.version_info < (3, 12) else "atheris>=3.1"
"""3.0.0 is the last one for Python 3.11."""

SECONDS_OF_AN_INPUT = 20
MOST_MEGABYTES = 3000
BYTES_OF_CORPUS = {
    "bundle": 8_000,
    "compared_weights": 4_000,
    "contents": 10_000,
    "exported_zip": 20_000,
    "manifest": 4_000,
    "npy": 3_000,
    "strict_json": 3_500,
    "ledger": 2_500,
    "tiff": 6_000,
    "weights": 6_000,
}
"""Of the others `USUAL_BYTES_OF_CORPUS`; 100 kB together."""
USUAL_BYTES_OF_CORPUS = 2_000
FOUND = "found-"
"""How inputs begin that once were a fault; they stay in the corpus."""

sys.path[:0] = [str(PROJECT / folder) for folder in SEARCHED]

from fuzz_targets import CORPUS, MOST_BYTES, TARGETS, USUAL_MOST_BYTES, look  # noqa: E402


def main() -> int:
    """Fuzz, or make the corpus small; 1 where something was found."""
    parser = argparse.ArgumentParser(description="Fuzz every parser of what comes from outside.")
    parser.add_argument("targets", nargs="*", help="default all", choices=[[], *TARGETS])
    parser.add_argument("--seconds", type=int, default=3600, help="of all targets together")
    parser.add_argument("--shrink", action="store_true", help="make the corpus small, fuzz nothing")
    arguments = parser.parse_args()
    targets: Sequence[str] = arguments.targets or list(TARGETS)
    python = python_with_atheris()
    if arguments.shrink:
        for name in targets:
            shrink(python, name)
        return 0
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
        *_limits(name),
        grown,  # what is new goes here
        *_committed(name),
    ]
    with (FUZZ / f"{name}.log").open("wb") as log:
        _run(python, name, options, log=log)
    return sorted({*found.iterdir()} - before)


def shrink(python: Path, name: str) -> None:
    """Keep of committed and grown corpus what reaches as many lines, in few bytes."""
    most_bytes = BYTES_OF_CORPUS.get(name, USUAL_BYTES_OF_CORPUS)
    grown = FUZZ / "corpus" / name
    sources = [*_committed(name), *([grown] if grown.exists() else [])]
    with _scratch() as scratch:
        merged = scratch / "merged"
        merged.mkdir()
        with (FUZZ / f"{name}.log").open("wb") as log:
            _run(python, name, ["-merge=1", *_limits(name), merged, *sources], log=log)
        inputs = [path.read_bytes() for path in merged.iterdir()]
        kept = _chosen(name, inputs, most_bytes=most_bytes, scratch=scratch)
    target = CORPUS / name
    target.mkdir(parents=True, exist_ok=True)
    for path in target.iterdir():
        if not path.name.startswith(FOUND):
            path.unlink()
    for data in kept:
        (target / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    print(f"{name}: {len(kept)} of {len(inputs)} inputs, {sum(map(len, kept))} bytes")


def _chosen(name: str, inputs: Sequence[bytes], *, most_bytes: int, scratch: Path) -> list[bytes]:
    """The smallest of those that are taken, then the smallest of all, as far as there is room."""
    by_size = sorted(inputs, key=len)
    taken = [data for data in by_size if look(name, data, scratch) is None]
    chosen: dict[bytes, None] = {}
    left = most_bytes
    for data in [*taken[:2], *by_size]:
        if data not in chosen and len(data) <= left:
            chosen[data] = None
            left -= len(data)
    return list(chosen)


def _committed(name: str) -> list[Path]:
    return [CORPUS / name] if (CORPUS / name).exists() else []


def _limits(name: str) -> list[str]:
    return [
        f"-max_len={MOST_BYTES.get(name, USUAL_MOST_BYTES)}",
        f"-timeout={SECONDS_OF_AN_INPUT}",
        f"-rss_limit_mb={MOST_MEGABYTES}",
    ]


def _run(python: Path, name: str, options: Sequence[object], *, log: object) -> None:
    command = [python, OF_TESTS / "fuzz_targets.py", name, *options]
    variables = {
        "PYTHONPATH": os.pathsep.join(str(PROJECT / folder) for folder in SEARCHED),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    with _scratch() as scratch:
        subprocess.run(
            [str(word) for word in command],
            env={**os.environ, **variables, "TMPDIR": str(scratch)},
            stdout=log,  # type: ignore[arg-type]
            stderr=subprocess.STDOUT,
        )


@contextmanager
def _scratch() -> Iterator[Path]:
    """In memory where there is such a place: a file is written for each input."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="cellrepro-fuzz-", dir=place) as folder:
        yield Path(folder)


if __name__ == "__main__":
    sys.exit(main())
