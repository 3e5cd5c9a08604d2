"""One operation at one place that does not repeat bit for bit, or of which PyTorch says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NondeterministicOperation:
    """What replays, PyTorch's warnings and the documentation say of it."""

    op: str  # as dispatched, with its overload; of a warning that was not observed, its `alert`
    module: str | None  # this and the next two as in `cellrepro.bits.site.Site`
    source: str | None
    phase: str | None  # none where it was not observed
    flips: int = 0  # replays with other bits; of unwritten memory, results computed from it
    replays: int = 0  # replays made; of unwritten memory, how often it was handed out
    warned: bool = False  # by PyTorch, when asked to (deterministic algorithms, warn only)
    substitute: str | None = None  # what mode ``strict`` puts in its place
    max_abs: float = 0.0  # between two executions, in the units of the output
    n_elements: int = 0  # most that differed in one replay
    calls: int = 0  # in the steps watched, or how often the warning came
    reason: str = ""  # as documented by PyTorch and cuDNN, or known beyond it
    remedy: str = ""
    alert: str | None = None  # what PyTorch's warning calls it; none if found by replays
    read_by: str | None = None  # of unwritten memory: what first computed from it, and where
    effect: Any = None  # `cellrepro.audits.training.Effect` of it alone, where measured
    no_effect_because: str | None = None

    @property
    def seen(self) -> str:
        """What was seen of it, and how often."""
        times = f"{self.flips} of {self.replays}"
        if self.read_by is not None:
            return f"{times} times a result was computed from what its memory held by chance"
        return f"{times} replays gave other bits, largest difference {self.max_abs:.2g}"

    def sentence(self) -> str:
        """What was seen, where, and what helps."""
        line = f" ({self.source})" if self.source else ""
        why = f"; {self.reason}" if self.read_by is not None else ""
        helps = f"substitute: {self.substitute}" if self.substitute else self.remedy
        return (
            f"{self.op}, {self.phase} of {self.module or 'no module'}{line}: {self.seen}{why}; "
            f"PyTorch {'warns' if self.warned else 'does not warn'} of it; {helps}"
        )
