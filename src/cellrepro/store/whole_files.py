"""Files and folders that appear whole or not at all: written beside, synced, then renamed.

An atomic rename is the last step of every write, so readers and killed processes see the old
content or the new one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cellrepro.store.new_files import refuse_existing
from cellrepro.store.renames import rename_to_new, replace_file
from cellrepro.store.scratch_files import remove_left_over, scratch_beside


@contextmanager
def whole_file(path: Path, *, replace: bool = False, read_only: bool = False) -> Iterator[Path]:
    """Give a scratch file for the block to write, which an atomic rename then turns into the file.

    It lies beside the file, on the same file system, under a name that no other process takes.
    """
    if not replace:
        refuse_existing(path)
        remove_left_over(path)
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
            rename_to_new(scratch, path)
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
