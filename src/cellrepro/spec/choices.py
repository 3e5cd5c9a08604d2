"""Choices for options of a run, apart so that the command line lists them without pydantic."""

from __future__ import annotations

from typing import Literal, get_args

LedgerKind = Literal["off", "steps", "ops"]
"""Degrees of detail in what a run writes down: nothing, a row for each step, every operation."""

LEDGERS: tuple[LedgerKind, ...] = get_args(LedgerKind)

StoredCheckpoints = Literal["none", "last", "all"]
"""Choices of checkpoints that are stored with the finished repeat of a training."""

STORED_CHECKPOINTS: tuple[StoredCheckpoints, ...] = get_args(StoredCheckpoints)
