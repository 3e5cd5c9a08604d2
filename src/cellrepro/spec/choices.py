"""Choices for options of a run, apart so that the command line lists them without pydantic."""

from __future__ import annotations

from typing import Literal, get_args

LedgerKind = Literal["off", "steps", "ops"]
"""What a run writes down as it goes: nothing, a row for each step, every operation."""

LEDGERS: tuple[LedgerKind, ...] = get_args(LedgerKind)

StoredCheckpoints = Literal["none", "last", "all"]
"""Which checkpoints of a training are stored with the finished repeat."""

STORED_CHECKPOINTS: tuple[StoredCheckpoints, ...] = get_args(StoredCheckpoints)
