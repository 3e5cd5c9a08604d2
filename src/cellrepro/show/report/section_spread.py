"""The report on spread: everything that makes results vary, on one axis, beside what seeds do."""

from __future__ import annotations

from cellrepro.compare.seed_spread import Axis, Spread
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.show.figures.spread import spread_axis, spread_rows
from cellrepro.show.report.page import Shown, figure, table_file
from cellrepro.show.report.summary import Chapter


def spread_figure(chapter: Chapter) -> tuple[Shown, str] | None:
    """All axes beside each other, with the caption; none where nothing was compared."""
    if not any(axis.evidence for axis in chapter.spread.axes):
        return None
    drawn = spread_axis(chapter.spread)
    data = table_file(f"spread-{chapter.data}", spread_rows(chapter.spread))
    return figure(drawn, data), drawn.caption


def axis_verdict(spread: Spread, axis: Axis) -> Verdict:
    """The one verdict over the pairs along an axis, beside what seeds do."""
    verdict = combine(pair.verdict for pair in axis.evidence)
    if verdict == Verdict.DIFFERENT and axis.name != "seed" and spread.decide(axis.name).within:
        return Verdict.WITHIN_SPREAD
    return verdict
