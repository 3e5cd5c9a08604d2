"""Install the wheel alone into an empty environment of each Python here, and use it.

`check_wheel.py [--pythons 3.10 3.13]` builds the wheel, makes an environment of each Python that is
installed (on the PATH, or by pyenv), installs the wheel without an extra, and runs what reads
files. Then it resolves core and lab for the systems that are not here. `--lowest` tries one
environment alone: the oldest Python with the lowest versions of what the package says it needs.
Exit code 1 where one fails.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
UV = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
PLATFORMS = ("linux", "windows", "x86_64-apple-darwin", "aarch64-apple-darwin")
WITHOUT_THE_LAB = ("x86_64-apple-darwin",)
"""PyTorch has had no wheels for Macs with an Intel processor since its version 2.3."""
NOT_INSTALLED = ("torch", "cellpose", "jupyterlab", "pandas", "imagecodecs")
MOST_MEGABYTES = 400
MAKE_FILES = """
import sys
import numpy as np
import tifffile

masks = np.zeros((64, 64), np.uint16)
for label, (y, x) in enumerate([(4, 4), (4, 40), (40, 4), (40, 40)], start=1):
    masks[y : y + 8, x : x + 8] = label
tifffile.imwrite("a.tif", masks)
tifffile.imwrite("b.tif", np.where(masks == 3, 0, masks))
tifffile.imwrite("moved.tif", np.roll(masks, 5, axis=0))
import pathlib
pathlib.Path("data").mkdir()
tifffile.imwrite("data/one.tif", 100 + 100 * (masks > 0).astype(np.uint16))
pathlib.Path("segment.py").write_text(
    "import sys, tifffile; from scipy import ndimage; "
    "image = tifffile.imread(sys.argv[1]); "
    "tifffile.imwrite(sys.argv[2], ndimage.label(image > 150)[0].astype('uint16'))"
)
"""


@dataclass(frozen=True)
class Use:
    """A command line of the package, and what must come of it."""

    words: tuple[str, ...]
    """``PYTHON`` stands for the environment's own."""
    code: int
    """The expected exit code."""
    said: str
    """Must be in what it prints."""


USES = (
    Use(("--version",), 0, "cellrepro"),
    Use(("compare", "a.tif", "b.tif"), 1, "1 lost"),
    Use(("compare", "a.tif", "moved.tif"), 1, "100 % of the cells"),
    Use(("compare", "a.tif", "b.tif", "--image", "data/one.tif", "--html", "p.html"), 1, "page: p"),
    Use(("explore", "data/one.tif", "a.tif", "b.tif", "--html", "e.html"), 0, "pixels differ"),
    Use(("describe", "a.tif"), 0, "n objects: 4"),
    Use(("tiles", "--masks", "a.tif"), 0, "no row or column"),
    Use(("baseline", "save", "a.tif", "base.json"), 0, "4 cells"),
    Use(("baseline", "check", "base.json", "b.tif"), 1, "broken"),
    Use(("wrap", "data", "--", "PYTHON", "segment.py", "{image}", "{masks}"), 0, "identical"),
    Use(("list",), 0, "data"),
    Use(("fsck",), 0, "whole"),
    Use(("export", "--where", "data=data", "sent.intoto.jsonl"), 0, "sent.intoto.jsonl"),
    Use(("import", "sent.intoto.jsonl", "--store", "elsewhere"), 0, "elsewhere"),
    Use(("verify", "sent.intoto.jsonl"), 0, "identical"),
)


def main() -> int:
    """Try every Python and every platform; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pythons", nargs="*", default=VERSIONS, help="versions that are tried")
    parser.add_argument("--lowest", action="store_true", help="the lowest versions, nothing else")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cellrepro-wheel-") as scratch:
        wheel = build_wheel(Path(scratch))
        if arguments.lowest:
            python = next(filter(None, map(python_of, VERSIONS)), sys.executable)
            problems = try_wheel(wheel, python, Path(scratch, "lowest"), lowest=True)
        else:
            problems = try_pythons(wheel, arguments.pythons, Path(scratch))
            for version, platform in itertools.product(arguments.pythons, PLATFORMS):
                problems += resolve(wheel, version, platform)
    for problem in problems:
        print(f"FAILED {problem}", file=sys.stderr)
    return int(bool(problems))


def try_pythons(wheel: Path, versions: Sequence[str], scratch: Path) -> list[str]:
    """Use the wheel with each Python that is here; what went wrong."""
    problems = []
    for version in versions:
        python = python_of(version)
        if python is None:
            print(f"Python {version}: not installed here, not tried")
        else:
            problems += try_wheel(wheel, python, scratch / version)
    return problems


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this project into a folder."""
    source = folder / "source"  # setuptools leaves its own folders beside the sources
    ignored = shutil.ignore_patterns(".*", "outputs", "data", "build", "*.egg-info", "evidence")
    shutil.copytree(PROJECT, source, ignore=ignored)
    command = [UV, "build", "--quiet", "--wheel", "--out-dir", str(folder / "dist"), str(source)]
    subprocess.run(command, check=True)
    return next((folder / "dist").glob("*.whl"))


def python_of(version: str) -> str | None:
    """Find a Python of this version: on the PATH, or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}")]
    candidates += [str(folder / "bin" / "python") for folder in pyenv.glob(f"{version}.*")]
    for candidate in candidates:
        if candidate is None:
            continue
        answer = subprocess.run([candidate, "-V"], capture_output=True, text=True, check=False)
        if answer.returncode == 0 and answer.stdout.startswith(f"Python {version}."):
            return candidate
    return None


def try_wheel(wheel: Path, python: str, folder: Path, *, lowest: bool = False) -> list[str]:
    """Install the wheel into an environment of one Python and use it; what went wrong."""
    began = time.perf_counter()
    environment = folder / "environment"
    python_there = install(wheel, python, environment, lowest=lowest)
    seconds = time.perf_counter() - began
    n_bytes = sum(file.lstat().st_size for file in environment.rglob("*") if file.is_file())
    megabytes = n_bytes / 1e6
    packages = installed_packages(python_there)
    problems = [f"{name} is installed" for name in NOT_INSTALLED if name in packages]
    if megabytes > MOST_MEGABYTES:
        problems.append(f"{megabytes:.0f} MB")
    subprocess.run([python_there, "-c", MAKE_FILES], cwd=folder, check=True)
    problems += filter(None, (problem_of(use, python_there, folder) for use in USES))
    print(
        f"{python}: {len(packages)} packages, {megabytes:.0f} MB, installed in {seconds:.0f} s, "
        f"{len(USES)} commands tried"
    )
    return [f"{python}: {problem}" for problem in problems]


def install(wheel: Path, python: str, environment: Path, *, lowest: bool) -> Path:
    """Make an environment with the wheel alone; its Python."""
    subprocess.run([UV, "venv", "--quiet", "--python", python, environment], check=True)
    python_there = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    command = [UV, "pip", "install", "--quiet", "--only-binary", ":all:", "--link-mode", "copy"]
    command += ["--python", python_there]
    if lowest:  # of what pyproject.toml names: a wheel's needs do not count as direct
        needs = ["--resolution", "lowest-direct", "--requirement", PROJECT / "pyproject.toml"]
        subprocess.run([*command, *needs], check=True)
    subprocess.run([*command, wheel], check=True)
    return python_there


def installed_packages(python: Path) -> set[str]:
    command = [UV, "pip", "freeze", "--python", python]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {line.partition("==")[0] for line in listing.splitlines()}


def problem_of(use: Use, python: Path, folder: Path) -> str | None:
    """Carry out a command; what is wrong with its end, if anything is."""
    words = [str(python) if word == "PYTHON" else word for word in use.words]
    command = [python, "-m", "cellrepro", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode == use.code and use.said in done.stdout:
        return None
    return (
        f"cellrepro {' '.join(use.words)} ended with {done.returncode}, expected {use.code} and "
        f"{use.said!r}: {done.stdout[-300:]}{done.stderr[-500:]}"
    )


def resolve(wheel: Path, version: str, platform: str) -> list[str]:
    """Resolve core and lab for a system and a Python, from wheels alone; what went wrong."""
    problems = []
    for extra in ("",) if platform in WITHOUT_THE_LAB else ("", "[lab]"):
        command = [UV, "pip", "compile", "--quiet", "--no-header", "--python-version", version]
        command += ["--python-platform", platform, "--only-binary", ":all:", "-"]
        done = subprocess.run(
            command,
            input=f"cellrepro{extra} @ {wheel.as_uri()}",
            capture_output=True,
            text=True,
            check=False,
        )
        name = f"cellrepro{extra} for Python {version} on {platform}"
        if done.returncode:
            problems.append(f"{name} cannot be resolved: {done.stderr[-600:]}")
        else:
            print(f"{name}: resolved")
    return problems


if __name__ == "__main__":
    sys.exit(main())
