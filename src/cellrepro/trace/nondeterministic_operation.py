"""One operation at one place that does not repeat bit for bit, or of which PyTorch says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NondeterministicOperation:
    """What is known of it: from replays, from PyTorch's warnings and from the documentation.

    Attributes
    ----------
    op : str
        As dispatched, with its overload; of a warning that was not observed, its `alert`.
    module, source, phase : str or None
        As in `cellrepro.store.manifest.Place`; the phase is none where it was not observed.
    flips : int
        Replays that gave other bits than the first execution. Of an operation that hands out
        memory which nobody has written: how often a result was computed from what that held.
    replays : int
        Replays made, 0 where there were none; or how often such memory was handed out.
    warned : bool
        Whether PyTorch warns of it when asked to (deterministic algorithms, warn only).
    substitute : str or None
        What mode ``strict`` puts in its place, see `cellrepro.determinism.substitutes`.
    max_abs : float
        Largest difference between two executions, in the units of the output.
    n_elements : int
        Most elements that differed in one replay.
    calls : int
        How often it ran in the steps watched, or how often the warning came.
    reason, remedy : str
        From what PyTorch and cuDNN document, and what is known beyond it; empty where unknown.
    alert : str or None
        What PyTorch calls it in its warning; none of what was found by replays.
    read_by : str or None
        Of memory that nobody has written: the operation that first computed from it, with its
        phase, module and line.
    effect : Effect or None
        What it does to weights and cells when it alone is loose, where that was measured.
    no_effect_because : str or None
        Why that was asked for and is not known.
    """

    op: str
    module: str | None
    source: str | None
    phase: str | None
    flips: int = 0
    replays: int = 0
    warned: bool = False
    substitute: str | None = None
    max_abs: float = 0.0
    n_elements: int = 0
    calls: int = 0
    reason: str = ""
    remedy: str = ""
    alert: str | None = None
    read_by: str | None = None
    effect: Any = None
    no_effect_because: str | None = None

    @property
    def seen(self) -> str:
        """What was seen of it, and how often."""
        if self.read_by is not None:
            return (
                f"{self.flips} of {self.replays} times a result was computed from what its memory "
                "held by chance"
            )
        return (
            f"{self.flips} of {self.replays} replays gave other bits, largest difference "
            f"{self.max_abs:.2g}"
        )

    def sentence(self) -> str:
        """What was seen, where, and what helps."""
        warned = "PyTorch warns of it" if self.warned else "PyTorch does not warn of it"
        where = f"{self.phase} of {self.module or 'no module'}"
        line = f" ({self.source})" if self.source else ""
        helps = f"substitute: {self.substitute}" if self.substitute else self.remedy
        why = f"; {self.reason}" if self.read_by is not None else ""
        return f"{self.op}, {where}{line}: {self.seen}{why}; {warned}; {helps}"
