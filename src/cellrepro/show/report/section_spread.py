"""The section on how far results spread: a figure over all axes, and the verdict on each."""

from __future__ import annotations

from dataclasses import dataclass

from cellrepro.comparison.measured_axis import Axis
from cellrepro.comparison.seed_spread import Spread
from cellrepro.comparison.verdicts import Verdict, combine
from cellrepro.show.figures.spread import spread_axis, spread_rows
from cellrepro.show.pages.parts import Figure, drawn_twice, figure, table_file
from cellrepro.show.report.summary import Chapter


@dataclass(frozen=True)
class Captioned:
    """A figure with its caption."""

    figure: Figure
    caption: str


def spread_figure(chapter: Chapter) -> Captioned | None:
    """Draw all axes on one scale; None where nothing changed a cell, which is said in words."""
    if not any(axis.distribution().mean > 0 for axis in chapter.spread.axes):
        return None
    drawn = drawn_twice(spread_axis, chapter.spread)
    data = table_file(f"spread-{chapter.data}", spread_rows(chapter.spread))
    return Captioned(figure(drawn, data), drawn.wide.caption)


def axis_verdict(spread: Spread, axis: Axis) -> Verdict:
    """Judge all pairs along an axis together, beside what seeds do."""
    verdict = combine(pair.verdict for pair in axis.evidence)
    if verdict == Verdict.DIFFERENT and axis.name != "seed" and spread.decide(axis.name).within:
        return Verdict.WITHIN_SPREAD
    return verdict
