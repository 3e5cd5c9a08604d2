"""Waiting for the workers of a cluster, as long as their jobs are queued."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from cellrepro.progress import print_note
from cellrepro.words import minutes
from samebits.errors import NotPossibleHere
from samebits.words import amount

START_SECONDS = 600.0
"""Seconds that workers may take to connect while no job is queued."""
FIRST_REPORT_SECONDS = 10.0
REPORT_SECONDS = 600.0
_LOOK_SECONDS = 0.2
_ASK_SECONDS = 20.0
"""Seconds between two calls of ``squeue``, which serves many users."""


class JobQueue(Protocol):
    """The queue of the jobs that start the workers."""

    @property
    def hours(self) -> float | None:
        """Hours that the jobs may wait; None for as long as it takes."""

    def n_queued(self) -> int | None:
        """Number of jobs that are pending; None if the queue does not answer."""

    def advice(self) -> str:
        """What to do if no job is pending and no worker has connected."""


@dataclass(frozen=True)
class Started:
    """Workers that a user starts, without a queue."""

    address: str
    """Address of the scheduler."""
    hours: float | None = None
    """No limit, as no job is pending."""

    def n_queued(self) -> int | None:
        """No job is pending."""
        return 0

    def advice(self) -> str:
        """How to start a worker."""
        return f"start them: dask worker {self.address} --nthreads 1"


@dataclass(frozen=True)
class SlurmQueue:
    """The jobs that this command has submitted to Slurm."""

    job_ids: Callable[[], Collection[str]]
    """Gives the ids of the jobs, which change when one is submitted again."""
    log_folder: str
    """Folder of their logs."""
    hours: float | None = None
    """Hours that they may wait; by default as long as it takes."""

    def n_queued(self) -> int | None:
        """Number of pending jobs by ``squeue``."""
        command = ["squeue", "--noheader", "--states=PENDING", "--format=%i"]
        command += ["--user", str(os.getuid())]  # in a container it may have no name
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            return None
        pending = set(answer.stdout.split())
        return len(pending & set(self.job_ids()))

    def advice(self) -> str:
        """Where to look for the reason that no worker connected."""
        return (
            "no job of theirs is queued any more: look why they ended, or cannot reach this "
            f"machine, in their logs ({self.log_folder}); `interface` in the Slurm file names the "
            "network between the machines"
        )


def wait_for_workers(n_workers: Callable[[], int], *, n_expected: int, queue: JobQueue) -> None:
    """Wait until enough workers have connected; print now and then what is waited for."""
    began = time.monotonic()
    last_queued = began  # when a job was last pending
    next_question = began
    next_report = began + FIRST_REPORT_SECONDS
    n_queued: int | None = None
    while (n_here := n_workers()) < n_expected:
        now = time.monotonic()
        if now >= next_question:
            n_queued = queue.n_queued()
            next_question = now + _ASK_SECONDS
        if n_queued != 0:
            last_queued = now
        limit = None if queue.hours is None else 3600 * queue.hours
        if limit is not None and now - began > limit:
            raise NotPossibleHere(
                f"{n_here} of {n_expected} workers came within {queue.hours:g} hours, as long as "
                "`wait_hours` in the Slurm file allows; allow more, or leave it out to wait as "
                "long as jobs are queued"
            )
        if now - last_queued > START_SECONDS:
            raise NotPossibleHere(
                f"{n_here} of {n_expected} workers came within {minutes(now - began)}; "
                f"{queue.advice()}"
            )
        if now >= next_report:
            next_report = now + REPORT_SECONDS
            _report(n_here, n_expected, n_queued, now - began)
        time.sleep(_LOOK_SECONDS)


def _report(n_here: int, n_expected: int, n_queued: int | None, seconds: float) -> None:
    """Print what is waited for."""
    waits = "for workers to start"
    if n_queued:
        waits = f"in the queue for machines: {amount(n_queued, 'job')} of this grid not begun yet"
    elif n_queued is None:
        waits = "for machines; the queue does not tell about the jobs now"
    print_note(
        f"waiting {waits}, for {minutes(seconds)} so far; {n_here} of {n_expected} workers "
        "are here (Ctrl-C ends the waiting, and takes jobs out of the queue)"
    )
