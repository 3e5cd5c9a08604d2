"""Removal of files and folders, also of read-only ones, which Windows refuses."""

from __future__ import annotations

import contextlib
import shutil
import stat
from collections.abc import Callable
from pathlib import Path


def remove_file(path: Path) -> None:
    """Remove a file if it is there, also a read-only one, which Windows refuses."""
    despite_read_only(path, lambda: path.unlink(missing_ok=True))


def despite_read_only(path: Path, action: Callable[[], object]) -> None:
    """Do what Windows refuses while a file is read-only: make it writable for a second try."""
    try:
        action()
    except PermissionError:
        mode = path.stat().st_mode if path.exists() else stat.S_IWUSR
        if mode & stat.S_IWUSR:
            raise
        path.chmod(mode | stat.S_IWUSR)
        try:
            action()
        except OSError:
            path.chmod(mode)
            raise


def remove_folder(folder: Path) -> None:
    """Remove a folder and all that is in it, read-only files, too, which Windows refuses.

    A file in it may share its content, and so its mode, with a stored one, which stays read-only
    where that can be.
    """
    try:
        shutil.rmtree(folder)
    except PermissionError:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink() and not path.stat().st_mode & 0o200:
                path.chmod(0o644)
        shutil.rmtree(folder)


def remove_if_possible(folder: Path) -> None:
    """Remove a folder as far as that can be now."""
    with contextlib.suppress(OSError):
        remove_folder(folder)


def remove_empty(*folders: Path) -> None:
    """Remove folders as far as they are empty; those inside others come first."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()
