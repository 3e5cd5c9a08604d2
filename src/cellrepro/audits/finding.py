"""One thing that a result depends on, or that changes it, as `diagnose` finds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Level = Literal["error", "warning", "info"]
"""``warning``: reproducible here, but something else than the spec decides the result."""

LEVELS: tuple[Level, ...] = get_args(Level)
"""The worst first."""


@dataclass(frozen=True)
class Finding:
    """One thing that a result depends on, or that changes it."""

    level: Level
    """How bad it is."""
    what: str
    """What was found."""
    remedy: str
    """What helps."""
