"""The choice of a checkpoint to go on from: a whole one of the same training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cellrepro.store.checkpoints import (
    CHECKPOINTS,
    PLAIN,
    BrokenCheckpoint,
    Checkpoint,
    Origin,
    folders,
    read_plain,
    refuse_changed,
)
from cellrepro.store.numeric_class import differing_probes
from cellrepro.store.removal import remove_if_possible
from cellrepro.store.stored_run import Repeat
from samebits.errors import BadInput


def nearest(parent: Path, *, step: int | None = None) -> tuple[Checkpoint | None, tuple[str, ...]]:
    """The last whole checkpoint below a folder, or the last at or before a step."""
    problems: list[str] = []
    for folder in reversed(folders(parent)):
        try:
            checkpoint = read_plain(folder)
            if step is not None and checkpoint.step > step:
                problems = []  # what comes after this one is past the step, too
                continue
            refuse_changed(checkpoint)
        except BrokenCheckpoint as error:
            problems.append(error.problem)
            continue
        return checkpoint, tuple(problems)
    return None, tuple(problems)


def keep_last(parent: Path) -> None:
    """Remove all checkpoints below a folder but the last."""
    for old in folders(parent)[:-1]:
        remove_if_possible(old)


def differences(stored: Mapping[str, object], wanted: Mapping[str, object]) -> list[str]:
    """Name the fields in which two trainings differ, with both values."""
    return [
        f"{name} is {stored.get(name)!r} there and {wanted.get(name)!r} here"
        for name in {**stored, **wanted}
        if stored.get(name) != wanted.get(name)
    ]


def refuse_other(checkpoint: Checkpoint, wanted: Origin) -> None:
    """Raise unless a checkpoint belongs to a training of this spec, repeat and numeric class."""
    problems = differences(checkpoint.origin.training(), wanted.training())
    stored_class = checkpoint.origin.numeric_class
    class_here = wanted.numeric_class
    probes = differing_probes(stored_class["probes"], class_here["probes"])
    is_portable = wanted.spec.get("mode") == "portable"  # whose bits no machine changes
    if probes and not is_portable:
        problems.append(
            f"this machine computes different bits (numeric class {class_here['name']}, there "
            f"{stored_class['name']}; {', '.join(probes[:6])})"
        )
    if problems:
        raise BadInput(
            f"the checkpoint {checkpoint.folder} belongs to another training: "
            f"{'; '.join(problems)}; train without --resume to start anew, or ask for what it "
            "belongs to"
        )


def stored_checkpoints(repeat: Repeat) -> list[Checkpoint]:
    """Read the plain parts of the checkpoints that a finished repeat kept, the earliest first."""
    stored = []
    for folder in folders(repeat.folder / CHECKPOINTS):
        repeat.file(f"{CHECKPOINTS}/{folder.name}/{PLAIN}")
        stored.append(read_plain(folder))
    return stored


def last_checkpoint(repeat: Repeat) -> Checkpoint:
    """The checkpoint of a finished training's last epoch, whole."""
    stored = stored_checkpoints(repeat)
    if not stored or stored[-1].epoch != repeat.spec.epochs:
        raise BadInput(
            f"{repeat.name} is no training that kept the checkpoint of its last epoch, from which "
            "it could go on; train with keep_checkpoints 'last', in another store if it is in this"
        )
    refuse_changed(stored[-1])
    return stored[-1]
