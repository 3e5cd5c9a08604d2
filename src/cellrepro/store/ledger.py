"""The ledger of one repeat: digests of what went in and came out, stage by stage, step by step.

It is a Parquet table, one row a digest, in the order in which the run computed them. While a run
goes on its rows lie in `cellrepro.store.row_tables.Pieces`, so that a killed process loses only the
last piece.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

LEDGER = "ledger.parquet"
OPERATIONS = "ledger-ops.parquet"
DRAWS = "ledger-draws.parquet"

BEFORE_TRAINING = ("environment", "spec", "data", "weights-init")
IN_EVERY_STEP = ("rng", "batch", "forward", "loss", "backward", "update", "weights")
AFTER_TRAINING = ("flows", "masks")
STAGES = (*BEFORE_TRAINING, *IN_EVERY_STEP, *AFTER_TRAINING)
"""Stages in the order in which a training passes them."""

SEGMENTATION_STAGES = (
    "environment",
    "spec",
    "weights-init",
    "file",  # from here on, of each image
    "decoded",
    "channels",
    "normalised",
    "resized",
    "tiles",
    "network",
    "flows",
    "dynamics",
    "masks",
    "filtered",
)
"""Stages in the order in which a segmentation passes them."""

BEFORE = -1
"""The step of all rows before the first one."""


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One digest."""

    step: int
    """Number of the step, from 0; `BEFORE` before the first, the number of steps after the last."""
    epoch: int
    """Number of the epoch, from 0; -1 before the first."""
    stage: str
    """One of `STAGES` or `SEGMENTATION_STAGES`."""
    name: str
    """Name of the variable, file, image, generator or group of layers."""
    digest: str
    """Digest of a tensor, a file or a plain value, see `samebits.digests`."""
    value: float | None = None
    """A number beside the digest: the loss, a norm."""
    detail: str | None = None
    """A short value as JSON: the images of a batch, the value of a field."""


class Ledger:
    """Rows in the order in which they were added, each with the present step and epoch."""

    def __init__(self) -> None:
        self.entries: list[LedgerRow] = []
        self.step = BEFORE
        self.epoch = -1

    def add(
        self, stage: str, name: str, digest: str, *, value: float | None = None, detail: Any = None
    ) -> None:
        """Add one row at the present step."""
        text = None if detail is None else json.dumps(detail, sort_keys=True, default=str)
        self.entries.append(LedgerRow(self.step, self.epoch, stage, name, digest, value, text))


def by_place(entries: Iterable[LedgerRow]) -> Mapping[tuple[int, str, str], LedgerRow]:
    """Entries by step, stage and name."""
    return {(entry.step, entry.stage, entry.name): entry for entry in entries}
