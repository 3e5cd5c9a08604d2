"""The files of a store with their digests, and the problems of those that do not belong there."""

from __future__ import annotations

import errno
from pathlib import Path

from cellrepro.digests.digests import file_digest
from cellrepro.exchange.problem import Problem, PutAside, Remove
from cellrepro.store.seal import SUMS
from cellrepro.store.stored_run import MANIFEST, MOST_RECORD_BYTES, SPEC
from cellrepro.store.whole_files import is_being_written, is_scratch

NOT_OURS = "the lab has not put it there: move it out of the store"
_RECORDS = (MANIFEST, SPEC, SUMS)


class FilesOnDisk:
    """The files of a store with the digests that they have now; hard links are read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._digest_of: dict[tuple[int, int] | Path, str] = {}
        self._paths: dict[str, list[Path]] = {}

    def digest(self, path: Path) -> str:
        """The SHA-256 of a file."""
        status = path.stat()
        if path.name in _RECORDS and status.st_size > MOST_RECORD_BYTES:
            raise OSError(errno.EFBIG, f"it has {status.st_size} bytes, which none has", str(path))
        # Some network file systems report no inode numbers.
        file = (status.st_dev, status.st_ino) if status.st_ino else path
        digest = self._digest_of.get(file)
        if digest is None:
            digest = file_digest(path)
            self._digest_of[file] = digest
        self._paths.setdefault(digest, []).append(path)
        return digest

    def files_with(self, digest: str) -> list[Path]:
        """The files with this digest among those that have been read."""
        return self._paths.get(digest, [])

    def where(self, path: Path) -> str:
        """A path relative to the store, as problems name it."""
        try:
            return path.relative_to(self.root).as_posix()
        except ValueError:
            return str(path)


def entries_of(folder: Path) -> list[Path]:
    """The content of a folder, except what a process is just writing."""
    if not folder.is_dir():
        return []
    return sorted(entry for entry in folder.iterdir() if not is_being_written(entry.name))


def stray(
    path: Path, on_disk: FilesOnDisk, what: str = "the lab stores nothing of this name here"
) -> Problem:
    """The problem of a file or folder that no digest covers."""
    if is_scratch(path.name):
        return leftover(path, on_disk, "it was being written when the work was stopped")
    return Problem("extra", what, on_disk.where(path), NOT_OURS, PutAside(path))


def leftover(path: Path, on_disk: FilesOnDisk, what: str) -> Problem:
    """The problem of what a stopped process has left."""
    remedy = "`cellrepro fsck --repair` removes it"
    return Problem("leftover", what, on_disk.where(path), remedy, Remove(path))
