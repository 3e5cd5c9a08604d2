"""What `doctor --portable` answers: whether this machine computes the reference bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.show.answers.answer import Answer

if TYPE_CHECKING:
    from cellrepro.audits.portable_witness import PortableWitness, StageDigest


@dataclass(frozen=True)
class WitnessDocument:
    """What ``cellrepro doctor --portable --json`` prints."""

    ok: bool
    """Whether all stages have the reference bits."""
    profile: str
    """With which was computed."""
    machine: Mapping[str, object]
    """Processor, system and GPU."""
    versions: Mapping[str, str]
    """Of the numeric libraries."""
    first_difference: str | None
    """The first stage that differs from the reference."""
    stages: Sequence[StageDigest]
    """In the order in which they are computed."""


def witness_answer(witness: PortableWitness) -> Answer[WitnessDocument]:
    """Answer with the sentence, and where something differs with every stage."""
    difference = witness.first_difference
    document = WitnessDocument(
        ok=witness.ok,
        profile=witness.profile,
        machine=witness.machine,
        versions=witness.versions,
        first_difference=None if difference is None else difference.stage,
        stages=witness.stages,
    )
    lines = []
    if difference is not None:
        lines += [
            f"  {'same' if stage.is_as_expected else 'DIFFERS':8} {stage.digest[:12]} {stage.stage}"
            for stage in witness.stages
        ]
    lines.append(witness.sentence())
    return Answer(document, lines)
