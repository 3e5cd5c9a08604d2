"""The result of a grid: how each point ended, or will be carried out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args, overload

from cellrepro.grid.grid_file import Scalar
from cellrepro.grid.point import varied_in_words
from cellrepro.words import minutes
from samebits.results import Result, Row, table_lines
from samebits.words import amount, grouped

GoodEnding = Literal["done", "present", "planned", "not-here"]
BadEnding = Literal["failed", "out-of-memory", "disk-full", "time-limit", "interrupted"]
JobStatus = Literal["waiting", "running"] | GoodEnding | BadEnding
"""``present``: stored before; ``not-here``: no machine at hand can carry it out."""

BAD_ENDINGS: tuple[str, ...] = get_args(BadEnding)

_IN_WORDS = {"present": "stored before", "not-here": "not possible on this machine"}
"""Words for statuses that do not speak for themselves."""


@dataclass(frozen=True)
class Estimate:
    """The time and disk space that the missing repeats of a point will take."""

    seconds: float
    """Seconds, one repeat after the other."""
    bytes: int
    """Bytes on the disk."""
    from_run: str
    """The stored repeat that the estimate is scaled from."""


@dataclass(frozen=True)
class GridRun:
    """How one point of a grid ended, on one machine."""

    key: str
    """Key of its spec."""
    machine: str
    """Machine of the repeats; empty where no machine can carry it out."""
    status: JobStatus
    """How it ended."""
    folder: Path
    """Folder in the store, of the run or of the failure."""
    varied: dict[str, Scalar]
    """The parameters that vary in the grid, with their values."""
    reason: str = ""
    """Why it failed, or why it is vacuous."""
    estimate: Estimate | None = None
    """What it will take, if it is planned and a similar run is stored."""

    @property
    def has_failed(self) -> bool:
        """Whether one of its repeats could not be made."""
        return self.status in BAD_ENDINGS

    @property
    def label(self) -> str:
        """The varied parameters, for people."""
        return varied_in_words(self.varied)


@dataclass(frozen=True, repr=False)
class GridRuns(Result, Sequence[GridRun]):
    """How all points of a grid ended: a sequence of `GridRun`, in the order of the grid's
    points."""

    runs: tuple[GridRun, ...]
    """One entry for each point and machine, in the order of the grid's points."""

    @overload
    def __getitem__(self, index: int) -> GridRun: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[GridRun, ...]: ...
    def __getitem__(self, index: int | slice) -> GridRun | tuple[GridRun, ...]:
        return self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def failures(self) -> tuple[GridRun, ...]:
        """The points with a repeat that could not be made."""
        return tuple(run for run in self.runs if run.has_failed)

    @property
    def differs(self) -> bool:
        """Whether a repeat could not be made."""
        return bool(self.failures)

    def sentence(self) -> str:
        """Count the points by how they ended, and say why the first of them failed."""
        counts = Counter(run.status for run in self.runs)
        parts = [f"{n} {_IN_WORDS.get(status, status)}" for status, n in counts.items()]
        n_specs = len({run.key for run in self.runs})
        sentence = f"{amount(n_specs, 'spec')}: {', '.join(parts)}"
        if not self.failures:
            return sentence
        first = self.failures[0]
        return f"{sentence}; of {first.label}: {first.reason}"

    def rows(self) -> Sequence[Row]:
        """One row for each point on each machine."""
        return [
            {
                "spec": run.label,
                "status": run.status,
                "run": run.key,
                "machine": run.machine,
                "takes about": _cost([run.estimate]) if run.estimate else "",
                "note": run.reason,
            }
            for run in self.runs
        ]

    def lines(self) -> list[str]:
        """Give the sentence over a line for each point, and what those planned take in all."""
        lines = [self.sentence(), *table_lines(self.rows(), most=len(self))]
        estimates = [run.estimate for run in self.runs if run.estimate]
        if estimates:
            n_unknown = sum(run.status == "planned" for run in self.runs) - len(estimates)
            rest = f"; {amount(n_unknown, 'spec')} more, like none in the store"
            cost = f"all of it, one after the other: about {_cost(estimates)}"
            lines.append(f"{cost}{rest if n_unknown else ''}")
        return lines


def _cost(estimates: Sequence[Estimate]) -> str:
    seconds = sum(estimate.seconds for estimate in estimates)
    megabytes = sum(estimate.bytes for estimate in estimates) / 1e6
    return f"{minutes(seconds)} and {grouped(megabytes)} MB"
