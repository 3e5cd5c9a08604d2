"""One point of a grid, carried out where this process runs: repeat after repeat, each stored."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from cellrepro.errors import CellreproError
from cellrepro.lab.grid.file import Grid, Point, Scalar
from cellrepro.lab.process import (
    HOLD_VARIABLE,
    Event,
    ProcessLost,
    call,
    explained,
    how_it_ended,
    machine_here,
    only,
)
from cellrepro.progress import FILE_VARIABLE, LINES_VARIABLE
from cellrepro.store import platform
from cellrepro.store.store import NOTEBOOK, Repeat

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
    estimate: Any = None  # of what is planned, where it is known: `cellrepro.lab.grid.estimate`


@dataclass(frozen=True)
class Job:
    """A point of a grid, and on what it is to be carried out."""

    grid: Grid
    point: Point
    gpu: str | None = None  # the UUID of the one that its processes see; none for the first
    minutes: float | None = None  # that a repeat may take
    place: str = ""  # the machine that must do it, for people; empty for any
    identity: str = ""  # of that machine, as `platform.identity` tells it
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
    """Who hears how a job goes on; this one hears nothing."""

    stopped = False  # all work is to end: a child that was killed is nobody's fault

    def changed(self, **fields: Any) -> None:
        """Fields of its row have changed; see `cellrepro.lab.grid.status.Row`."""

    def say(self, line: str) -> None:
        """One line that stays."""


def run_job(job: Job, listener: Listener) -> GridRun:
    """Make the repeats of a point that the store lacks of this machine; a failure is kept, and
    ends the point."""
    status: Status = "present"
    machine, index, reason, store = "", 0, "", job.grid.store
    listener.changed(status="running", started=time.time())
    try:
        machine = job.machine
        for index in range(job.grid.repeats):
            listener.changed(machine=machine, repeat=index, done=0, total=0, text="", notebook="")
            if f"{machine}/{index}" in job.held:
                continue
            repeat = store.repeat(job.key, machine, index)
            if repeat is None:
                status, started = "done", time.monotonic()
                repeat = _made_by_one(job, machine, index, listener)
                seconds = time.monotonic() - started
                listener.say(f"done     {repeat.name}  {job.label}  {seconds:.0f} s")
            reason = "; ".join(repeat.manifest.vacuous)
            listener.changed(repeat=index + 1)
        run = job.ended(status, machine=machine, reason=reason)
    except CellreproError as error:
        ending: Any = "interrupted" if listener.stopped else how_it_ended(error)
        run = job.ended(ending, machine=machine, reason=str(error))
        if machine and not listener.stopped:
            kept = store.root / "failed" / job.key / machine / str(index)
            run = replace(run, folder=kept)
        listener.say(f"{ending:8} {job.key}/{index}  {job.label}: {run.reason}")
    listener.changed(status=run.status, reason=run.reason, folder=str(run.folder), notebook="")
    return run


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
        n_killed = platform.n_killed_for_memory()
        try:
            return _run_repeat(job, machine, index, listener)
        except ProcessLost as error:
            if platform.n_killed_for_memory() > n_killed:
                why = "not enough memory: the system ended the process"
                raise explained(why, 0, "", f"repeat {index}") from error
            if listener.stopped or not n_left:
                raise
            listener.say(f"again    {job.key}/{index}  {job.label}: {error}")
    raise AssertionError


def _run_repeat(job: Job, machine: str, index: int, listener: Listener) -> Repeat:
    """Execute the notebook for one repeat and store what it made, with the notebook."""
    store, point, notebook = job.grid.store, job.point, job.grid.notebook
    spec = point.plan.spec
    with store.staging() as area:
        held, executed = (area / "repeat").resolve(), (area / NOTEBOOK).resolve()
        listener.changed(notebook=str(executed))

        def heard(event: Event) -> None:
            listener.changed(**json.loads(event["name"]))

        variables = {HOLD_VARIABLE: str(held), LINES_VARIABLE: "lines"}
        variables |= {FILE_VARIABLE: str(held.with_name("progress.json")), **only(job.gpu)}
        try:
            call(
                "cellrepro.lab.notebook_process:execute",
                replace(point.plan.request.setup, cellpose=None),  # which its child will have
                label=f"the notebook {notebook.name}",
                on_event=heard,
                variables=variables,
                minutes=job.minutes,
                notebook=notebook,
                output=executed,
                parameters={**point.parameters, "repeats": index + 1},
            )
            made = Repeat(held).manifest if held.is_dir() else None
            if made is None or (made.key, made.repeat) != (spec.key, index):
                instead = f"made {made.key}/{made.repeat}" if made else "ended without a run"
                raise CellreproError(
                    f"the notebook {instead} instead of {spec.key}/{index}: it must call "
                    "cellrepro.train or .segment with its parameters as they are"
                )
        except CellreproError as error:
            if not listener.stopped:
                store.keep_failure(area, spec, machine=machine, repeat=index, reason=str(error))
            raise
        shutil.move(executed, held / NOTEBOOK)
        repeat = store.commit(held, spec)
    store.forget_failure(spec.key, machine, index)
    return repeat
