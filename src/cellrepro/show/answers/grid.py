"""What `grid` answers: how the specs of a grid ended, or what they will take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.progress import minutes
from cellrepro.show.answers.answer import Answer
from cellrepro.words import amount, grouped

if TYPE_CHECKING:
    from cellrepro.grid.grid_runs import Estimate, GridRun


@dataclass(frozen=True)
class GridDocument:
    """What ``cellrepro grid --json`` prints."""

    runs: Sequence[GridRun]
    """In the order of the grid's points."""


def grid_answer(runs: Sequence[GridRun]) -> Answer[GridDocument]:
    """Answer with a line for each spec, and with what those that are planned take in all."""
    lines = [_run_line(run) for run in runs]
    estimates = [run.estimate for run in runs if run.estimate]
    if estimates:
        n_unknown = sum(run.status == "planned" for run in runs) - len(estimates)
        rest = f"; {amount(n_unknown, 'spec')} more, like none in the store" if n_unknown else ""
        lines.append(f"all of it, one after the other: about {_cost(estimates)}{rest}")
    return Answer(GridDocument(tuple(runs)), lines)


def _run_line(run: GridRun) -> str:
    varied = ", ".join(f"{name} {value}" for name, value in run.varied.items())
    machine = f" on {run.machine}" if run.machine else ""
    cost = f"  about {_cost([run.estimate])}" if run.estimate else ""
    reason = f"  ({run.reason})" if run.reason else ""
    return f"{run.status:8} {run.key}{machine}  {varied}{cost}{reason}"


def _cost(estimates: Sequence[Estimate]) -> str:
    seconds = sum(estimate.seconds for estimate in estimates)
    megabytes = sum(estimate.bytes for estimate in estimates) / 1e6
    return f"{minutes(seconds)} and {grouped(megabytes)} MB"
