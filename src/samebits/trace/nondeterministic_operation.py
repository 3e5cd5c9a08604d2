"""One operation at one site that does not repeat bit for bit, or of which PyTorch says so."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.results import Result, derived
from samebits.words import amount


@dataclass(frozen=True, repr=False)
class NondeterministicOperation(Result):
    """An operation as replays, PyTorch's warnings and the documentation describe it.

    It shows in one of three ways: its replays gave different bits, PyTorch warned of it (`warned`,
    `alert`), or it handed out memory that nobody has written (`read_by`).
    """

    op: str
    """Its name as dispatched, with its overload; its `alert` where it was not observed."""
    module: str | None
    """Path of the innermost module, or the class of the network; none outside of any."""
    source: str | None
    """``FILE:LINE in FUNCTION`` outside PyTorch that called it; in the backward, its forward."""
    phase: str | None
    """``forward``, ``backward`` or ``update``; none where the operation was not observed."""
    flips: int = 0
    """Replays with different bits; of unwritten memory, results that were computed from it."""
    replays: int = 0
    """Replays made; of unwritten memory, how often it was handed out."""
    warned: bool = False
    """Whether PyTorch warned of it, when asked to (deterministic algorithms, warn only)."""
    substitute: str | None = None
    """The substitute that mode ``strict`` puts in its place."""
    max_abs: float = 0.0
    """Largest difference between two executions, in the units of the output."""
    n_elements: int = 0
    """The most that differed in one replay."""
    calls: int = 0
    """How often it was called in the steps watched, or how often the warning came."""
    reason: str = ""
    """Why it may differ, as documented by PyTorch and cuDNN, or known beyond it."""
    remedy: str = ""
    """A remedy where there is no substitute."""
    alert: str | None = None
    """What PyTorch's warning calls it; none if it was found by replays."""
    read_by: str | None = None
    """The operation that first computed from memory which nobody has written, and its place."""
    effect: Result | None = None
    """Its effect, alone, on a training, where that was measured."""
    no_effect_because: str | None = None
    """Why that was not measured."""

    @derived
    def effect_sentence(self) -> str | None:
        """Say what ``effect`` says in words."""
        return None if self.effect is None else self.effect.sentence()

    @derived
    def seen(self) -> str:
        """Say what was seen of it, and how often."""
        times = f"{self.flips} of {self.replays}"
        if self.read_by is not None:
            return f"{times} times a result was computed from what its memory held by chance"
        if self.replays:
            return f"{times} replays gave different bits, largest difference {self.max_abs:.2g}"
        if self.warned:
            return f"PyTorch warned of it in {amount(self.calls, 'call')}"
        return "it was not replayed"

    def sentence(self) -> str:
        """Say what was seen, where, and what helps."""
        parts = [f"{self._where()}: {self.seen}"]
        if self.read_by is not None:
            parts.append(self.reason)
        if self.replays:  # without replays, the warning is what was seen
            warns = "warns" if self.warned else "does not warn"
            parts.append(f"PyTorch {warns} of it")
        remedy = f"substitute: {self.substitute}" if self.substitute else self.remedy
        if remedy:
            parts.append(remedy)
        return "; ".join(parts)

    def _where(self) -> str:
        """The operation, its phase and module as far as they are known, and its line."""
        where = self.op
        if self.phase is not None:
            where += f", {self.phase} of {self.module or 'no module'}"
        if self.source is not None:
            where += f" ({self.source})"
        return where
