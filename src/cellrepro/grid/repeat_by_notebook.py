"""One repeat of a job: made by its notebook in a kernel of its own, and stored with it.

A repeat whose process was killed is tried once more.
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cellrepro.errors import CellreproError
from cellrepro.grid.job import Job
from cellrepro.grid.notebook_execution import execute
from cellrepro.grid.status import JobReporter
from cellrepro.process.grid_handover import (
    HANDOVER_FOLDER_VARIABLE,
    HANDOVER_REPEAT_VARIABLE,
    further_runs,
)
from cellrepro.process.process_ends import LOST, RunError, as_refusal, reworded
from cellrepro.process.setup import interpreter_for, only_gpu
from cellrepro.progress import LINES_VARIABLE
from cellrepro.progress_log import FILE_VARIABLE, followed
from cellrepro.store.stored_run import MANIFEST, NOTEBOOK, Repeat
from samebits.words import some


@dataclass(frozen=True)
class RepeatToMake:
    """One repeat of a job."""

    job: Job
    machine: str
    """Name of this machine as the job computes on it."""
    index: int
    """Number of the repeat, from 0."""

    @property
    def name(self) -> str:
        """``KEY/INDEX``."""
        return f"{self.job.key}/{self.index}"

    @property
    def label(self) -> str:
        """Name of the repeat in messages."""
        return f"repeat {self.index}"

    def stored(self) -> Repeat | None:
        """The repeat in the store, if it is there."""
        return self.job.grid.store.repeat(self.job.key, self.machine, self.index)


def make_repeat(repeat: RepeatToMake, reporter: JobReporter) -> Repeat:
    """Make a repeat, or wait until another process has made it."""

    def wait_for_another_process() -> None:
        if reporter.is_stopped:
            raise CellreproError("stopped while another process was at the same repeat")
        reporter.report(text="another process is at it")

    job = repeat.job
    with job.grid.store.alone(job.key, repeat.machine, repeat.index, wait_for_another_process):
        stored = repeat.stored()
        if stored is not None:
            return stored
        return _made_with_a_second_try(repeat, reporter)


def _made_with_a_second_try(repeat: RepeatToMake, reporter: JobReporter) -> Repeat:
    """Make a repeat; try once more if its process was killed, but not after an error."""
    try:
        return _try_to_make(repeat, reporter)
    except RunError as error:
        if error.status not in LOST or reporter.is_stopped:
            raise
        reporter.say(f"again    {repeat.name}  {repeat.job.label}: {error}")
    return _try_to_make(repeat, reporter)


def _try_to_make(repeat: RepeatToMake, reporter: JobReporter) -> Repeat:
    """Make a repeat; if its process was killed, find out whether memory was short."""
    n_killed_before = n_killed_for_memory()
    try:
        return _make_and_store(repeat, reporter)
    except RunError as error:
        n_killed = n_killed_for_memory() - n_killed_before
        if error.status not in LOST or n_killed <= 0:
            raise
        sentence = "not enough memory: the system ended the process"
        raise RunError("out-of-memory", sentence, label=repeat.label) from error


def _make_and_store(repeat: RepeatToMake, reporter: JobReporter) -> Repeat:
    """Execute the notebook for one repeat and store what it made, with the notebook."""
    job = repeat.job
    store = job.grid.store
    spec = job.point.plan.spec
    with store.staging() as folder:
        repeat_folder = (folder / "repeat").resolve()
        notebook = (folder / NOTEBOOK).resolve()
        reporter.report(notebook=str(notebook))
        try:
            _execute(repeat, reporter, repeat_folder=repeat_folder, notebook=notebook)
            _check_that_it_was_made(repeat.name, repeat_folder)
        except Exception as error:
            if reporter.is_stopped:
                raise
            refusal = _with_failure_kept(error, repeat, folder)
            if refusal is error:
                raise
            raise refusal from error
        shutil.move(notebook, repeat_folder / NOTEBOOK)
        stored = store.commit(repeat_folder, spec)
    store.forget_failure(spec.key, repeat.machine, repeat.index)
    return stored


_REPORTED = ("done", "total", "text", "losses")


def _execute(
    repeat: RepeatToMake, reporter: JobReporter, *, repeat_folder: Path, notebook: Path
) -> None:
    """Execute the notebook, whose kernel is the process that computes."""
    job = repeat.job
    progress_file = repeat_folder.with_name("progress.json")

    def hear(text: str) -> None:
        # A progress message that cannot be parsed is no reason to lose the repeat.
        with suppress(ValueError, TypeError, LookupError):
            parts = json.loads(text)
            reporter.report(**{name: parts[name] for name in _REPORTED})

    # Another version of Cellpose is for a child of the kernel.
    setup = replace(job.point.plan.request.setup, cellpose=None)
    variables = {
        HANDOVER_FOLDER_VARIABLE: str(repeat_folder),
        HANDOVER_REPEAT_VARIABLE: repeat.name,
        LINES_VARIABLE: "lines",
        FILE_VARIABLE: str(progress_file),
        **only_gpu(job.gpu),
    }
    with followed(progress_file, hear):
        execute(
            job.grid.notebook,
            notebook,
            # A notebook makes repeats 0 to N-1; those that are stored it does not make again.
            {**job.point.parameters, "repeats": repeat.index + 1},
            environment=interpreter_for(setup).environment | variables,
            children=reporter.children,
            minutes=job.minutes,
            handed_over=repeat_folder,
        )


def _check_that_it_was_made(name: str, repeat_folder: Path) -> None:
    """Refuse a notebook that did not make the repeat."""
    if (repeat_folder / MANIFEST).exists():
        return
    further = further_runs(repeat_folder)
    instead = f"made {some(further)}" if further else "ended without a run"
    raise CellreproError(
        f"the notebook {instead} instead of {name}: it must call cellrepro.train or .segment with "
        "its parameters as they are"
    )


def _with_failure_kept(error: Exception, repeat: RepeatToMake, folder: Path) -> CellreproError:
    """Keep the reason and the notebook of a failure; gives the error as one for the user."""
    refusal = as_refusal(error, repeat.label)
    job = repeat.job
    try:
        job.grid.store.keep_failure(
            folder,
            job.point.plan.spec,
            machine=repeat.machine,
            repeat=repeat.index,
            reason=str(refusal),
        )
    except CellreproError as not_kept:  # the disk is full: the first error matters more
        return reworded(refusal, f"{refusal}; its notebook could not be kept: {not_kept}")
    return refusal


def n_killed_for_memory() -> int:
    """Count the processes that the kernel killed for memory; 0 if that is unknown.

    One of a container may be counted twice, so only a growing count means something.
    """
    total = 0
    for path in (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat")):
        if path.is_file():
            counts = re.findall(r"^oom_kill (\d+)$", path.read_text("utf-8"), re.MULTILINE)
            total += sum(int(count) for count in counts)
    return total
