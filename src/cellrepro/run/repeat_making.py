"""The making of one repeat: by a worker, alone on this machine, and into the store."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
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
from cellrepro.progress import print_note, progress
from cellrepro.progress_count import Progress
from cellrepro.run import worker
from cellrepro.run.continuation import lay_out
from cellrepro.run.options import RecordingOptions
from cellrepro.run.plan import Plan
from cellrepro.run.until_found import as_trained
from cellrepro.spec.spec import Spec
from cellrepro.store.checkpoints import folders
from cellrepro.store.stored_run import MANIFEST, Repeat


def computes_here(plan: Plan) -> bool:
    """Whether a grid's repeat can be made in this process, which saves loading PyTorch twice.

    It can where the grid started this process with the variables of the plan's profile, and
    neither PyTorch nor Cellpose is imported yet.
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


@dataclass(frozen=True)
class RepeatMaking:
    """One repeat of a plan that the store may lack."""

    plan: Plan
    index: int
    """Number of the repeat, from 0."""
    label: str
    """Name of the work in progress and messages."""
    quiet: bool
    here: bool = False
    """Whether a grid's repeat is made in this process; see `computes_here`."""

    def made(self) -> Repeat:
        """Make the repeat, or wait until another process has made it."""
        plan = self.plan
        with self._alone():
            stored = plan.store.repeat(plan.spec.key, plan.machine, self.index)
            if stored is not None:
                return stored
            # A grid stores the repeat that it asked for.
            grid_folder = handover_folder_of(plan.spec.key, self.index)
            if grid_folder is None:
                return self._made_and_stored()
            return self._left_in(grid_folder)

    def _alone(self) -> AbstractContextManager[None]:
        """Hold the claim on the repeat; a grid's notebook needs none, as the grid holds it."""
        # Further runs of a grid's notebook claim nothing either: two notebooks could deadlock, each
        # waiting for a repeat of the other. Of two that make the same repeat the first is stored.
        if HANDOVER_FOLDER_VARIABLE in os.environ:
            return nullcontext()
        plan = self.plan
        waits = _WaitNotice(f"{self._another_process()}: waiting for it")
        return plan.store.alone(plan.spec.key, plan.machine, self.index, waits.print_once)

    def _another_process(self) -> str:
        return f"another process is at repeat {self.index} of {self.plan.spec.key}"

    def _made_and_stored(self) -> Repeat:
        """Make the repeat in a staging folder, and store that."""
        plan = self.plan
        with plan.store.staging() as area:
            folder = area / "repeat"
            folder.mkdir()
            self._work(folder, here=False)
            repeat = plan.store.commit(folder, _carried_out(plan, folder))
        leave_further_run(repeat.name)
        return repeat

    def _left_in(self, folder: Path) -> Repeat:
        """Make the repeat in the folder that the grid named."""
        if (folder / MANIFEST).exists():  # the notebook asks for it again
            return Repeat(folder)
        shutil.rmtree(folder, ignore_errors=True)  # of an attempt that failed in this notebook
        folder.mkdir()
        self._work(folder, here=self.here)
        return Repeat(folder)

    def _work(self, folder: Path, *, here: bool) -> None:
        """Have a worker make the repeat in a folder."""
        plan = self.plan
        # A grid that is started again goes on where it was.
        resume = plan.recording.resume or HANDOVER_FOLDER_VARIABLE in os.environ
        recording = plan.recording.model_copy(update={"resume": resume})
        n_steps = plan.spec.epochs + plan.n_images
        with (
            self._unfinished(recording) as unfinished,
            progress(n_steps, self.label, quiet=self.quiet) as bar,
        ):
            if unfinished is None and _needs_folder(plan, recording):  # another process has it
                recording = RecordingOptions(operation_steps=recording.operation_steps)
            task = partial(
                worker.make_repeat,
                request=plan.request,
                repeat=self.index,
                staged=folder,
                recording=recording,
                unfinished=unfinished,
                with_images=not plan.store.has_images(plan.spec.images_digest),
            )
            carried_out = in_this_process if here else in_child
            on_event = partial(_show, bar=bar)
            carried_out(task, plan.request.setup, label=self.label, on_event=on_event)

    # -- an unfinished training ------------------------------------------------------------

    @contextmanager
    def _unfinished(self, recording: RecordingOptions) -> Iterator[Path | None]:
        """Lock the folder of a training's checkpoints for one block; None without checkpoints."""
        plan = self.plan
        if not _needs_folder(plan, recording):
            yield None
            return
        with plan.store.unfinished(plan.spec, plan.machine, self.index) as folder:
            if folder is None:
                self._refuse_or_note_without()
                yield None
                return
            if plan.continued is not None and not folders(folder):
                lay_out(plan.continued, plan.spec, self.index, folder)
            checkpoints = folders(folder)
            if checkpoints and not self.quiet:
                print_note(_how_far(plan, recording, checkpoints[-1]))
            yield folder.resolve()

    def _refuse_or_note_without(self) -> None:
        """Note that another process has locked the folder; a continuation cannot do without it."""
        if self.plan.continued is not None:
            raise BadInput(f"another process is at {self.plan.spec.key}; wait until it has ended")
        print_note(f"{self._another_process()}; no checkpoints here")


@dataclass
class _WaitNotice:
    """Prints once that this process waits for another one."""

    sentence: str
    is_printed: bool = False

    def print_once(self) -> None:
        if not self.is_printed:
            print_note(self.sentence)
            self.is_printed = True


def _carried_out(plan: Plan, folder: Path) -> Spec:
    """The spec that a worker carried out: with fewer epochs where a goal ended the training."""
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


def _needs_folder(plan: Plan, recording: RecordingOptions) -> bool:
    """Whether checkpoints are written or resumed from."""
    return plan.spec.task == "train" and (bool(recording.checkpoint_every) or recording.resume)


def _how_far(plan: Plan, recording: RecordingOptions, last: Path) -> str:
    """Say at which epoch an unfinished training was, and whether it goes on."""
    goes_on = "goes on" if recording.resume else "starts anew (with resume it would go on)"
    ended = "was interrupted" if plan.continued is None else "ended"
    return f"this training {ended} after {last.name} of {plan.spec.epochs}; it {goes_on}"
