"""Files and folders that appear whole or not at all, and locks that end with their process."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from cellrepro.bits.digests import file_digest, value_digest
from cellrepro.errors import BadInput

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def inside(folder: Path, name: str) -> Path:
    """A file of a folder; a link out of it would pull another file into a report."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise BadInput(
            f"{path} leads out of {folder}, to {path.resolve()}; the lab writes no such links, so "
            "this store was changed: put the file itself there, or remove the run"
        )
    return path


def write_whole(path: Path, text: str, *, read_only: bool = False) -> None:
    """Write a text file, which appears with all of its content."""
    scratch = path.with_name(f".{path.name}.part")
    scratch.write_text(text + "\n", encoding="utf-8")
    if read_only:
        scratch.chmod(0o444)
    scratch.replace(path)


def to_disk(path: Path) -> None:
    """Wait until a file would survive a power cut."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def moved(source: Path, target: Path) -> bool:
    """Rename a folder into place; false if another process was first."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return False
        raise
    return True


def replace_by_link(path: Path, twin: Path) -> bool:
    """Let a file share the disk with another one of equal content; false if that cannot be."""
    scratch = path.with_name(f".{path.name}.link")
    try:
        # Looked at before it is linked: Windows removes no link to a read-only file.
        if file_digest(twin) != file_digest(path):
            return False  # the stored file was changed behind our back; never spread it
        scratch.hardlink_to(twin)
    except OSError:  # no (more) hard links on this file system, or the twin has gone: keep the copy
        return False
    scratch.replace(path)
    return True


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Have a file of the same content, without its bytes being written again where that can be."""
    try:
        Path(target).hardlink_to(source)
    except OSError:  # no (more) hard links on this file system, or another file system
        shutil.copy2(source, target)


def remove_folder(folder: Path) -> None:
    """Remove a folder and all that is in it, read-only files, too, which Windows refuses."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and not path.stat().st_mode & 0o200:
            path.chmod(0o644)
    shutil.rmtree(folder)


# -- locks ---------------------------------------------------------------------------------
#
# The lock of a folder lies beside it, so who holds it may remove the folder, then the lock:
# filelock looks whether a lock still lies there once it holds it.


@contextmanager
def locked(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold a folder's lock for the block; false, and no lock, if another process has it."""
    made = [path for path in (folder.parent, *folder.parent.parents) if not path.exists()]
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        for tries_left in reversed(range(100)):
            try:
                lock.acquire(blocking=wait)  # makes the folders above it
                break
            except Timeout:
                yield False
                return
            except (FileNotFoundError, FileExistsError):
                # Another process may remove the empty folders above it at any moment.
                if not tries_left:
                    raise
        try:
            yield True
        finally:
            with contextlib.suppress(OSError):  # Windows removes no open file
                Path(lock.lock_file).unlink()
            lock.release()
    finally:
        remove_empty(folder.parent, *made)


def held(folder: Path) -> bool:
    """Whether a process holds a folder's lock, as far as can be told; writes nothing.

    So it can be asked of a store that one may only read.
    """
    path = folder.with_name(f"{folder.name}.lock")
    if fcntl is None:
        with locked(folder) as free:
            return not free
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:  # it is held, or this file system does not tell
        return True
    return False


@dataclass(frozen=True)
class Owner:
    """Who made a private folder; its name says so."""

    host: str  # eight hex digits of a digest of its name
    process: int

    @classmethod
    def here(cls) -> Owner:
        """This process."""
        return cls(value_digest(platform.node())[:8], os.getpid())

    @classmethod
    def of(cls, name: str) -> Owner | None:
        """The owner that a folder's name says; none of another kind of name."""
        told = _PRIVATE.fullmatch(name)
        return None if told is None else cls(told["host"], int(told["process"]))

    def may_be_alive(self, here: Owner) -> bool:
        """Whether a folder whose lock is free may still be worked in, for all that is known here.

        Some file systems lock within one host only: of another host a free lock says nothing.
        """
        if self.host != here.host:
            return True
        return self.process != here.process and psutil.pid_exists(self.process)


_PRIVATE = re.compile(r"(?P<host>[0-9a-f]{8})-(?P<process>\d+)-[0-9a-f]{16}")


@contextmanager
def private_folder(area: Path) -> Iterator[Path]:
    """A new folder in an area, gone after the block.

    What killed processes of this host left goes before; what those of another host left goes when
    that one makes such a folder.
    """
    here = Owner.here()
    folder = area / f"{here.host}-{here.process}-{secrets.token_hex(8)}"
    with locked(folder, wait=True):  # a sweep may hold it for a moment
        for name in {item.name.removesuffix(".lock") for item in area.iterdir()} - {folder.name}:
            owner = Owner.of(name)
            if owner is not None and owner.may_be_alive(here):
                continue
            with contextlib.suppress(OSError), locked(area / name) as dead:
                if dead:
                    shutil.rmtree(area / name, ignore_errors=True)
        try:
            folder.mkdir()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_empty(*folders: Path) -> None:
    """Remove folders, the innermost first, as far as they are empty."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()
