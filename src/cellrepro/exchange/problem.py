"""A problem of a store or of a sent file, and the repair that would solve it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

_MOST_PROBLEMS = 50
"""Limit of the problems in a terminal."""

ProblemKind = Literal[
    "damaged", "missing", "extra", "leftover", "misplaced", "contradiction", "signature"
]
"""``damaged``: the content is not the stored one; ``missing``: not there; ``extra``: not written by
the lab; ``leftover``: of work that was stopped; ``misplaced``: in a folder of another name than its
content says; ``contradiction``: two parts disagree; ``signature``: not by the key that it names."""


@dataclass(frozen=True)
class Restore:
    """Give a file its content back, if a file with this digest is in the store."""

    path: Path
    digest: str


@dataclass(frozen=True)
class Write:
    """Write a file whose content follows from the files beside it."""

    path: Path
    text: str
    """The whole content."""
    remark: str
    """What a user should know of it, in words that end a sentence."""


@dataclass(frozen=True)
class Move:
    """Rename a folder."""

    path: Path
    target: Path
    """Does not exist."""


@dataclass(frozen=True)
class Remove:
    """Delete a leftover file or folder."""

    path: Path


@dataclass(frozen=True)
class PutAside:
    """Move a file or folder out of the way, since somebody may miss it."""

    path: Path


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
    mending: Mending | None = field(default=None, repr=False)
    """What ``fsck --repair`` can do about it; None if nothing."""


def problem_lines(problems: Sequence[Problem]) -> Iterator[str]:
    """Two lines for each problem: what is wrong, and what to do."""
    for problem in problems[:_MOST_PROBLEMS]:
        yield f"  {problem.kind} {problem.where}: {problem.what}"
        yield f"    {problem.remedy}"
    if len(problems) > _MOST_PROBLEMS:
        yield f"  and {len(problems) - _MOST_PROBLEMS} more; --json has all"
