"""The report on spread: everything that makes results vary, on one axis, beside what seeds do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from cellrepro.compare.seed_spread import Axis, Decision, Distribution, Spread
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.show.figures import spread as spread_plots
from cellrepro.show.report.findings import Chapter
from cellrepro.show.report.page import Shown, figure, table_file
from cellrepro.show.report.protocol import GRID, Status, protocol
from cellrepro.text import amount, ppm_text, share_text

RULE = (
    "A difference is called within the spread of seeds only where three seeds or more and three "
    "images or more were compared, and it is shown, at 95 % confidence, to be less than what "
    "another seed does, both in cells and in pixels; devices, threads and instruction sets, "
    "precisions, modes, machines and versions each by themselves, two by two."
)
"""The rule of ``within-spread`` in one line; `cellrepro.compare.seed_spread` has all of it."""


def spread_view(chapter: Chapter) -> dict[str, Any] | None:
    """How far results lie apart along every axis; none where nothing was compared."""
    spread = chapter.spread
    if not spread.axes:
        return None
    rows = [_row(spread, axis) for axis in spread.axes]
    beside = list(dict.fromkeys(row["decision"] for row in rows if row["decision"]))
    return {
        "title": chapter.title,
        "sentence": spread.sentence(),
        "figure": _picture(chapter),
        "rows": rows,
        "for_all": beside[0] if len(beside) == 1 else "",
    }


def protocol_view(chapter: Chapter) -> dict[str, Any]:
    """The five steps of the experiment, as far as the chapter's runs answer them."""
    steps = protocol(chapter.spread)
    return {
        "title": chapter.title,
        "steps": steps,
        "n_answered": sum(step.status == Status.ANSWERED for step in steps),
        "answered": str(Status.ANSWERED),
        "grid": GRID,
        "download": table_file(
            f"protocol-{chapter.data}",
            [{name: str(value) for name, value in asdict(step).items()} for step in steps],
        ),
    }


def _picture(chapter: Chapter) -> Shown | None:
    spread = chapter.spread
    if not any(axis.evidence for axis in spread.axes):
        return None
    return figure(
        spread_plots.spread_axis(spread),
        alt=spread_plots.alternative(spread),
        caption=spread_plots.caption(spread),
        data=table_file(f"spread-{chapter.data}", spread_plots.rows(spread)),
    )


def _row(spread: Spread, axis: Axis) -> dict[str, Any]:
    decision = None if axis.name == "seed" else spread.decide(axis.name)
    changed, pixels = axis.distribution("changed"), axis.distribution("ppm")
    return {
        "name": axis.title,
        "n": len(axis.evidence),
        "over": f"{amount(len(axis.evidence), 'pair')}, {amount(axis.n_images, 'image')}",
        "changed": _with_interval(changed, share_text),
        "ppm": _with_interval(pixels, ppm_text),
        "largest": share_text(float(changed.values.max())) if changed.values.size else "–",
        "n_vacuous": axis.n_vacuous,
        "verdict": _verdict(axis, decision),
        "decision": "" if decision is None else decision.sentence,
    }


def _verdict(axis: Axis, decision: Decision | None) -> str:
    if not axis.evidence:
        return str(Verdict.VACUOUS)
    if not axis.differing:
        return str(combine(pair.verdict for pair in axis.evidence))
    within = decision is not None and decision.within
    return str(Verdict.WITHIN_SPREAD if within else Verdict.DIFFERENT)


def _with_interval(found: Distribution, text: Callable[[float], str]) -> tuple[str, str]:
    """The mean, and its interval where there is one."""
    if not found.values.size:
        return "–", ""
    if found.interval is None:
        return text(found.mean), ""
    return text(found.mean), f"{text(found.interval.low)} to {text(found.interval.high)}"
