"""How much an audit looks at: steps, and replays of each operation."""

from __future__ import annotations

from dataclasses import dataclass

from cellrepro.asked import defaults
from cellrepro.errors import whole


@dataclass(frozen=True)
class AuditOptions:
    """How much an audit looks at, as `cellrepro.audit` takes it.

    Attributes
    ----------
    steps : int
        Of a training; of a segmentation, images.
    replays : int
        Of each operation in each step.
    suspects : int
        Replays, if more, of an operation that has a substitute or is documented to race.
    threads : int, optional
        CPU threads of PyTorch meanwhile; by default the profile's.
    """

    steps: int = defaults.AUDITED_STEPS
    replays: int = defaults.REPLAYS
    suspects: int = defaults.SUSPECT_REPLAYS
    threads: int | None = None


def checked_options(
    *, steps: int, replays: int, suspects: int, threads: int | None
) -> AuditOptions:
    """Check how much an audit is asked to look at.

    Parameters
    ----------
    steps, replays : int
        1 or more.
    suspects : int
        0 or more.
    threads : int or None
        1 or more; None for those of the profile.

    Returns
    -------
    AuditOptions

    Raises
    ------
    BadInput
        If a number is no whole number, or below its least.
    """
    return AuditOptions(
        steps=whole("steps", steps, least=1),
        replays=whole("replays", replays, least=1),
        suspects=whole("suspects", suspects, least=0),
        threads=None if threads is None else whole("threads", threads, least=1),
    )
