"""Whether a stored file is still what was stored: read once a process, whoever asks."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cellrepro.errors import Damaged
from cellrepro.store.digests import file_digest


class _State(NamedTuple):
    """What tells a content apart without reading it; the same for all names of one file."""

    device: int
    inode: int
    size: int
    modified: int  # nanoseconds


_known: dict[_State, str] = {}


def digest_once(path: Path) -> str:
    """The SHA-256 of a file as hex, computed once a process while size and time stay as they are.

    Files that share their content on disk, as those of equal repeats do, are read once.
    """
    status = path.stat()
    state = _State(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    digest = _known.get(state)
    if digest is None:
        digest = file_digest(path)
        _known[state] = digest
    return digest


def refuse_damaged(path: Path, expected: str) -> None:
    """Refuse a stored file whose content is no longer that of its digest.

    Raises
    ------
    Damaged
        With the file, both digests, and what to do.
    """
    try:
        actual = digest_once(path)
    except OSError as error:
        raise Damaged(f"{path} cannot be read ({error}); {RESTORE}") from error
    if actual != expected:
        raise Damaged(
            f"{path} is damaged: its SHA-256 begins with {actual[:12]}, and that of the file that "
            f"was stored with {expected[:12]} (manifest.json); {RESTORE}"
        )


RESTORE = "copy the store again, or remove that repeat's folder and run it again"
