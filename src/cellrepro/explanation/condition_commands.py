"""The commands that make a result again, for a condition: what is not usual, by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from cellrepro.explanation.cellpose_call import CellposeCall, plain_number
from cellrepro.explanation.commands import Commands, ShellLine
from cellrepro.explanation.conditions import (
    IMAGE_CHANNELS,
    IMAGE_CROP,
    IMAGE_DEPTH,
    MODEL,
    PRECISION,
    VERSION,
)
from cellrepro.explanation.recorded_settings import generation_number
from cellrepro.explanation.setting_meanings import recorded_in_words
from cellrepro.explanation.settings_of_both import value_text
from cellrepro.model import cellpose_generation
from cellrepro.model.encoders import ENCODERS, PRETRAINED
from cellrepro.model.weight_sources import ModelSource
from cellrepro.spec import defaults
from cellrepro.spec.lab_command import lab_command, store_options
from cellrepro.spec.segmentation_settings import CHANNELS, NAMES, Settings
from cellrepro.store.references import n_telling_digits
from cellrepro.store.stored_run import WEIGHTS
from samebits.mode_names import Mode

_LOADED_BY_CELLPOSE = (PRETRAINED, "vit-l")
_HALF = "bfloat16"
_PROFILES = {_HALF: "cpu-bfloat16"}  # by precision, where it is not that of the usual profile
_KEPT_DIGITS = 8
"""Of a key in a command, which stands on pages that are older than later runs of the store."""
_NOT_ON_COMMAND_LINE = (IMAGE_DEPTH, IMAGE_CHANNELS, IMAGE_CROP)
"""How the image was read: a command line takes it as its file has it."""


@dataclass(frozen=True)
class LabSetup:
    """The profile, mode and seed that a user gave."""

    profile: str = defaults.PROFILE
    dtype: str = "float32"
    """The precision of that profile."""
    mode: Mode = defaults.MODE
    seed: int | None = None
    side: str = "masks"
    """Which of two results it is, a or b: its masks go into a folder of that name."""

    def options(self, precision: object) -> list[str]:
        """Words of the command line for all that differs from the defaults."""
        profile = self.profile
        if precision is not None and precision != self.dtype:
            profile = _PROFILES.get(str(precision), defaults.PROFILE)
        words = ["--profile", profile] if profile != defaults.PROFILE else []
        words += ["--mode", self.mode] if self.mode != defaults.MODE else []
        words += ["--seed", str(self.seed)] if self.seed is not None else []
        return words


def commands_for(
    image: str,
    condition: Mapping[str, Any],
    sources: Mapping[str, ModelSource],
    setup: LabSetup,
) -> Commands:
    """Write the commands for a condition; those of Cellpose only for a network that it loads."""
    model = str(condition[MODEL])
    source = sources.get(model) or ModelSource(model, model if model in ENCODERS else PRETRAINED)
    settings = _changed_settings(condition)
    read_otherwise = [
        f"{recorded_in_words(name)}: {value_text(name, condition[name])}"
        for name in _NOT_ON_COMMAND_LINE
        if condition.get(name)
    ]
    of_image: tuple[str, ...] = ()
    if read_otherwise:  # the lines of Python do that by themselves
        of_image = (f"save the image so first, and give that file: {'; '.join(read_otherwise)}",)
    lab = ShellLine(_lab_command(image, condition, settings, source, setup), of_image)
    file = _file_for_cellpose(source)
    if source.architecture not in _LOADED_BY_CELLPOSE or is_of_lab(file):
        return Commands(lab=lab)
    version = condition.get(VERSION) or cellpose_generation.installed_version()
    channels = settings.pop(CHANNELS, None)
    call = CellposeCall(
        generation=generation_number(version) or "4",
        version=version,
        network=file,
        settings=_as_on_command_line(settings, condition, generation_number(version)),
        image=image,
        expression=_image_in_python(condition),
        channels=channels,
        precision=condition[PRECISION],
    )
    export = ""
    if source.path is not None and file != str(source.path):
        export = _export_command(source.path, file)
    shell = ShellLine(call.shell(), (f"with Cellpose {version}", *of_image, *call.remarks()))
    return Commands(export=export, shell=shell, python=call.python(), lab=lab)


def _changed_settings(condition: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a condition that differ from Cellpose's defaults."""
    usual = Settings().by_name()
    return {
        name: value
        for name, value in condition.items()
        if name in (*NAMES, CHANNELS) and value != usual.get(name)
    }


def _as_on_command_line(
    settings: Mapping[str, Any], condition: Mapping[str, Any], generation: str | None
) -> dict[str, Any]:
    """Name the diameter always before Cellpose 4, whose command line else takes 30."""
    if generation == "4" or "diameter" in settings:
        return dict(settings)
    return {"diameter": condition.get("diameter"), **settings}


def _file_for_cellpose(source: ModelSource) -> str:
    """What Cellpose loads: a name, a file, or the file that `cellrepro export` would write."""
    if source.path is None:
        return source.label
    weights = source.path.resolve()
    is_exported = is_of_lab(source.path) and _is_in_store(weights)
    return f"{weights.parents[2].name}.pth" if is_exported else str(source.path)


def is_of_lab(network: str | Path) -> bool:
    """Whether the file of a network is in this lab's format, which Cellpose does not read."""
    return PureWindowsPath(network).suffix == Path(WEIGHTS).suffix


def _export_command(weights: Path, file: str) -> str:
    """The command that makes of a network of the store a file that Cellpose loads."""
    folder = weights.resolve().parent
    return lab_command("export", name_of_repeat(folder), file, store=folder.parents[3])


def _is_in_store(weights: Path) -> bool:
    return weights.name == WEIGHTS and len(weights.parents) > 5


def name_of_repeat(folder: Path) -> str:
    """``KEY/MACHINE/REPEAT`` of a stored repeat."""
    return folder.relative_to(folder.parents[2]).as_posix()


def _lab_command(
    image: str,
    condition: Mapping[str, Any],
    settings: Mapping[str, Any],
    source: ModelSource,
    setup: LabSetup,
) -> str:
    words = ["segment", image, "--model", _reference(source)]
    words += setup.options(condition[PRECISION])
    if condition.get(VERSION) not in (None, cellpose_generation.installed_version()):
        words += ["--cellpose", condition[VERSION]]
    for name, value in settings.items():
        words += ["--set", f"{name}={_in_yaml(value)}"]
    words += ["--repeats", "1", "--masks-into", f"{setup.side}_again"]
    return lab_command(*words, store=None)


def _reference(source: ModelSource) -> str:
    """What ``--model`` takes: ``KEY/REPEAT`` of the store of this folder, else a path or name."""
    if source.path is None:
        return source.label
    folder = source.path.resolve().parent
    if not _is_in_store(folder / source.path.name) or store_options(folder.parents[3]):
        return str(source.path)
    key = folder.parents[1]
    if sum(entry.is_dir() for entry in key.iterdir()) > 1:  # machines
        return str(source.path)
    n_telling = n_telling_digits([run.name for run in key.parent.iterdir()])
    n_digits = max(n_telling, _KEPT_DIGITS)
    return f"{key.name[:n_digits]}/{folder.name}"


def _in_yaml(value: object) -> str:
    """Write a value for ``--set``: YAML 1.1 takes 1e-05 for text, and 1.0e-05 for a number."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_in_yaml, value))}]"
    value = plain_number(value)
    text = json.dumps(value)
    mantissa, e, exponent = text.partition("e")
    if isinstance(value, float) and e and "." not in mantissa:
        return f"{mantissa}.0e{exponent}"
    return text


def _image_in_python(condition: Mapping[str, Any]) -> str:
    """Write `image_readings.as_read` as an expression, for an image that is not constant."""
    expression = "image"
    depth = condition.get(IMAGE_DEPTH)
    if depth == "8 bit":
        expression = '(image >> 8).astype("uint8")'
    elif depth:
        expression = (
            "np.rint((image - float(image.min())) * (255 / np.ptp(image.astype(float))))"
            '.astype("uint8")'
        )
    channels = condition.get(IMAGE_CHANNELS)
    if channels == "reversed":
        expression += "[..., ::-1]"
    elif channels == "mean":
        expression += f".mean(axis=-1).astype({expression}.dtype)"
    elif channels is not None:
        indices = [int(number) - 1 for number in channels.split()]
        expression += f"[..., {indices[0] if len(indices) == 1 else indices}]"
    if condition.get(IMAGE_CROP):
        (top, bottom), (left, right) = condition[IMAGE_CROP]
        expression += f"[{top}:{bottom}, {left}:{right}]"
    return expression
