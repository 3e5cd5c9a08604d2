"""Two ledgers side by side: the first thing that went in alike and came out otherwise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cellrepro.bits.digests import comparable
from cellrepro.store.ledger import BEFORE, STAGES, LedgerRow


@dataclass(frozen=True)
class Difference:
    """One entry in which two ledgers differ.

    Attributes
    ----------
    step : int or None
        None before the first step and after the last.
    epoch : int or None
        Of the step; None likewise.
    stage : str
        One of `STAGES`.
    name : str
        Of the entry.
    a : LedgerRow or None
        The entry of the first ledger; None where only the other has it.
    b : LedgerRow or None
        The entry of the second ledger; likewise.
    """

    step: int | None
    epoch: int | None
    stage: str
    name: str
    a: LedgerRow | None
    b: LedgerRow | None

    def said(self) -> str:
        """What each side holds, as short as possible."""
        return f"{self.name}: {_said(self.a)} in A, {_said(self.b)} in B"


def _said(entry: LedgerRow | None) -> str:
    if entry is None:
        return "missing"
    if entry.detail is not None:
        return entry.detail if len(entry.detail) <= 60 else entry.detail[:57] + "…"
    if entry.value is not None:
        return f"{entry.value:.9g} ({entry.digest[:8]})"
    return entry.digest[:8]


@dataclass(frozen=True)
class LedgerComparison:
    """What two ledgers have in common and in what they differ.

    Attributes
    ----------
    differences : tuple of Difference
        In the order in which the runs passed them.
    compared : Counter of str
        By stage, the entries that both have in digests of one kind.
    not_comparable : Counter of str
        By stage, the entries that one has of a processor and the other of a GPU.
    n_steps : tuple of two ints
        Steps of a and of b.
    """

    differences: tuple[Difference, ...]
    compared: Counter[str]
    not_comparable: Counter[str]
    n_steps: tuple[int, int]

    @property
    def first(self) -> Difference | None:
        """Of all differences."""
        return next(iter(self.differences), None)

    @property
    def first_computed(self) -> Difference | None:
        """The first difference in what a step computed."""
        return next((each for each in self.differences if each.step is not None), None)

    def of_stage(self, stage: str) -> list[Difference]:
        """All differences of one stage."""
        return [each for each in self.differences if each.stage == stage]


def compare_ledgers(
    a: Sequence[LedgerRow],
    b: Sequence[LedgerRow],
    *,
    stages: Sequence[str] = STAGES,
    ignored: Callable[[LedgerRow], bool] = lambda entry: False,
) -> LedgerComparison:
    """Compare two ledgers row by row.

    Parameters
    ----------
    a, b : sequence of LedgerRow
    stages : sequence of str
        In the order in which a run passes them.
    ignored : callable
        Says of a row whether it is left out.

    Returns
    -------
    LedgerComparison
        Without the steps that only one side made: the spec says that.
    """
    n_steps = (_n_steps(a), _n_steps(b))
    both_steps = min(n_steps)
    held_a, held_b = (
        {
            (entry.step if entry.step < n else math.inf, entry.stage, entry.name): entry
            for entry in side
            if not ignored(entry)
        }
        for side, n in zip((a, b), n_steps, strict=True)
    )
    rank = {place: i for i, place in enumerate(held_a | held_b)}  # what only b has at the end

    def in_order(place: tuple[float, str, str]) -> tuple[float, int, int]:
        # Before the first step and after the last by stage, in a step as it was made.
        position, stage, _ = place
        by_stage = 0 if BEFORE < position < math.inf else stages.index(stage)
        return position, by_stage, rank[place]

    differences = []
    compared: Counter[str] = Counter()
    not_comparable: Counter[str] = Counter()
    for position, stage, name in sorted(rank, key=in_order):
        one, other = (side.get((position, stage, name)) for side in (held_a, held_b))
        in_step = BEFORE < position < math.inf
        if one and other:
            alike = comparable(one.digest, other.digest)
            (compared if alike else not_comparable)[stage] += 1
            if not alike or one.digest == other.digest:
                continue
        elif in_step and position >= both_steps:
            continue
        some = one or other
        step, epoch = (some.step, some.epoch) if some and in_step else (None, None)
        differences.append(Difference(step, epoch, stage, name, one, other))
    return LedgerComparison(tuple(differences), compared, not_comparable, n_steps)


def _n_steps(entries: Sequence[LedgerRow]) -> int:
    """Steps made: only a step has a loss."""
    return 1 + max((entry.step for entry in entries if entry.stage == "loss"), default=BEFORE)
