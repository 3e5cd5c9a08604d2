"""The run of a job in this process: repeat after repeat, and how it ended."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from cellrepro.errors import CellreproError
from cellrepro.grid.grid_runs import BadEnding, GridRun, JobStatus
from cellrepro.grid.job import Job, Listener, ProgressReporter
from cellrepro.grid.repeat_by_notebook import RepeatToMake, make_repeat
from cellrepro.grid.status import JobProgress
from cellrepro.process.process_ends import RunError, as_refusal

Decision = Literal["stored by the driver", "stored", "make"]
"""The ways to deal with one repeat."""


def run_job(job: Job, listener: Listener) -> GridRun:
    """Make the repeats of a point that the store lacks of this machine.

    A failure of any kind is kept, and ends this job alone.
    """
    reporter = ProgressReporter(listener)
    try:
        return _run(job, reporter)
    except Exception as error:
        run = _ended_by(error, job, reporter)
        with suppress(Exception):  # the listener may be what has failed
            name = f"{job.key}/{reporter.progress.repeat}"
            listener.say(f"{run.status:8} {name}  {job.label}: {run.reason}")
        return run


def _run(job: Job, reporter: ProgressReporter) -> GridRun:
    """Make the missing repeats of a job."""
    started = time.time()
    reporter.report(JobProgress(started=started))
    machine = job.machine
    status: JobStatus = "present"
    reason = ""
    n_found = 0
    for index in range(job.grid.repeats):
        progress = JobProgress(started=started, machine=machine, repeat=index, n_found=n_found)
        reporter.report(progress)
        repeat = RepeatToMake(job, machine, index)
        match decide(repeat):
            case "stored by the driver":
                n_found += 1
            case "stored":
                n_found += 1
                reason = _why_vacuous(repeat)
            case "make":
                _make(repeat, reporter)
                status = "done"
                reason = _why_vacuous(repeat)
        reporter.report(
            reporter.progress.model_copy(update={"repeat": index + 1, "n_found": n_found})
        )
    return job.grid_run(status, machine=machine, reason=reason)


def decide(repeat: RepeatToMake) -> Decision:
    """Decide what to do about a repeat."""
    if f"{repeat.machine}/{repeat.index}" in repeat.job.stored_by_driver:
        return "stored by the driver"
    return "make" if repeat.stored() is None else "stored"


def _make(repeat: RepeatToMake, reporter: ProgressReporter) -> None:
    """Make a repeat, and print how long it took."""
    started = time.monotonic()
    made = make_repeat(repeat, reporter)
    seconds = time.monotonic() - started
    reporter.listener.say(f"done     {made.name}  {repeat.job.label}  {seconds:.0f} s")


def _why_vacuous(repeat: RepeatToMake) -> str:
    """Why equality with a stored repeat would prove nothing; empty where it would."""
    stored = repeat.stored()
    return "" if stored is None else "; ".join(stored.manifest.vacuous)


def _ended_by(error: Exception, job: Job, reporter: ProgressReporter) -> GridRun:
    """Make the record of a job that an error has ended."""
    machine = reporter.progress.machine
    index = reporter.progress.repeat
    refusal = as_refusal(error, f"repeat {index}")
    if reporter.listener.stopped:
        return job.grid_run("interrupted", machine=machine, reason=str(refusal))
    run = job.grid_run(how_it_ended(refusal), machine=machine, reason=str(refusal))
    if not machine:
        return run
    failures = job.grid.store.root / "failed"
    return replace(run, folder=failures / job.key / machine / str(index))


def how_it_ended(error: CellreproError) -> BadEnding:
    """Classify an error as the status of its job."""
    if isinstance(error, RunError):
        match error.status:
            case "out-of-memory" | "disk-full" | "time-limit":
                return error.status
    return "failed"
