"""What `cellrepro.record` wrote of a script's own call of ``eval``, found beside its masks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, cast

import numpy as np

from cellrepro.explanation.conditions import MODEL, PRECISION, VERSION, refuse_no_precision
from cellrepro.explanation.recorded_settings import (
    DEVICE,
    MODEL_DIGEST,
    MODEL_PATH,
    RESTORE,
    WRITTEN,
    GenerationNumber,
    RecordedSettings,
    generation_number,
    of_file,
)
from cellrepro.record import FORMAT, masks_digest
from cellrepro.spec.segmentation_settings import CHANNELS, NAMES
from cellrepro.store.store_paths import regular_bytes
from samebits.errors import BadInput

if TYPE_CHECKING:
    from cellrepro.images.integer_images import Integers

Fields = Mapping[str, object]
"""A JSON object."""

_LEFT_OUT = frozenset(
    {"normalize", "invert", "rescale", "progress", "compute_masks", "model_loaded", "loop_run"}
)
"""Arguments of ``eval`` that stand elsewhere in a record, or change no mask."""
_MOST_BYTES = 2**26
_TYPE_OF_NUMBERS = re.compile(r"(bool|u?int\d+|float\d+|complex\d+|[<>|=]?[buifc]\d+)")
_FORMAT_OF_ANY_VERSION = FORMAT.rpartition(" ")[0]


def script_record(path: Path, masks: Integers) -> RecordedSettings | None:
    """Read what a script recorded of the call that made these masks; None where it did not.

    It stands in the file of the same name with the ending ``.json``, or else in any
    ``*_masks.json`` of the folder whose digest is that of these labels.
    """
    digest = masks_digest(masks)
    beside = path.with_suffix(".json")
    named = _read(beside) if beside.is_file() else None
    if named is not None:
        return _settings(beside, named, is_of_these_masks=_masks_digest_in(named) == digest)
    for candidate in sorted(path.parent.glob("*_masks.json")):
        record = _read(candidate)  # of another version, it may well be of other masks
        if record is not None and _masks_digest_in(record) == digest:
            return _settings(candidate, record, is_of_these_masks=True)
    return None


def _read(path: Path) -> Fields | None:
    """Read a record of any version; None for JSON of another kind."""
    try:
        content = json.loads(regular_bytes(path, most_bytes=_MOST_BYTES))
    except (ValueError, OSError, RecursionError):
        return None
    kind = content.get("format") if isinstance(content, dict) else None
    if not isinstance(kind, str) or not kind.startswith(_FORMAT_OF_ANY_VERSION):
        return None
    return cast(Fields, content)


def _table(record: Fields, name: str) -> Fields:
    """An object in a record; empty where it is null."""
    return cast(Fields, record.get(name) or {})


def _masks_digest_in(record: Fields) -> object:
    masks = record.get("masks")
    return masks.get("digest") if isinstance(masks, dict) else None


def _settings(path: Path, record: Fields, *, is_of_these_masks: bool) -> RecordedSettings:
    if record["format"] != FORMAT:
        raise BadInput(
            f"{path} is a {record['format']!r}; this cellrepro reads {FORMAT!r}: install the one "
            "that wrote it"
        )
    try:
        versions = _table(record, "versions")
        generation = generation_number(versions.get(VERSION))
        values = {
            **_of_eval(record, generation),
            **_networks(record),
            **_circumstances(record),
        }
        remarks = tuple(_remarks(path, record, is_of_these_masks=is_of_these_masks))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise BadInput(
            f"{path}: {error!r} in a record of a script; expected the fields that cellrepro.record "
            "writes: run the script again, or remove the file"
        ) from error
    return RecordedSettings(
        of_file(path.name, values),
        generation=generation,
        written_by="a script, through cellrepro.record",
        remarks=remarks,
    )


def _of_eval(record: Fields, generation: GenerationNumber | None) -> dict[str, object]:
    """Settings of ``eval``, and what else was passed."""
    arguments = _table(record, "arguments")
    passed = _table(arguments, "passed")
    in_force = {**_table(arguments, "defaults"), **passed}
    values: dict[str, object] = {}
    for name, value in in_force.items():
        if name in NAMES:
            values[name] = _hashable(value)
        elif name in passed and name not in _LEFT_OUT and value is not None:
            values[name] = value
    for name in ("diameter", "niter"):
        if name in values:
            values[name] = values[name] or None  # Cellpose's other word for it is 0
    if generation in ("2", "3"):
        values["diameter"] = record["diameter_used"]
        values[CHANNELS] = in_force.get(CHANNELS) or [0, 0]
    else:
        values.pop(CHANNELS, None)  # Cellpose 4 ignores it
    return {**values, **_normalization(record, in_force)}


def _normalization(record: Fields, in_force: Fields) -> dict[str, object]:
    fields = record["normalize"]
    if not isinstance(fields, Mapping):  # Cellpose 2 has two arguments of eval
        fields = {name: in_force.get(name) for name in ("normalize", "invert")}
    named = {
        f"normalize.{'sharpen' if name == 'sharpen_radius' else name}": _hashable(value)
        for name, value in fields.items()
    }
    return {name: value for name, value in named.items() if name in NAMES}


def _hashable(value: object) -> object:
    """JSON has lists where settings have tuples."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _networks(record: Fields) -> dict[str, object]:
    values: dict[str, object] = {}
    for network in cast("list[Fields]", record["networks"]):
        files = cast("list[Fields]", network["files"])
        path = str(files[0]["path"]) if files else ""
        name = PureWindowsPath(path).name  # the last part of a path of any system
        if network["role"] == "restoration":
            values[RESTORE] = name
        elif network["role"] == "segmentation":
            values["weights_in_memory"] = network["digest"]
            if files:
                values |= {MODEL: name, MODEL_PATH: path, MODEL_DIGEST: files[0]["digest"]}
    return values


def _circumstances(record: Fields) -> dict[str, object]:
    image = _table(record, "image")
    device = _table(record, "device")
    of_image = {f"image.{name}": image[name] for name in ("digest", "dtype", "shape", "axes")}
    _refuse_no_type(image["dtype"])
    of_torch = {f"torch.{name}": value for name, value in _table(record, "torch").items()}
    return {
        **_precision(record["precision"]),
        DEVICE: device["name"],
        "hardware": device["hardware"],
        **of_image,
        **_table(record, "versions"),
        **of_torch,
        WRITTEN: record["recorded_at"],
    }


def _precision(name: object) -> dict[str, object]:
    """The precision of a network; nothing where there is none, or its tensors have several."""
    if name is None or (isinstance(name, str) and ", " in name):
        return {}
    refuse_no_precision(name)
    return {PRECISION: name}


def _refuse_no_type(name: object) -> None:
    """Refuse what is no type of numbers by its own name, such as NumPy writes; pixels become it."""
    if isinstance(name, str) and _TYPE_OF_NUMBERS.fullmatch(name):
        np.dtype(name)  # TypeError where there is none
        return
    raise TypeError(f"the type of the image is {name!r}; expected one of numbers, such as uint16")


def _remarks(path: Path, record: Fields, *, is_of_these_masks: bool) -> Iterator[str]:
    if not is_of_these_masks:
        yield (
            f"{path.name} tells of different masks than those next to it: they were changed after "
            "eval, or a different call made them"
        )
    if _table(record, "image")["changed_by_eval"]:
        yield (
            "eval changed the pixels of the array that it was given: a second call with the same "
            "array receives different pixels (pass a copy)"
        )
    device = _table(record, "device")
    if device["cuda_available"] and device["name"] == "cpu":
        yield "PyTorch could have used a GPU, and the model computed on the processor"
