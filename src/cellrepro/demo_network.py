"""The network that the demo starts from, which has to find cells."""

from __future__ import annotations

import shlex
from pathlib import Path

from cellrepro.grid.packaged_files import packaged_folder
from cellrepro.model.cellpose_generation import generation_of
from cellrepro.model.encoders import SMALL
from cellrepro.process.process_ends import RunError
from cellrepro.progress import print_line
from cellrepro.run.outcome import Outcome
from cellrepro.run.segment import segment
from cellrepro.run.training_until_found import train_until_found
from cellrepro.run.until_found import FOUND, Goal
from cellrepro.spec.lab_command import lab_command
from cellrepro.words import minutes
from samebits.words import amount, grouped, verb_of

LEAST_SCORE = 0.1
"""Mean AP@0.5 below which a network finds too few cells for its masks to be compared."""

LONGER_EPOCHS = 500
"""Epochs that are advised where the first network finds hardly a cell."""

SOON = Goal(seconds=150.0)
"""The goal of the first network where a page is wanted soon; one that finds hardly a cell by then
has more time."""


def network_to_start_from(
    data: str | Path, model: str, store: str | Path, goal: Goal | None
) -> Outcome:
    """Train one of the small networks; see what any other one finds."""
    if model not in SMALL:
        print_line(f"1/4  what the network {model} finds, before anything is trained")
        return segment(data, model=model, repeats=1, store=store, mode="strict")
    print_line("1/4  a network to start from, trained until it finds cells and stored like any run")
    base = train_until_found(data, model=model, store=store, goal=goal or SOON)
    if goal is not None or _finds_enough(base):
        return base
    print_line("     it finds hardly a cell so far: once more, for longer")
    return train_until_found(data, model=model, store=store, goal=FOUND)


def stop_without_cells(base: Outcome, data: str | Path, model: str) -> None:
    """Raise with the ways on if the network finds too little to compare anything."""
    if _finds_enough(base):
        return
    manifest = base.repeats[0].manifest
    score = manifest.ap50
    cells = f"{amount(manifest.n_objects, 'cell')} in {amount(len(manifest.masks), 'image')}"
    if score is not None:
        n_drawn = sum(record.n_true or 0 for record in manifest.masks.values())
        are = verb_of(n_drawn, "is", "are")
        cells += f" where {grouped(n_drawn)} {are} drawn (mean AP@0.5 {score:.2f})"
    ways_on = "\n".join(f"  - {way}" for way in _ways_on(base, data))
    raise RunError(
        "failed",
        f"{model} finds {cells}{_how_long(base)}: masks of its fine-tunings would agree about "
        f"nothing, so the demo ends here, before its grid. Ways on:\n{ways_on}",
    )


def _finds_enough(base: Outcome) -> bool:
    """Whether a network finds so many cells that masks of its fine-tunings can be compared."""
    manifest = base.repeats[0].manifest
    score = manifest.ap50
    return not manifest.vacuous and (score is None or score >= LEAST_SCORE)


def _ways_on(base: Outcome, data: str | Path) -> list[str]:
    """The advice where a network finds too little."""
    name = generation_of().default_network
    ways = [
        f"a network that knows such cells: {_command(base, data, name)}, or a weights file instead "
        "of the name (hours on a processor)"
    ]
    longer_training = _longer_training(base, data)
    if longer_training is not None:
        ways.append(longer_training)
    ways.append("other images: more of them, of separate cells that stand out from the background")
    return ways


def _how_long(base: Outcome) -> str:
    """After what training, where the network was trained here."""
    training = base.repeats[0].manifest.training
    if training is None or training.until is None:
        return ""
    epochs = amount(len(training.train_losses), "epoch")
    return f" after {epochs} in {minutes(training.until.taken)}"


def _command(base: Outcome, data: str | Path, model: str) -> str:
    """The demo from another network: by ``make`` in a clone of the project, which sets up, too."""
    is_clone = Path.cwd() == packaged_folder("grids").parent
    if is_clone and Path("Makefile").is_file():
        folder = shlex.quote(str(data))
        store = shlex.quote(str(base.store.root))
        return f"make demo DATA={folder} STORE={store} MODEL={model}"
    return lab_command("demo", data, "--model", model, store=base.store.root)


def _longer_training(base: Outcome, data: str | Path) -> str | None:
    """A training of several times as many epochs, with the time that it will take.

    None where the network was not trained here.
    """
    training = base.repeats[0].manifest.training
    if training is None or training.until is None:
        return None
    spec = base.repeats[0].spec
    seconds_per_epoch = training.until.taken / spec.epochs
    duration = minutes(seconds_per_epoch * LONGER_EPOCHS)
    options = ["--model", spec.model, "--epochs", LONGER_EPOCHS]
    options += ["--images-per-epoch", spec.images_per_epoch, "--repeats", 1]
    training_again = lab_command("train", data, *options, store=base.store.root)
    return (
        f"more epochs, about {duration} here: {training_again}, which names a KEY; then "
        f"{_command(base, data, 'KEY/0')}"
    )
