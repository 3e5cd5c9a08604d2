"""Label images that people exchange, and beside each how it was made, as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cellrepro.errors import BadInput
from cellrepro.explanation.conditions import MODEL, PRECISION, VERSION
from cellrepro.explanation.recorded_settings import RecordedSettings, generation_of, of_file
from cellrepro.run.masks_folder import sidecar_of
from cellrepro.spec.segmentation_settings import Settings
from cellrepro.store.whole_files import regular_bytes

_MOST_BYTES = 2**24
_FIELDS = frozenset({"settings", MODEL, "model_digest", PRECISION, "run", "versions"})
_NAMES = frozenset(Settings.model_fields)


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
