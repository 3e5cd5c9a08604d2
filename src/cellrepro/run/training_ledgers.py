"""The ledgers of a training while it goes on, and what they say of the spec."""

from __future__ import annotations

from pathlib import Path

from cellrepro.digests.digests import value_digest
from cellrepro.spec.choices import LedgerKind
from cellrepro.spec.spec import Spec
from cellrepro.store.ledger import DRAWS, LEDGER, OPERATIONS, Ledger, LedgerRow, Pieces


def growing_ledgers(unfinished: Path, level: LedgerKind) -> dict[str, Pieces]:
    """The growing ledgers of a training, by the name of the file that each ends in."""
    rows = unfinished / "rows"
    ledgers = {LEDGER: Pieces(rows / "steps", LedgerRow)}
    if level == "ops":
        from cellrepro.trace.operation_ledger import OperationRow
        from cellrepro.trace.random_draws import Draw

        ledgers[OPERATIONS] = Pieces(rows / "operations", OperationRow)
        ledgers[DRAWS] = Pieces(rows / "draws", Draw)
    return ledgers


def add_spec(ledger: Ledger, spec: Spec) -> None:
    """Write down what was asked for, field by field."""
    for name, value in spec.model_dump(mode="json").items():
        ledger.add("spec", name, value_digest(value), detail=value)


def with_spec(rows: list[LedgerRow], spec: Spec) -> list[LedgerRow]:
    """The rows of a step ledger, with another spec in it."""
    ledger_of_spec = Ledger()
    add_spec(ledger_of_spec, spec)
    position = next(i for i, row in enumerate(rows) if row.stage == "spec")
    rows_without_spec = [row for row in rows if row.stage != "spec"]
    return [
        *rows_without_spec[:position],
        *ledger_of_spec.entries,
        *rows_without_spec[position:],
    ]
