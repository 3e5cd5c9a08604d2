"""A virtual environment made from a lock: files checked against digests, finished or made anew.

This file imports the standard library alone, as ``scripts/set_up.py`` runs it before anything is
installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

IMPORTED = (  # by every training; pandas imports pyarrow
    "cellrepro.run.train",
    "cellrepro.run.worker",
    "cellrepro.grid.grid",
    "cellrepro.show.report.build",
    "cellrepro.cli",
    "cellpose.train",
    "matplotlib.pyplot",
    "pandas",
    "papermill",
    "ipykernel.kernelapp",
    "debugpy",
    "anywidget",
)
"""Modules whose bytecode is left compiled."""
_PIP = ("-m", "pip", "install", "--disable-pip-version-check")


class SetUpFailed(Exception):
    """A set-up failed; the message says at what, and how to begin again."""


class FolderTaken(SetUpFailed):
    """The folder holds files that no set-up has made; they stay as they are."""


def program_in(environment: Path, name: str, *, windows: bool) -> Path:
    """The path of a program that is installed in a virtual environment."""
    if windows:
        return environment / "Scripts" / f"{name}.exe"
    return environment / "bin" / name


@dataclass(frozen=True)
class LockedEnvironment:
    """A virtual environment that is made from a lock."""

    folder: Path
    lock: Path
    """Versions with digests, as ``uv pip compile --generate-hashes`` writes them."""
    mark: str
    """Name of the file that is written first and removed last, so that an environment that a
    set-up has begun, or has begun to remove, is recognized."""
    again: str
    """The command that begins again, for messages."""
    windows: bool = os.name == "nt"
    """Whether programs lie where Windows has them."""

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.program("python")

    def program(self, name: str) -> Path:
        """A program that is installed in it."""
        return program_in(self.folder, name, windows=self.windows)

    @property
    def ready(self) -> Path:
        """A file that is written last: without it the environment is not finished."""
        return self.folder / ".ready"

    def make(self, python: str, *, uv: Sequence[str] = ()) -> None:
        """Make the environment, with pip in it and nothing else."""
        self._remove_unfinished()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / self.mark).touch()
        of_python = [python, "-m", "venv", str(self.folder)]
        of_uv = [*uv, "venv", "--quiet", "--seed", "--allow-existing", "--python", python]
        if not (succeeds(*of_python) or (uv and succeeds(*of_uv, str(self.folder)))):
            raise self._failed(of_python)

    def begin_again(self) -> None:
        """Mark a finished environment as begun and unfinished."""
        (self.folder / self.mark).touch()  # set-ups of before wrote none
        self.ready.unlink()

    def refuse_folder_of_others(self) -> None:
        """Raise `FolderTaken` where the folder holds files that no set-up has made."""
        folder = self.folder
        if not folder.exists() and not folder.is_symlink():
            return
        if not self._was_begun() and (not folder.is_dir() or _holds_a_file(folder)):
            link = f", but a link to {folder.resolve()}" if folder.is_symlink() else ""
            raise FolderTaken(
                f"{folder} is no virtual environment that this set-up has begun{link}; nothing was "
                f"removed. Move it away or name another folder, then run {self.again} again"
            )

    def _was_begun(self) -> bool:
        return not self.folder.is_symlink() and (self.folder / self.mark).is_file()

    def _remove_unfinished(self) -> None:
        """Remove an environment that was never finished, and nothing else."""
        self.refuse_folder_of_others()
        folder = self.folder
        if not self._was_begun():
            return
        sys.stderr.write(f"{folder} was not finished: removing it and starting anew\n")
        for item in folder.iterdir():
            if item.is_dir() and not item.is_symlink():
                shutil.rmtree(item)
            elif item.name != self.mark:
                item.unlink()
        shutil.rmtree(folder)

    def install(self, *, uv: Sequence[str] = (), verbose: bool = False) -> None:
        """Install what the lock names with uv, or with pip where uv has no wheel."""
        quiet = () if verbose else ("--quiet",)
        lock = self.lock.read_text(encoding="utf-8")
        entry = re.search(r"^uv==(?:.*\\\n)*.*\n", lock, flags=re.MULTILINE)
        pip = [str(self.python), *_PIP, *quiet]
        with tempfile.TemporaryDirectory() as scratch:
            if not uv and entry is not None:
                uv_lock = Path(scratch, "uv.lock")
                uv_lock.write_text(entry[0], encoding="utf-8")
                # uv's entry alone and no building: some platforms have no wheel of it, and no Rust
                if succeeds(*pip, "--only-binary=uv", "--require-hashes", "-r", str(uv_lock)):
                    uv = [str(self.program("uv"))]
            with_uv = [*uv, "pip", "install", *quiet, "--python", str(self.python)]
            if uv and succeeds(*with_uv, "--require-hashes", "-r", str(self.lock)):
                return
            if uv or entry is not None:
                sys.stderr.write("uv cannot install here, so pip does, which takes longer\n")
            without_uv = Path(scratch, "without-uv.lock")
            without_uv.write_text(lock.replace(entry[0] if entry else "", ""), encoding="utf-8")
            self._run(*pip, "--require-hashes", "-r", str(without_uv))

    def install_package(self, *what: str) -> None:
        """Install this package without dependencies, which the lock has."""
        self._run(str(self.python), *_PIP, "--quiet", "--no-deps", *what)

    def compile_what_runs(self) -> None:
        """Compile the bytecode of what every training imports, as uv compiles nothing.

        Otherwise the first processes compile it, and every process does where
        PYTHONDONTWRITEBYTECODE is set, as in many containers. Compiling all packages takes three
        times as long (docs/building.md).
        """
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        lines = (
            "import contextlib, importlib, sys",
            "for name in sys.argv[1:]:",
            "    with contextlib.suppress(ImportError): importlib.import_module(name)",
        )
        command = [str(self.python), "-c", "\n".join(lines), *IMPORTED]
        subprocess.run(command, check=False, env=environment, stdout=2)

    def _run(self, *command: str) -> None:
        if not succeeds(*command):
            raise self._failed(command)

    def _failed(self, command: Sequence[str]) -> SetUpFailed:
        return SetUpFailed(f"set-up failed at: {' '.join(command)}; {self.again} begins it anew")


def _holds_a_file(folder: Path) -> bool:
    return any(item.is_file() for item in folder.rglob("*"))


def succeeds(*command: str) -> bool:
    """Run a command with its output on standard error; whether it ended well."""
    try:
        return subprocess.run(command, check=False, stdout=2).returncode == 0
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error}\n")
        return False


@contextmanager
def held(path: Path) -> Iterator[IO[bytes]]:
    """Lock a file for the block; other processes wait here."""
    with path.open("rb") as file:
        if os.name == "nt":
            _hold_on_windows(file)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _hold_on_windows(file: IO[bytes]) -> None:
    """Lock a byte far beyond the end of a file, so that the file stays readable for everybody."""
    import msvcrt

    file.seek(_BEYOND_ANY_END)
    while True:
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined]
        except OSError:  # it gives up after ten seconds
            continue
        file.seek(0)
        return


_BEYOND_ANY_END = 1 << 30
