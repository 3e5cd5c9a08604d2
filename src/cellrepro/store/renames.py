"""Atomic renames and hard links, which give a file its name, or two names to one content.

Of two processes that take a new name at the same time, the second overwrites nothing.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from cellrepro.digests.digests import file_digest
from cellrepro.store.new_files import already_there
from cellrepro.store.removal import despite_read_only
from cellrepro.store.scratch_files import scratch_beside

RENAME_REPLACES = os.name != "nt"
"""Whether a rename replaces a file that is there: by POSIX, and not on Windows."""


def replace_file(source: Path, target: Path) -> None:
    """Rename a file over another one, also over a read-only one, which Windows refuses."""
    despite_read_only(target, lambda: source.replace(target))


def rename_to_new(scratch: Path, path: Path) -> None:
    """Rename a file without a race: a name that was taken in the meantime is not overwritten."""
    try:
        if RENAME_REPLACES:
            _link_to_new(scratch, path)
        else:
            scratch.rename(path)
    except FileExistsError as error:
        raise already_there(path) from error


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
