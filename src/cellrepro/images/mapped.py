"""Files and pixels too large for memory, mapped from the disk instead."""

from __future__ import annotations

import mmap
import shutil
import tempfile
from pathlib import Path
from typing import TypeAlias

from samebits.errors import NotPossibleHere

_LEAST_MAPPED = 2**30  # bytes

Content: TypeAlias = "bytes | mmap.mmap"
"""The bytes of a file, in memory or mapped."""


def is_large(n_bytes: int) -> bool:
    """Whether so many bytes, of a file or of pixels, are too many to hold where a map will do."""
    return n_bytes >= _LEAST_MAPPED


def content_of(file: Path) -> Content:
    """Read a file whole, or map a large one."""
    if not is_large(file.stat().st_size):
        return file.read_bytes()
    with file.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def refuse_full_disk(file: Path, n_bytes: int) -> None:
    """Refuse pixels for which the folder of temporary files has no room."""
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise NotPossibleHere(
            f"{file}: its {n_bytes} bytes of pixels are unpacked to the folder of temporary files, "
            f"{folder}, which has {free} bytes free; make room there, set TMPDIR to a folder on a "
            "larger disk, or crop the image into tiles"
        )
