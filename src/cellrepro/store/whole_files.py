"""Files and folders that appear whole or not at all: written beside, synced, then renamed.

An atomic rename is the last step of every write, so readers and killed processes see the old
content or the new one. Paths that come from a store are held inside it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from cellrepro.digests.digests import file_digest, value_digest
from cellrepro.errors import BadInput

OWN_FOLDERS = (
    *(".staging", ".claims", ".digests", "unfinished", "failed", "received"),
    *("passports", "inputs", "networks", "aside"),
)
"""Folders of a store in which the lab removes, moves and writes on its own. ``runs`` and ``data``,
where it only adds, may be links to a larger disk."""


def refuse_links(root: Path) -> None:
    """Refuse a store one of whose own folders is a symbolic link: a sweep would leave the store."""
    for name in OWN_FOLDERS:
        if os.path.islink(f"{root}{os.sep}{name}"):  # noqa: PTH114  # asked before every write
            raise BadInput(
                f"{root / name} is a link, and the lab would remove and write where it leads; "
                "it makes no such links, so this store was changed: remove the link, or put the "
                "folder itself there"
            )


def regular_bytes(path: Path, *, most_bytes: int) -> bytes:
    """Read a whole file that may have come from elsewhere: no pipe, no device, no endless file."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "a folder, pipe or device instead of a file", str(path))
    if status.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes} bytes", str(path))
    return path.read_bytes()


def inside(folder: Path, name: str) -> Path:
    """Join a name to a folder, and refuse a path that leads out of it, links followed."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise BadInput(
            f"{path} leads out of {folder}, to {path.resolve()}; the lab writes no such links, so "
            "this store was changed: put the file itself there, or remove the run"
        )
    return path


def new_file(file: str | Path, *, ending: str, holds: str, overwrite: bool | None = None) -> Path:
    """Check that a user's file can be written, before anything is computed for it.

    >>> new_file("run.tar", ending=".zip", holds="runs")
    Traceback (most recent call last):
        ...
    cellrepro.errors.BadInput: run.tar is to hold runs; expected a name that ends with .zip
    """
    path = Path(file)
    name = path.name.lower()
    if not name.endswith(ending) or name == ending:
        raise BadInput(f"{path} is to hold {holds}; expected a name that ends with {ending}")
    if path.is_dir() or not overwrite:
        refuse_existing(path, can_be_asked_for=overwrite is not None)
    if not path.parent.is_dir():
        raise BadInput(f"{path.parent} is no folder; expected one that is there: make it first")
    return path


def refuse_existing(*paths: Path, can_be_asked_for: bool = False) -> None:
    """Refuse to write where a user has something."""
    for path in paths:
        if os.path.lexists(path):
            raise _exists(path, can_be_asked_for=can_be_asked_for)


def _exists(path: Path, *, can_be_asked_for: bool = False) -> BadInput:
    way = ", or replace it with --overwrite" if can_be_asked_for and not path.is_dir() else ""
    return BadInput(
        f"{path} exists, and nothing is overwritten: remove it, or give a different name{way}"
    )


RENAME_REPLACES = os.name != "nt"
"""Whether a rename replaces a file that is there: by POSIX, and not on Windows."""


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


# -- owners of scratch files ---------------------------------------------------------------


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
        parts = _NAME_OF_PRIVATE.fullmatch(name)
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


_NAME_OF_PRIVATE = re.compile(r"(?P<host>[0-9a-f]{8})-((?P<process>\d+)-[0-9a-f]{16}|resumable-.+)")


def scratch_beside(path: Path) -> Path:
    """A name beside a file that no other process or thread takes."""
    return path.with_name(f"{_lead(path)}{Owner.here().new_name()}.part")


def _lead(path: Path) -> str:
    """The beginning of the names of a file's scratch files."""
    return f".{path.name[:50]}."  # a name has 255 bytes at most, and a letter of it four


def _remove_left_over(path: Path) -> None:
    """Remove what killed processes had written of a file."""
    with contextlib.suppress(OSError):
        for other in path.parent.iterdir():
            parts = _SCRATCH.fullmatch(other.name) if other.name.startswith(_lead(path)) else None
            if parts and parts["owner"] and not is_being_written(other.name):
                other.unlink()


_SCRATCH = re.compile(r"\..+?(\.(?P<owner>[0-9a-f]{8}-\d+-[0-9a-f]{16}))?\.(part|link)")


def is_scratch(name: str) -> bool:
    """Whether a file of this name is being written, or was when its process ended."""
    return _SCRATCH.fullmatch(name) is not None


def is_being_written(name: str) -> bool:
    """Whether a file of this name is the scratch file of a process that may be alive."""
    parts = _SCRATCH.fullmatch(name)
    owner = None if parts is None or parts["owner"] is None else Owner.of(parts["owner"])
    here = Owner.here()
    return owner is not None and (owner == here or owner.may_be_alive(here))


def replace_file(source: Path, target: Path) -> None:
    """Rename a file over another one, also over a read-only one, which Windows refuses."""
    _despite_read_only(target, lambda: source.replace(target))


def remove_file(path: Path) -> None:
    """Remove a file if it is there, also a read-only one, which Windows refuses."""
    _despite_read_only(path, lambda: path.unlink(missing_ok=True))


def _despite_read_only(path: Path, action: Callable[[], object]) -> None:
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


def _rename_to_new(scratch: Path, path: Path) -> None:
    """Rename a file without a race: a name that was taken in the meantime is not overwritten."""
    try:
        if RENAME_REPLACES:
            _link_to_new(scratch, path)
        else:
            scratch.rename(path)
    except FileExistsError as error:
        raise _exists(path) from error


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


def moved(source: Path, target: Path) -> bool:
    """Rename a folder into place; false if another process won the race."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return False
        raise
    return True


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


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Hard-link a file, or copy it where that cannot be."""
    try:
        Path(target).hardlink_to(source)
    except OSError:  # no (more) hard links on this file system, or another file system
        shutil.copy2(source, target)


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
