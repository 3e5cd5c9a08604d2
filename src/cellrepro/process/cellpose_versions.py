"""Other versions of Cellpose, each in a virtual environment of its own, resolved and cached.

This package is not installed there: a stub on PYTHONPATH leads to it. All other packages stay as
near to this environment as that version of Cellpose allows.
"""

from __future__ import annotations

import functools
import os
import re
import reprlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from cellrepro.process.locked_environment import program_in, uv_command
from cellrepro.progress import print_note
from cellrepro.spec.lab_command import lab_command
from cellrepro.store.installed_versions import distributions
from cellrepro.store.locks import locked
from cellrepro.store.whole_files import write_whole
from samebits.digests import value_digest
from samebits.errors import BadInput, NotPossibleHere

CACHE_VARIABLE = "CELLREPRO_CACHE"
"""Names the folder of these environments; by default the user's cache."""
LOCK = "requirements.lock"
"""File of an environment's folder with the installed versions and hashes; written last."""
_NEEDED = (
    "fastremap",
    "filelock>=3.20.4",
    "imagecodecs",
    "lazy-loader",
    "natsort",
    "numpy",
    "nvidia-ml-py",
    "pandas",
    "psutil",
    "py-cpuinfo",
    "pyarrow",
    "pydantic",
    "pyyaml",
    "safetensors",
    "scipy",
    "threadpoolctl",
    "tifffile",
    "torch",
    "torchvision",
    "xxhash",
)
"""Distributions that a segmentation needs beside Cellpose."""
_LEAD = """\
import pathlib

__path__ = [{package!r}]
__file__ = str(pathlib.Path(__path__[0], "__init__.py"))
exec(compile(pathlib.Path(__file__).read_text(encoding="utf-8"), __file__, "exec"))
"""
"""Stub package: imports this package from its own folder as if it were installed."""
_UNREACHABLE = ("connect", "dns error", "timed out", "network", "request failed")


def is_installed(version: str | None) -> bool:
    """Whether this environment has a version of Cellpose; None stands for its own."""
    try:
        return version is None or metadata.version("cellpose") == version
    except metadata.PackageNotFoundError:
        return False


def refuse_not_made(version: str | None) -> None:
    """Refuse a version that only a stored run names: a run from elsewhere installs nothing here."""
    if version is None:
        return
    _refuse_no_version(version)
    if not is_installed(version) and not (_folder(version, _preferred()) / LOCK).exists():
        making = lab_command("segment", "FOLDER", "--cellpose", version, store=None)
        raise NotPossibleHere(
            f"the run was segmented with Cellpose {version}, which is not here, and nothing is "
            "installed because a run names it; make its environment yourself, by segmenting any "
            f"folder of images: `{making}`"
        )


@dataclass(frozen=True)
class PythonOfVersion:
    """The interpreter of one version of Cellpose."""

    executable: str
    variables: dict[str, str]
    """Environment variables with which it finds this package."""


@functools.cache
def python_of(version: str) -> PythonOfVersion:
    """Find the interpreter of a version, and make its environment if there is none."""
    preferred = _preferred()
    folder = _folder(version, preferred)
    with locked(folder, wait=True):
        if not (folder / LOCK).exists():
            print_note(f"making an environment for Cellpose {version}, once")
            scratch = folder.with_name(f".{folder.name}.part")
            shutil.rmtree(scratch, ignore_errors=True)  # what a killed process left
            scratch.mkdir(parents=True)
            _make(scratch, version, preferred)
            scratch.rename(folder)
        source = _folder_with_this_package(folder)
    executable = program_in(folder / "environment", "python", windows=os.name == "nt")
    return PythonOfVersion(str(executable), {"PYTHONPATH": str(source)})


def _refuse_no_version(version: str) -> None:
    """Refuse a text that an installer might read as more than one version of one package."""
    if re.fullmatch(r"[0-9]+(\.[0-9]+)+[0-9A-Za-z]{0,20}", version) is None:
        raise BadInput(
            f"{reprlib.repr(version)} is no version of Cellpose; expected digits with dots, 4.0.9 "
            "for example"
        )


def _preferred() -> list[str]:
    """The versions installed here, as preferences for the resolver."""
    return [f"{name}=={number.partition('+')[0]}" for name, number in distributions().items()]


def _folder(version: str, preferred: list[str]) -> Path:
    """The folder of a version's environment."""
    _refuse_no_version(version)
    digest = value_digest([version, sys.version, *_NEEDED, *preferred])
    return cache_folder() / f"cellpose-{version}-{digest[:8]}"


def cache_folder() -> Path:
    """The folder of what can be made again: environments, and what is known of this machine."""
    import platformdirs

    return Path(
        os.environ.get(CACHE_VARIABLE) or platformdirs.user_cache_dir("cellrepro")
    ).resolve()


def _folder_with_this_package(environment: Path) -> Path:
    """Write the stub that leads to this package.

    Each checkout has its own: a child imports as it goes on, and must not mix two checkouts. A
    symbolic link would do, but few users of Windows may make one.
    """
    package = Path(__file__).resolve().parents[1]
    folder = environment / f"source-{value_digest(str(package))[:8]}"
    lead = folder / package.name / "__init__.py"
    text = _LEAD.format(package=str(package))
    if not lead.is_file() or lead.read_text(encoding="utf-8") != text:
        lead.parent.mkdir(parents=True, exist_ok=True)
        write_whole(lead, text.removesuffix("\n"), replace=True)
    return folder


def _make(folder: Path, version: str, preferred: list[str]) -> None:
    """Resolve and install; the lock gets its name last, so a folder that has it is whole."""
    requirements = folder / "wanted.txt"
    lock = folder / "new.lock"
    requirements.write_text("\n".join([f"cellpose=={version}", *_NEEDED]), encoding="utf-8")
    # What a lock holds already is preferred.
    lock.write_text("\n".join(preferred), encoding="utf-8")
    _uv(version, "pip", "compile", requirements, "--generate-hashes", "--output-file", lock)
    environment = folder / "environment"
    _uv(version, "venv", "--python", sys.executable, environment)
    _uv(version, "pip", "sync", "--python", environment, "--require-hashes", lock)
    lock.rename(folder / LOCK)


def _uv(version: str, *arguments: str | Path) -> None:
    uv = uv_command()
    if not uv:
        raise NotPossibleHere(
            f"Cellpose {version} needs an environment of its own, which uv makes: pip install uv"
        )
    command = [*uv, *map(str, arguments), "--quiet", "--no-progress"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    reason = " ".join(done.stderr.split())
    if any(sign in reason.lower() for sign in _UNREACHABLE):
        raise NotPossibleHere(
            f"the environment of Cellpose {version} cannot be made, since no package registry "
            f"answers ({reason[-200:]}); make it where there is one, and copy {cache_folder()}"
        )
    raise BadInput(
        f"there is no environment with Cellpose {version} and Python "
        f"{sys.version_info.major}.{sys.version_info.minor}: {reason[:400]}; expected a whole "
        "version that is published, 4.0.9 for example"
    )
