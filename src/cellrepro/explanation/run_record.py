"""What a stored run records of how its masks were made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.explanation.cellpose_call import IMAGE
from cellrepro.explanation.commands import Commands, ShellLine
from cellrepro.explanation.condition_commands import LabSetup, commands_for, name_of_repeat
from cellrepro.explanation.conditions import MODEL, PRECISION, VERSION
from cellrepro.explanation.recorded_settings import (
    DEVICE,
    MODEL_PATH,
    RecordedSettings,
    generation_number,
    of_file,
)
from cellrepro.model.weight_sources import ModelSource
from cellrepro.spec.lab_command import lab_command
from cellrepro.store.stored_run import WEIGHTS

if TYPE_CHECKING:
    from cellrepro.store.stored_run import Repeat


def run_record(repeat: Repeat) -> RecordedSettings:
    """Collect the settings, network, precision and versions of a stored repeat."""
    manifest = repeat.manifest
    spec = repeat.spec
    version = manifest.versions.get("cellpose")
    values: dict[str, object] = {
        **spec.settings.by_name(),
        MODEL: spec.model if manifest.weights is None else repeat.name,
        PRECISION: spec.precision,
        "profile": spec.profile,
        "mode": spec.mode,
        "machine": manifest.machine.device,
    }
    if manifest.weights is not None:  # segmenting alone uses none
        values["seed"] = spec.seed
    if manifest.weights is None and manifest.model.path is not None:
        values[MODEL_PATH] = manifest.model.path
    device = spec.profile_settings.get(DEVICE)
    if device is not None:
        values[DEVICE] = device
    if version is not None:
        values[VERSION] = version
    return RecordedSettings(
        of_file(repeat.name, values),
        generation=generation_number(version),
        written_by="cellrepro",
    )


def run_commands(repeat: Repeat, *, image: str | None = None) -> Commands:
    """Write the commands that make the masks of a stored repeat again.

    Those of Cellpose are empty for a network that it does not load, and for a wrapped program.
    """
    folder = repeat.folder.resolve()
    replay = lab_command("verify", name_of_repeat(folder), "--replay", store=folder.parents[3])
    lab = ShellLine(replay)
    spec = repeat.spec
    if spec.task == "wrap":
        return Commands(lab=lab)
    manifest = repeat.manifest
    condition = {
        **spec.settings.not_default(),
        MODEL: spec.model,
        PRECISION: spec.precision,
        VERSION: manifest.versions.get("cellpose"),
    }
    weights = folder / WEIGHTS if manifest.weights is not None else manifest.model.path
    source = ModelSource(
        spec.model, manifest.model.architecture, None if weights is None else Path(weights)
    )
    commands = commands_for(image or IMAGE, condition, {spec.model: source}, LabSetup())
    return replace(commands, lab=lab)
