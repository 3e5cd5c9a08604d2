"""Words that an option of a run may be; the command line lists them without importing the rest."""

from __future__ import annotations

from typing import Literal, get_args

LedgerKind = Literal["off", "steps", "ops"]
"""What a run writes down while it goes on: nothing, a line a step, every operation."""

LEDGERS: tuple[LedgerKind, ...] = get_args(LedgerKind)

StoredCheckpoints = Literal["none", "last", "all"]
"""Which checkpoints of a training are stored with the finished repeat."""

STORED_CHECKPOINTS: tuple[StoredCheckpoints, ...] = get_args(StoredCheckpoints)
