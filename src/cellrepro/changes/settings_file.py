"""What stands beside a label image that people exchange: how it was made, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cellrepro.errors import BadInput
from cellrepro.store.whole_files import write_whole


def sidecar_of(masks: Path) -> Path:
    """Where it stands: ``NAME_masks.json`` beside ``NAME_masks.tif``."""
    return masks.with_suffix(".json")


def write_sidecar(masks: Path, record: Mapping[str, Any]) -> None:
    """Write ``settings``, ``model``, ``model_digest``, ``precision`` and ``versions``."""
    write_whole(sidecar_of(masks), json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def read_sidecar(masks: Path) -> dict[str, Any] | None:
    """What stands beside a label image; none where nothing does."""
    path = sidecar_of(masks)
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record["settings"], dict):
            raise TypeError("settings is no table")
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{path}: no record of settings ({error}); expected JSON with `settings`, as cellrepro "
            "writes it beside masks; remove or mend the file"
        ) from error
    return record
