"""How to make a result again: the commands for a condition, of Cellpose and of this lab."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellrepro.explanation.cellpose_call import CellposeCall, shell_line
from cellrepro.explanation.conditions import CHANNELS, CROP, DEPTH, MODEL, PRECISION, VERSION
from cellrepro.explanation.recorded_settings import generation_of
from cellrepro.model import cellpose_generation
from cellrepro.model.encoders import ENCODERS, PRETRAINED
from cellrepro.model.weight_sources import ModelSource
from cellrepro.spec import defaults
from cellrepro.spec.segmentation_settings import CHANNELS as CHOSEN
from cellrepro.spec.segmentation_settings import NAMES, Settings
from cellrepro.store.stored_run import WEIGHTS

if TYPE_CHECKING:
    from cellrepro.determinism.mode_names import Mode

_LOADED_BY_CELLPOSE = (PRETRAINED, "vit-l")
_HALF = "bfloat16"
_PROFILES = {_HALF: "cpu-bfloat16"}  # by precision, where it is not that of the usual profile
_NOT_OF_A_FILE = (DEPTH, CHANNELS, CROP)
"""What a condition says of the image: commands take it as its file has it."""


@dataclass(frozen=True)
class Commands:
    """How to make a result again; a line that is empty cannot be given."""

    shell: str
    """Cellpose's command line; after it, what that cannot say."""
    python: str
    """The call of Cellpose in Python."""
    lab: str
    """This lab's command line, which takes every network and every setting; empty where the two are
    written from files alone."""
    not_recorded: tuple[str, ...] = ()
    """What the result depends on and no file records; in the commands, words in capitals stand for
    it."""


@dataclass(frozen=True)
class LabSetup:
    """Under what this lab made a result."""

    profile: str = defaults.PROFILE
    """As it was asked for."""
    dtype: str = "float32"
    """The precision of that profile."""
    mode: Mode = defaults.MODE
    seed: int | None = None
    """As it was asked for."""

    def options(self, precision: object) -> list[str]:
        """Those of the command line that have not their usual value."""
        profile = self.profile
        if precision is not None and precision != self.dtype:
            profile = _PROFILES.get(str(precision), defaults.PROFILE)
        words = ["--profile", profile] if profile != defaults.PROFILE else []
        words += ["--mode", self.mode] if self.mode != defaults.MODE else []
        words += ["--seed", str(self.seed)] if self.seed is not None else []
        return words


def with_notes(command: str, notes: list[str]) -> str:
    """A command with what it does not say behind it, as a comment of the shell."""
    return "   # ".join([command, *notes])


def commands_for(
    image: str,
    condition: Mapping[str, Any],
    sources: Mapping[str, ModelSource],
    setup: LabSetup,
) -> Commands:
    """Write the commands that make the result of a condition.

    Those of Cellpose are empty for a network that it does not load.
    """
    model = str(condition[MODEL])
    source = sources.get(model) or ModelSource(model, model if model in ENCODERS else PRETRAINED)
    settings = _changed_settings(condition)
    of_image = [
        f"of the image with {name} {condition[name]}"
        for name in _NOT_OF_A_FILE
        if condition.get(name)
    ]
    lab = with_notes(_lab_command(image, condition, settings, source, setup), of_image)
    if source.architecture not in _LOADED_BY_CELLPOSE:
        return Commands(shell="", python="", lab=lab)
    file = file_for_cellpose(source)
    version = condition.get(VERSION) or cellpose_generation.installed_version()
    channels = settings.pop(CHOSEN, None)
    call = CellposeCall(
        generation=generation_of(version) or "4",
        version=version,
        network=file,
        settings=_as_on_command_line(settings, condition, generation_of(version)),
        image=image,
        expression=_image_in_python(condition),
        channels=channels,
        precision=condition[PRECISION],
    )
    notes = [f"with Cellpose {version}"]
    if source.path is not None and file != str(source.path):
        notes.append(_export_note(source.path, file))
    notes += [*of_image, *notes_of_call(call)]
    return Commands(shell=with_notes(call.shell(), notes), python=call.python(), lab=lab)


def notes_of_call(call: CellposeCall) -> list[str]:
    """What Cellpose's command line does otherwise than the call in Python."""
    notes = []
    unsaid = call.unsaid()
    if unsaid:
        notes.append(f"the command line cannot say: {', '.join(unsaid)}")
    if call.estimates_diameter:
        notes.append(
            f"with the name {call.network} and no diameter, the command line estimates one; the "
            "call in Python takes that of the network"
        )
    if call.generation == "2" and call.is_named:
        notes.append(
            "the command line of Cellpose 2 averages four networks of this name, the call in "
            "Python takes one"
        )
    return notes


def _changed_settings(condition: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a condition that are not Cellpose's usual ones, by name."""
    usual = Settings().by_name()
    return {
        name: value
        for name, value in condition.items()
        if name in (*NAMES, CHOSEN) and value != usual.get(name)
    }


def _as_on_command_line(
    settings: Mapping[str, Any], condition: Mapping[str, Any], generation: str | None
) -> dict[str, Any]:
    """Settings with a diameter of none where the command line would take 30 by itself."""
    if generation == "4" or "diameter" in settings:
        return dict(settings)
    return {"diameter": condition.get("diameter"), **settings}


def file_for_cellpose(source: ModelSource) -> str:
    """The file that Cellpose loads a network from, exported where it lies in a store; or its
    name."""
    if source.path is None:
        return source.label
    if source.path.suffix != ".safetensors":
        return str(source.path)
    place = source.path.resolve()
    return f"{place.parents[2].name if _is_in_store(place) else place.stem}.pth"


def _export_note(weights: Path, file: str) -> str:
    """How a network of this lab becomes a file that Cellpose loads."""
    place = weights.resolve()
    if not _is_in_store(place):
        return f"{weights} is in a format that Cellpose does not read: take the call of this lab"
    return f"after {shell_line(['cellrepro', 'export', *words_for_repeat(place.parent), file])}"


def _is_in_store(weights: Path) -> bool:
    return weights.name == WEIGHTS and len(weights.parents) > 5


def words_for_repeat(folder: Path) -> list[str]:
    """How a command names a stored repeat: ``KEY/MACHINE/REPEAT``, and its store if not the
    usual."""
    root = folder.parents[3]
    name = folder.relative_to(folder.parents[2]).as_posix()
    return [name] if root == Path(defaults.STORE).resolve() else [name, "--store", str(root)]


def _lab_command(
    image: str,
    condition: Mapping[str, Any],
    settings: Mapping[str, Any],
    source: ModelSource,
    setup: LabSetup,
) -> str:
    words = ["cellrepro", "segment", image, "--model", str(source.path or source.label)]
    words += setup.options(condition[PRECISION])
    if condition.get(VERSION) not in (None, cellpose_generation.installed_version()):
        words += ["--cellpose", condition[VERSION]]
    for name, value in settings.items():
        words += ["--set", f"{name}={_in_yaml(value)}"]
    return shell_line(words)


def _in_yaml(value: object) -> str:
    """A value as ``--set`` reads it: YAML takes 1e-05 for a text, and 1.0e-05 for a number."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_in_yaml, value))}]"
    text = json.dumps(value)
    mantissa, e, exponent = text.partition("e")
    if isinstance(value, float) and e and "." not in mantissa:
        return f"{mantissa}.0e{exponent}"
    return text


def _image_in_python(condition: Mapping[str, Any]) -> str:
    """The image as Python gives it to Cellpose: what `image_readings.as_read` does, of one that is
    not constant."""
    expression = "image"
    depth = condition.get(DEPTH)
    if depth == "8 bit":
        expression = '(image >> 8).astype("uint8")'
    elif depth:
        expression = (
            "np.rint((image - float(image.min())) * (255 / np.ptp(image.astype(float))))"
            '.astype("uint8")'
        )
    channels = condition.get(CHANNELS)
    if channels == "reversed":
        expression += "[..., ::-1]"
    elif channels == "mean":
        expression += f".mean(axis=-1).astype({expression}.dtype)"
    elif channels is not None:
        indices = [int(number) - 1 for number in channels.split()]
        expression += f"[..., {indices[0] if len(indices) == 1 else indices}]"
    if condition.get(CROP):
        (top, bottom), (left, right) = condition[CROP]
        expression += f"[{top}:{bottom}, {left}:{right}]"
    return expression
