"""A finished training continued from its last checkpoint, with more epochs."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from cellrepro.images.image_axes import FLAT
from cellrepro.model.epoch_schedule import learning_rates
from cellrepro.model.weight_sources import started_from
from cellrepro.profiles.profiles import Profile
from cellrepro.run.options import TrainingOptions
from cellrepro.run.plan import Plan, Request
from cellrepro.run.plan_sources import FolderSummary, PlanInputs
from cellrepro.run.training_recorder import growing_ledgers, with_spec
from cellrepro.spec.new_spec import make_spec
from cellrepro.spec.spec import Spec
from cellrepro.store import checkpoints
from cellrepro.store.checkpoint_choice import differences, last_checkpoint
from cellrepro.store.ledger import LEDGER
from cellrepro.store.row_tables import read_rows
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from samebits.errors import BadInput
from samebits.words import amount


def plan_continuation(options: TrainingOptions, reference: str, inputs: PlanInputs) -> Plan:
    """Plan the continuation of a finished training."""
    store = Store(options.store)
    finished = store.find(reference)
    n_done = last_checkpoint(finished).epoch
    folder = inputs.folder(options.data, to_train=True, axes=FLAT)
    _refuse_other_options(options, finished, folder, n_done)
    spec = finished.spec.model_copy(update={"epochs": options.epochs})
    notices = folder.warnings
    other_rates = _epochs_with_other_rates(finished, n_done, options.epochs)
    if other_rates:
        spec = spec.model_copy(update={"continued_from": finished.name})
        notices += (
            f"{amount(len(other_rates), 'epoch')} of {finished.name} ({other_rates[0]} to "
            f"{other_rates[-1]}) had a different learning rate than in one training of "
            f"{options.epochs} epochs, so this is not its result; it goes on with the rates "
            f"of epochs {n_done + 1} to {options.epochs}, and is stored under a key of its own, "
            "with continued_from",
        )
    request = Request(
        spec=spec,
        data=Path(options.data).resolve(),
        model=started_from(finished, store),
        device=Profile(**spec.profile_settings).device,
    )
    plan = Plan(
        request=request,
        n_images=folder.n_segmented,
        n_pixels=folder.n_pixels,
        store=store,
        notices=notices,
        continued=finished,
    )
    if plan.machine != finished.machine:
        raise BadInput(
            f"{finished.name} cannot be continued here: this machine, {plan.machine}, is another "
            "one or has different versions, and half a training on each is no training that either "
            "repeats"
        )
    return plan


def _refuse_other_options(
    options: TrainingOptions, finished: Repeat, folder: FolderSummary, n_done: int
) -> None:
    """Refuse to continue with other options or images, or with no more epochs."""
    fields_there = finished.spec.model_dump(mode="json")
    spec_here = make_spec(**{**fields_there, **options.stated_of_spec()})
    fields_here = spec_here.model_dump(mode="json")
    fields_here |= {"data_digest": folder.digest, "epochs": n_done}
    problems = differences(fields_there, fields_here)
    if options.epochs <= n_done:
        problems.append(f"epochs is {n_done} there and {options.epochs} here, expected more")
    if problems:
        raise BadInput(f"{finished.name} cannot be continued so: {'; '.join(problems)}")


def _epochs_with_other_rates(finished: Repeat, n_done: int, n_epochs: int) -> list[int]:
    """The epochs, counted from 1, whose learning rate differs from that of one long training."""
    peak = finished.spec.learning_rate
    rates_had = learning_rates(n_done, peak)
    rates_of_long = learning_rates(n_epochs, peak)
    return [i + 1 for i, rate in enumerate(rates_had) if rate != rates_of_long[i]]


def lay_out(finished: Repeat, spec: Spec, repeat: int, unfinished: Path) -> None:
    """Write the state of a finished training as if a longer one had been killed at that epoch."""
    last = last_checkpoint(finished)
    n_rows: dict[str, int] = {}
    for name, pieces in growing_ledgers(unfinished, spec.ledger).items():
        shutil.rmtree(pieces.folder, ignore_errors=True)
        if last.n_rows.get(name):
            rows = read_rows(finished.file(name), pieces.kind)[: last.n_rows[name]]
            pieces.append(with_spec(rows, spec) if name == LEDGER else rows)
        n_rows[name] = pieces.n_rows
    origin = replace(last.origin, spec=spec.model_dump(mode="json"), repeat=repeat)
    position = {**last.loop, "continued_from": finished.name}
    continued = replace(last, origin=origin, loop=position, n_rows=n_rows)
    checkpoints.save_copy(continued, unfinished)
