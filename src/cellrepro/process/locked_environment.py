"""A virtual environment that uv makes from a lock with digests: finished, or begun anew.

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
from dataclasses import dataclass
from importlib import util
from pathlib import Path

IMPORTED = (  # by every training; pandas imports pyarrow
    "cellrepro.run.train",
    "cellrepro.run.worker",
    "cellrepro.grid.grid",
    "cellrepro.show.report.page",
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


def uv_command() -> list[str]:
    """The words that start uv, which makes environments; none where it is not installed."""
    if util.find_spec("uv") is not None:
        return [sys.executable, "-m", "uv"]
    program = shutil.which("uv")
    return [] if program is None else [program]


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

    def make(self, python: str) -> None:
        """Make the environment, with pip in it and nothing else."""
        self._remove_unfinished()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / self.mark).touch()
        uv = uv_command()
        if uv:
            options = ("--quiet", "--seed", "--allow-existing", "--python", python)
            self._run(*uv, "venv", *options, str(self.folder))
        else:
            self._run(python, "-m", "venv", str(self.folder))

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

    def install(self, *, verbose: bool = False) -> None:
        """Install what the lock names, each file held to its digest."""
        quiet = () if verbose else ("--quiet",)
        self._install(*quiet, "--require-hashes", "-r", str(self.lock))

    def install_package(self, *what: str) -> None:
        """Install this package without dependencies, which the lock has."""
        self._install("--quiet", "--no-deps", *what)

    def _install(self, *arguments: str) -> None:
        uv = uv_command() or self._fetched_uv()
        self._run(*uv, "pip", "install", "--python", str(self.python), *arguments)

    def _fetched_uv(self) -> list[str]:
        """Install uv into the environment, held to its own entry of the lock."""
        uv = self.program("uv")
        if not uv.exists():
            lock = self.lock.read_text(encoding="utf-8")
            entry = re.search(r"^uv==(?:.*\\\n)*.*\n", lock, flags=re.MULTILINE)
            with tempfile.TemporaryDirectory() as scratch:
                uv_lock = Path(scratch, "uv.lock")
                uv_lock.write_text(entry[0] if entry else "uv", encoding="utf-8")
                pip = (str(self.python), "-m", "pip", "install", "--disable-pip-version-check")
                only = ("--only-binary=uv", "--require-hashes", "-r", str(uv_lock))
                self._run(*pip, "--quiet", *only)
        return [str(uv)]

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
        """Run a command, whose output goes to standard error."""
        failed = f"set-up failed at: {' '.join(command)}; {self.again} begins it anew"
        try:
            subprocess.run(command, check=True, stdout=2)
        except subprocess.CalledProcessError as error:
            raise SetUpFailed(failed) from error
        except OSError as error:
            raise SetUpFailed(f"{failed} ({error})") from error


def _holds_a_file(folder: Path) -> bool:
    return any(item.is_file() for item in folder.rglob("*"))
