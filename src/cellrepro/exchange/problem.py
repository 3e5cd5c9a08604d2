"""What is wrong in a store or in what was sent, and what would put it right."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from cellrepro.digests.digests import file_digest
from cellrepro.store.seal import SUMS
from cellrepro.store.stored_run import MANIFEST, MOST_RECORD_BYTES, SPEC

_SMALL = (MANIFEST, SPEC, SUMS)
_MOST_PROBLEMS = 50
"""That are shown in lines."""

ProblemKind = Literal[
    "damaged", "missing", "extra", "leftover", "misplaced", "contradiction", "signature"
]
"""``damaged``: other content than was stored; ``missing``: not there; ``extra``: nothing that the
lab has put there; ``leftover``: of work that was stopped; ``misplaced``: in a folder of another
name than it says itself; ``contradiction``: two parts that do not say the same; ``signature``: not
by the key that it names."""


@dataclass(frozen=True)
class Restore:
    """A file is to have the content of this digest again, which may lie elsewhere."""

    path: Path
    digest: str


@dataclass(frozen=True)
class Write:
    """A file follows from what is beside it."""

    path: Path
    text: str
    """All of it."""
    said: str
    """What deserves to be known when it is written."""


@dataclass(frozen=True)
class Move:
    """A folder belongs elsewhere."""

    path: Path
    target: Path
    """Where nothing is."""


@dataclass(frozen=True)
class Remove:
    """A leftover, of which nothing is needed."""

    path: Path
    """A file or a folder."""


@dataclass(frozen=True)
class PutAside:
    """Something that does not belong here, and that somebody may miss."""

    path: Path
    """A file or a folder."""


Mending: TypeAlias = Restore | Write | Move | Remove | PutAside


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong."""

    kind: ProblemKind
    """A word for it."""
    what: str
    """What is wrong, in a sentence."""
    where: str
    """The file or folder; of a store its path in it."""
    remedy: str
    """What to do."""
    _mending: Mending | None = None

    @property
    def mending(self) -> Mending | None:
        """What could be done about it here; None where nothing can."""
        return self._mending


def problem_lines(problems: Sequence[Problem]) -> Iterator[str]:
    """Two lines for each problem: what it is, and what to do."""
    for problem in problems[:_MOST_PROBLEMS]:
        yield f"  {problem.kind} {problem.where}: {problem.what}"
        yield f"    {problem.remedy}"
    if len(problems) > _MOST_PROBLEMS:
        yield f"  and {len(problems) - _MOST_PROBLEMS} more; --json has all"


class Contents:
    """The digests of files as they are read now, from the disk and not from memory.

    Files that share their content on disk are read once.
    """

    def __init__(self) -> None:
        self._digest_of: dict[tuple[int, int] | Path, str] = {}
        self._paths: dict[str, list[Path]] = {}

    def digest(self, path: Path) -> str:
        """The SHA-256 of a file."""
        status = path.stat()
        if path.name in _SMALL and status.st_size > MOST_RECORD_BYTES:
            raise OSError(errno.EFBIG, f"it has {status.st_size} bytes, which none has", str(path))
        # Some network disks number no file.
        file = (status.st_dev, status.st_ino) if status.st_ino else path
        digest = self._digest_of.get(file)
        if digest is None:
            digest = file_digest(path)
            self._digest_of[file] = digest
        self._paths.setdefault(digest, []).append(path)
        return digest

    def files_with(self, digest: str) -> list[Path]:
        """The files that have been read and have this digest."""
        return self._paths.get(digest, [])
