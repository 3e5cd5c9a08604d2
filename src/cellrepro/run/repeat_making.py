"""One repeat of a plan, made by a worker in a process of its own, and stored."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cellrepro.determinism.process_start import require_at_startup
from cellrepro.errors import BadInput
from cellrepro.process.calling import in_child, in_this_process
from cellrepro.process.child import Event
from cellrepro.process.grid_handover import (
    HANDOVER_FOLDER_VARIABLE,
    handover_folder_of,
    leave_further_run,
)
from cellrepro.progress import Progress, print_note, progress
from cellrepro.run import worker
from cellrepro.run.more_epochs import lay_out
from cellrepro.run.options import RecordingOptions
from cellrepro.run.plan import Plan
from cellrepro.run.until_found import as_trained
from cellrepro.spec.spec import Spec
from cellrepro.store.checkpoints import folders
from cellrepro.store.store import MANIFEST, Repeat


def made_repeat(plan: Plan, index: int, *, label: str, quiet: bool, here: bool = False) -> Repeat:
    """Make one repeat of a plan, or wait until another process has made it.

    The label names the work in messages. What the grid asked for may be made ``here``, in this
    process; see `computes_here`.
    """
    work = partial(_work, plan, index, label=label, quiet=quiet)
    with _alone(plan, index):
        stored = plan.store.repeat(plan.spec.key, plan.machine, index)
        if stored is not None:
            return stored
        # The grid stores the repeat that it asked for by itself.
        grid_folder = handover_folder_of(plan.spec.key, index)
        if grid_folder is not None:
            return _left_in(grid_folder, partial(work, here=here))
        return _made_and_stored(plan, partial(work, here=False))


def _alone(plan: Plan, index: int) -> AbstractContextManager[None]:
    """Wait while another process makes the same repeat; the grid has waited already."""
    # Further runs of a grid's notebook wait neither: two notebooks could wait for each other's
    # repeats for ever. Of two that make the same repeat at once the first is stored.
    if HANDOVER_FOLDER_VARIABLE in os.environ:
        return nullcontext()
    waits = _WaitNotice(f"another process is at repeat {index} of {plan.spec.key}")
    return plan.store.alone(plan.spec.key, plan.machine, index, waits.print_once)


def _made_and_stored(plan: Plan, work: Callable[[Path], None]) -> Repeat:
    """Have a worker make the repeat in a new folder, and store that."""
    with plan.store.staging() as area:
        folder = area / "repeat"
        folder.mkdir()
        work(folder)
        repeat = plan.store.commit(folder, _carried_out(plan, folder))
    leave_further_run(repeat.name)
    return repeat


def _left_in(folder: Path, work: Callable[[Path], None]) -> Repeat:
    """Have the repeat made in the folder that the grid named."""
    if (folder / MANIFEST).exists():  # the notebook asks for it again
        return Repeat(folder)
    shutil.rmtree(folder, ignore_errors=True)  # of an attempt that failed in this notebook
    folder.mkdir()
    work(folder)
    return Repeat(folder)


def _work(plan: Plan, index: int, folder: Path, *, label: str, quiet: bool, here: bool) -> None:
    """Have a worker leave the repeat in a folder."""
    n_steps = plan.spec.epochs + plan.n_images
    # A grid that is started again goes on where it was.
    resume = plan.recording.resume or HANDOVER_FOLDER_VARIABLE in os.environ
    recording = plan.recording.model_copy(update={"resume": resume})
    with (
        _unfinished(plan, index, recording, quiet=quiet) as unfinished,
        progress(n_steps, label, quiet=quiet) as bar,
    ):
        if unfinished is None and _needs_folder(plan, recording):  # another process has it
            recording = RecordingOptions(operation_steps=recording.operation_steps)
        task = partial(
            worker.make_repeat,
            request=plan.request,
            repeat=index,
            staged=folder,
            recording=recording,
            unfinished=unfinished,
            with_images=not plan.store.has_images(plan.spec.images_digest),
        )
        made = in_this_process if here else in_child
        made(task, plan.request.setup, label=label, on_event=partial(_show, bar=bar))


@dataclass
class _WaitNotice:
    """Says once that this process waits for another one."""

    reason: str
    is_printed: bool = False

    def print_once(self) -> None:
        if not self.is_printed:
            print_note(f"{self.reason}: waiting for it")
            self.is_printed = True


def _carried_out(plan: Plan, folder: Path) -> Spec:
    """The spec of what a worker left: the plan's, but where a goal ended a training."""
    if plan.request.goal is None:
        return plan.spec
    return as_trained(plan.spec, Repeat(folder).manifest.training)


def _show(event: Event, *, bar: Progress) -> None:
    """Show an event of a worker."""
    match event.kind:
        case "phase":
            bar.note(event.text)
        case "done":
            bar.advance(event.text)
        case "found":
            bar.advance_earlier(event.text)
        case "note":
            bar.say(event.text)


def computes_here(plan: Plan) -> bool:
    """Whether the repeat that a grid asked for can be made in this process.

    True where the grid started this process for the repeat, with the variables of the plan's
    profile, and nothing was computed in it yet. A worker beside it would then only load PyTorch and
    Cellpose a second time.
    """
    if HANDOVER_FOLDER_VARIABLE not in os.environ or sys.modules.keys() & {"torch", "cellpose"}:
        return False
    if plan.request.setup.cellpose is not None:
        return False
    try:
        require_at_startup(plan.profile.started_with(plan.request.setup.variables()))
    except BadInput:
        return False
    return True


# -- unfinished trainings ------------------------------------------------------------------


def _needs_folder(plan: Plan, recording: RecordingOptions) -> bool:
    """Whether checkpoints are made, or looked for."""
    return plan.spec.task == "train" and (bool(recording.checkpoint_every) or recording.resume)


@contextmanager
def _unfinished(
    plan: Plan, index: int, recording: RecordingOptions, *, quiet: bool
) -> Iterator[Path | None]:
    """The folder of a training that makes checkpoints, for one block; else none."""
    if not _needs_folder(plan, recording):
        yield None
        return
    with plan.store.unfinished(plan.spec, plan.machine, index) as folder:
        if folder is None:
            _tell_or_refuse_without(plan, index)
            yield None
            return
        if plan.continued is not None and not folders(folder):
            lay_out(plan.continued, plan.spec, index, folder)
        checkpoints = folders(folder)
        if checkpoints and not quiet:
            print_note(_how_far(plan, recording, checkpoints[-1]))
        yield folder.resolve()


def _tell_or_refuse_without(plan: Plan, index: int) -> None:
    """Say that another process has the folder of this training; a continuation needs it."""
    if plan.continued is not None:
        raise BadInput(f"another process is at {plan.spec.key}; wait until it has ended")
    print_note(f"another process is at repeat {index} of {plan.spec.key}; no checkpoints here")


def _how_far(plan: Plan, recording: RecordingOptions, last: Path) -> str:
    """How far an unfinished training was, and what becomes of it."""
    goes_on = "goes on" if recording.resume else "starts anew (with resume it would go on)"
    ended = "was interrupted" if plan.continued is None else "ended"
    return f"this training {ended} after {last.name} of {plan.spec.epochs}; it {goes_on}"
