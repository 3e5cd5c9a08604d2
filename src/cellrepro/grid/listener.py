"""How a job goes on, told to whoever listens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cellrepro.process.calling import Children


@dataclass(frozen=True)
class JobProgress:
    """How far a job is that runs."""

    machine: str = ""
    """That carries it out; empty until it is found out."""
    repeat: int = 0
    """Repeats that are stored; so the index of the present one."""
    n_found: int = 0
    """How many of these were stored before."""
    started: float = 0.0
    """Seconds, as `time.time` counts them."""
    done: int = 0
    """Parts of the present repeat, epochs and images: finished, and all."""
    total: int = 0
    """Parts of the present repeat, epochs and images: finished, and all."""
    text: str = ""
    """Says something about the last of these: epoch, loss, learning rate."""
    notebook: str = ""
    """That is being executed, as papermill writes it; empty between two repeats."""


class Listener(Protocol):
    """Who hears how a job goes on, and can end it."""

    children: Children
    """The processes of the job, and of others of its grid."""

    @property
    def stopped(self) -> bool:
        """Whether all work is to end: a child that was killed is then nobody's fault."""

    def changed(self, progress: JobProgress) -> None:
        """Hear that the job has come so far."""

    def say(self, line: str) -> None:
        """Print one line that stays."""


class ProgressReporter:
    """Remembers how far a job is, and tells its listener whenever that changes."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.progress = JobProgress()

    def report(self, progress: JobProgress) -> None:
        """Tell how far the job is now."""
        self.progress = progress
        self.listener.changed(progress)
