"""The first difference of two runs in words and colours, as every figure of a divergence has it.

What agrees is pale, what differs is dark, and the first difference is orange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from cellrepro.divergence.first_difference import FirstDifference
from cellrepro.divergence.judgements import OF_STAGE
from cellrepro.show.figures.style import SERIES
from cellrepro.store.ledger import AFTER_TRAINING, BEFORE_TRAINING, STAGES
from samebits.known_operations import base_name
from samebits.words import grouped

if TYPE_CHECKING:
    from cellrepro.comparison.ledger_diff import Difference
    from samebits import OperationRow

EQUAL = "#D9EEF9"
"""Colour of what agrees."""
DIFFERENT = SERIES[0]
"""Colour of what differs."""
FIRST = SERIES[1]
"""Colour of what differs first."""


def operation(row: OperationRow) -> str:
    """Name the operation, where in the network it is, and in which pass."""
    module = f" in {row.module}" if row.module else ""
    return f"{base_name(row.op)}{module}, {row.phase}"


def when_they_differ(difference: FirstDifference | Difference) -> int | Literal["before", "after"]:
    """The step at which two runs differ, or that it is before or after the training."""
    if difference.stage in AFTER_TRAINING or (
        difference.step is None and difference.stage == "weights"
    ):
        return "after"
    if difference.step is None or difference.stage in BEFORE_TRAINING:
        return "before"
    return difference.step


def headline(
    difference: FirstDifference | None, n_compared: int, stages: tuple[str, ...] = STAGES
) -> str:
    """Say in a few words at which step and stage two runs diverge."""
    if difference is None:
        return f"No difference, {grouped(n_compared)} entries compared"
    stage = OF_STAGE[difference.stage].name
    if stages != STAGES:
        where = "settings" if difference.stage == "spec" else f"stage {stage}"
        return f"The two segmentations differ first in the {where}"
    when = when_they_differ(difference)
    moment = f"at step {grouped(when)}" if isinstance(when, int) else f"{when} training"
    return f"The two runs diverge {moment}: {stage}"
