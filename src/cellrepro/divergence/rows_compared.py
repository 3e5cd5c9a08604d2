"""All that two runs left, compared stage by stage in the order in which they passed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cellrepro.comparison.ledger_diff import LedgerComparison, compare_ledgers
from cellrepro.digests.digests import array_digest, file_digest, value_digest
from cellrepro.digests.nested_values import flattened
from cellrepro.divergence.segmentations import comparable_stages, rows_by_stage
from cellrepro.store.ledger import (
    LEDGER,
    SEGMENTATION_STAGES,
    STAGES,
    Ledger,
    LedgerRow,
    read_rows,
)
from cellrepro.store.manifest import ENVIRONMENT_FIELDS
from cellrepro.store.store import Repeat

_LAST = 2**31 - 1  # the step of what is there once everything is done

_SPEC_FIELDS_LEFT_OUT = {
    "data",
    "data_digest",
    "model_digest",
    "profile",
    "profile_settings",
    "ledger",
}
"""Fields of a spec that have stages of their own, or do not change what is computed."""

_NOT_IN_OTHER_VERSIONS = ("versions.cellrepro", "versions.papermill")
"""Not installed beside a different version of Cellpose, and not used."""


def of_segmentations(repeats: Sequence[Repeat]) -> bool:
    """Whether all of them segmented only."""
    return all(repeat.spec.task == "segment" for repeat in repeats)


def stages_of(repeats: Sequence[Repeat]) -> tuple[str, ...]:
    """Give the stages that two runs passed, in order."""
    return SEGMENTATION_STAGES if of_segmentations(repeats) else STAGES


def compare_runs(repeats: Sequence[Repeat]) -> LedgerComparison:
    """Compare all that two runs left."""
    with_ledger = all(repeat.has(LEDGER) for repeat in repeats)
    sides = [_rows_of(repeat, with_ledger=with_ledger) for repeat in repeats]
    if of_segmentations(repeats):
        by_stage = [
            list(rows_by_stage(side, repeat)) for side, repeat in zip(sides, repeats, strict=True)
        ]
        sides = comparable_stages(by_stage, repeats)
    a, b = sides
    ignored = _Ignored.beside(repeats)
    return compare_ledgers(a, b, stages=stages_of(repeats), ignored=ignored.is_one)


@dataclass(frozen=True)
class _Ignored:
    """What differs between two runs without being a difference of its own."""

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
        """Whether a row of a ledger is passed over."""
        if row.stage == "spec":
            return row.name in self.spec_fields
        if self.other_cellpose and row.name in _NOT_IN_OTHER_VERSIONS:
            return True
        if self.other_mode and row.stage == "environment":  # what follows from the mode
            return row.name.startswith("switches.") or row.name.endswith("WORKSPACE_CONFIG")
        return False


def _rows_of(repeat: Repeat, *, with_ledger: bool) -> list[LedgerRow]:
    """What a repeat says of itself, and its files as they lie there now."""
    ledger = Ledger()
    for name, value in flattened(repeat.spec.profile_settings, "profile"):
        if name != "profile.name":
            detail = "not set" if value is None else value
            ledger.add("environment", name, value_digest(value), detail=detail)
    if with_ledger:
        ledger.entries += read_rows(repeat.file(LEDGER), LedgerRow)
    else:
        _add_manifest(ledger, repeat)
    ledger.step = _LAST
    if repeat.weights is not None:
        ledger.add("weights", "stored file", file_digest(repeat.weights))
    for image, record in repeat.manifest.masks.items():
        labels = repeat.masks(image)
        ledger.add("masks", f"{image} stored file", array_digest(labels), value=record.n_objects)
    return ledger.entries


def _add_manifest(ledger: Ledger, repeat: Repeat) -> None:
    """What the manifest of a repeat without a ledger says of it."""
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
