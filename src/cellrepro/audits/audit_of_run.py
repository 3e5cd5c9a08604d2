"""What all audits have in common: their options, and the fields of their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cellrepro.spec.spec import Spec
from samebits import Audit, NondeterministicOperation, audit, replaying
from samebits.errors import whole
from samebits.mode_names import Mode
from samebits.results import Result, derived

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class AuditOptions:
    """How much an audit repeats; see `cellrepro.audit`."""

    steps: int = replaying.AUDITED_STEPS
    """Steps of a training, images of a segmentation."""
    replays: int = replaying.REPLAYS
    """How often each operation of a step is run again."""
    suspects: int = replaying.SUSPECT_REPLAYS
    """How often, if more, an operation that has a substitute or is documented to race."""
    threads: int | None = None
    """CPU threads of PyTorch meanwhile; by default the profile's."""

    def audited(
        self, step: Callable[[], object], *, steps: int, model: nn.Module | None = None
    ) -> Audit:
        """Audit so many calls of a step."""
        return audit(
            step,
            steps=steps,
            replays=self.replays,
            suspects=self.suspects,
            threads=self.threads,
            model=model,
        )


def checked_options(
    *, steps: int, replays: int, suspects: int, threads: int | None
) -> AuditOptions:
    """Refuse numbers that are too small."""
    return AuditOptions(
        steps=whole("steps", steps, least=1),
        replays=whole("replays", replays, least=1),
        suspects=whole("suspects", suspects, least=0),
        threads=None if threads is None else whole("threads", threads, least=1),
    )


@dataclass(frozen=True, repr=False)
class AuditOfRun(Result):
    """Operations of a run that were executed again, and what of them flips."""

    spec: Spec = field(repr=False)
    """The spec of the run that was audited."""
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
        """The mode of the run."""
        return self.spec.mode

    @derived
    def profile(self) -> str:
        """The profile of the run."""
        return self.spec.profile
