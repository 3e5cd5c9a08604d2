"""Locks of folders, which the system releases when their process ends, and private folders.

The lock file of a folder lies beside it, and whoever holds the lock may remove the folder and then
that file: filelock checks that the file it has locked still has its name (since 3.20.4; before, two
processes could hold one lock).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from cellrepro.store.removal import remove_empty, remove_if_possible
from cellrepro.store.whole_files import Owner

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # a module elsewhere

_TRIES = 100
"""Attempts to take a lock that no process holds: each may meet `is_locked` of another process, or
its removal of the empty folders above the lock file."""
_SECONDS_BETWEEN_TRIES = 0.001
"""More than `is_locked` takes."""


@contextmanager
def locked(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold a folder's lock for the block; False, without a wait, if another process has it."""
    made = [path for path in (folder.parent, *folder.parent.parents) if not path.exists()]
    lock = FileLock(_lock_of(folder))
    try:
        if not _acquired(folder, lock, wait=wait):
            yield False
            return
        try:
            yield True
        finally:
            with contextlib.suppress(OSError):  # Windows removes no open file
                Path(lock.lock_file).unlink()
            lock.release()
    finally:
        remove_empty(folder.parent, *made)


def beside_of_user(path: Path) -> Path:
    """The hidden path beside a user's file that is locked in its place."""
    return path.with_name(f".{path.name}.cellrepro")


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _acquired(folder: Path, lock: FileLock, *, wait: bool) -> bool:
    """Take a lock, and make the folders above it; false if another process has it."""
    for tries_left in reversed(range(_TRIES)):
        try:
            lock.acquire(blocking=wait)
        except Timeout:
            if fcntl is not None and is_locked(folder):
                return False
            time.sleep(_SECONDS_BETWEEN_TRIES)
        except (FileNotFoundError, FileExistsError):  # a folder above it was just removed
            if not tries_left:
                raise
        else:
            return True
    return False


def is_locked(folder: Path) -> bool:
    """Whether a process holds a folder's lock; a folder counts as locked where that is not known.

    Nothing is written but on Windows, so that a store can be read-only.
    """
    if fcntl is None:
        with locked(folder) as is_ours:
            return not is_ours
    try:
        with _lock_of(folder).open("rb") as file:
            # Shared, so that two processes that ask do not take each other for the holder.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:  # it is held, or this file system does not tell
        return True
    return False


# -- private folders -----------------------------------------------------------------------


@contextmanager
def private_folder(area: Path) -> Iterator[Path]:
    """Make a folder that is removed after the block, and sweep what killed processes left.

    Of another host nothing is swept: it does so itself when it makes such a folder.
    """
    folder = area / Owner.here().new_name()
    with locked(folder, wait=True):  # a sweep may hold it for a moment
        _sweep_others(folder)
        try:
            folder.mkdir()
            yield folder
        finally:
            remove_if_possible(folder)


@contextmanager
def resumable_folder(area: Path, name: str) -> Iterator[Path]:
    """Make a folder in which the same work can go on after an interruption or a kill.

    It is removed after the block, unless that was interrupted.
    """
    folder = area / f"{Owner.here().host}-resumable-{name}"
    was_interrupted = False
    with locked(folder, wait=True):
        _sweep_others(folder)
        try:
            folder.mkdir(exist_ok=True)
            yield folder
        except KeyboardInterrupt:
            was_interrupted = True
            raise
        finally:
            if not was_interrupted:
                remove_if_possible(folder)


def _sweep_others(folder: Path) -> None:
    """Remove the private folders beside one in which no living process works."""
    here = Owner.here()
    names = {item.name.removesuffix(".lock") for item in folder.parent.iterdir()}
    for name in names - {folder.name}:
        owner = Owner.of(name)
        if owner is None or not owner.may_be_alive(here):
            _remove_unless_locked(folder.with_name(name))


def _remove_unless_locked(folder: Path) -> None:
    with contextlib.suppress(OSError), locked(folder) as is_ours:
        if is_ours:
            remove_if_possible(folder)
