"""The ledgers of two runs, completed by their files and compared stage by stage."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cellrepro.comparison.ledger_diff import LedgerComparison, compare_ledgers
from cellrepro.explanation.settings_of_both import network_diameter, setting_in_words
from cellrepro.model.stages import PASSED
from cellrepro.nested_values import flattened
from cellrepro.store.environment_record import ENVIRONMENT_FIELDS
from cellrepro.store.ledger import LEDGER, SEGMENTATION_STAGES, STAGES, Ledger, LedgerRow
from cellrepro.store.row_tables import read_rows
from cellrepro.store.stored_run import Repeat
from samebits.digests import array_digest, file_digest, value_digest

_LAST = 2**31 - 1  # a step after all others, for the files that a run ended with

_SPEC_FIELDS_LEFT_OUT = {
    "data",
    "data_digest",
    "model_digest",
    "profile",
    "profile_settings",
    "ledger",
}
"""Fields of a spec that have stages of their own, or change no result."""

_NOT_IN_OTHER_VERSIONS = ("versions.cellrepro", "versions.papermill")
"""Not installed beside another version of Cellpose, and not used."""

_STORED_FILE = "stored file"
"""Ends the names of rows about files as they lie in the store now: ``IMAGE stored file``."""


def image_of(name: str) -> str:
    """Get the image that an entry of a ledger is about, from the entry's name."""
    return name.rpartition(" ")[0]


def is_stored_file(name: str) -> bool:
    """Whether an entry is about a file as it lies in the store now, not as it was computed."""
    return name.endswith(f" {_STORED_FILE}")


def of_segmentations(repeats: Sequence[Repeat]) -> bool:
    """Whether both only segmented."""
    return all(repeat.spec.task == "segment" for repeat in repeats)


def stages_of(repeats: Sequence[Repeat]) -> tuple[str, ...]:
    """The stages that two runs passed, in order."""
    return SEGMENTATION_STAGES if of_segmentations(repeats) else STAGES


def compare_runs(repeats: Sequence[Repeat]) -> LedgerComparison:
    """Compare what two runs recorded and stored."""
    with_ledger = all(repeat.has(LEDGER) for repeat in repeats)
    sides = [_rows_of(repeat, with_ledger=with_ledger) for repeat in repeats]
    if of_segmentations(repeats):
        by_stage = [
            list(_by_stage_of_segmentation(side, repeat))
            for side, repeat in zip(sides, repeats, strict=True)
        ]
        sides = _comparable(by_stage, repeats)
    a, b = sides
    ignored = _Ignored.beside(repeats)
    return compare_ledgers(a, b, stages=stages_of(repeats), ignored=ignored.is_one)


@dataclass(frozen=True)
class _Ignored:
    """Rows in which two runs differ because of another difference, or without a meaning."""

    spec_fields: frozenset[str]
    other_cellpose: bool
    other_mode: bool

    @classmethod
    def beside(cls, repeats: Sequence[Repeat]) -> _Ignored:
        a, b = (repeat.spec for repeat in repeats)
        fields = set(_SPEC_FIELDS_LEFT_OUT)
        if a.model_digest is not None and b.model_digest is not None:
            fields.add("model")
        return cls(frozenset(fields), a.cellpose != b.cellpose, a.mode_in_words != b.mode_in_words)

    def is_one(self, row: LedgerRow) -> bool:
        """Whether a row of a ledger is ignored."""
        if row.stage == "spec":
            return row.name in self.spec_fields
        if self.other_cellpose and row.name in _NOT_IN_OTHER_VERSIONS:
            return True
        if self.other_mode and row.stage == "environment":  # what follows from the mode
            return row.name.startswith("switches.") or row.name.endswith("WORKSPACE_CONFIG")
        return False


def _rows_of(repeat: Repeat, *, with_ledger: bool) -> list[LedgerRow]:
    """A repeat's profile and ledger, and its files as they are now."""
    ledger = Ledger()
    for name, value in flattened(repeat.spec.profile_settings, "profile"):
        if name != "profile.name":
            detail = "not set" if value is None else value
            ledger.add("environment", name, value_digest(value), detail=detail)
    if with_ledger:
        ledger.entries += read_rows(repeat.file(LEDGER), LedgerRow)
    else:
        _add_manifest(ledger, repeat)
    _spell_settings_out(ledger, repeat)
    ledger.step = _LAST
    if repeat.weights is not None:
        ledger.add("weights", _STORED_FILE, file_digest(repeat.weights))
    for image, record in repeat.manifest.masks.items():
        labels = repeat.masks(image)
        name = f"{image} {_STORED_FILE}"
        ledger.add("masks", name, array_digest(labels), value=record.n_objects)
    return ledger.entries


def _spell_settings_out(ledger: Ledger, repeat: Repeat) -> None:
    """Give each setting of a segmentation a row of its own, in place of one for all of them."""
    ledger.entries = [
        row for row in ledger.entries if (row.stage, row.name) != ("spec", "settings")
    ]
    if repeat.spec.task != "segment":
        return
    for name, value in repeat.spec.settings.by_name().items():
        in_words = setting_in_words(name, value, unset_as=network_diameter(name))
        ledger.add("spec", name, value_digest(value), detail=in_words)


def _add_manifest(ledger: Ledger, repeat: Repeat) -> None:
    """Rows from the manifest of a repeat without a ledger."""
    manifest = repeat.manifest
    environment = manifest.model_dump(mode="json", include={*ENVIRONMENT_FIELDS})
    for name, value in flattened(environment):
        ledger.add("environment", name, value_digest(value), detail=value)
    for name, value in repeat.spec.model_dump(mode="json").items():
        ledger.add("spec", name, value_digest(value), detail=value)
    for name, digest in manifest.data.files.items():
        ledger.add("data", f"file {name}", digest)
    ledger.add("weights-init", "initial weights", manifest.model.initial_weights)
    for image, masks in manifest.masks.items():
        ledger.add("masks", f"{image} outlines", masks.canonical_digest, value=masks.n_objects)
        ledger.add("masks", f"{image} labels", masks.digest, value=masks.n_objects)


# --- segmentations ----------------------------------------------------------------------------


def _by_stage_of_segmentation(rows: Sequence[LedgerRow], repeat: Repeat) -> Iterator[LedgerRow]:
    """Give a ledger's rows the stages of a segmentation.

    True masks, images that were not segmented, and generators are left out.
    """
    images = repeat.manifest.masks
    for row in rows:
        stage = _stage_in_segmentation(row, images)
        if stage is not None:
            yield replace(row, stage=stage)


def _stage_in_segmentation(row: LedgerRow, images: Collection[str]) -> str | None:
    """The stage of a segmentation that a row belongs to; None for what it does not use."""
    match row.stage:
        case "rng":
            return None
        case "data":
            return _stage_of_data(row.name, images)
        case "masks" if not row.name.endswith(" masks"):
            return "filtered"
    return row.stage


def _stage_of_data(name: str, images: Collection[str]) -> str | None:
    """``file`` or ``decoded`` for a row of a segmented image; None for others."""
    if name.startswith("file "):
        if Path(name.removeprefix("file ")).stem in images:
            return "file"
        return None
    is_decoded = name.endswith(" decoded") and name.removesuffix(" decoded") in images
    return "decoded" if is_decoded else None


def _comparable(
    sides: Sequence[list[LedgerRow]], repeats: Sequence[Repeat]
) -> list[list[LedgerRow]]:
    """Leave out stages that one ledger lacks, as older ones do.

    So are the weights where both have one model in two precisions.
    """
    stages_a, stages_b = ({row.stage for row in side} for side in sides)
    left_out = set(PASSED.keys() - (stages_a & stages_b))
    a, b = (repeat.spec for repeat in repeats)
    same_model = (a.model, a.model_digest) == (b.model, b.model_digest)
    precisions = {spec.precision for spec in (a, b)}
    if same_model and len(precisions) == 2:
        left_out.add("weights-init")
    return [[row for row in side if row.stage not in left_out] for side in sides]
