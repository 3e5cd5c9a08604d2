"""One repeat of a job: made by its notebook, once more if its process was killed, and stored."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from cellrepro.errors import CellreproError
from cellrepro.grid import this_host
from cellrepro.grid.job import Job
from cellrepro.grid.listener import ProgressReporter
from cellrepro.grid.notebook_execution import execute
from cellrepro.process.calling import in_child
from cellrepro.process.child import Event
from cellrepro.process.grid_handover import (
    HANDOVER_FOLDER_VARIABLE,
    HANDOVER_REPEAT_VARIABLE,
    further_runs,
)
from cellrepro.process.process_ends import LOST, RunError, as_refusal, reworded
from cellrepro.process.setup import only_gpu
from cellrepro.progress import FILE_VARIABLE, LINES_VARIABLE
from cellrepro.store.store import MANIFEST, NOTEBOOK, Repeat
from cellrepro.words import some


@dataclass(frozen=True)
class RepeatToMake:
    """Which repeat of a job."""

    job: Job
    machine: str
    """The name of this machine as the job computes on it."""
    index: int
    """From 0."""

    @property
    def name(self) -> str:
        """``KEY/INDEX``."""
        return f"{self.job.key}/{self.index}"

    @property
    def label(self) -> str:
        """For messages."""
        return f"repeat {self.index}"

    def stored(self) -> Repeat | None:
        """The repeat in the store; none if it is not there."""
        return self.job.grid.store.repeat(self.job.key, self.machine, self.index)


def make_repeat(repeat: RepeatToMake, reporter: ProgressReporter) -> Repeat:
    """Make a repeat, or wait until another process has made it."""

    def wait_for_another_process() -> None:
        if reporter.listener.stopped:
            raise CellreproError("stopped while another process was at the same repeat")
        reporter.report(replace(reporter.progress, text="another process is at it"))

    job = repeat.job
    with job.grid.store.alone(job.key, repeat.machine, repeat.index, wait_for_another_process):
        stored = repeat.stored()
        if stored is not None:
            return stored
        return _made_with_a_second_try(repeat, reporter)


def _made_with_a_second_try(repeat: RepeatToMake, reporter: ProgressReporter) -> Repeat:
    """Make a repeat; once more where its process was ended from outside.

    An error of the run itself is final.
    """
    try:
        return _try_to_make(repeat, reporter)
    except RunError as error:
        if error.status not in LOST or reporter.listener.stopped:
            raise
        reporter.listener.say(f"again    {repeat.name}  {repeat.job.label}: {error}")
    return _try_to_make(repeat, reporter)


def _try_to_make(repeat: RepeatToMake, reporter: ProgressReporter) -> Repeat:
    """Make a repeat; say of a process that was killed whether memory was short."""
    n_killed_before = this_host.n_killed_for_memory()
    try:
        return _make_and_store(repeat, reporter)
    except RunError as error:
        n_killed = this_host.n_killed_for_memory() - n_killed_before
        if error.status not in LOST or n_killed <= 0:
            raise
        sentence = "not enough memory: the system ended the process"
        raise RunError("out-of-memory", sentence, label=repeat.label) from error


def _make_and_store(repeat: RepeatToMake, reporter: ProgressReporter) -> Repeat:
    """Execute the notebook for one repeat and store what it made, with the notebook."""
    job = repeat.job
    store = job.grid.store
    spec = job.point.plan.spec
    with store.staging() as folder:
        repeat_folder = (folder / "repeat").resolve()
        notebook = (folder / NOTEBOOK).resolve()
        reporter.report(replace(reporter.progress, notebook=str(notebook)))
        try:
            _execute(repeat, reporter, repeat_folder=repeat_folder, notebook=notebook)
            _check_that_it_was_made(repeat.name, repeat_folder)
        except Exception as error:
            if reporter.listener.stopped:
                raise
            refusal = _with_failure_kept(error, repeat, folder)
            if refusal is error:
                raise
            raise refusal from error
        shutil.move(notebook, repeat_folder / NOTEBOOK)
        stored = store.commit(repeat_folder, spec)
    store.forget_failure(spec.key, repeat.machine, repeat.index)
    return stored


def _execute(
    repeat: RepeatToMake, reporter: ProgressReporter, *, repeat_folder: Path, notebook: Path
) -> None:
    """Have the notebook executed in a process of its own."""
    job = repeat.job
    source = job.grid.notebook

    def hear(event: Event) -> None:
        # What is shown of its progress is worth no repeat.
        with suppress(ValueError, TypeError, LookupError):
            parts = json.loads(event.text)
            reporter.report(
                replace(
                    reporter.progress,
                    done=parts["done"],
                    total=parts["total"],
                    text=parts["text"],
                )
            )

    variables = {
        HANDOVER_FOLDER_VARIABLE: str(repeat_folder),
        HANDOVER_REPEAT_VARIABLE: repeat.name,
        LINES_VARIABLE: "lines",
        FILE_VARIABLE: str(repeat_folder.with_name("progress.json")),
        **only_gpu(job.gpu),
    }
    # The notebook counts its repeats from the first; those that are stored it does not make again.
    parameters = {**job.point.parameters, "repeats": repeat.index + 1}
    in_child(
        partial(execute, notebook=source, output=notebook, parameters=parameters),
        # A different version of Cellpose is for the notebook's own child.
        replace(job.point.plan.request.setup, cellpose=None),
        label=f"the notebook {source.name}",
        on_event=hear,
        variables=variables,
        minutes=job.minutes,
        children=reporter.listener.children,
    )


def _check_that_it_was_made(name: str, repeat_folder: Path) -> None:
    """Refuse a notebook that made other runs alone, or none."""
    if (repeat_folder / MANIFEST).exists():
        return
    further = further_runs(repeat_folder)
    instead = f"made {some(further)}" if further else "ended without a run"
    raise CellreproError(
        f"the notebook {instead} instead of {name}: it must call cellrepro.train or .segment with "
        "its parameters as they are"
    )


def _with_failure_kept(error: Exception, repeat: RepeatToMake, folder: Path) -> CellreproError:
    """Keep what a notebook left that failed; returns the error as one for the user."""
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
    except CellreproError as not_kept:  # the disk is full: what came first is to be told
        return reworded(refusal, f"{refusal}; its notebook could not be kept: {not_kept}")
    return refusal
