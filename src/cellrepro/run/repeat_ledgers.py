"""The ledgers of a repeat: the files in which they grow, and the rows of its spec."""

from __future__ import annotations

from pathlib import Path

from cellrepro.digests.digests import value_digest
from cellrepro.spec.defaults import LedgerKind
from cellrepro.spec.spec import Spec
from cellrepro.store.ledger import DRAWS, LEDGER, OPERATIONS, Ledger, LedgerRow
from cellrepro.store.row_tables import Pieces


def growing_ledgers(unfinished: Path, level: LedgerKind) -> dict[str, Pieces]:
    """The growing ledgers of a training, by the name of the finished file."""
    rows = unfinished / "rows"
    ledgers = {LEDGER: Pieces(rows / "steps", LedgerRow)}
    if level == "ops":
        from cellrepro.trace.operation_ledger import OperationRow
        from cellrepro.trace.random_draws import Draw

        ledgers[OPERATIONS] = Pieces(rows / "operations", OperationRow)
        ledgers[DRAWS] = Pieces(rows / "draws", Draw)
    return ledgers


def add_spec(ledger: Ledger, spec: Spec) -> None:
    """Add a row for each field of the spec."""
    for name, value in spec.model_dump(mode="json").items():
        ledger.add("spec", name, value_digest(value), detail=value)


def with_spec(rows: list[LedgerRow], spec: Spec) -> list[LedgerRow]:
    """Replace the rows of the spec in a step ledger."""
    ledger_of_spec = Ledger()
    add_spec(ledger_of_spec, spec)
    position = next(i for i, row in enumerate(rows) if row.stage == "spec")
    rows_without_spec = [row for row in rows if row.stage != "spec"]
    return [
        *rows_without_spec[:position],
        *ledger_of_spec.entries,
        *rows_without_spec[position:],
    ]
