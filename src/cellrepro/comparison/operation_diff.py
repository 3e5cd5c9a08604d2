"""The operation of one training step at which two sides diverge.

An operation whose inputs have the same bits on both sides and whose outputs have not is where the
two diverge; what differs after it is its consequence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.comparison.operation_alignment import (
    Agreement,
    Alignment,
    agreement,
    named_operation,
)
from cellrepro.words import amount, that_differ

if TYPE_CHECKING:
    from cellrepro.trace.operation_ledger import OperationRow


_OUTPUTS_DIFFER: dict[Agreement, str] = {
    "agree": "inputs agree and whose outputs differ",
    "differ": "outputs differ, but its inputs differ already",
    "unknown": "outputs differ, but its inputs cannot be compared",
}
"""How a sentence goes on about the operation, by what its inputs say."""


@dataclass(frozen=True)
class DivergingOperation:
    """The operation at which two runs of a step diverge."""

    a: OperationRow
    b: OperationRow
    inputs: Agreement
    """Whether equal bits went in, also where no tensor did. Only ``agree`` makes it the cause."""
    in_words: str
    """Which operation it is, how that is known, and how far the difference spread."""


def first_divergence(alignment: Alignment) -> DivergingOperation | None:
    """Find the first operation, in A's order, whose inputs agree and whose outputs differ.

    Where the inputs of all that differ in their outputs differ, too, it is the first of these. None
    where no outputs differ.
    """
    outputs = [agreement(a.outputs, b.outputs) for a, b in alignment.pairs]
    differing = [index for index, each in enumerate(outputs) if each == "differ"]
    if not differing:
        return None
    causes = (index for index in differing if _inputs_agreement(*alignment.pairs[index]) == "agree")
    index = next(causes, differing[0])
    a, b = alignment.pairs[index]
    inputs = _inputs_agreement(a, b)
    clauses = [f"{_in_detail(a, b)} is the first operation whose {_OUTPUTS_DIFFER[inputs]}"]
    if a.draws or b.draws:
        clauses.append("it may draw random numbers")
    clauses += _how_far_it_spread(outputs, index)
    return DivergingOperation(a, b, inputs, "; ".join(clauses))


def _inputs_agreement(a: OperationRow, b: OperationRow) -> Agreement:
    # Of dtypes, not shapes: a tensor without axes may have nothing to show as its shape.
    no_tensor = all(re.match(r"\s*->", row.dtypes) and not row.inputs for row in (a, b))
    # As of `randn`: nothing that differs can have come in.
    return "agree" if no_tensor else agreement(a.inputs, b.inputs)


def _in_detail(a: OperationRow, b: OperationRow) -> str:
    """An operation with its phase and source line, and B's where that has another name."""
    details = [a.phase]
    if a.source:
        details.append(a.source)
    if a.op != b.op:
        details.append(f"B: {b.op}")
    return f"{named_operation(a)} ({', '.join(filter(None, details))})"


def _how_far_it_spread(outputs: Sequence[Agreement], index: int) -> list[str]:
    """How many outputs agree before the operation at an index, and differ before and after it."""
    before = outputs[:index]
    n_before = before.count("differ")
    n_after = outputs[index + 1 :].count("differ")
    clauses = [
        f"outputs agree in {amount(before.count('agree'), 'operation')} before it and "
        f"differ in {n_after} after it"
    ]
    if n_before:
        clauses.append(f"before it {that_differ(n_before, 'operation')} too, by what went in")
    return clauses
