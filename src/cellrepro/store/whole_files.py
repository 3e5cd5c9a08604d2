"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cellrepro.bits.digests import file_digest
from cellrepro.errors import BadInput

OWN_FOLDERS = (
    *(".staging", ".claims", ".digests", "unfinished", "failed", "received"),
    *("passports", "inputs", "networks", "aside"),
)
"""Folders of a store in which the lab removes, moves and writes on its own. ``runs`` and ``data``,
where it only adds, may be links to a larger disk."""


def refuse_links(root: Path) -> None:
    """Refuse a store one of whose own folders is a link: what is swept there lies elsewhere.

    Parameters
    ----------
    root : Path
        The store; it need not exist.

    Raises
    ------
    BadInput
        With the link.
    """
    for name in OWN_FOLDERS:
        if os.path.islink(f"{root}{os.sep}{name}"):  # noqa: PTH114  # asked before every write
            raise BadInput(
                f"{root / name} is a link, and the lab would remove and write where it leads; "
                "it makes no such links, so this store was changed: remove the link, or put the "
                "folder itself there"
            )


def regular_bytes(path: Path, *, most_bytes: int) -> bytes:
    """Read a file whole that lies in a store, and so may have come from elsewhere.

    Parameters
    ----------
    path : Path
    most_bytes : int
        Its largest size.

    Returns
    -------
    bytes

    Raises
    ------
    OSError
        If it cannot be read: no pipe or device, whose reading would not end, and no larger file.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "a folder, pipe or device instead of a file", str(path))
    if status.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes} bytes", str(path))
    return path.read_bytes()


def inside(folder: Path, name: str) -> Path:
    """The path of a file in a folder.

    Parameters
    ----------
    folder : Path
    name : str
        Name or path relative to the folder; the file need not exist.

    Raises
    ------
    BadInput
        If it lies elsewhere once links are followed: such a link would pull another file into a
        report.
    """
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise BadInput(
            f"{path} leads out of {folder}, to {path.resolve()}; the lab writes no such links, so "
            "this store was changed: put the file itself there, or remove the run"
        )
    return path


@contextmanager
def whole_file(path: Path, *, read_only: bool = False) -> Iterator[Path]:
    """A scratch path for the block to write, which then becomes the file.

    Parameters
    ----------
    path : Path
        The file, replaced if it is there; if the block raises, it stays as it was.
    read_only : bool
        Whether the file can be read only, from the moment it appears.

    Yields
    ------
    Path
        Beside the file, on the same file system.
    """
    scratch = path.with_name(f".{path.name}.part")
    try:
        yield scratch
        if read_only:
            scratch.chmod(0o444)
        scratch.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise


def write_whole(path: Path, text: str, *, read_only: bool = False) -> None:
    """Write a text file in UTF-8 with a line feed at its end, whole or not at all.

    Parameters
    ----------
    path : Path
        The file, replaced if it is there.
    text : str
        Its content, without the last line feed.
    read_only : bool
        Whether the file can be read only.
    """
    with whole_file(path, read_only=read_only) as scratch:
        scratch.write_text(text + "\n", encoding="utf-8")


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
        if twin.samefile(path):  # over a name of the same file a rename does nothing (POSIX)
            return True
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


def remove_empty(*folders: Path) -> None:
    """Remove folders as far as they are empty; those inside others come first."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()
