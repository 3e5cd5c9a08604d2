"""Study 7: whether differences between machines can be removed."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from cellrepro.words import ppm_text, share_text
from studies.evidence import table
from studies.numbers import markdown

IMAGES = ("nuclei", "cells", "synthetic")


@dataclass(frozen=True)
class PortableSet:
    """What the text says of one set of images.

    Attributes
    ----------
    n_devices : int
        Devices, batch sizes and versions that were compared.
    n_plain, n_portable : int
        Different outputs of the network over all of them.
    n_plain_masks, n_portable_masks : int
        Different masks over all of them.
    most_changed : str
        Share of the cells that a device changed at most in plain float32.
    changed_by_mode : str
        Share of the cells that differ between the two modes on one device, at most.
    n_cells : int
        In all images.
    """

    n_devices: int
    n_plain: int
    n_portable: int
    n_plain_masks: int
    n_portable_masks: int
    most_changed: str
    changed_by_mode: str
    n_cells: int


@dataclass(frozen=True)
class TrainedOnDevices:
    """What the text says of one training on different devices.

    Attributes
    ----------
    n_devices, epochs : int
    n_plain, n_portable : int
        Different networks that came of it.
    plain_scores, portable_scores : str
        AP@0.5, the least to the highest.
    """

    n_devices: int
    epochs: int
    n_plain: int
    n_portable: int
    plain_scores: str
    portable_scores: str


@dataclass(frozen=True)
class Study7:
    """What the text says of devices in both modes.

    Attributes
    ----------
    sets : dict of str to PortableSet
        By images.
    table : str
        Of segmentations.
    trained : TrainedOnDevices
    """

    sets: dict[str, PortableSet]
    table: str
    trained: TrainedOnDevices


def study_7() -> Study7:
    """How many different results devices gave in plain float32, and in mode portable."""
    rows = table("portable.csv")
    return Study7(
        sets={images: _set(rows[rows.images == images]) for images in IMAGES},
        table=_table(rows),
        trained=_trained(table("portable_training.csv")),
    )


def _trained(rows: pd.DataFrame) -> TrainedOnDevices:
    plain = rows[rows["mode"] == "fast"]
    portable = rows[rows["mode"] == "portable"]
    return TrainedOnDevices(
        n_devices=len(portable),
        epochs=int(rows.epochs.max()),
        n_plain=plain.weights.nunique(),
        n_portable=portable.weights.nunique(),
        plain_scores=_span(plain.ap50),
        portable_scores=_span(portable.ap50),
    )


def _span(scores: pd.Series) -> str:
    """The least to the highest, or the one that all have."""
    least, highest = f"{scores.min():.3f}", f"{scores.max():.3f}"
    return least if least == highest else f"{least} to {highest}"


def _set(rows: pd.DataFrame) -> PortableSet:
    plain = rows[rows["mode"] == "fast"]
    portable = rows[rows["mode"] == "portable"]
    return PortableSet(
        n_devices=len(portable),
        n_plain=plain.network_output.nunique(),
        n_portable=portable.network_output.nunique(),
        n_plain_masks=plain.masks.nunique(),
        n_portable_masks=portable.masks.nunique(),
        most_changed=share_text(plain.changed.max()),
        changed_by_mode=share_text(rows.changed_by_mode.max()),
        n_cells=int(portable.n_cells.max()),
    )


_HEAD = [
    "images",
    "device",
    "tiles at a time",
    "PyTorch, NumPy",
    "plain: network's output",
    "plain: pixels that differ",
    "portable: network's output",
    "portable: pixels that differ",
]


def _table(rows: pd.DataFrame) -> str:
    """A row for each device, with what each mode gave beside the profile cpu."""
    columns = ["images", "machine", "profile", "batch", "torch", "numpy"]
    lines = []
    for known, of_device in rows.groupby(columns, sort=False):
        images, machine, profile, batch, torch, numpy = known
        by_mode = of_device.set_index("mode")
        line = [
            str(images),
            f"`{machine}`, `{profile}`",
            str(batch),
            f"{torch}, {numpy}",
        ]
        for mode in ("fast", "portable"):
            if mode in by_mode.index:
                row = by_mode.loc[mode]
                line += [f"`{row.network_output[:8]}`", ppm_text(row.ppm)]
            else:
                line += ["–", "–"]
        lines.append(line)
    return markdown(_HEAD, lines)
