"""What `fsck` answers: what is wrong in a store, and what was put right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.show.answers.answer import Answer

if TYPE_CHECKING:
    from cellrepro.exchange.problem import Problem, ProblemKind
    from cellrepro.exchange.store_check import StoreCheck


_MOST_PROBLEMS = 50
"""That are shown in lines."""


@dataclass(frozen=True)
class ProblemDocument:
    """One thing that is wrong."""

    kind: ProblemKind
    """A word for it."""
    what: str
    """What is wrong, in a sentence."""
    where: str
    """The file or folder; of a store its path in it."""
    remedy: str
    """What to do."""

    @classmethod
    def of(cls, problem: Problem) -> ProblemDocument:
        """The same as JSON has it."""
        return cls(problem.kind, problem.what, problem.where, problem.remedy)


@dataclass(frozen=True)
class RepairDocument:
    """One thing that was put right."""

    what: str
    """What was done, in a sentence."""
    where: str
    """The file or folder, by its path in the store."""


@dataclass(frozen=True)
class StoreCheckDocument:
    """What ``cellrepro fsck --json`` prints."""

    store: str
    """Its folder."""
    repeats: int
    """How many were read."""
    files: int
    """How many were held to a digest."""
    problems: Sequence[ProblemDocument]
    """What is wrong now."""
    repaired: Sequence[RepairDocument]
    """What was put right."""
    notes: Sequence[str]
    """What deserves to be known and is no fault, a sentence each."""


def store_check_answer(check: StoreCheck) -> Answer[StoreCheckDocument]:
    """Answer with every problem and every repair."""
    document = StoreCheckDocument(
        store=str(check.store),
        repeats=check.n_repeats,
        files=check.n_files,
        problems=[ProblemDocument.of(problem) for problem in check.problems],
        repaired=[RepairDocument(repair.what, repair.where) for repair in check.repaired],
        notes=check.notes,
    )
    return Answer(document, list(_lines(check)))


def _lines(check: StoreCheck) -> Iterator[str]:
    yield check.sentence()
    for repair in check.repaired:
        yield f"  repaired {repair.where}: {repair.what}"
    yield from problem_lines(check.problems)
    for note in check.notes:
        yield f"  {note}"


def problem_lines(problems: Sequence[Problem]) -> Iterator[str]:
    """Two lines for each problem: what it is, and what to do."""
    for problem in problems[:_MOST_PROBLEMS]:
        yield f"  {problem.kind} {problem.where}: {problem.what}"
        yield f"    {problem.remedy}"
    if len(problems) > _MOST_PROBLEMS:
        yield f"  and {len(problems) - _MOST_PROBLEMS} more; --json has all"
