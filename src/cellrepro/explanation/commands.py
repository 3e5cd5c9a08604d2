"""How to make a result again: the commands of Cellpose and of this lab."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellrepro.determinism.mode_names import Mode
from cellrepro.explanation.cellpose_call import IMAGE, NETWORK, CellposeCall, shell_line
from cellrepro.explanation.conditions import (
    IMAGE_CHANNELS,
    IMAGE_CROP,
    IMAGE_DEPTH,
    MODEL,
    PRECISION,
    VERSION,
)
from cellrepro.explanation.recorded_settings import (
    DEVICE,
    DRAWN,
    FILENAME,
    MODEL_PATH,
    REMOVED,
    RESTORE,
    TRAINING,
    GenerationNumber,
    RecordedSettings,
    generation_number,
)
from cellrepro.model import cellpose_generation
from cellrepro.model.encoders import ENCODERS, PRETRAINED
from cellrepro.model.weight_sources import ModelSource
from cellrepro.spec import defaults
from cellrepro.spec.segmentation_settings import CHANNELS, NAMES, Settings
from cellrepro.store.stored_run import WEIGHTS
from cellrepro.words import amount

_LOADED_BY_CELLPOSE = (PRETRAINED, "vit-l")
_HALF = "bfloat16"
_PROFILES = {_HALF: "cpu-bfloat16"}  # by precision, where it is not that of the usual profile
_NOT_ON_COMMAND_LINE = (IMAGE_DEPTH, IMAGE_CHANNELS, IMAGE_CROP)
"""How the image was read: a command line takes it as its file has it."""

_ALWAYS_SAID = ("diameter", "flow_threshold", "cellprob_threshold")
"""Settings that a command names also at their default."""
_PERCENTILE = "normalize.percentile"
_USUAL_PERCENTILE = (1.0, 99.0)
_DECIDING: Mapping[GenerationNumber, Sequence[str]] = {
    "2": (MODEL, "diameter", CHANNELS),
    "3": (MODEL, "diameter", CHANNELS),
    "4": (MODEL, "diameter"),
}
"""Without these nobody makes the same masks again."""
_WORTH_KNOWING = ("flow_threshold", "cellprob_threshold", "min_size", "niter", "resample", DEVICE)
_OF_STACKS = ("do_3D", "stitch_threshold", "anisotropy", "z_axis")
_GPUS = ("gpu", "cuda", "mps")
_NO_FILTER = "filter"  # in the GUI of Cellpose 3: filters of normalize, no network
_UNKNOWN_CHANNELS = ("CHAN", "CHAN2")


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
    """The profile, mode and seed that a user gave."""

    profile: str = defaults.PROFILE
    dtype: str = "float32"
    """The precision of that profile."""
    mode: Mode = defaults.MODE
    seed: int | None = None

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
    of_image = [
        f"of the image with {name} {condition[name]}"
        for name in _NOT_ON_COMMAND_LINE
        if condition.get(name)
    ]
    lab = _with_notes(_lab_command(image, condition, settings, source, setup), of_image)
    if source.architecture not in _LOADED_BY_CELLPOSE:
        return Commands(shell="", python="", lab=lab)
    file = _file_for_cellpose(source)
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
    notes = [f"with Cellpose {version}"]
    if source.path is not None and file != str(source.path):
        notes.append(_export_note(source.path, file))
    notes += [*of_image, *_notes_of_call(call)]
    return Commands(shell=_with_notes(call.shell(), notes), python=call.python(), lab=lab)


def _with_notes(command: str, notes: list[str]) -> str:
    """Append notes as a comment of the shell."""
    return "   # ".join([command, *notes])


def _notes_of_call(call: CellposeCall) -> list[str]:
    """In what Cellpose's command line differs from the call in Python."""
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
    if source.path.suffix != ".safetensors":
        return str(source.path)
    weights = source.path.resolve()
    return f"{weights.parents[2].name if _is_in_store(weights) else weights.stem}.pth"


def _export_note(weights: Path, file: str) -> str:
    """How a network of this lab becomes a file that Cellpose loads."""
    resolved = weights.resolve()
    if not _is_in_store(resolved):
        return f"{weights} is in a format that Cellpose does not read: take the call of this lab"
    return f"after {shell_line(['cellrepro', 'export', *words_for_repeat(resolved.parent), file])}"


def _is_in_store(weights: Path) -> bool:
    return weights.name == WEIGHTS and len(weights.parents) > 5


def words_for_repeat(folder: Path) -> list[str]:
    """``KEY/MACHINE/REPEAT`` of a stored repeat, and ``--store`` unless it is the default."""
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
    """Write a value for ``--set``: YAML 1.1 takes 1e-05 for text, and 1.0e-05 for a number."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_in_yaml, value))}]"
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


# -- of what files record --------------------------------------------------------------------


def recorded_commands(
    record: RecordedSettings, *, image: str | None = None, is_stack: bool = False
) -> Commands | None:
    """Write the calls of Cellpose that a record tells of.

    None where nothing is recorded, or not the generation of Cellpose; and for a training.
    """
    generation = record.generation
    if generation is None or not record.values or TRAINING in record.values:
        return None
    recorded = record.beyond
    not_recorded = _missing(record, _DECIDING[generation])
    version = recorded.get(VERSION)
    restoration = recorded.get(RESTORE)
    call = CellposeCall(
        generation=generation,
        version=None if version is None else str(version),
        network=str(recorded.get(MODEL_PATH) or recorded.get(MODEL) or NETWORK),
        settings=_spelt_settings(record),
        image=image or str(recorded.get(FILENAME, IMAGE)),
        channels=_channels(record),
        restoration=None if restoration in (None, _NO_FILTER) else str(restoration),
        uses_gpu=str(recorded.get(DEVICE, "")).lower().startswith(_GPUS),
        precision=_precision(record),
    )
    notes = _notes_of_record(record, call, not_recorded, is_stack=is_stack)
    return Commands(
        shell=_with_notes(call.shell(), notes),
        python=call.python(),
        lab="",
        not_recorded=not_recorded,
    )


def _missing(record: RecordedSettings, names: Sequence[str]) -> tuple[str, ...]:
    """Which of these names no file records."""
    return tuple(name for name in names if name not in record.values)


def _spelt_settings(record: RecordedSettings) -> dict[str, object]:
    """The settings that a command names: those that decide, and all that differ from a default."""
    usual = Settings().by_name()
    settings = {
        name: value
        for name, value in record.known.items()
        if name in _ALWAYS_SAID or (name in usual and not _is_usual(name, value, usual[name]))
    }
    return settings if "diameter" in settings else {"diameter": "DIAMETER", **settings}


def _is_usual(name: str, value: object, usual: object) -> bool:
    """Whether a value is the default, however Cellpose writes that."""
    if name == _PERCENTILE:
        return value in (None, _USUAL_PERCENTILE, list(_USUAL_PERCENTILE))
    return value == usual or (name == "niter" and not value)


def _channels(record: RecordedSettings) -> tuple[object, object]:
    """The channels of cells and of nuclei; words in capitals for those that nobody recorded."""
    chosen = record.beyond.get(CHANNELS, record.known.get(CHANNELS))
    if not isinstance(chosen, list | tuple) or len(chosen) != 2:
        return _UNKNOWN_CHANNELS
    of_cells, of_nuclei = chosen
    is_known = type(of_cells) is int and type(of_nuclei) is int
    return (of_cells, of_nuclei) if is_known else _UNKNOWN_CHANNELS


def _precision(record: RecordedSettings) -> str | None:
    precision = record.known.get(PRECISION)
    return None if precision is None else str(precision)


def _notes_of_record(
    record: RecordedSettings, call: CellposeCall, not_recorded: Sequence[str], *, is_stack: bool
) -> list[str]:
    written_by = call.version or f"{call.generation} (its exact version is not recorded)"
    notes = [f"with Cellpose {written_by}"]
    if not_recorded:
        notes.append(f"not recorded, put it in: {', '.join(not_recorded)}")
    notes += _notes_of_call(call)
    for name, what in ((DRAWN, "drawn"), (REMOVED, "removed")):
        n_cells = record.beyond.get(name)
        if n_cells:
            cells = amount(int(str(n_cells)), "cell")
            notes.append(f"{cells} {what} by hand, which no command makes")
    of_stacks = _missing(record, _OF_STACKS) if is_stack else ()
    if of_stacks:
        notes.append(
            f"masks of a stack; not recorded, and decisive for them: {', '.join(of_stacks)}"
        )
    others = _missing(record, _WORTH_KNOWING)
    if others:
        notes.append(f"not recorded, left at Cellpose's usual value: {', '.join(others)}")
    return notes
