"""How much an audit looks at: steps, and replays of each operation."""

from __future__ import annotations

from dataclasses import dataclass

from cellrepro.errors import whole
from cellrepro.spec import defaults


@dataclass(frozen=True)
class AuditOptions:
    """How much an audit looks at, as `cellrepro.audit` takes it."""

    steps: int = defaults.AUDITED_STEPS
    """Of a training; of a segmentation, images."""
    replays: int = defaults.REPLAYS
    """Of each operation in each step."""
    suspects: int = defaults.SUSPECT_REPLAYS
    """Replays, if more, of an operation that has a substitute or is documented to race."""
    threads: int | None = None
    """CPU threads of PyTorch meanwhile; by default the profile's."""


def checked_options(
    *, steps: int, replays: int, suspects: int, threads: int | None
) -> AuditOptions:
    """Check how much an audit is asked to look at."""
    return AuditOptions(
        steps=whole("steps", steps, least=1),
        replays=whole("replays", replays, least=1),
        suspects=whole("suspects", suspects, least=0),
        threads=None if threads is None else whole("threads", threads, least=1),
    )
