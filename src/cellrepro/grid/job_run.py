"""The run of a job in this process: repeat after repeat, and how it ended."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

from cellrepro.errors import CellreproError
from cellrepro.grid.grid_runs import BadEnding, GridRun, JobStatus
from cellrepro.grid.job import Job
from cellrepro.grid.repeat_by_notebook import RepeatToMake, make_repeat
from cellrepro.grid.status import JobReporter
from cellrepro.process.process_ends import RunError, as_refusal
from cellrepro.store.stored_run import Repeat


def run_job(job: Job, reporter: JobReporter) -> GridRun:
    """Make the repeats of a point that the store lacks of this machine.

    A failure of any kind, SystemExit too, is kept, and ends this job alone.
    """
    try:
        return _run(job, reporter)
    except BaseException as error:
        run = _ended_by(error, job, reporter)
        with suppress(Exception):  # the board may be what has failed
            name = f"{job.key}/{reporter.progress.repeat}"
            reporter.say(f"{run.status:8} {name}  {job.label}: {run.reason}")
        return run


def _run(job: Job, reporter: JobReporter) -> GridRun:
    """Make the missing repeats of a job."""
    reporter.report(started=time.time())
    machine = job.machine(reporter.children)
    reporter.report(machine=machine)
    status: JobStatus = "present"
    reason = ""
    n_found = 0
    for index in range(job.grid.repeats):
        repeat = RepeatToMake(job, machine, index)
        stored = repeat.stored()
        if stored is None:
            stored = _made(repeat, reporter)
            status = "done"
        else:
            n_found += 1
        reason = "; ".join(stored.manifest.vacuous)
        between = {"done": 0, "total": 0, "text": "", "losses": [], "notebook": ""}
        reporter.report(repeat=index + 1, n_found=n_found, **between)
    return job.grid_run(status, machine=machine, reason=reason)


def _made(repeat: RepeatToMake, reporter: JobReporter) -> Repeat:
    """Make a repeat, and print how long it took."""
    started = time.monotonic()
    made = make_repeat(repeat, reporter)
    seconds = time.monotonic() - started
    reporter.say(f"done     {made.name}  {repeat.job.label}  {seconds:.0f} s")
    return made


def _ended_by(error: BaseException, job: Job, reporter: JobReporter) -> GridRun:
    """Make the record of a job that an error has ended."""
    machine = reporter.progress.machine
    index = reporter.progress.repeat
    refusal = as_refusal(error, f"repeat {index}")
    if reporter.is_stopped:
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
