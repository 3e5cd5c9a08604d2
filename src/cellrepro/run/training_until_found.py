"""A small network trained until it finds the cells of a folder, and stored as one run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cellrepro.comparison.judgement import judge
from cellrepro.progress import print_note
from cellrepro.run.options import TrainingOptions
from cellrepro.run.outcome import Outcome
from cellrepro.run.plan import Plan
from cellrepro.run.planning import plan_training
from cellrepro.run.repeats import carry_out
from cellrepro.run.until_found import DRAWS_PER_EPOCH, FOUND, MOST_EPOCHS, Goal
from cellrepro.spec import defaults
from cellrepro.store.stored_run import Repeat


def train_until_found(
    data: str | Path,
    *,
    model: str = defaults.MODEL,
    store: str | Path = defaults.STORE,
    goal: Goal = FOUND,
    quiet: bool = False,
) -> Outcome:
    """Train a small network until it finds the cells of a folder, and store it as one run.

    The run is that of `train` with as many epochs as it took, to the last bit; what it found
    meanwhile stands in its manifest, under ``training.until``. One that this machine has stored for
    the same goal is not made again; one that was killed goes on where it was.
    """
    options = TrainingOptions(
        data=data,
        model=model,
        store=store,
        epochs=MOST_EPOCHS,
        images_per_epoch=DRAWS_PER_EPOCH,
    )
    plan = plan_training(options, goal=goal)
    repeat = _found_before(plan, goal)
    if repeat is None:
        repeat = carry_out(plan, repeats=1, quiet=quiet).repeats[0]
    elif not quiet:
        print_note(f"this network is stored already: {repeat.name}, {repeat.spec.epochs} epochs")
    as_it_ended = replace(plan, request=replace(plan.request, spec=repeat.spec))
    return Outcome(as_it_ended, (repeat,), judge([repeat.manifest]))


def _found_before(plan: Plan, goal: Goal) -> Repeat | None:
    """Find a stored training of this machine for the same goal."""
    for run in plan.store.readable_runs(data_digest=plan.spec.data_digest):
        as_asked = {"epochs": plan.spec.epochs, "key_from": plan.spec.key_from}
        if run.spec.model_copy(update=as_asked).key != plan.spec.key:
            continue
        repeat = plan.store.repeat(run.spec.key, plan.machine, 0)
        training = None if repeat is None else repeat.manifest.training
        until = None if training is None else training.until
        if until is not None and goal == Goal(until.score, until.seconds):
            return repeat
    return None
