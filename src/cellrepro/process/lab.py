"""The lab in a virtual environment of its own: made, remembered and found again.

Where a user works only the core may be installed. `make_lab` makes an environment with PyTorch,
Cellpose and the notebooks, from the lock that comes with the package, and changes nothing that is
installed. The core finds it again, and starts there what it cannot do itself.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cellrepro.process.locked_environment import FolderTaken, LockedEnvironment, SetUpFailed
from cellrepro.process.own_wheel import write_own_wheel
from cellrepro.progress import print_note
from cellrepro.spec.lab_command import lab_command
from cellrepro.store.locks import beside_of_user, locked
from cellrepro.store.whole_files import write_whole
from cellrepro.version import __version__
from samebits.digests import file_digest
from samebits.errors import BadInput, NotPossibleHere

LAB_VARIABLE = "CELLREPRO_LAB"
"""Names the folder of the lab; by default the one that was made last."""
LOCK = Path(__file__).with_name("lab.lock")
"""Versions and digests of all that the lab needs; ``make lock`` resolves it anew."""
_OLDEST = (3, 10)
_NEWEST = (3, 13)
_MARK = ".cellrepro-lab"
_GIGABYTES = {"Linux": 7}
_GIGABYTES_ELSEWHERE = 3  # where PyTorch brings no CUDA


@dataclass(frozen=True)
class Lab:
    """An environment with all that the lab needs."""

    folder: Path
    version: str
    """Version of this package in it."""

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return _environment(self.folder).python

    @property
    def command(self) -> Path:
        """Its command line."""
        return self.program("cellrepro")

    def program(self, name: str) -> Path:
        """The path of a program that is installed in it."""
        return _environment(self.folder).program(name)

    @property
    def is_here(self) -> bool:
        """Whether this process runs in it."""
        return Path(sys.prefix).resolve() == self.folder.resolve()


def make_lab(folder: str | Path, *, python: str | None = None) -> Lab:
    """Make the lab in a folder; `known_lab` finds it from then on."""
    target = Path(folder).expanduser().resolve()
    interpreter = python or sys.executable
    if Path(sys.prefix).resolve() == target:
        raise BadInput(f"{target} is the environment that runs this; expected another folder")
    environment = _environment(target)
    with _failures_answered():
        environment.refuse_folder_of_others()
    _refuse_intel_mac()
    _refuse_other_pythons(interpreter)
    _refuse_unwritable(target)
    with locked(beside_of_user(target), wait=True):
        _bring_up_to_date(environment, interpreter)
    lab = Lab(target, __version__)
    _remember(lab)
    return lab


def known_lab() -> Lab | None:
    """Find the lab that `LAB_VARIABLE` names, else the last one made, if it is finished."""
    named = os.environ.get(LAB_VARIABLE)
    if named:
        lab = _read_lab(Path(named).expanduser())
        if lab is None:
            raise BadInput(
                f"{LAB_VARIABLE} is {named!r}, where there is no finished lab; expected a folder "
                "that `cellrepro setup FOLDER` has made"
            )
        return lab
    try:
        remembered = json.loads(_memory().read_text(encoding="utf-8"))
        return _read_lab(Path(remembered["folder"]))
    except (OSError, ValueError, KeyError, TypeError):  # none was made, or the file was changed
        return None


def _environment(folder: Path) -> LockedEnvironment:
    again = f"`{lab_command('setup', folder, store=None)}`"
    return LockedEnvironment(folder, LOCK, mark=_MARK, again=again)


def _read_lab(folder: Path) -> Lab | None:
    """Read the lab in a folder; None if it is not finished."""
    try:
        made = json.loads(_environment(folder).ready.read_text(encoding="utf-8"))
        return Lab(folder.resolve(), made["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _bring_up_to_date(environment: LockedEnvironment, interpreter: str) -> None:
    """Install the lock and this package, unless exactly these are installed already."""
    with tempfile.TemporaryDirectory() as scratch, _failures_answered():
        wheel = write_own_wheel(Path(scratch))
        made = {
            "version": __version__,
            "lock": file_digest(LOCK),
            "package": file_digest(wheel),
        }
        if environment.ready.exists():
            if json.loads(environment.ready.read_text(encoding="utf-8")) == made:
                return
            environment.ready.unlink()
        else:
            _announce(environment.folder)
            environment.make(interpreter)
        environment.install(verbose=sys.stderr.isatty())
        environment.install_package("--reinstall", str(wheel))
    environment.compile_what_runs()
    write_whole(environment.ready, json.dumps(made, indent=1), replace=True)


@contextmanager
def _failures_answered() -> Iterator[None]:
    """Turn a failure of a set-up into an answer for the user, with its exit code."""
    try:
        yield
    except FolderTaken as failure:
        raise BadInput(str(failure)) from failure
    except SetUpFailed as failure:
        raise NotPossibleHere(str(failure)) from failure


def _announce(folder: Path) -> None:
    """Say how much will be downloaded."""
    needed = _GIGABYTES.get(platform.system(), _GIGABYTES_ELSEWHERE)
    nearest = next(above for above in (folder, *folder.parents) if above.exists())
    free = shutil.disk_usage(nearest).free / 1e9
    print_note(
        f"the lab takes up to {needed} GB in {folder}, where {free:.0f} GB are free; a "
        "minute to half an hour, as the network is"
    )


def _refuse_unwritable(target: Path) -> None:
    """Refuse a folder whose parent is not writable: filelock would wait there for ever."""
    nearest = next(above for above in target.parents if above.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise BadInput(
            f"{target} cannot be made: {nearest} takes no file ({error.strerror}); name a folder "
            "in a place where you may write"
        ) from error


def _refuse_intel_mac() -> None:
    if (platform.system(), platform.machine()) == ("Darwin", "x86_64"):
        raise NotPossibleHere(
            "PyTorch publishes nothing for Intel Macs since its version 2.3, and the lab needs "
            "2.6 or newer: the core runs here, the lab on a different machine. On a Mac with "
            "Apple's processor this Python is one for Intel: name one for arm64 with --python"
        )


def _refuse_other_pythons(interpreter: str) -> None:
    """Refuse an interpreter that the lock is not resolved for."""
    question = "import sys; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run(
            [interpreter, "-c", question], capture_output=True, text=True, check=True
        )
        major, minor = map(int, answer.stdout.split())
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise BadInput(
            f"{interpreter} is no Python that runs ({error}); expected the path of one, of "
            f"version 3.{_OLDEST[1]} to 3.{_NEWEST[1]}"
        ) from error
    if not _OLDEST <= (major, minor) <= _NEWEST:
        raise NotPossibleHere(
            f"the lab runs on Python 3.{_OLDEST[1]} to 3.{_NEWEST[1]}, and {interpreter} is "
            f"{major}.{minor}; name one of these with --python"
        )


# -- remembered ----------------------------------------------------------------------------


def _memory() -> Path:
    """The user's configuration file that names the lab."""
    import platformdirs

    return Path(platformdirs.user_config_dir("cellrepro", appauthor=False)) / "lab.json"


def _remember(lab: Lab) -> None:
    file = _memory()
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps({"folder": str(lab.folder)}, indent=1), replace=True)


def environment_for(lab: Lab, variables: Mapping[str, str]) -> dict[str, str]:
    """The environment variables with which another Python starts a program of the lab."""
    left_out = ("PYTHONHOME", "__PYVENV_LAUNCHER__", "VIRTUAL_ENV")
    kept = {name: value for name, value in variables.items() if name not in left_out}
    return {**kept, LAB_VARIABLE: str(lab.folder)}
