"""Install the wheel alone into an empty environment of each Python here, and use it.

`check_wheel.py [--pythons 3.10 3.13]` builds the wheel, makes an environment of each Python that is
installed (on the PATH, or by pyenv), installs the wheel without an extra, and runs what reads
files. Then it resolves core and lab for the systems that are not here. `--lowest` tries one
environment alone: the oldest Python with the lowest versions of what the package says it needs.
Exit code 1 where one fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
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
    """A command line of the package, and what must come of it.

    Attributes
    ----------
    words : tuple of str
        ``PYTHON`` stands for the environment's own.
    code : int
        The expected exit code.
    said : str
        Must be in what it prints.
    """

    words: tuple[str, ...]
    code: int
    said: str


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
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    problems = []
    with tempfile.TemporaryDirectory(prefix="cellrepro-wheel-") as scratch:
        wheel = build_wheel(uv, Path(scratch))
        if arguments.lowest:
            python = next(filter(None, map(python_of, VERSIONS)), sys.executable)
            problems += try_wheel(uv, wheel, python, Path(scratch) / "lowest", lowest=True)
            arguments.pythons = ()
        for version in arguments.pythons:
            python = python_of(version)
            if python is None:
                print(f"Python {version}: not installed here, not tried")
                continue
            problems += try_wheel(uv, wheel, python, Path(scratch) / version)
        for version in arguments.pythons:
            for platform in PLATFORMS:
                problems += resolve(uv, wheel, version, platform)
    for problem in problems:
        print(f"FAILED {problem}", file=sys.stderr)
    return int(bool(problems))


def build_wheel(uv: str, folder: Path) -> Path:
    """Build the wheel of this project into a folder."""
    source = folder / "source"  # setuptools leaves its own folders beside the sources
    ignored = shutil.ignore_patterns(".*", "outputs", "data", "build", "*.egg-info", "evidence")
    shutil.copytree(PROJECT, source, ignore=ignored)
    command = [uv, "build", "--quiet", "--wheel", "--out-dir", str(folder / "dist"), str(source)]
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


def try_wheel(
    uv: str, wheel: Path, python: str, folder: Path, *, lowest: bool = False
) -> list[str]:
    """Install the wheel into an environment of one Python and use it; what went wrong."""
    began = time.perf_counter()
    environment = folder / "environment"
    subprocess.run([uv, "venv", "--quiet", "--python", python, str(environment)], check=True)
    python_there = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    install = [uv, "pip", "install", "--quiet", "--only-binary", ":all:", "--link-mode", "copy"]
    install += ["--python", str(python_there)]
    if lowest:  # of what pyproject.toml names: a wheel's needs do not count as direct
        needs = ["--resolution", "lowest-direct", "--requirement", str(PROJECT / "pyproject.toml")]
        subprocess.run([*install, *needs], check=True)
    subprocess.run([*install, str(wheel)], check=True)
    seconds = time.perf_counter() - began
    n_bytes = sum(file.lstat().st_size for file in environment.rglob("*") if file.is_file())
    megabytes = n_bytes / 1e6
    problems = [] if megabytes <= MOST_MEGABYTES else [f"{python}: {megabytes:.0f} MB"]
    listing = subprocess.run(
        [uv, "pip", "freeze", "--python", str(python_there)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    installed = {line.partition("==")[0] for line in listing.splitlines()}
    problems += [f"{python}: {name} is installed" for name in NOT_INSTALLED if name in installed]
    subprocess.run([python_there, "-c", MAKE_FILES], cwd=folder, check=True)
    for use in USES:
        words = [str(python_there) if word == "PYTHON" else word for word in use.words]
        done = subprocess.run(
            [python_there, "-m", "cellrepro", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != use.code or use.said not in done.stdout:
            problems.append(
                f"{python}: cellrepro {' '.join(use.words)} ended with {done.returncode}, "
                f"expected {use.code} and {use.said!r}: {done.stdout[-300:]}{done.stderr[-500:]}"
            )
    print(
        f"{python}: {len(installed)} packages, {megabytes:.0f} MB, installed in {seconds:.0f} s, "
        f"{len(USES)} commands tried"
    )
    return problems


def resolve(uv: str, wheel: Path, version: str, platform: str) -> list[str]:
    """Resolve core and lab for a system and a Python, from wheels alone; what went wrong."""
    problems = []
    for extra in ("", "[lab]"):
        if extra and platform in WITHOUT_THE_LAB:
            continue
        command = [uv, "pip", "compile", "--quiet", "--no-header", "--python-version", version]
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
