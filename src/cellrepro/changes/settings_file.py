"""Label images that people exchange, and beside each how it was made, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cellrepro.asked.segmentation_settings import Settings
from cellrepro.changes.conditions import MODEL, PRECISION, VERSION
from cellrepro.changes.recorded_settings import RecordedSettings, generation_of, of_file
from cellrepro.errors import BadInput
from cellrepro.store.store import Repeat
from cellrepro.store.whole_files import (
    refuse_existing,
    regular_bytes,
    whole_file,
    write_whole,
)

_MOST_BYTES = 2**24
_FIELDS = frozenset({"settings", MODEL, "model_digest", PRECISION, "run", "versions"})
_NAMES = frozenset(Settings.model_fields)


def sidecar_of(masks: Path) -> Path:
    """Where the record stands: ``NAME_masks.json`` beside ``NAME_masks.tif``."""
    return masks.with_suffix(".json")


def write_sidecar(masks: Path, record: Mapping[str, Any]) -> None:
    """Write how a label image was made beside it."""
    write_whole(sidecar_of(masks), json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def read_sidecar(masks: Path) -> dict[str, Any] | None:
    """Read what stands beside a label image; None where nothing does, or JSON of others."""
    path = sidecar_of(masks)
    if not path.is_file():
        return None
    try:
        text = regular_bytes(path, most_bytes=_MOST_BYTES)
        if b'"settings"' not in text:
            return None  # of LabelMe, QuPath, Micro-Manager …
        record: dict[str, Any] = json.loads(text)
        if not _is_ours(record):
            return None
        if not isinstance(record["settings"], dict):
            raise TypeError("settings is no table")
        if not isinstance(record.get("versions") or {}, dict):
            raise TypeError("versions is no table")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(
            f"{path}: no record of settings ({error}); expected JSON with `settings`, as cellrepro "
            "writes it next to masks; remove or mend the file"
        ) from error
    return record


def _is_ours(content: object) -> bool:
    """Whether JSON is a record of the lab: by its fields, or by the names of its settings."""
    if not isinstance(content, dict) or "settings" not in content:
        return False
    settings = content["settings"]
    names = settings if isinstance(settings, dict) else ()
    return content.keys() <= _FIELDS or any(str(name).split(".")[0] in _NAMES for name in names)


def sidecar_record(masks: Path) -> RecordedSettings:
    """Give what stands beside a label image, as every reader of records does.

    Empty where nothing stands beside it, or JSON of a different program.
    """
    record = read_sidecar(masks)
    if record is None:
        return RecordedSettings()
    values: dict[str, Any] = dict(Settings().replaced(**record["settings"]).by_name())
    versions = dict(record.get("versions") or {})
    version = versions.pop(VERSION, None)
    for name in (MODEL, "model_digest", PRECISION, "run"):
        if record.get(name) is not None:
            values[name] = record[name]
    if version is not None:
        values[VERSION] = version
    return RecordedSettings(
        of_file(sidecar_of(masks).name, {**values, **versions}),
        generation=generation_of(version) or "4",
        written_by="cellrepro",
    )


def refuse_masks(folder: Path, data: Path) -> None:
    """Refuse a folder for masks, before anything is segmented for it."""
    if folder.resolve().is_relative_to(data.resolve()):
        raise BadInput(
            f"masks are to be written into {folder}, which lies in the folder of the images, "
            f"{data}: there they would be taken for masks that you have drawn; expected a "
            "different folder, such as one beside it"
        )
    if not folder.is_dir():
        refuse_existing(folder)
    masks = (path for ending in ("tif", "json") for path in folder.glob(f"*_masks.{ending}"))
    refuse_existing(*sorted(masks))


def write_masks(repeat: Repeat, folder: Path) -> None:
    """Write the masks of a stored run for people, each with its record beside it."""
    import tifffile

    folder.mkdir(parents=True, exist_ok=True)
    record = _record_of(repeat)
    for name in repeat.manifest.masks:
        path = folder / f"{name}_masks.tif"
        labels = repeat.masks(name)
        with whole_file(path) as scratch:
            tifffile.imwrite(
                scratch,
                labels,
                photometric="minisblack",  # three or four planes are no colours
                compression="zlib",
                metadata={"axes": "ZYX"[-labels.ndim :]},
            )
        write_sidecar(path, record)


def _record_of(repeat: Repeat) -> dict[str, Any]:
    manifest = repeat.manifest
    spec = repeat.spec
    weights = manifest.weights
    return {
        "settings": spec.settings.model_dump(mode="json"),
        "model": spec.model if weights is None else repeat.name,
        "model_digest": manifest.model.initial_weights if weights is None else weights.digest,
        "precision": spec.profile_settings.get("dtype", "float32"),
        "run": repeat.name,
        "versions": manifest.versions,
    }
