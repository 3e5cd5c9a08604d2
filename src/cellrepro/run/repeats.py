"""The repeats of a plan: what is stored is kept, what is missing is made, and all are compared."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cellrepro.comparison.judgement import judge
from cellrepro.process.calling import in_child, in_this_process
from cellrepro.process.child import Event
from cellrepro.process.grid_handover import (
    HANDOVER_FOLDER_VARIABLE,
    handover_folder_of,
    leave_further_run,
)
from cellrepro.profiles.process_start import require_at_startup
from cellrepro.progress import print_note, progress
from cellrepro.progress_count import Progress
from cellrepro.run import worker
from cellrepro.run.continuation import lay_out
from cellrepro.run.options import RecordingOptions
from cellrepro.run.outcome import Outcome
from cellrepro.run.plan import Plan
from cellrepro.run.planned_child import print_notices
from cellrepro.run.until_found import as_trained
from cellrepro.spec.spec import Spec
from cellrepro.store.checkpoint_choice import differences
from cellrepro.store.checkpoints import CHECKPOINTS, folders
from cellrepro.store.stored_run import MANIFEST, Repeat
from samebits.errors import BadInput, whole
from samebits.words import amount, verb_of


def carry_out(plan: Plan, *, repeats: int, quiet: bool = False) -> Outcome:
    """Make the repeats of a plan that the store lacks of this machine, and compare all of them."""
    whole("repeats", repeats, least=1)
    print_notices(plan, quiet=quiet)
    if plan.recording.resume:
        _refuse_nothing_to_resume(plan)
    here = computes_here(plan)  # before anything looks at the machine
    n_repeats = repeats if plan.continued is None else _n_with_continuation(plan)
    all_repeats = []
    stored_before = []
    for index in range(n_repeats):
        repeat = plan.store.repeat(plan.spec.key, plan.machine, index)
        if repeat is not None:
            repeat.refuse_damage()
            stored_before.append(repeat)
        else:
            label = f"{plan.spec.task} repeat {index + 1}/{n_repeats}"
            repeat = RepeatMaking(plan, index, label=label, quiet=quiet, here=here).made()
        all_repeats.append(repeat)
    if stored_before and not quiet and plan.spec.task != "wrap":  # `wrap` says more of its own
        print_note(_of_stored(plan, stored_before, n_repeats=n_repeats))
    judgement = judge([repeat.manifest for repeat in all_repeats])
    return Outcome(plan, tuple(all_repeats), judgement, stored_before=tuple(stored_before))


def _n_with_continuation(plan: Plan) -> int:
    """Number of repeats with the continuation, which may be stored already."""
    assert plan.continued is not None
    name = plan.continued.name
    run = plan.store.run(plan.spec.key)
    stored = run.machines.get(plan.machine, {}) if run else {}
    trainings = [repeat.manifest.training for repeat in stored.values()]
    is_stored = any(
        training is not None and training.continued_from == name for training in trainings
    )
    return len(stored) if is_stored else len(stored) + 1


def _refuse_nothing_to_resume(plan: Plan) -> None:
    """Refuse to resume if only trainings of other specs or machines are unfinished."""
    run_on_machine = f"{plan.spec.key}/{plan.machine}"
    unfinished = plan.store.unfinished_specs()
    is_begun = any(name.startswith(f"{run_on_machine}/") for name in unfinished)
    is_stored = (plan.store.root / "runs" / run_on_machine).exists()
    if not unfinished or is_begun or is_stored:
        return
    spec_here = plan.spec.model_dump(mode="json")
    differing = {
        name: differences(spec, spec_here) for name, spec in unfinished.items() if spec is not None
    }
    if differing:
        nearest = min(differing, key=lambda name: len(differing[name]))
        why = "; ".join(differing[nearest]) or "of a different machine"
    else:
        nearest = min(unfinished)
        why = "its spec cannot be read"
    raise BadInput(
        f"nothing of {run_on_machine} is there to be resumed, only {nearest}: {why}; "
        "train without resume"
    )


# -- what is said of stored repeats --------------------------------------------------------


def _of_stored(plan: Plan, stored: Sequence[Repeat], *, n_repeats: int) -> str:
    """Say what was not run because it is stored, and which options had no effect on it."""
    folder = stored[0].folder.parent
    if len(stored) == n_repeats:
        all_of = "the one repeat" if n_repeats == 1 else f"all {n_repeats} repeats"
        text = f"{all_of} that you asked for {verb_of(n_repeats, 'is', 'are')} stored already"
        text += f" ({folder}); nothing was run"
    else:
        n = len(stored)
        text = f"{n} of the {n_repeats} repeats that you asked for {verb_of(n, 'is', 'are')} stored"
        text += f" already ({folder}); only the others were run"
    idle = _options_without_effect(plan, stored)
    if idle:
        text += (
            f"; {' and '.join(idle)} changed nothing of what they hold: give another store, "
            "or remove that folder, and train again"
        )
    return text


def _options_without_effect(plan: Plan, stored: Sequence[Repeat]) -> list[str]:
    """The options that ask for files which repeats that were stored before do not have."""
    recording = plan.recording
    idle = []
    if recording.keep_checkpoints != "none":
        n_wanted = 1
        if recording.keep_checkpoints == "all" and recording.checkpoint_every:
            n_wanted = -(-plan.spec.epochs // recording.checkpoint_every)  # rounded up
        if any(len(folders(repeat.folder / CHECKPOINTS)) < n_wanted for repeat in stored):
            idle.append("keep_checkpoints")
    if recording.operation_steps is not None:
        idle.append("operation_steps")
    return idle


# -- one repeat ----------------------------------------------------------------------------


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
        n_epochs = plan.spec.epochs
        n_images = plan.n_images
        of_both = f" ({amount(n_epochs, 'epoch')}, {amount(n_images, 'image')})" if n_epochs else ""
        with (
            self._unfinished(recording) as unfinished,
            progress(n_epochs + n_images, f"{self.label}{of_both}", quiet=self.quiet) as bar,
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
            bar.advance(event.text, event.loss)
        case "found":
            bar.advance_earlier(event.text, event.loss)
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
