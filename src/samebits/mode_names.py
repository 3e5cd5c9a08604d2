"""The names of the modes, which a command line lists without importing the rest."""

from __future__ import annotations

from typing import Literal, get_args

Mode = Literal["off", "fast", "warn", "strict", "portable"]
"""``off`` seeds and sets nothing, as plain PyTorch; ``fast`` fixes nothing but the seeds, ``warn``
warns of operations without a deterministic implementation, ``strict`` makes them an error and puts
the substitutes in place, and ``portable`` also computes everything in an arithmetic that gives the
same bits on every machine."""

MODES: tuple[Mode, ...] = get_args(Mode)
"""All of them, from the loosest."""
