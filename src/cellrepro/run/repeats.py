"""The repeats of a plan: those that are stored stay, the others are made, and all are judged."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from cellrepro.asked.spec import Spec
from cellrepro.determinism.profiles import require_at_startup
from cellrepro.errors import BadInput, whole
from cellrepro.process.calling import in_child
from cellrepro.process.child import Event
from cellrepro.process.held_repeat import HOLD_VARIABLE, folder_held_for, leave_further_run
from cellrepro.progress import Progress, progress
from cellrepro.run import worker
from cellrepro.run.checkpointing import CHECKPOINTS, Keeping
from cellrepro.run.more_epochs import lay_out
from cellrepro.run.outcome import Outcome
from cellrepro.run.plan import Plan
from cellrepro.run.until_found import as_trained
from cellrepro.same.verdicts import judge
from cellrepro.store.checkpoints import differences, folders
from cellrepro.store.store import MANIFEST, Repeat
from cellrepro.words import amount


def carry_out(plan: Plan, *, repeats: int, quiet: bool = False) -> Outcome:
    """Make the repeats of a plan that the store lacks of this machine, and judge all of them.

    Parameters
    ----------
    plan : Plan
    repeats : int
        How many there are in the end; a continuation adds one to those that there are.
    quiet : bool
        Show neither progress nor notices.
    """
    whole("repeats", repeats, least=1)
    if not quiet:
        for notice in plan.notices:
            note(notice)
    if plan.keeping.resume:
        _refuse_nothing_to_resume(plan)
    here = computes_here(plan)  # before anything looks at the machine
    if plan.keeping.continued is not None:
        repeats = _n_with_continuation(plan, plan.keeping.continued.name)
    all_repeats = []
    stored_before = []
    for index in range(repeats):
        repeat = plan.store.repeat(plan.spec.key, plan.machine, index)
        if repeat is not None:
            repeat.refuse_damage()
            stored_before.append(repeat)
        else:
            label = f"{plan.spec.task} repeat {index + 1}/{repeats}"
            repeat = _made_by_one(plan, index, label=label, quiet=quiet, here=here)
        all_repeats.append(repeat)
    if stored_before and not quiet and plan.spec.task != "wrap":  # `wrap` says more of its own
        note(_of_stored(plan, stored_before, n_asked=repeats))
    judgement = judge([repeat.manifest for repeat in all_repeats])
    return Outcome(plan, tuple(all_repeats), judgement, stored_before=tuple(stored_before))


def note(sentence: str) -> None:
    """Tell the user something on standard error."""
    print(f"note: {sentence}", file=sys.stderr)


# -- what is stored already ----------------------------------------------------------------


def _of_stored(plan: Plan, stored: Sequence[Repeat], *, n_asked: int) -> str:
    """What was not run, as it is stored, and what was asked for beside it and is not there."""
    folder = stored[0].folder.parent
    are = "is" if len(stored) == 1 else "are"
    ran = "nothing was run" if len(stored) == n_asked else "only the others were run"
    text = f"{amount(len(stored), 'repeat')} of this spec {are} stored already ({folder}); {ran}"
    missing = _options_without_effect(plan, stored)
    if missing:
        text += (
            f"; {' and '.join(missing)} changed nothing of what they hold: give another store, "
            "or remove that folder, and train again"
        )
    return text


def _options_without_effect(plan: Plan, stored: Sequence[Repeat]) -> list[str]:
    """What was asked to be kept and is not there in repeats that were stored before."""
    keeping = plan.keeping
    missing = []
    if keeping.keep_checkpoints != "none":
        n_wanted = 1
        if keeping.keep_checkpoints == "all":
            n_wanted = -(-plan.spec.epochs // keeping.checkpoint_every)
        if any(len(folders(repeat.folder / CHECKPOINTS)) < n_wanted for repeat in stored):
            missing.append("keep_checkpoints")
    if keeping.operation_steps is not None:
        missing.append("operation_steps")
    return missing


def _n_with_continuation(plan: Plan, name: str) -> int:
    """How many repeats there are once a continuation, if it is not stored yet, is one of them."""
    run = plan.store.run(plan.spec.key)
    stored = run.machines.get(plan.machine, {}) if run else {}
    trainings = [repeat.manifest.training for repeat in stored.values()]
    is_stored = any(
        training is not None and training.continued_from == name for training in trainings
    )
    return len(stored) if is_stored else len(stored) + 1


# -- one repeat, made ----------------------------------------------------------------------


def _made_by_one(plan: Plan, index: int, *, label: str, quiet: bool, here: bool) -> Repeat:
    """Make a repeat, or wait until another process has made it."""
    with _alone(plan, index):
        repeat = plan.store.repeat(plan.spec.key, plan.machine, index)
        return repeat or _made(plan, index, label=label, quiet=quiet, here=here)


def _alone(plan: Plan, index: int) -> AbstractContextManager[None]:
    """Wait while another process makes the same repeat; the grid has waited already."""
    # Further runs of a grid's notebook wait neither: two notebooks could wait for each other's
    # repeats for ever. Of two that make the same repeat at once the first is stored.
    if HOLD_VARIABLE in os.environ:
        return nullcontext()
    notes: list[str] = []

    def waits() -> None:
        if not notes:
            notes.append(f"another process is at repeat {index} of {plan.spec.key}: waiting for it")
            note(notes[0])

    return plan.store.alone(plan.spec.key, plan.machine, index, waits)


def computes_here(plan: Plan) -> bool:
    """Whether the grid started this process for one repeat, and nothing was computed in it yet."""
    # Then a worker beside it would only load PyTorch and Cellpose a second time.
    if HOLD_VARIABLE not in os.environ or sys.modules.keys() & {"torch", "cellpose"}:
        return False
    if plan.request.setup.cellpose is not None:
        return False
    try:
        require_at_startup(plan.profile.started_with(plan.request.setup.variables()))
    except BadInput:
        return False
    return True


def _made(plan: Plan, index: int, *, label: str, quiet: bool, here: bool) -> Repeat:
    """Have a worker make one repeat, and store it; the grid stores the one that it asked for."""
    held_folder = folder_held_for(plan.spec.key, index)
    if held_folder is None:
        with plan.store.staging() as area:
            folder = area / "repeat"
            folder.mkdir()
            _work(plan, index, folder, label=label, quiet=quiet, here=False)
            repeat = plan.store.commit(folder, _carried_out(plan, folder))
        leave_further_run(repeat.name)
        return repeat
    if (held_folder / MANIFEST).exists():  # the notebook asks for it again
        return Repeat(held_folder)
    shutil.rmtree(held_folder, ignore_errors=True)  # of an attempt that failed in this notebook
    held_folder.mkdir()
    _work(plan, index, held_folder, label=label, quiet=quiet, here=here)
    return Repeat(held_folder)


def _carried_out(plan: Plan, folder: Path) -> Spec:
    """The spec of what a worker left: the plan's, but where a goal ended a training."""
    if plan.request.goal is None:
        return plan.spec
    return as_trained(plan.spec, Repeat(folder).manifest.training)


def _work(plan: Plan, index: int, folder: Path, *, label: str, quiet: bool, here: bool) -> None:
    """Have a worker leave one repeat in a folder."""
    n_steps = plan.spec.epochs + plan.n_images
    with (
        _unfinished(plan, index, quiet=quiet) as keeping,
        progress(n_steps, label, quiet=quiet) as bar,
    ):
        task = partial(
            worker.make_repeat,
            request=plan.request,
            repeat=index,
            staged=folder,
            keeping=keeping,
        )
        in_child(
            task,
            plan.request.setup,
            label=label,
            on_event=lambda event: _show(event, bar),
            here=here,
        )


def _show(event: Event, bar: Progress) -> None:
    """Show what a worker says."""
    match event.kind:
        case "phase":
            bar.note(event.text)
        case "done":
            bar.advance(event.text)
        case "note":
            bar.say(event.text)


# -- unfinished trainings ------------------------------------------------------------------


@contextmanager
def _unfinished(plan: Plan, index: int, *, quiet: bool) -> Iterator[Keeping]:
    """What to keep of this repeat, and where it leaves its checkpoints, if it makes any."""
    # A grid that is started again goes on where it was.
    keeping = replace(plan.keeping, resume=plan.keeping.resume or HOLD_VARIABLE in os.environ)
    if plan.spec.task != "train" or not (keeping.checkpoint_every or keeping.resume):
        yield keeping
        return
    with plan.store.unfinished(plan.spec, plan.machine, index) as folder:
        if folder is None:
            if keeping.continued is not None:
                raise BadInput(f"another process is at {plan.spec.key}; wait until it has ended")
            note(f"another process is at repeat {index} of {plan.spec.key}; no checkpoints here")
            yield Keeping(operation_steps=keeping.operation_steps)
            return
        if keeping.continued is not None and not folders(folder):
            lay_out(keeping.continued, plan.spec, index, folder)
        checkpoints = folders(folder)
        if checkpoints and not quiet:
            note(_of_unfinished(plan, keeping, checkpoints[-1]))
        yield replace(keeping, unfinished=folder.resolve())


def _of_unfinished(plan: Plan, keeping: Keeping, last: Path) -> str:
    """How far an unfinished training was, and what becomes of it."""
    goes_on = "goes on" if keeping.resume else "starts anew (with resume it would go on)"
    ended = "killed" if keeping.continued is None else "ended"
    return f"this training was {ended} after {last.name} of {plan.spec.epochs}; it {goes_on}"


def _refuse_nothing_to_resume(plan: Plan) -> None:
    """Refuse to resume where only trainings of other specs or machines are unfinished."""
    run_on_machine = f"{plan.spec.key}/{plan.machine}"
    unfinished = plan.store.unfinished_specs()
    is_begun = any(name.startswith(f"{run_on_machine}/") for name in unfinished)
    is_stored = (plan.store.root / "runs" / run_on_machine).exists()
    if not unfinished or is_begun or is_stored:
        return
    spec = plan.spec.model_dump(mode="json")
    differing = {name: differences(other, spec) for name, other in unfinished.items()}
    nearest = min(differing, key=lambda name: len(differing[name]))
    raise BadInput(
        f"nothing of {run_on_machine} is there to be resumed, only {nearest}: "
        f"{'; '.join(differing[nearest]) or 'of another machine'}; train without resume"
    )
