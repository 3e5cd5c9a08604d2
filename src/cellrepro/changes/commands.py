"""How to make a result again: the commands for a condition, of Cellpose and of this lab."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellrepro.asked.segmentation_settings import CHANNELS as CHOSEN
from cellrepro.asked.segmentation_settings import NAMES, Settings
from cellrepro.changes.conditions import CHANNELS, CROP, DEPTH, MODEL, PRECISION, VERSION
from cellrepro.model.cellpose_generation import Generation, generation_of
from cellrepro.model.weight_sources import ModelSource
from cellrepro.process.cellpose_versions import is_installed
from cellrepro.store.stored_run import WEIGHTS

_FLAGS = {
    "augment": "--augment",
    "do_3D": "--do_3D",
    "resample": "--no_resample",
    "normalize.normalize": "--no_norm",
}
_OPTIONS = (
    "diameter",
    "flow_threshold",
    "cellprob_threshold",
    "niter",
    "min_size",
    "batch_size",
    "anisotropy",
    "flow3D_smooth",
    "stitch_threshold",
    "channel_axis",
    "z_axis",
)
"""Settings that Cellpose's command line takes under the same name."""

_LOADED_BY_CELLPOSE = ("cellpose", "vit-l")


@dataclass(frozen=True)
class Commands:
    """How to make a result again.

    Attributes
    ----------
    shell : str
        Cellpose's command line; after it, what that cannot say.
    python : str
        The call of Cellpose in Python.
    lab : str
        This lab's command line, which takes every network and every setting; empty where the two
        are written from files alone.
    not_recorded : tuple of str
        What the result depends on and no file records; in the commands, words in capitals stand
        for it.
    """

    shell: str
    python: str
    lab: str
    not_recorded: tuple[str, ...] = ()


def commands_for(
    image: str, condition: Mapping[str, Any], sources: Mapping[str, ModelSource]
) -> Commands:
    """Write the commands that make the result of a condition.

    Parameters
    ----------
    image : str
        Path of the image.
    condition : mapping
        With ``model`` and ``precision`` among its names.
    sources : mapping of str to ModelSource
        The networks by name.

    Returns
    -------
    Commands
    """
    source = sources.get(condition[MODEL])
    changed = _changed_settings(condition)
    model = str(condition[MODEL])
    file_for_cellpose = model
    if source is not None and source.path is not None:
        model = str(source.path)
        file_for_cellpose = _exported_file(source.path) if _is_of_a_run(source) else model
    return Commands(
        shell=_shell_command(image, condition, changed, source=source, file=file_for_cellpose),
        python=_python_call(condition, changed, file=file_for_cellpose),
        lab=_lab_command(image, condition, changed, model=model),
    )


def _changed_settings(condition: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a condition that are not Cellpose's usual ones, by name."""
    usual = Settings().by_name()
    return {
        name: value
        for name, value in condition.items()
        if name in (*NAMES, CHOSEN) and value != usual.get(name)
    }


def _exported_file(weights: Path) -> str:
    """The file to which weights are to be exported: named after the run, or as they are."""
    place = weights.resolve()
    if place.name == WEIGHTS and len(place.parents) > 2:
        return f"{place.parents[2].name}.pth"
    return f"{place.stem}.pth"


def _shell_command(
    image: str,
    condition: Mapping[str, Any],
    changed: Mapping[str, Any],
    *,
    source: ModelSource | None,
    file: str,
) -> str:
    words = ["python", "-m", "cellpose", "--image_path", image, "--pretrained_model", file]
    not_said = []
    for name, value in changed.items():
        if name in _FLAGS:
            words.append(_FLAGS[name])
        elif name == CHOSEN:
            of_cells, of_nuclei = value
            words += ["--chan", str(of_cells), "--chan2", str(of_nuclei)]
        elif name in _OPTIONS:
            words += [f"--{name}", str(value)]
        else:
            not_said.append(name)
    if not _is_half(condition) and _generation(condition).has_precision:
        not_said.append("float32")
    notes = _notes(condition, source, file)
    if not_said:
        notes.append(f"Cellpose's command line cannot say: {', '.join(not_said)}")
    return "   # ".join([shlex.join(words), *notes])


def _python_call(condition: Mapping[str, Any], changed: Mapping[str, Any], *, file: str) -> str:
    options = Settings().replaced(**changed).arguments()
    arguments = [
        f"{name}={value!r}"
        for name, value in options.items()
        if name in changed or (name == "normalize" and value)
    ]
    of_model = [f"pretrained_model={json.dumps(file)}"]
    if _generation(condition).has_precision:
        of_model.append(f"use_bfloat16={_is_half(condition)}")
    of_eval = [_image_in_python(condition), *arguments]
    return f"CellposeModel({', '.join(of_model)}).eval({', '.join(of_eval)})"


def _lab_command(
    image: str, condition: Mapping[str, Any], changed: Mapping[str, Any], *, model: str
) -> str:
    words = ["cellrepro", "segment", str(Path(image).parent), "--model", model]
    if _is_half(condition):
        words += ["--profile", "cpu-bfloat16"]
    for name, value in changed.items():
        words += ["--set", f"{name}={json.dumps(value)}"]
    return shlex.join(words)


def _generation(condition: Mapping[str, Any]) -> Generation:
    """Of the Cellpose that is called."""
    return generation_of(condition.get(VERSION))


def _is_half(condition: Mapping[str, Any]) -> bool:
    return bool(condition[PRECISION] == "bfloat16")


def _is_of_a_run(source: ModelSource | None) -> bool:
    """Whether weights lie in a store, in a format that Cellpose does not read."""
    return source is not None and source.path is not None and source.path.suffix == ".safetensors"


def _notes(condition: Mapping[str, Any], source: ModelSource | None, file: str) -> list[str]:
    """What a command line alone does not say."""
    notes = []
    if source is not None and source.architecture not in _LOADED_BY_CELLPOSE:
        notes.append("Cellpose loads no network of this size: take the call of this lab")
    elif _is_of_a_run(source):
        notes.append(f"after cellrepro export {condition[MODEL]} {file}")
    if not is_installed(condition.get(VERSION)):
        notes.append(f"with cellpose=={condition[VERSION]}")
    for name in (CROP, DEPTH, CHANNELS):
        if condition.get(name):
            notes.append(f"of the image with {name} {condition[name]}")
    return notes


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
