"""A problem of a store or of a sent file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

ASK_THE_SENDER = "ask its sender for the passport and the run as they were exported together"
"""The remedy where parts of what was sent contradict each other."""
_MOST_PROBLEMS = 50
"""Limit of the problems in a terminal."""

ProblemKind = Literal[
    "damaged", "missing", "extra", "leftover", "misplaced", "contradiction", "signature"
]
"""``damaged``: the content is not the stored one; ``missing``: not there; ``extra``: not written by
the lab; ``leftover``: of work that was stopped; ``misplaced``: in a folder of another name than its
content says; ``contradiction``: two parts disagree; ``signature``: not by the key that it names."""


@dataclass(frozen=True)
class LostContent:
    """A file whose content is damaged or missing, and may lie elsewhere in the store."""

    path: Path
    digest: str
    """SHA-256 of what was stored."""


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
    lost: LostContent | None = field(default=None, repr=False)
    """What ``fsck --repair`` looks for in the store; None if that cannot help."""


def problem_lines(problems: Sequence[Problem]) -> Iterator[str]:
    """Two lines for each problem: what is wrong, and what to do."""
    for problem in problems[:_MOST_PROBLEMS]:
        yield f"  {problem.kind} {problem.where}: {problem.what}"
        yield f"    {problem.remedy}"
    if len(problems) > _MOST_PROBLEMS:
        yield f"  and {len(problems) - _MOST_PROBLEMS} more; --json has all"
