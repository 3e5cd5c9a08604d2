"""What `track` answers: the runs of a tracker, and what of them is new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.show.answers.answer import Answer

if TYPE_CHECKING:
    from cellrepro.exchange.tracking import TrackedRun, Tracking


@dataclass(frozen=True)
class TrackingDocument:
    """What ``cellrepro track --json`` prints."""

    run: str
    """The first run by its ID in MLflow."""
    address: str
    """Of the tracker, without name and password."""
    experiment: str
    """In which the runs are."""
    runs: Sequence[TrackedRun]
    """All of them, in order of keys, machines and numbers."""


def tracking_answer(tracking: Tracking) -> Answer[TrackingDocument]:
    """Answer with a line for each run."""
    document = TrackingDocument(
        run=tracking.runs[0].run,
        address=tracking.address,
        experiment=tracking.experiment,
        runs=tracking.runs,
    )
    return Answer(document, [*map(_run_line, tracking.runs), tracking.sentence()])


def _run_line(run: TrackedRun) -> str:
    added = f" ({', '.join(run.added)})" if run.added else ""
    return f"{run.how}{added}: {run.repeat} as {run.url or run.run}"
