"""The operation of one training step at which two sides diverge.

An operation whose inputs have the same bits on both sides and whose outputs have not is where the
two diverge; what differs after it is its consequence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from cellrepro.words import that_differ
from samebits import (
    Agreement,
    Alignment,
    agreement,
    named_operation,
    named_operations,
)
from samebits.words import amount, grouped

if TYPE_CHECKING:
    from samebits import OperationRow


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
        f"differ in {grouped(n_after)} after it"
    ]
    if n_before:
        clauses.append(f"before it {that_differ(n_before, 'operation')} too, by what went in")
    return clauses


# -- round-off -----------------------------------------------------------------------------

RoundOffVerdict = Literal["round-off", "fault", "unknown"]


class RoundOff(NamedTuple):
    """Whether round-off explains what two sides computed."""

    verdict: RoundOffVerdict
    """``fault``: an operation erred more than its class may. ``unknown``: one side was not held
    against float64."""
    sentence: str
    """The verdict with its numbers."""


def judge_round_off(a: Sequence[OperationRow], b: Sequence[OperationRow]) -> RoundOff:
    """Judge whether every operation that was held to float64 erred no more than its class may."""
    rows = [*a, *b]
    judged = [row for row in rows if _is_judged(row)]
    unjudged = [row for row in rows if row.outputs and not _is_judged(row)]
    faults = [row for row in judged if _relative_error(row) > 1]
    verdict: RoundOffVerdict
    if faults:
        verdict = "fault"
        reason = f"{named_operations(faults)} erred more than round-off explains"
    elif any(map(_is_judged, a)) and any(map(_is_judged, b)):
        verdict = "round-off"
        reason = "every judged operation of both sides stays within its limit"
    else:
        verdict = "unknown"
        reason = "on one side no operation was judged"
    counts = f"{amount(len(judged), 'operation')} judged, {len(unjudged)} not"
    clauses = [f"{verdict}: {reason} ({counts})"]
    failed = [row for row in unjudged if row.problem is not None]
    if failed:
        names = named_operations(failed)
        clauses.append(f"the float64 replay failed of {names}: {failed[0].problem}")
    if judged:
        worst = max(judged, key=_relative_error)
        clauses.append(
            f"{named_operation(worst)} erred most, {worst.ulp:.3g} ulp where {worst.limit:.3g} "
            "may be"
        )
    return RoundOff(verdict, "; ".join(clauses))


def _is_judged(row: OperationRow) -> bool:
    return row.ulp is not None and row.limit is not None


def _relative_error(row: OperationRow) -> float:
    """Error in units of its limit; infinite where none is allowed or it is not a number."""
    error = row.ulp or 0.0
    limit = row.limit or 0.0
    if not error or error <= limit == math.inf:
        return 0.0
    if not limit:
        return math.inf
    relative_error = error / limit
    return math.inf if math.isnan(relative_error) else relative_error
