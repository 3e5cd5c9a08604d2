"""The repeats of a plan: what is stored is kept, what is missing is made, and all are compared."""

from __future__ import annotations

from collections.abc import Sequence

from cellrepro.comparison.verdicts import judge
from cellrepro.errors import BadInput, whole
from cellrepro.progress import print_note
from cellrepro.run.outcome import Outcome
from cellrepro.run.plan import Plan
from cellrepro.run.repeat_making import RepeatMaking, computes_here
from cellrepro.store.checkpoint_choice import differences
from cellrepro.store.checkpoints import CHECKPOINTS, folders
from cellrepro.store.stored_run import Repeat
from cellrepro.words import amount


def carry_out(plan: Plan, *, repeats: int, quiet: bool = False) -> Outcome:
    """Make the repeats of a plan that the store lacks of this machine, and compare all of them."""
    whole("repeats", repeats, least=1)
    if not quiet:
        for notice in plan.notices:
            print_note(notice)
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
    differing = {name: differences(spec, spec_here) for name, spec in unfinished.items()}
    nearest = min(differing, key=lambda name: len(differing[name]))
    raise BadInput(
        f"nothing of {run_on_machine} is there to be resumed, only {nearest}: "
        f"{'; '.join(differing[nearest]) or 'of a different machine'}; train without resume"
    )


# -- what is said of stored repeats --------------------------------------------------------


def _of_stored(plan: Plan, stored: Sequence[Repeat], *, n_repeats: int) -> str:
    """Say what was not run because it is stored, and which options had no effect on it."""
    folder = stored[0].folder.parent
    are = "is" if len(stored) == 1 else "are"
    ran = "nothing was run" if len(stored) == n_repeats else "only the others were run"
    text = f"{amount(len(stored), 'repeat')} of this spec {are} stored already ({folder}); {ran}"
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
