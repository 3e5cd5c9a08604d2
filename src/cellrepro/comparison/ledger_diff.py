"""Two ledgers side by side: the first thing that went in alike and came out otherwise."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cellrepro.store.ledger import BEFORE, STAGES, LedgerRow
from cellrepro.words import cut
from samebits.tensor_digests import comparable

_MOST_LETTERS = 60  # of a value
_DIGEST = re.compile(r'"[0-9a-f]{12,}"')  # or the first letters of one


@dataclass(frozen=True)
class Difference:
    """One entry in which two ledgers differ."""

    step: int | None
    """None before the first step and after the last, as is the epoch."""
    epoch: int | None
    stage: str
    """One of `STAGES`."""
    name: str
    a: LedgerRow | None
    """None where only the other ledger has the entry; so is b."""
    b: LedgerRow | None

    def values_in_words(self) -> str:
        """Say what each side holds, as short as possible."""
        return f"{_in_words(self.a)} in A, {_in_words(self.b)} in B"

    @property
    def is_plain(self) -> bool:
        """Whether both sides can be read: no list or record, and no digest."""
        return not any(map(_is_unreadable, (self.a, self.b)))

    @property
    def is_of_bits(self) -> bool:
        """Whether nothing but the digests of the two sides can be said."""
        return _is_digest(self.a) and _is_digest(self.b)


def _is_digest(entry: LedgerRow | None) -> bool:
    return entry is not None and entry.detail is None and entry.value is None


def _is_unreadable(entry: LedgerRow | None) -> bool:
    if entry is None or entry.detail is None:
        return _is_digest(entry)
    return entry.detail.startswith(("[", "{")) or bool(_DIGEST.fullmatch(entry.detail))


def _in_words(entry: LedgerRow | None) -> str:
    if entry is None:
        return "missing"
    if entry.detail is not None:
        is_text = entry.detail.startswith('"')
        return cut(json.loads(entry.detail) if is_text else entry.detail, _MOST_LETTERS)
    if entry.value is not None:
        return f"{entry.value:.9g} ({entry.digest[:8]})"
    return entry.digest[:8]


@dataclass(frozen=True)
class LedgerComparison:
    """Two ledgers, compared entry by entry."""

    differences: tuple[Difference, ...]
    """All differences, in the order in which the runs passed them."""
    compared: Counter[str]
    """How many entries of each stage both have, in digests of one kind."""
    not_comparable: Counter[str]
    """How many entries of each stage one has of a processor and the other of a GPU."""
    n_steps: tuple[int, int]
    """Steps of a and of b."""

    @property
    def first(self) -> Difference | None:
        """The first of all differences."""
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
    """Compare two ledgers row by row, without the steps that only one side made.

    That one side made fewer steps is seen in the specs.
    """
    n_steps_a = _n_steps(a)
    n_steps_b = _n_steps(b)
    rows_a = _by_position(a, n_steps_a, ignored)
    rows_b = _by_position(b, n_steps_b, ignored)
    rank = {position: i for i, position in enumerate(rows_a | rows_b)}  # what only b has, last

    def in_order(position: _Position) -> tuple[float, int, int]:
        # Before the first step and after the last by stage, in a step as it was made.
        by_stage = 0 if position.in_step else stages.index(position.stage)
        return position.step, by_stage, rank[position]

    differences = []
    compared: Counter[str] = Counter()
    not_comparable: Counter[str] = Counter()
    both_steps = min(n_steps_a, n_steps_b)
    for position in sorted(rank, key=in_order):
        row_a = rows_a.get(position)
        row_b = rows_b.get(position)
        if row_a and row_b:
            if not comparable(row_a.digest, row_b.digest):
                not_comparable[position.stage] += 1
                continue
            compared[position.stage] += 1
            if row_a.digest == row_b.digest:
                continue
        elif position.in_step and position.step >= both_steps:
            continue
        differences.append(_difference(position, row_a, row_b))
    return LedgerComparison(
        tuple(differences), compared, not_comparable, n_steps=(n_steps_a, n_steps_b)
    )


class _Position(NamedTuple):
    """The place of an entry in a ledger."""

    step: float
    """`BEFORE` the first step; infinite after the last."""
    stage: str
    name: str

    @property
    def in_step(self) -> bool:
        """Whether it belongs to a step."""
        return BEFORE < self.step < math.inf


def _by_position(
    rows: Sequence[LedgerRow], n_steps: int, ignored: Callable[[LedgerRow], bool]
) -> dict[_Position, LedgerRow]:
    """The rows that count, by position."""
    by_position = {}
    for row in rows:
        if not ignored(row):
            step = row.step if row.step < n_steps else math.inf
            by_position[_Position(step, row.stage, row.name)] = row
    return by_position


def _difference(position: _Position, a: LedgerRow | None, b: LedgerRow | None) -> Difference:
    """The record of two entries that differ, or of one that only one side has."""
    row = a or b
    step = row.step if row and position.in_step else None
    epoch = row.epoch if row and position.in_step else None
    return Difference(step, epoch, position.stage, position.name, a, b)


def _n_steps(entries: Sequence[LedgerRow]) -> int:
    """Steps made: only a step has a loss."""
    return 1 + max((entry.step for entry in entries if entry.stage == "loss"), default=BEFORE)
