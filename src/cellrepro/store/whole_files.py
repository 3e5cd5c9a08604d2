"""Files and folders that appear whole or not at all: written beside, synced, then renamed.

An atomic rename or a hard link is the last step of every write, so that readers and killed
processes see the old content or the new one. Of two processes that take a new name at the same
time, the second overwrites nothing.
"""

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

from cellrepro.store.removal import despite_read_only
from samebits.digests import file_digest, value_digest
from samebits.errors import BadInput

# -- names that are free ---------------------------------------------------------------------


def new_file(file: str | Path, *, ending: str, holds: str) -> Path:
    """Check that a user's file can be written, before anything is computed for it.

    >>> new_file("run.tar", ending=".zip", holds="runs")
    Traceback (most recent call last):
        ...
    samebits.errors.BadInput: run.tar is to hold runs; expected a name that ends with .zip
    """
    path = Path(file)
    name = path.name.lower()
    if not name.endswith(ending) or name == ending:
        raise BadInput(f"{path} is to hold {holds}; expected a name that ends with {ending}")
    refuse_existing(path)
    if not path.parent.is_dir():
        raise BadInput(f"{path.parent} is no folder; expected one that is there: make it first")
    return path


def refuse_existing(*paths: Path, can_be_asked_for: bool = False) -> None:
    """Refuse to write where a user has something."""
    for path in paths:
        if os.path.lexists(path):
            raise _already_there(path, can_be_asked_for=can_be_asked_for)


def _already_there(path: Path, *, can_be_asked_for: bool = False) -> BadInput:
    """The error for a name that is taken, with ``--overwrite`` where a command has it."""
    way = ", or replace it with --overwrite" if can_be_asked_for and not path.is_dir() else ""
    return BadInput(
        f"{path} exists, and nothing is overwritten: give a different name, or move it away{way}"
    )


# -- writing ---------------------------------------------------------------------------------


@contextmanager
def whole_file(path: Path, *, replace: bool = False, read_only: bool = False) -> Iterator[Path]:
    """Give a scratch file for the block to write, which an atomic rename then turns into the file.

    It lies beside the file, on the same file system, under a name that no other process takes.
    """
    if not replace:
        refuse_existing(path)
        _remove_left_over(path)
    scratch = scratch_beside(path)
    scratch.open("xb").close()  # with the mode that the umask gives
    try:
        yield scratch
        to_disk(scratch)
        if read_only:
            scratch.chmod(0o444)
        if replace:
            replace_file(scratch, path)
        else:
            _rename_to_new(scratch, path)
    except BaseException:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise
    folder_to_disk(path.parent)


def write_whole(path: Path, text: str, *, replace: bool = False, read_only: bool = False) -> None:
    """Write a text file in UTF-8 with a line feed at its end, whole or not at all."""
    with whole_file(path, replace=replace, read_only=read_only) as scratch:
        scratch.write_text(text + "\n", encoding="utf-8")


def to_disk(path: Path) -> None:
    """Sync a file, so that its content survives a power cut."""
    with path.open("r+b") as file:  # Windows flushes no file that is open to be read alone
        os.fsync(file.fileno())


def folder_to_disk(folder: Path) -> None:
    """Sync a folder, so that the names in it survive a power cut, where the system can."""
    with contextlib.suppress(OSError):  # Windows opens no folder; some network disks flush none
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# -- renames and hard links ------------------------------------------------------------------

RENAME_REPLACES = os.name != "nt"
"""Whether a rename replaces a file that is there: by POSIX, and not on Windows."""


def replace_file(source: Path, target: Path) -> None:
    """Rename a file over another one, also over a read-only one, which Windows refuses."""
    despite_read_only(target, lambda: source.replace(target))


def _rename_to_new(scratch: Path, path: Path) -> None:
    """Rename a file without a race: a name that was taken in the meantime is not overwritten."""
    try:
        if RENAME_REPLACES:
            _link_to_new(scratch, path)
        else:
            scratch.rename(path)
    except FileExistsError as error:
        raise _already_there(path) from error


def _link_to_new(scratch: Path, path: Path) -> None:
    """Give a file its name by a hard link, which never replaces another file."""
    try:
        path.hardlink_to(scratch)
    except FileExistsError:
        raise
    except OSError:  # no hard links on this file system: an empty file keeps the name free
        path.open("xb").close()
        try:
            scratch.replace(path)
        except BaseException:
            path.unlink()
            raise
    else:
        scratch.unlink()


def moved(source: Path, target: Path) -> bool:
    """Rename a folder into place; false if another process won the race."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return False
        raise
    return True


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Hard-link a file, or copy it where that cannot be."""
    try:
        Path(target).hardlink_to(source)
    except OSError:  # no (more) hard links on this file system, or another file system
        shutil.copy2(source, target)


def replace_by_link(path: Path, twin: Path) -> bool:
    """Replace a file by a hard link to one of equal content; false if that cannot be."""
    scratch = scratch_beside(path)
    try:
        if twin.samefile(path):  # over a name of the same file a rename does nothing (POSIX)
            return True
        # Looked at before it is linked: Windows removes no link to a read-only file.
        if file_digest(twin) != file_digest(path):
            return False  # the stored file was changed behind our back; never spread it
        scratch.hardlink_to(twin)
    except OSError:  # no (more) hard links on this file system, or the twin has gone: keep the copy
        return False
    replace_file(scratch, path)
    return True


# -- scratch files and private folders, by names that say which process made them ------------


@dataclass(frozen=True)
class Owner:
    """The process that made a private folder or a scratch file, as the name of that says."""

    host: str
    """Eight hex digits of a digest of the host's name."""
    process: int | None
    """Process id on that host; None where the next process may go on with the same work."""

    @classmethod
    def here(cls) -> Owner:
        """This process."""
        return cls(value_digest(platform.node())[:8], os.getpid())

    @classmethod
    def of(cls, name: str) -> Owner | None:
        """Read the owner from a name; None of a different kind of name."""
        parts = _PRIVATE.fullmatch(name)
        if parts is None:
            return None
        process = parts["process"]
        return cls(parts["host"], None if process is None else int(process))

    def may_be_alive(self, here: Owner) -> bool:
        """Whether somebody may still work in a folder whose lock is free.

        Some file systems lock within one host only: of another host a free lock says nothing.
        """
        if self.host != here.host:
            return True
        if self.process is None or self.process == here.process:
            return False
        return psutil.pid_exists(self.process)

    def new_name(self) -> str:
        """Make a unique name for a private folder or a scratch file."""
        return f"{self.host}-{self.process}-{secrets.token_hex(8)}"


_PRIVATE = re.compile(r"(?P<host>[0-9a-f]{8})-((?P<process>\d+)-[0-9a-f]{16}|resumable-.+)")
_SCRATCH = re.compile(r"\..+?(\.(?P<owner>[0-9a-f]{8}-\d+-[0-9a-f]{16}))?\.(part|link)")
"""Without an owner in the names of half-written checkpoints; ``.link`` in stores of earlier
versions."""


def scratch_beside(path: Path) -> Path:
    """A name beside a file that no other process or thread takes."""
    return path.with_name(f"{_lead(path)}{Owner.here().new_name()}.part")


def _lead(path: Path) -> str:
    """The beginning of the names of a file's scratch files."""
    return f".{path.name[:50]}."  # a name has 255 bytes at most, and a letter of it four


def is_scratch(name: str) -> bool:
    """Whether a file of this name is being written, or was when its process ended."""
    return _SCRATCH.fullmatch(name) is not None


def is_being_written(name: str) -> bool:
    """Whether a file of this name is the scratch file of a process that may be alive."""
    owner = _owner_of_scratch(name)
    here = Owner.here()
    # A scratch file has no lock, so that this process, too, may be writing it.
    return owner is not None and (owner == here or owner.may_be_alive(here))


def _owner_of_scratch(name: str) -> Owner | None:
    parts = _SCRATCH.fullmatch(name)
    return None if parts is None or parts["owner"] is None else Owner.of(parts["owner"])


def _remove_left_over(path: Path) -> None:
    """Remove what killed processes had written of a file."""
    with contextlib.suppress(OSError):
        for other in path.parent.iterdir():
            is_own = other.name.startswith(_lead(path)) and _owner_of_scratch(other.name)
            if is_own and not is_being_written(other.name):
                other.unlink()
