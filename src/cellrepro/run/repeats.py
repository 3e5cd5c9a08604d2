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
from typing import Any

from cellrepro.asked.spec import Spec
from cellrepro.determinism.profiles import require_at_startup
from cellrepro.errors import BadInput, whole
from cellrepro.process.calling import in_child
from cellrepro.process.held_repeat import HOLD_VARIABLE, folder_held_for, leave_further_run
from cellrepro.progress import progress
from cellrepro.run import worker
from cellrepro.run.checkpointing import CHECKPOINTS, Keeping, lay_out
from cellrepro.run.outcome import Outcome
from cellrepro.run.plan import Plan
from cellrepro.same.verdicts import judge
from cellrepro.store.checkpoints import differences, folders
from cellrepro.store.store import MANIFEST, Repeat
from cellrepro.words import amount


def carry_out(plan: Plan, *, repeats: int, quiet: bool = False) -> Outcome:
    """Run the repeats of a plan that the store lacks of this machine, and judge all of them."""
    whole("repeats", repeats, least=1)
    if not quiet:
        for notice in plan.notices:
            note(notice)
    if plan.keeping.resume:
        _refuse_nothing_to_resume(plan)
    here = computes_here(plan)  # before anything looks at the machine
    if plan.keeping.continued is not None:
        repeats = _n_with_continuation(plan, plan.keeping.continued.name)
    done = []
    stored_before = []
    for index in range(repeats):
        label = f"{plan.spec.task} repeat {index + 1}/{repeats}"
        repeat = plan.store.repeat(plan.spec.key, plan.machine, index)
        if repeat is not None:
            repeat.refuse_damage()
            stored_before.append(repeat)
        else:
            with _alone(plan, index):
                present = plan.store.repeat(plan.spec.key, plan.machine, index)
                repeat = present or _run(plan, index, label=label, quiet=quiet, here=here)
        done.append(repeat)
    if stored_before and not quiet and plan.spec.task != "wrap":  # `wrap` says more of its own
        note(_of_stored(plan, stored_before, n_asked=repeats))
    judgement = judge([repeat.manifest for repeat in done])
    return Outcome(plan, tuple(done), judgement, stored_before=tuple(stored_before))


def _of_stored(plan: Plan, stored: Sequence[Repeat], *, n_asked: int) -> str:
    """What was not run, as it is stored, and what was asked for beside it and is not there."""
    folder = stored[0].folder.parent
    are = "is" if len(stored) == 1 else "are"
    ran = "nothing was run" if len(stored) == n_asked else "only the others were run"
    text = f"{amount(len(stored), 'repeat')} of this spec {are} stored already ({folder}); {ran}"
    keeping = plan.keeping
    missing = []
    if keeping.keep_checkpoints != "none":
        n_wanted = 1
        if keeping.keep_checkpoints == "all":
            n_wanted = -(-plan.spec.epochs // keeping.checkpoint_every)
        if any(len(folders(one.folder / CHECKPOINTS)) < n_wanted for one in stored):
            missing.append("--keep-checkpoints")
    if keeping.operation_steps is not None:
        missing.append("--operation-steps")
    if missing:
        text += (
            f"; {' and '.join(missing)} changed nothing of what they hold: give another --store, "
            "or remove that folder, and train again"
        )
    return text


def _alone(plan: Plan, index: int) -> AbstractContextManager[None]:
    """Wait while another process makes the same repeat; the grid has waited already."""
    # Further runs of a grid's notebook wait neither: two notebooks could wait for each other's
    # repeats for ever. Of two that make the same repeat at once the first is stored.
    if HOLD_VARIABLE in os.environ:
        return nullcontext()
    told: list[str] = []

    def waits() -> None:
        if not told:
            told.append(f"another process is at repeat {index} of {plan.spec.key}: waiting for it")
            note(told[0])

    return plan.store.alone(plan.spec.key, plan.machine, index, waits)


def _n_with_continuation(plan: Plan, name: str) -> int:
    """How many repeats there are once a continuation, if it is not stored yet, is one of them."""
    run = plan.store.run(plan.spec.key)
    held = run.machines.get(plan.machine, {}) if run else {}
    records = [repeat.manifest.training for repeat in held.values()]
    return len(held) + all(one is None or one.continued_from != name for one in records)


def note(text: str) -> None:
    """Tell the user something on standard error."""
    print(f"note: {text}", file=sys.stderr)


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


def _run(plan: Plan, index: int, *, label: str, quiet: bool, here: bool) -> Repeat:
    """Have a worker make one repeat, and store it; the grid stores the one that it asked for."""
    held = folder_held_for(plan.spec.key, index)
    if held is None:
        with plan.store.staging() as area:
            folder = area / "repeat"
            folder.mkdir()
            carried_out = _make(plan, index, folder, label=label, quiet=quiet, here=False)
            repeat = plan.store.commit(folder, carried_out)
        leave_further_run(repeat.name)
        return repeat
    if (held / MANIFEST).exists():  # the notebook asks for it again
        return Repeat(held)
    shutil.rmtree(held, ignore_errors=True)  # of an attempt that failed in this notebook
    held.mkdir()
    _make(plan, index, held, label=label, quiet=quiet, here=here)
    return Repeat(held)


def _make(plan: Plan, index: int, folder: Path, *, label: str, quiet: bool, here: bool) -> Spec:
    """Have a worker leave one repeat in a folder; what was carried out, its epochs counted."""
    with (
        _unfinished(plan, index, quiet=quiet) as keeping,
        progress(plan.spec.epochs + plan.n_images, label, quiet=quiet) as bar,
    ):
        show: dict[str, Any] = {"phase": bar.note, "done": bar.advance, "note": bar.say}
        carried_out = in_child(
            partial(
                worker.carry_out,
                request=plan.request,
                repeat=index,
                staged=folder,
                keeping=keeping,
            ),
            plan.request.setup,
            label=label,
            on_event=lambda event: show[event.kind](event.text),
            here=here,
        )
    return carried_out


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
        for last in folders(folder)[-1:] if not quiet else ():
            how = "goes on" if keeping.resume else "starts anew (--resume would have gone on)"
            ended = "killed" if keeping.continued is None else "ended"
            note(f"this training was {ended} after {last.name} of {plan.spec.epochs}; it {how}")
        yield replace(keeping, unfinished=folder.resolve())


def _refuse_nothing_to_resume(plan: Plan) -> None:
    """Refuse to resume where only trainings of other specs or machines are unfinished."""
    here, unfinished = f"{plan.spec.key}/{plan.machine}", plan.store.unfinished_specs()
    begun = any(name.startswith(f"{here}/") for name in unfinished)
    if not unfinished or begun or (plan.store.root / "runs" / here).exists():
        return
    asked = plan.spec.model_dump(mode="json")
    differing = {name: differences(held, asked) for name, held in unfinished.items()}
    nearest = min(differing, key=lambda name: len(differing[name]))
    raise BadInput(
        f"nothing of {here} is there to be resumed, only {nearest}: "
        f"{'; '.join(differing[nearest]) or 'of another machine'}; train without --resume"
    )
