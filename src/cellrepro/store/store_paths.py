"""Paths inside a store, which may come from others: none leads out of it, or reads without end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from samebits.errors import BadInput

OWN_FOLDERS = (
    *(".staging", ".claims", "unfinished", "failed", "received"),
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
