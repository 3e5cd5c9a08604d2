"""Segmentations of one network on different devices and versions, plain and in mode portable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from cellrepro import compare_repeats
from cellrepro.errors import BadInput
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from collecting.tables import Table

PORTABLE = Table(
    "portable.csv",
    ("images", "network", "mode", "machine", "profile", "batch", "torch", "numpy"),
)
TRAINED = Table("portable_training.csv", ("images", "mode", "machine", "profile", "epochs"))
MODES = ("fast", "portable")


@dataclass(frozen=True)
class PortableRow:
    """One segmentation; the first fields are the table's first columns.

    Attributes
    ----------
    images, network, mode, machine, profile : str
        Images and network by name; the machine as its runs are called.
    batch : int
        Tiles that the network sees at a time.
    torch, numpy : str
        Their versions.
    network_output, masks : str
        Digests of the flows of all images, and of all masks.
    n_cells : int
        In all images.
    changed, ppm : float
        Cells and pixels that differ from those of the profile cpu in the same mode: share of the
        cells of both sides, and pixels per million.
    changed_by_mode : float
        Share of the cells that differ from those of the other mode on the same device.
    """

    images: str
    network: str
    mode: str
    machine: str
    profile: str
    batch: int
    torch: str
    numpy: str
    network_output: str
    masks: str
    n_cells: int
    changed: float
    ppm: float
    changed_by_mode: float


@dataclass(frozen=True)
class TrainedRow:
    """One training; the first fields are the table's first columns.

    Attributes
    ----------
    images, mode, machine, profile : str
    epochs : int
    weights : str
        Digest of what was trained.
    ap50 : float or None
        Of the test images.
    n_cells : int
        In all of them.
    """

    images: str
    mode: str
    machine: str
    profile: str
    epochs: int
    weights: str
    ap50: float | None
    n_cells: int


def collect_portable(store: Store) -> None:
    """Compare segmentations by one network, and list trainings, on different devices.

    Every segmentation is compared with that of the profile cpu, and with that of the other mode.

    Parameters
    ----------
    store : Store
        With runs of both modes.
    """
    PORTABLE.add([asdict(row) for row in _rows(store)])


def collect_portable_training(store: Store) -> None:
    """List what trainings in both modes ended in.

    Parameters
    ----------
    store : Store
        With one training for each mode and device.
    """
    TRAINED.add(
        [
            asdict(
                TrainedRow(
                    images=repeat.spec.data,
                    mode=repeat.spec.mode,
                    machine=repeat.manifest.machine.label,
                    profile=repeat.spec.profile,
                    epochs=repeat.spec.epochs,
                    weights=repeat.manifest.weights.digest,
                    ap50=repeat.manifest.ap50,
                    n_cells=repeat.manifest.n_objects,
                )
            )
            for run in store.runs()
            if run.spec.task == "train" and run.spec.mode in MODES
            for repeat in run.repeats
            if repeat.index == 0 and repeat.manifest.weights is not None
        ]
    )


def _rows(store: Store) -> Iterator[PortableRow]:
    repeats = [
        repeat
        for run in store.runs()
        if run.spec.task == "segment" and run.spec.mode in MODES
        for repeat in run.repeats
        if repeat.index == 0
    ]
    for repeat in repeats:
        alike = [other for other in repeats if _same_images_and_network(other, repeat)]
        reference = next(
            other
            for other in alike
            if other.spec.mode == repeat.spec.mode and _is_usual(other) and _is_newest(other, alike)
        )
        in_other_mode = next(
            (
                other
                for other in alike
                if other.spec.mode != repeat.spec.mode and _device(other) == _device(repeat)
            ),
            None,
        )
        totals = compare_repeats(reference, repeat).totals
        between_modes = (
            None if in_other_mode is None else compare_repeats(in_other_mode, repeat).totals
        )
        yield PortableRow(
            images=repeat.spec.data,
            network=repeat.spec.model.split("/")[0],
            mode=repeat.spec.mode,
            machine=repeat.manifest.machine.label,
            profile=repeat.spec.profile,
            batch=repeat.spec.settings.batch_size,
            torch=repeat.manifest.machine.versions["torch"],
            numpy=repeat.manifest.machine.versions["numpy"],
            network_output=_digest_of_flows(repeat),
            masks=repeat.manifest.masks_digest,
            n_cells=repeat.manifest.n_objects,
            changed=totals.n_unmatched / max(1, totals.n_objects),
            ppm=totals.ppm,
            changed_by_mode=(
                float("nan")
                if between_modes is None
                else between_modes.n_unmatched / max(1, between_modes.n_objects)
            ),
        )


def _same_images_and_network(a: Repeat, b: Repeat) -> bool:
    return (a.spec.data_digest, a.spec.model_digest) == (b.spec.data_digest, b.spec.model_digest)


def _device(repeat: Repeat) -> tuple[object, ...]:
    machine = repeat.manifest.machine
    return (
        machine.label,
        repeat.spec.profile,
        repeat.spec.settings.batch_size,
        machine.versions["torch"],
    )


def _is_usual(repeat: Repeat) -> bool:
    is_emulated = repeat.manifest.machine.label.startswith("emulated")
    return repeat.spec.profile == "cpu" and repeat.spec.settings.batch_size == 8 and not is_emulated


def _is_newest(repeat: Repeat, others: list[Repeat]) -> bool:
    newest = max(_version(other) for other in others)
    return _version(repeat) == newest


def _version(repeat: Repeat) -> tuple[int, ...]:
    return tuple(int(part) for part in repeat.manifest.machine.versions["torch"].split(".")[:2])


def _digest_of_flows(repeat: Repeat) -> str:
    from cellrepro.digests.digests import value_digest
    from cellrepro.store.ledger import LEDGER, LedgerRow
    from cellrepro.store.row_tables import read_rows

    rows = read_rows(repeat.folder / LEDGER, LedgerRow)
    digests = [row.digest for row in rows if row.stage == "flows"]
    if not digests:
        raise BadInput(f"{repeat.name} has no flows in its ledger; segment with --ledger steps")
    return value_digest(digests)[:16]
