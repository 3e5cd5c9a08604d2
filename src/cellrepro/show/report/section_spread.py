"""The report on spread: everything that makes results vary, on one axis, beside what seeds do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cellrepro.compare.seed_spread import Axis, Spread
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.show.figures.spread import spread_axis, spread_rows
from cellrepro.show.report.page import Cell, Shown, Table, figure, table, table_file
from cellrepro.show.report.summary import Chapter
from cellrepro.text import amount, ppm_text, share_text

_KINDS = {
    **{"over": "value", "masks": "verdict", "beside seeds": "long"},
    **dict.fromkeys(("cells changed", "pixels", "most cells"), "number"),
}


def spread_figure(chapter: Chapter) -> tuple[Shown, str] | None:
    """All axes beside each other, with the caption; none where nothing was compared."""
    if not any(axis.evidence for axis in chapter.spread.axes):
        return None
    drawn = spread_axis(chapter.spread)
    data = table_file(f"spread-{chapter.data}", spread_rows(chapter.spread))
    return figure(drawn, data), drawn.caption


def spread_table(spread: Spread) -> Table:
    """A row for each axis."""
    return table([_row(spread, axis) for axis in spread.axes], _KINDS)


def _row(spread: Spread, axis: Axis) -> dict[str, Any]:
    over = f"{amount(len(axis.evidence), 'pair')}, {amount(axis.n_images, 'image')}"
    n_empty = len(axis.pairs) - len(axis.evidence)
    empty = f"{n_empty} more prove nothing" if n_empty else ""
    decided = None if axis.name == "seed" else spread.decide(axis.name)
    verdict = combine(pair.verdict for pair in axis.evidence)
    if verdict == Verdict.DIFFERENT and decided is not None and decided.within:
        verdict = Verdict.WITHIN_SPREAD
    return {
        "between": axis.title,
        "over": Cell(over, empty),
        "cells changed": _interval(axis, "changed", share_text),
        "pixels": _interval(axis, "ppm", ppm_text),
        "most cells": share_text(max(axis.distribution().values, default=float("nan"))),
        "masks": verdict,
        "beside seeds": decided.sentence if decided else "the baseline",
    }


def _interval(axis: Axis, measure: str, text: Callable[[float], str]) -> Cell:
    """The mean, and its interval where there is one."""
    found = axis.distribution(measure)
    low_high = found.interval and f"{text(found.interval.low)} to {text(found.interval.high)}"
    return Cell(text(found.mean), low_high or "")
