"""What made a difference, and how that is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from cellrepro.comparison.operation_diff import DivergingOperation
from cellrepro.divergence.first_difference import FirstDifference
from cellrepro.divergence.judgements import DivergenceJudgement
from samebits import Alignment
from samebits.words import amount

Method = Literal[
    "stored operations",
    "stored draws",
    "repetition",
    "audit",
    "two replays",
    "ledgers",
    "segmented again",
]
"""How a cause was found; ``segmented again`` is of images."""

_HOW: Mapping[Method, str] = {
    "stored operations": "the operations that both runs have stored were compared",
    "stored draws": "the random numbers that both runs have stored were compared",
    "repetition": "the step was computed again from one state",
    "audit": "each operation of the step was repeated",
    "two replays": "the step was computed again as each of the two runs did it",
    "ledgers": "the checksums that both runs have stored were compared",
    "segmented again": "the image was segmented again",
}
_ENDS_AS: Mapping[str, str] = {
    "a": "computed again, the step ends with the bits of A",
    "b": "computed again, the step ends with the bits of B",
    "both": "computed again, the step ends with the bits of A and of B",
    "neither": "computed again, the step ends with other bits than those of A and of B",
}


@dataclass(frozen=True)
class Evidence:
    """How the cause of a difference is known."""

    how: Method
    """"stored operations", "stored draws", "repetition", "audit", "two replays", "ledgers" or, of
    images, "segmented again"."""
    n_repetitions: int = 0
    """How often the step was repeated."""
    n_replays: int = 0
    """How often single operations were repeated."""
    flips: int | None = None
    """How often the named operation gave different bits."""
    n_asked: int | None = None
    """Repetitions of that operation."""
    alignment: str | None = None
    """How many operations of the two correspond, in words."""
    parting: str | None = None
    """How the operation is known."""
    round_off: str | None = None
    """Whether every operation stayed within the error of its class."""
    ends_as: Literal["a", "b", "both", "neither"] | None = None
    """The side whose bits a replay ends in; None if unknown."""
    arrival: tuple[str, ...] = ()
    """How the state before the step was reached, on each side."""
    doubt: str | None = None
    """Why the cause is not certain: steps before this one did not end as stored."""
    draws: str | None = None
    """The first draw of random numbers in which the two differ."""
    elimination: str | None = None
    """Why it may be no fault though no race was seen."""
    stages_apart: tuple[str, ...] = ()
    """How far apart two segmentations are, stage by stage, from the first that differs."""

    def of_operations(
        self, alignment: Alignment, parting: DivergingOperation | None, round_off: str | None
    ) -> Evidence:
        """Add what the operations of both sides show."""
        return replace(
            self,
            alignment=alignment.sentence(),
            parting=None if parting is None else parting.in_words,
            round_off=round_off,
        )


@dataclass(frozen=True)
class Cause:
    """The cause of a difference: its operation, the judgement, and how that is known."""

    difference: FirstDifference
    judgement: DivergenceJudgement
    evidence: Evidence
    operations: Alignment | None = None


def evidence_lines(evidence: Evidence) -> Iterator[str]:
    """Say how the cause is known, a fact a line; of a segmentation also each stage."""
    yield f"  how this is known: {_HOW[evidence.how]}{_how_often(evidence)}"
    facts = (
        _how_many_flips(evidence),
        evidence.parting,
        evidence.round_off,
        evidence.draws,
        None if evidence.alignment is None else f"A and B side by side: {evidence.alignment}",
        None if evidence.ends_as is None else _ENDS_AS[evidence.ends_as],
        *(f"{side}: {arrival}" for side, arrival in zip("AB", evidence.arrival, strict=False)),
        evidence.elimination,
        *evidence.stages_apart,
    )
    yield from (f"    {fact}" for fact in facts if fact)


def _how_often(evidence: Evidence) -> str:
    """How often the step was repeated, and operations by themselves."""
    counts = []
    if evidence.n_repetitions:
        counts.append(f"the whole step {amount(evidence.n_repetitions, 'time')}")
    if evidence.n_replays:
        counts.append(f"single operations {amount(evidence.n_replays, 'time')} in all")
    return f" ({'; '.join(counts)})" if counts else ""


def _how_many_flips(evidence: Evidence) -> str | None:
    """How often the operation gave different bits."""
    if evidence.flips is None:
        return None
    return (
        f"this operation gave different bits from equal inputs in {evidence.flips} of its "
        f"{evidence.n_asked} repetitions, this time"
    )
