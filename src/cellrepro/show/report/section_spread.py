"""The report on spread: everything that makes results vary, on one axis, beside what seeds do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from cellrepro.compare.seed_spread import Axis, Distribution, Spread
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.show.figures.spread import spread_axis, spread_rows
from cellrepro.show.report.page import (
    Cell,
    Column,
    Download,
    Shown,
    Table,
    figure,
    table,
    table_file,
)
from cellrepro.show.report.protocol import Status, Step, protocol
from cellrepro.show.report.summary import Chapter
from cellrepro.text import amount, ppm_text, share_text

RULE = (
    "A difference is called within the spread of seeds only where three seeds or more and three "
    "images or more were compared, and it is shown, at 95 % confidence, to be less than what "
    "another seed does, both in cells and in pixels; devices, threads and instruction sets, "
    "precisions, modes, machines and versions each by themselves, two by two."
)
"""The rule of ``within-spread`` in one line; `cellrepro.compare.within_spread` has all of it."""

_CAPTION = (
    "Share of cells without a counterpart and differing pixels between two runs that differ in one "
    "thing only: the mean over pairs, with 95 % bootstrap intervals over images, and over runs or "
    "settings where there are three or more."
)


@dataclass(frozen=True)
class SpreadView:
    """How far results of one chapter differ along every axis."""

    title: str
    sentence: str
    figure: Shown | None
    numbers: Table
    for_all: str
    """What is said beside seeds, where that is the same of every axis."""


@dataclass(frozen=True)
class ProtocolView:
    """The five steps of the experiment, as far as one chapter's runs answer them."""

    title: str
    steps: tuple[Step, ...]
    n_answered: int
    data: Download | None


def spread_view(chapter: Chapter) -> SpreadView | None:
    """None where nothing was compared."""
    spread = chapter.spread
    if not spread.axes:
        return None
    decisions = {
        axis.name: spread.decide(axis.name).sentence for axis in spread.axes if axis.name != "seed"
    }
    said = set(filter(None, decisions.values()))
    for_all = said.pop() if len(said) == 1 else ""
    columns = [
        Column("between", lambda axis: axis.title),
        Column("over", _over, "value"),
        Column("cells changed", lambda axis: _interval(axis, "changed", share_text), "number"),
        Column("pixels", lambda axis: _interval(axis, "ppm", ppm_text), "number"),
        Column("most cells", _most, "number"),
        Column("masks", lambda axis: axis_verdict(spread, axis), "verdict"),
    ]
    if not for_all:
        beside = Column(
            "beside seeds", lambda axis: decisions.get(axis.name, "the baseline"), "long"
        )
        columns.append(beside)
    picture = None
    if any(axis.evidence for axis in spread.axes):
        drawn = spread_axis(spread)
        data = table_file(f"spread-{chapter.data}", spread_rows(spread))
        picture = figure(drawn, drawn.caption, data)
    numbers = table(spread.axes, columns, caption=_CAPTION)
    return SpreadView(chapter.title, spread.sentence(), picture, numbers, for_all)


def protocol_view(chapter: Chapter) -> ProtocolView:
    """The five steps, and their file."""
    steps = protocol(chapter.spread)
    rows = [{name: str(value) for name, value in asdict(step).items()} for step in steps]
    n_answered = sum(step.status == Status.ANSWERED for step in steps)
    data = table_file(f"protocol-{chapter.data}", rows)
    return ProtocolView(chapter.title, steps, n_answered, data)


def axis_verdict(spread: Spread, axis: Axis) -> Verdict:
    """The one verdict over the pairs along an axis, beside what seeds do."""
    if not axis.evidence:
        return Verdict.VACUOUS
    if not axis.differing:
        return combine(pair.verdict for pair in axis.evidence)
    within = axis.name != "seed" and spread.decide(axis.name).within
    return Verdict.WITHIN_SPREAD if within else Verdict.DIFFERENT


def _over(axis: Axis) -> Cell:
    n = axis.n_vacuous
    note = f"{n} more prove nothing: no cells, or nothing trained" if n else ""
    return Cell(f"{amount(len(axis.evidence), 'pair')}, {amount(axis.n_images, 'image')}", note)


def _most(axis: Axis) -> str:
    values = axis.distribution("changed").values
    return share_text(float(values.max())) if values.size else "–"


def _interval(axis: Axis, measure: str, text: Callable[[float], str]) -> Cell:
    """The mean, and its interval where there is one."""
    found: Distribution = axis.distribution(measure)
    if not found.values.size:
        return Cell("–")
    interval = found.interval
    note = f"{text(interval.low)} to {text(interval.high)}" if interval is not None else ""
    return Cell(text(found.mean), note)
