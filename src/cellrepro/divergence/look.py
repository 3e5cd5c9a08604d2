"""A closer look at a difference of two runs: what both wrote down of its operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from cellrepro.divergence.alignment import aligned
from cellrepro.divergence.judgements import Judgement, may_explain, of_round_off
from cellrepro.divergence.result import Cause, Evidence, FirstDifference, OperationAt
from cellrepro.same.operation_divergence import first_divergence
from cellrepro.same.operation_round_off import judge_round_off
from cellrepro.store.ledger import read_rows
from cellrepro.store.store import Repeat, Store
from cellrepro.trace.operation_ledger import OperationRow

Row = TypeVar("Row")


class CannotLook(Exception):
    """The operation cannot be named; the message says why."""


class TwoSides(NamedTuple):
    """The rows of one step, or of one image, of both runs."""

    a: list[OperationRow]
    b: list[OperationRow]


@dataclass(frozen=True)
class Look:
    """Two runs to look at; the options are those of `cellrepro.diverge`."""

    repeats: Sequence[Repeat]
    store: Store
    data: str | Path | None
    again: bool
    repetitions: int
    suspects: int
    quiet: bool

    @property
    def on_two_machines(self) -> bool:
        """Whether the two were computed on different machines."""
        a, b = self.repeats
        return a.machine != b.machine

    def stored_rows(self, file: str, kind: type[Row], step: int) -> list[list[Row]] | None:
        """The rows of one step, or image, of both runs; None where one did not write them down."""
        if not all(repeat.has(file) for repeat in self.repeats):
            return None
        rows = [read_rows(repeat.file(file), kind, step=step) for repeat in self.repeats]
        return rows if all(rows) else None

    def cause_in_rows(
        self, difference: FirstDifference, a: Sequence[OperationRow], b: Sequence[OperationRow]
    ) -> Cause | None:
        """The operation in which two lists of operations diverge; None that is not the cause."""
        alignment = aligned(self.repeats, a, b)
        parting = first_divergence(alignment)
        if parting is None or not may_explain(parting.a.phase, difference.stage):
            return None
        judgement: Judgement = "unexplained"
        round_off = None
        if self.on_two_machines:  # each operation was held against float64 where it ran
            verdict, round_off = judge_round_off(a, b)
            judgement = of_round_off(verdict)
        evidence = Evidence(
            "stored operations",
            alignment=alignment.sentence(),
            parting=parting.in_words,
            round_off=round_off,
        )
        operation = OperationAt.of(parting.a, inputs=parting.inputs)
        return Cause(
            replace(difference, operation=operation), judgement, evidence, operations=alignment
        )
