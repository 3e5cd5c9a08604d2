"""What the inspections of a step and of an image have in common: the operations both recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cellrepro.comparison.operation_diff import first_divergence, judge_round_off
from cellrepro.divergence.evidence import Cause, Evidence
from cellrepro.divergence.first_difference import FirstDifference
from cellrepro.divergence.judgements import DivergenceJudgement, may_explain, of_round_off
from cellrepro.divergence.substitute_calls import align_operations
from cellrepro.model.weight_sources import ModelSource, started_from
from cellrepro.run.plan_sources import refuse_unreadable_network
from cellrepro.store.row_tables import read_rows
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from samebits import OperationRow
from samebits.errors import BadInput

Row = TypeVar("Row")


class CannotInspect(Exception):
    """No operation can be named; the message says why."""


@dataclass(frozen=True)
class Inspection:
    """Two runs to inspect, and the options of `cellrepro.diverge`."""

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

    def stored_rows(
        self, file: str, kind: type[Row], step: int
    ) -> tuple[list[Row], list[Row]] | None:
        """Read what both runs recorded of one step or image; None where one recorded nothing."""
        repeat_a, repeat_b = self.repeats
        if not repeat_a.has(file) or not repeat_b.has(file):
            return None
        rows_a = read_rows(repeat_a.file(file), kind, step=step)
        rows_b = read_rows(repeat_b.file(file), kind, step=step)
        return (rows_a, rows_b) if rows_a and rows_b else None

    def source_of(self, repeat: Repeat) -> ModelSource:
        """Find the weights that a run started from."""
        try:
            source = started_from(repeat, self.store)
            refuse_unreadable_network(source)
        except BadInput as error:
            raise CannotInspect(str(error)) from error
        return source

    def cause_in_rows(
        self, difference: FirstDifference, a: Sequence[OperationRow], b: Sequence[OperationRow]
    ) -> Cause | None:
        """Find the operation in which two lists of operations diverge.

        None where no operation differs, or it runs after the difference.
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
        evidence = Evidence("stored operations").of_operations(alignment, parting, round_off)
        made = difference.made_by(parting.a, inputs=parting.inputs)
        return Cause(made, judgement, evidence, operations=alignment)
