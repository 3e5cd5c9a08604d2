"""Locks of folders, which the system releases when their process ends, and private folders.

The lock file of a folder lies beside it, so its holder may remove the folder, then the lock file:
filelock checks that the file it locked still has a name (since 3.20.4; before, two processes could
hold one lock).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from cellrepro.store.removal import remove_empty, remove_if_possible
from cellrepro.store.scratch_files import Owner

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # a module elsewhere

_TRIES = 100
"""Attempts to take a lock while others look at it, or remove the empty folders above it."""
_SECONDS_OF_A_LOOK = 0.001


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
    """The path to lock in place of a user's file, so that no lock file has a user's name."""
    return path.with_name(f".{path.name}.cellrepro")


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _acquired(folder: Path, lock: FileLock, *, wait: bool) -> bool:
    """Take a lock, with the folders above it; false if another process has it."""
    for tries_left in reversed(range(_TRIES)):
        try:
            lock.acquire(blocking=wait)
        except Timeout:
            if fcntl is not None and is_locked(folder):
                return False
            time.sleep(_SECONDS_OF_A_LOOK)  # another process only looks
        except (FileNotFoundError, FileExistsError):
            # Another process may remove the empty folders above it at any moment.
            if not tries_left:
                raise
        else:
            return True
    return False


def is_locked(folder: Path) -> bool:
    """Whether a process holds a folder's lock; writes nothing, so a read-only store can be asked.

    Where the system does not tell, it counts as locked.
    """
    if fcntl is None:
        with locked(folder) as free:
            return not free
    try:
        with _lock_of(folder).open("rb") as file:
            # Shared, so that who looks at the same time does not take this look for the holder.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:  # it is held, or this file system does not tell
        return True
    return False


# -- private folders -----------------------------------------------------------------------


@contextmanager
def private_folder(area: Path) -> Iterator[Path]:
    """Make a folder that is removed after the block.

    What killed processes of this host left in the area is swept first; what is left of another
    host, that host sweeps when it makes such a folder.
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
    with locked(folder, wait=True):
        _sweep_others(folder)
        try:
            folder.mkdir(exist_ok=True)
            yield folder
        except KeyboardInterrupt:
            raise
        except BaseException:
            remove_if_possible(folder)
            raise
        else:
            remove_if_possible(folder)


def _sweep_others(folder: Path) -> None:
    """Remove what killed processes left beside a private folder."""
    here = Owner.here()
    names = {item.name.removesuffix(".lock") for item in folder.parent.iterdir()} - {folder.name}
    for name in names:
        _sweep(folder.with_name(name), here)


def _sweep(folder: Path, here: Owner) -> None:
    """Remove a private folder that no living process works in."""
    owner = Owner.of(folder.name)
    if owner is not None and owner.may_be_alive(here):
        return
    with contextlib.suppress(OSError), locked(folder) as is_dead:
        if is_dead:
            remove_if_possible(folder)
