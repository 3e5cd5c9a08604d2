"""Two runs inspected where they differ: what both wrote down of its operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from cellrepro.comparison.operation_diff import first_divergence, judge_round_off
from cellrepro.divergence.judgements import DivergenceJudgement, may_explain, of_round_off
from cellrepro.divergence.result import Cause, Evidence, FirstDifference, OperationAt
from cellrepro.divergence.substitute_calls import align_operations
from cellrepro.store.ledger import read_rows
from cellrepro.store.store import Repeat, Store
from cellrepro.trace.operation_ledger import OperationRow

Row = TypeVar("Row")


class CannotInspect(Exception):
    """No operation can be named; the message says why."""


@dataclass(frozen=True)
class Inspection:
    """Two runs to inspect."""

    repeats: Sequence[Repeat]
    """The two."""
    store: Store
    data: str | Path | None
    """As for `cellrepro.diverge`."""
    again: bool
    """As for `cellrepro.diverge`."""
    repetitions: int
    """As for `cellrepro.diverge`."""
    suspects: int
    """As for `cellrepro.diverge`."""
    quiet: bool
    """As for `cellrepro.diverge`."""

    @property
    def on_two_machines(self) -> bool:
        """Whether the two were computed on different machines."""
        a, b = self.repeats
        return a.machine != b.machine

    def stored_rows(
        self, file: str, kind: type[Row], step: int
    ) -> tuple[list[Row], list[Row]] | None:
        """Read what both runs wrote down of one step, or of one image.

        The rows of A and of B; None where one of them wrote nothing down.
        """
        repeat_a, repeat_b = self.repeats
        if not repeat_a.has(file) or not repeat_b.has(file):
            return None
        rows_a = read_rows(repeat_a.file(file), kind, step=step)
        rows_b = read_rows(repeat_b.file(file), kind, step=step)
        return (rows_a, rows_b) if rows_a and rows_b else None

    def cause_in_rows(
        self, difference: FirstDifference, a: Sequence[OperationRow], b: Sequence[OperationRow]
    ) -> Cause | None:
        """Find the operation in which two lists of operations diverge.

        None where no operation differs, or the one that does runs after the difference.
        """
        alignment = align_operations(self.repeats, a, b)
        parting = first_divergence(alignment)
        if parting is None or not may_explain(parting.a.phase, difference.stage):
            return None
        judgement: DivergenceJudgement = "unexplained"
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
