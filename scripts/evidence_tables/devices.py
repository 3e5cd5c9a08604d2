"""What segmentations and trainings on different devices ended in, in mode portable and without."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from cellrepro import BadInput, compare_repeats
from cellrepro.explanation.two_results import Comparison
from cellrepro.store.ledger import LEDGER, LedgerRow
from cellrepro.store.row_tables import read_rows
from cellrepro.store.stored_run import Repeat
from evidence_tables.table import Row, StoreOfRuns, Table
from samebits.digests import value_digest

_MODES = ("fast", "portable")

PORTABLE = Table(
    "portable",
    known_by=("images", "network", "mode", "machine", "profile", "batch", "torch", "numpy"),
)
PORTABLE_TRAINING = Table(
    "portable_training", known_by=("images", "mode", "machine", "profile", "epochs")
)


@dataclass(frozen=True)
class Device:
    """What computed a segmentation."""

    machine: str
    profile: str
    batch: int
    """Tiles at a time."""
    torch: str
    """The version of PyTorch."""

    @property
    def newness(self) -> tuple[int, ...]:
        """The version of PyTorch as numbers."""
        return tuple(map(int, self.torch.split(".")[:2]))

    @property
    def may_be_reference(self) -> bool:
        """Whether others are compared with it, if its PyTorch is the newest."""
        is_usual = self.profile == "cpu" and self.batch == 8
        return is_usual and not self.machine.startswith("emulated")


@dataclass(frozen=True)
class Segmentation:
    """The first repeat of a segmentation, and what computed it."""

    repeat: Repeat
    device: Device

    @classmethod
    def of(cls, repeat: Repeat) -> Segmentation:
        """Of a repeat."""
        machine = repeat.manifest.machine
        device = Device(
            machine=machine.label,
            profile=repeat.spec.profile,
            batch=repeat.spec.settings.batch_size,
            torch=machine.versions["torch"],
        )
        return cls(repeat, device)

    def is_of_same_content(self, other: Segmentation) -> bool:
        """Whether another one is of the same images by the same network."""
        own, others = self.repeat.spec, other.repeat.spec
        return (own.data_digest, own.model_digest) == (others.data_digest, others.model_digest)


def portable(store: StoreOfRuns) -> None:
    """Segmentations beside that of the profile cpu, and beside that of the other mode."""
    segmentations = [
        Segmentation.of(repeat)
        for run in store.runs()
        if run.spec.task == "segment" and run.spec.mode in _MODES
        for repeat in run.repeats
        if repeat.index == 0
    ]
    for one in segmentations:
        PORTABLE.keep(beside_others(one, list(filter(one.is_of_same_content, segmentations))))


def portable_training(store: StoreOfRuns) -> None:
    """What first repeats of trainings in plain float32 and in mode portable ended in."""
    for run in store.runs():
        for repeat in run.repeats:
            spec = repeat.spec
            manifest = repeat.manifest
            if spec.mode in _MODES and repeat.index == 0 and manifest.weights:
                PORTABLE_TRAINING.keep(
                    {
                        "images": spec.data,
                        "mode": spec.mode,
                        "machine": manifest.machine.label,
                        "profile": spec.profile,
                        "epochs": spec.epochs,
                        "weights": manifest.weights.digest,
                        "ap50": manifest.ap50,
                        "n_cells": manifest.n_objects,
                    }
                )


def beside_others(one: Segmentation, alike: list[Segmentation]) -> Row:
    """A segmentation beside those of the same images by the same network."""
    newest = max(other.device.newness for other in alike)
    reference = next(
        other
        for other in alike
        if other.repeat.spec.mode == one.repeat.spec.mode
        and other.device.may_be_reference
        and other.device.newness == newest
    )
    in_other_mode = next(
        (
            other
            for other in alike
            if other.repeat.spec.mode != one.repeat.spec.mode and other.device == one.device
        ),
        None,
    )
    beside_reference = compare_repeats(reference.repeat, one.repeat)
    spec = one.repeat.spec
    manifest = one.repeat.manifest
    return {
        "images": spec.data,
        "network": spec.model.split("/")[0],
        "mode": spec.mode,
        **asdict(one.device),
        "numpy": manifest.machine.versions["numpy"],
        "network_output": digest_of_flows(one.repeat),
        "masks": manifest.masks_digest,
        "n_cells": manifest.n_objects,
        "changed": share_changed(beside_reference),
        "ppm": beside_reference.totals.ppm,
        "changed_by_mode": in_other_mode
        and share_changed(compare_repeats(in_other_mode.repeat, one.repeat)),
    }


def share_changed(comparison: Comparison) -> float:
    """The share of the cells of both sides without a match."""
    totals = comparison.totals
    return totals.n_unmatched / max(1, totals.n_objects)


def digest_of_flows(repeat: Repeat) -> str:
    """A digest of what the network gave for all images."""
    rows = read_rows(repeat.folder / LEDGER, LedgerRow)
    digests = [row.digest for row in rows if row.stage == "flows"]
    if not digests:
        raise BadInput(f"{repeat.name} has no flows in its ledger; segment with --ledger steps")
    return value_digest(digests)[:16]
