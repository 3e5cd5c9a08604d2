"""Whether round-off explains what the operations of two sides computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from cellrepro.comparison.operation_alignment import (
    named_operation,
    named_operations,
)
from cellrepro.words import amount

if TYPE_CHECKING:
    from cellrepro.trace.operation_ledger import OperationRow


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
