"""One point of a grid, carried out where this process runs: repeat after repeat, each stored."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from cellrepro.errors import CellreproError
from cellrepro.grid import this_host
from cellrepro.grid.file import Grid, Point, Scalar
from cellrepro.grid.notebooks import execute
from cellrepro.process.calling import Children, in_child
from cellrepro.process.child import Event
from cellrepro.process.endings import LOST, RunError, as_refusal, reworded
from cellrepro.process.held_repeat import HELD_REPEAT_VARIABLE, HOLD_VARIABLE, further_runs
from cellrepro.process.machine_here import machine_here
from cellrepro.process.setup import only_gpu
from cellrepro.progress import FILE_VARIABLE, LINES_VARIABLE
from cellrepro.store.store import MANIFEST, NOTEBOOK, Repeat
from cellrepro.words import some

Well = Literal["done", "present", "planned", "not-here"]
Badly = Literal["failed", "out-of-memory", "disk-full", "time-limit", "interrupted"]
Status = Literal["waiting", "running"] | Well | Badly
"""``present``: stored before; ``not-here``: no machine at hand can carry it out."""
BADLY: tuple[str, ...] = get_args(Badly)

_TRIES = 2
"""Of a repeat whose process is killed from outside; an error of the run itself is final."""


@dataclass(frozen=True)
class GridRun:
    """How one spec of a grid ended, on one machine."""

    key: str
    machine: str  # of the repeats; empty where no machine can carry it out
    status: Status
    folder: Path  # in the store: of the run, or of what was kept of the failure
    varied: dict[str, Scalar]
    reason: str = ""  # why it failed, or why it is vacuous
    estimate: Any = None  # of what is planned, where it is known: `cellrepro.grid.estimate`


@dataclass(frozen=True)
class Job:
    """A point of a grid, and on what it is to be carried out."""

    grid: Grid
    point: Point
    gpu: str | None = None  # the UUID of the one that its processes see; none for the first
    minutes: float | None = None  # that a repeat may take
    place: str = ""  # the machine that must do it, for people; empty for any
    identity: str = ""  # of that machine, as `machine.identity` tells it
    held: frozenset[str] = frozenset()  # repeats in the driver's store: ``MACHINE/INDEX``

    @property
    def key(self) -> str:
        """Of its spec."""
        return self.point.plan.spec.key

    @property
    def label(self) -> str:
        """The varied parameters and the place, for people."""
        return f"{self.point.label} on {self.place}" if self.place else self.point.label

    @property
    def machine(self) -> str:
        """The name of this machine as this job computes on it; found out once."""
        plan = self.point.plan
        return machine_here(plan.profile, self.gpu, plan.request.setup.cellpose).name

    def ended(self, status: Status, *, machine: str = "", reason: str = "") -> GridRun:
        """What is said of it at its end."""
        folder = self.grid.store.root / "runs" / self.key
        return GridRun(self.key, machine, status, folder, self.point.varied, reason)


class Listener:
    """Who hears how a job goes on, and can end it; this one hears nothing."""

    stopped = False  # all work is to end: a child that was killed is nobody's fault

    def __init__(self) -> None:
        self.children = Children()  # the processes of the job, and of others of its grid

    def changed(self, **fields: Any) -> None:
        """Fields of its row have changed; see `cellrepro.grid.status.Row`."""

    def say(self, line: str) -> None:
        """One line that stays."""


def run_job(job: Job, listener: Listener) -> GridRun:
    """Make the repeats of a point that the store lacks of this machine; a failure, of whatever
    kind, is kept, and ends the point and no other."""
    progress = _Progress()
    try:
        run = _repeats_made(job, listener, progress)
        listener.changed(**_shown(run))
    except Exception as error:
        run = _ended_by(error, job, listener, progress)
        with suppress(Exception):  # who listens may be what has failed
            line = f"{run.status:8} {job.key}/{progress.index}  {job.label}: {run.reason}"
            listener.say(line)
            listener.changed(**_shown(run))
    return run


@dataclass
class _Progress:
    """How far a job has come."""

    machine: str = ""  # as soon as it is known
    index: int = 0  # of the repeat


def _shown(run: GridRun) -> dict[str, str]:
    """What a job's row says of its end."""
    return {
        "status": run.status,
        "reason": run.reason,
        "folder": str(run.folder),
        "notebook": "",
    }


def _repeats_made(job: Job, listener: Listener, progress: _Progress) -> GridRun:
    """Make what is missing of a job, repeat after repeat."""
    status: Status = "present"
    reason = ""
    store = job.grid.store
    listener.changed(status="running", started=time.time())
    machine = progress.machine = job.machine
    for index in range(job.grid.repeats):
        progress.index = index
        listener.changed(machine=machine, repeat=index, done=0, total=0, text="", notebook="")
        if f"{machine}/{index}" in job.held:
            continue
        repeat = store.repeat(job.key, machine, index)
        if repeat is None:
            status = "done"
            started = time.monotonic()
            repeat = _made_by_one(job, machine, index, listener)
            seconds = time.monotonic() - started
            listener.say(f"done     {repeat.name}  {job.label}  {seconds:.0f} s")
        reason = "; ".join(repeat.manifest.vacuous)
        listener.changed(repeat=index + 1)
    return job.ended(status, machine=machine, reason=reason)


def _ended_by(error: Exception, job: Job, listener: Listener, progress: _Progress) -> GridRun:
    """How a job has ended that an error has ended, its own or one that nobody foresaw."""
    error = as_refusal(error, f"repeat {progress.index}")
    if listener.stopped:
        return job.ended("interrupted", machine=progress.machine, reason=str(error))
    run = job.ended(how_it_ended(error), machine=progress.machine, reason=str(error))
    if not progress.machine:
        return run
    failed = job.grid.store.root / "failed"
    return replace(run, folder=failed / job.key / progress.machine / str(progress.index))


def how_it_ended(error: CellreproError) -> Badly:
    """What the row of a point says of the error that has ended it."""
    if isinstance(error, RunError):
        match error.status:
            case "out-of-memory" | "disk-full" | "time-limit":
                return error.status
    return "failed"


def _made_by_one(job: Job, machine: str, index: int, listener: Listener) -> Repeat:
    """Make a repeat, or wait until another process has made it."""

    def waits() -> None:
        if listener.stopped:
            raise CellreproError("stopped while another process was at the same repeat")
        listener.changed(text="another process is at it")

    store = job.grid.store
    with store.alone(job.key, machine, index, waits):
        found = store.repeat(job.key, machine, index)
        return found or _with_tries(job, machine, index, listener)


def _with_tries(job: Job, machine: str, index: int, listener: Listener) -> Repeat:
    """Make a repeat; once more where its process was killed for no fault of its own."""
    for n_left in reversed(range(_TRIES)):
        n_killed = this_host.n_killed_for_memory()
        try:
            return _run_repeat(job, machine, index, listener)
        except RunError as error:
            if error.status not in LOST:
                raise
            if this_host.n_killed_for_memory() > n_killed:
                what = "not enough memory: the system ended the process"
                raise RunError("out-of-memory", what, label=f"repeat {index}") from error
            if listener.stopped or not n_left:
                raise
            listener.say(f"again    {job.key}/{index}  {job.label}: {error}")
    raise AssertionError


def _run_repeat(job: Job, machine: str, index: int, listener: Listener) -> Repeat:
    """Execute the notebook for one repeat and store what it made, with the notebook."""
    store = job.grid.store
    spec = job.point.plan.spec
    with store.staging() as area:
        held = (area / "repeat").resolve()
        executed = (area / NOTEBOOK).resolve()
        listener.changed(notebook=str(executed))
        try:
            _execute(job, index, listener, held=held, executed=executed)
            _check_that_it_was_made(held, f"{spec.key}/{index}")
        except Exception as error:
            if listener.stopped:
                raise
            refusal = as_refusal(error, f"repeat {index}")
            try:
                store.keep_failure(area, spec, machine=machine, repeat=index, reason=str(refusal))
            except CellreproError as also:  # the disk is full: what came first is to be told
                sentence = f"{refusal}; its notebook could not be kept: {also}"
                refusal = reworded(refusal, sentence)
            if refusal is error:
                raise
            raise refusal from error
        shutil.move(executed, held / NOTEBOOK)
        repeat = store.commit(held, spec)
    store.forget_failure(spec.key, machine, index)
    return repeat


def _execute(job: Job, index: int, listener: Listener, *, held: Path, executed: Path) -> None:
    """Have the notebook executed, with its repeat left in ``held``."""
    point = job.point
    notebook = job.grid.notebook

    def heard(event: Event) -> None:
        with suppress(ValueError, TypeError):  # what is shown of its progress is worth no repeat
            listener.changed(**json.loads(event.text))

    variables = {
        HOLD_VARIABLE: str(held),
        HELD_REPEAT_VARIABLE: f"{job.key}/{index}",
        LINES_VARIABLE: "lines",
        FILE_VARIABLE: str(held.with_name("progress.json")),
        **only_gpu(job.gpu),
    }
    task = partial(
        execute,
        notebook=notebook,
        output=executed,
        parameters={**point.parameters, "repeats": index + 1},
    )
    in_child(
        task,
        replace(point.plan.request.setup, cellpose=None),  # which its child will have
        label=f"the notebook {notebook.name}",
        on_event=heard,
        variables=variables,
        minutes=job.minutes,
        children=listener.children,
    )


def _check_that_it_was_made(held: Path, name: str) -> None:
    """Refuse a notebook that made other runs alone, or none."""
    if (held / MANIFEST).exists():
        return
    others = further_runs(held)
    instead = f"made {some(others)}" if others else "ended without a run"
    raise CellreproError(
        f"the notebook {instead} instead of {name}: it must call cellrepro.train or .segment with "
        "its parameters as they are"
    )
