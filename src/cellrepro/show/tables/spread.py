"""Tables of the spread: what matters less than the seed, and the five steps to know it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cellrepro.comparison.seed_spread import Axis, Spread
from cellrepro.show.tables.frames import frame
from cellrepro.words import share_text

if TYPE_CHECKING:
    import pandas as pd

    from cellrepro.comparison.five_steps import Step

_EQUAL = "every pair has the same outlines: no seeds are needed to judge that"


def decision_table(spread: Spread) -> pd.DataFrame:
    """Say whether what was changed matters less than the seed, a row for each thing changed."""
    # Imported here: it needs matplotlib, which few tables do.
    from cellrepro.show.figures.spread import answer

    rows = [
        {
            "changed": axis.title,
            "pairs": len(axis.evidence),
            "cells changed": share_text(axis.distribution().mean),
            "within spread": answer(spread, axis),
            "why": _reason(spread, axis),
        }
        for axis in spread.axes
        if axis.name != "seed" and axis.evidence
    ]
    columns = ("changed", "pairs", "cells changed", "within spread", "why")
    return frame(rows, "changed", columns=columns)


def _reason(spread: Spread, axis: Axis) -> str:
    return _EQUAL if axis.equal else spread.decide(axis.name).reason


def protocol_table(steps: Sequence[Step]) -> pd.DataFrame:
    """List the five steps: question, answer, over what, and what to run where there is none."""
    rows = [
        {
            "step": step.number,
            "question": step.question,
            "answer": step.answer,
            "pairs": step.n_pairs,
            "what is missing": step.todo.replace("`", "") or "–",
        }
        for step in steps
    ]
    return frame(rows, "step")
