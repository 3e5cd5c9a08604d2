"""What a run of a store records of how its masks were made."""

from __future__ import annotations

from cellrepro.changes.conditions import MODEL, PRECISION, VERSION
from cellrepro.changes.recorded_settings import (
    DEVICE,
    RecordedSettings,
    generation_of,
    of_file,
)
from cellrepro.store.store import Repeat


def run_record(repeat: Repeat) -> RecordedSettings:
    """Give what a stored repeat records: every setting, its network, precision and versions.

    Parameters
    ----------
    repeat : Repeat

    Returns
    -------
    RecordedSettings
    """
    manifest = repeat.manifest
    spec = repeat.spec
    version = manifest.versions.get("cellpose")
    values: dict[str, object] = {
        **spec.settings.by_name(),
        MODEL: spec.model if manifest.weights is None else repeat.name,
        PRECISION: spec.profile_settings.get("dtype"),
        "machine": repeat.machine,
    }
    device = spec.profile_settings.get(DEVICE)
    if device is not None:
        values[DEVICE] = device
    if version is not None:
        values[VERSION] = version
    return RecordedSettings(
        of_file(repeat.name, values),
        generation=generation_of(version),
        written_by="cellrepro",
    )
