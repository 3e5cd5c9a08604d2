"""Digests of stored files, each computed once, and the refusal of files that have changed.

They are cached for the process, by what tells a content apart without reading it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from cellrepro.errors import Damaged
from cellrepro.spec.lab_command import lab_command
from cellrepro.store.seal import SUMS, read_seal
from samebits.digests import file_digest

RESTORE = "copy the store again, or remove that repeat's folder and run it again"
"""Advice at the end of what is said of a damaged file that no other file can bring back."""
_AREAS = ("runs", "data")


class _State(NamedTuple):
    """Device, inode, size and time of a file: the same for all its hard links."""

    device: int
    inode: int | str
    """The path instead, where a network disk has no inodes."""
    size: int
    modified: int
    """Nanoseconds."""


_known: dict[_State, str] = {}


@dataclass
class ReadingBudget:
    """A budget of what to read in search of damage, for an answer that has to come at once."""

    n_bytes_left: int
    n_files_left: int
    n_files_unread: int = 0

    def allows(self, n_bytes: int) -> bool:
        """Whether the budget allows a file; counts it either way."""
        if n_bytes > self.n_bytes_left or not self.n_files_left:
            self.n_files_unread += 1
            return False
        self.n_bytes_left -= n_bytes
        self.n_files_left -= 1
        return True


def digest_once(path: Path | str) -> str:
    """The SHA-256 of a file as hex, cached while size and time stay as they are.

    Hard links to one file, as equal repeats have, are read once.
    """
    state = _state_of(path)
    digest = _known.get(state)
    if digest is None:
        digest = file_digest(Path(path))
        _known[state] = digest
    return digest


def _state_of(path: Path | str) -> _State:
    status = os.stat(path)  # noqa: PTH116  # `list` asks for tens of thousands of files
    inode = status.st_ino or str(path)
    return _State(status.st_dev, inode, status.st_size, status.st_mtime_ns)


def sealed_digests(sums: Path) -> Mapping[str, str]:
    """SHA-256 as hex by name, from the seal of a folder, cached; empty where there is no seal."""
    return _digests_in(sums, _state_of(sums)) if sums.exists() else {}


@lru_cache(maxsize=64)
def _digests_in(sums: Path, state: _State) -> Mapping[str, str]:
    return read_seal(sums.read_bytes().decode())


def refuse_damaged(
    path: Path | str, expected: str, *, reading: ReadingBudget | None = None
) -> None:
    """Raise `Damaged` if the content of a stored file has changed; a missing file is no damage."""
    try:
        if reading is not None:
            state = _state_of(path)
            if state not in _known and not reading.allows(state.size):
                return
        actual = digest_once(path)
    except FileNotFoundError:
        return
    except OSError as error:
        advice = repair_of(path, expected) or RESTORE
        raise Damaged(f"{path} cannot be read ({error}); {advice}") from error
    if actual != expected:
        raise Damaged(
            f"{path} is damaged: its SHA-256 begins with {actual[:12]}, and that of the file that "
            f"was stored with {expected[:12]} (manifest.json); "
            f"{repair_of(path, expected) or RESTORE}"
        )


def repair_of(path: Path | str, digest: str) -> str | None:
    """Say which command brings the content of a stored file back; None where no file has it.

    ``fsck --repair`` reads the whole store, and so finds every copy that is found here.
    """
    root = next((one.parent for one in Path(path).parents if one.name in _AREAS), None)
    copy = None if root is None else _copy_in(root, digest, lost=Path(path))
    return None if root is None or copy is None else repair_from(copy, root=root)


def repair_from(copy: Path, *, root: Path) -> str:
    """Say which command brings the content of a stored file back from one that has it."""
    repair = lab_command("fsck", "--repair", store=root)
    return f"`{repair}` brings its content back from {copy.relative_to(root).as_posix()}"


def _copy_in(root: Path, digest: str, *, lost: Path) -> Path | None:
    for path in _files_by_digest(root).get(digest, ()):
        with suppress(OSError):
            if path != lost and path.is_file() and digest_once(path) == digest:
                return path
    return None


@lru_cache(maxsize=8)  # of a store with much damage it is asked for each damaged file
def _files_by_digest(root: Path) -> Mapping[str, Sequence[Path]]:
    """The files of a store, by the digests that the seals of their folders give them."""
    files: dict[str, list[Path]] = defaultdict(list)
    for pattern in (f"runs/*/{SUMS}", f"runs/*/*/*/{SUMS}", f"data/*/{SUMS}"):
        for seal in sorted(root.glob(pattern)):
            with suppress(OSError, ValueError):  # a seal may be damaged, too
                for name, digest in sealed_digests(seal).items():
                    files[digest].append(seal.parent / name)
    return files
