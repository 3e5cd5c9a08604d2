"""What the audits of a training and of a segmentation have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cellrepro.determinism.mode_names import Mode
from cellrepro.results import Result, derived
from cellrepro.spec.spec import Spec
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from cellrepro.trace.operation_audit import Audit


@dataclass(frozen=True, repr=False)
class AuditOfRun(Result):
    """Operations of a run that were executed again, and what of them flips."""

    spec: Spec = field(repr=False)
    """Of the run that was audited."""
    operations: Audit = field(repr=False)
    """What was replayed, how often, and what flipped; steps of a segmentation are images."""

    @derived
    def ops(self) -> tuple[NondeterministicOperation, ...]:
        """Operations whose bits flip, most flips first."""
        return self.operations.ops

    @derived
    def n_steps(self) -> int:
        """Steps, of a segmentation images, that were watched."""
        return self.operations.n_steps

    @derived
    def n_replays(self) -> int:
        """How often operations were run again."""
        return self.operations.n_replays

    @derived
    def threads(self) -> int:
        """PyTorch's threads on the processor."""
        return self.operations.threads

    @derived
    def kinds(self) -> Mapping[str, int]:
        """Operations by kind, and how many of each ran."""
        return self.operations.kinds

    @derived
    def replays(self) -> Mapping[str, int]:
        """How many were run again, by kind."""
        return self.operations.replays

    @derived
    def mode(self) -> Mode:
        """In which it was watched."""
        return self.spec.mode

    @derived
    def profile(self) -> str:
        """With which it was watched."""
        return self.spec.profile
