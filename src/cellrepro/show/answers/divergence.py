"""What `diverge` answers: the first place where two runs diverge, and how that is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.show.answers.answer import Answer
from cellrepro.words import amount, some

if TYPE_CHECKING:
    from cellrepro.divergence.result import Divergence, Evidence, FirstDifference
    from cellrepro.same.verdicts import Verdict

_MOST_NAMES = 4
"""Of what differs in a stage."""
_HOW: Mapping[str, str] = {
    "stored operations": "the operations that both runs have stored were compared",
    "stored draws": "the random numbers that both runs have stored were compared",
    "repetition": "the step was computed again and again from one state",
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
class DifferenceDocument:
    """A first difference, with its operation, where one could be named."""

    step: int | None
    """Of the training, from 0, or the number of the image; None outside."""
    epoch: int | None
    """Of the training, from 0; None outside."""
    stage: str
    """Of the run: ``spec``, ``data``, ``batch``, ``forward``, ``masks`` …"""
    names: Sequence[str]
    """What differs: variables, files, generators, groups of layers, images."""
    said: str
    """The first of these, with what each side holds."""
    op: str | None
    """The operation as PyTorch names it, the module and the line of Python that called it, and
    ``forward``, ``backward`` or ``update``; None where no operation could be named."""
    module: str | None
    """The operation as PyTorch names it, the module and the line of Python that called it, and
    ``forward``, ``backward`` or ``update``; None where no operation could be named."""
    source: str | None
    """The operation as PyTorch names it, the module and the line of Python that called it, and
    ``forward``, ``backward`` or ``update``; None where no operation could be named."""
    phase: str | None
    """The operation as PyTorch names it, the module and the line of Python that called it, and
    ``forward``, ``backward`` or ``update``; None where no operation could be named."""
    max_abs: float | None
    """Largest difference of two numbers; None where results cannot be subtracted."""
    n_elements: int | None
    """How many numbers differ."""
    inputs: str | None
    """Whether those of the operation agree, differ, or this is unknown."""
    apart: str | None
    """How the two differ, in words."""
    image: str | None
    """Of a segmentation."""


@dataclass(frozen=True)
class DivergenceDocument:
    """What ``cellrepro diverge --json`` prints."""

    a: str
    """``KEY/MACHINE/REPEAT``."""
    b: str
    """``KEY/MACHINE/REPEAT``."""
    first: DifferenceDocument | None
    """The first stage in which they differ, in the order of a run."""
    computed: DifferenceDocument | None
    """The first that was computed otherwise."""
    stages: Mapping[str, Sequence[str]]
    """What differs, by stage."""
    judgement: str | None
    """``race``, ``round-off``, ``fault``, ``unwritten-memory``, ``settings``, ``environment``,
    ``data``, ``draws`` or ``unexplained``; None where nothing differs."""
    verdict: Verdict
    """Over weights and masks."""
    evidence: Evidence | None
    """How the cause is known."""
    notes: Sequence[str]
    """What was not looked at, and why."""
    compared: int
    """Entries of the ledgers."""
    objects: Mapping[str, int]
    """How many each side found."""
    ppm: float | None
    """Differing pixels per million."""
    sentence: str
    """All of it in words."""


def divergence_answer(divergence: Divergence) -> Answer[DivergenceDocument]:
    """Answer with the first difference, every stage that differs, and the evidence."""
    document = DivergenceDocument(
        a=divergence.a,
        b=divergence.b,
        first=_difference_document(divergence.first),
        computed=_difference_document(divergence.computed),
        stages=divergence.stages,
        judgement=divergence.judgement,
        verdict=divergence.verdict,
        evidence=divergence.evidence,
        notes=divergence.notes,
        compared=divergence.n_compared,
        objects=divergence.comparison.n_objects,
        ppm=divergence.comparison.ppm,
        sentence=divergence.sentence(),
    )
    return Answer(document, list(_divergence_lines(divergence)))


def _difference_document(difference: FirstDifference | None) -> DifferenceDocument | None:
    if difference is None:
        return None
    operation = difference.operation
    return DifferenceDocument(
        step=difference.step,
        epoch=difference.epoch,
        stage=difference.stage,
        names=difference.names,
        said=difference.both_values,
        op=None if operation is None else operation.op,
        module=None if operation is None else operation.module,
        source=None if operation is None else operation.source,
        phase=None if operation is None else operation.phase,
        max_abs=difference.size.max_abs,
        n_elements=difference.size.n_elements,
        inputs=None if operation is None else operation.inputs,
        apart=difference.size.words,
        image=difference.image,
    )


def _divergence_lines(divergence: Divergence) -> Iterator[str]:
    yield divergence.sentence()
    for stage, names in divergence.stages.items():
        yield f"  {stage:12} {some(list(names), _MOST_NAMES)}"
    if divergence.evidence is not None:
        yield from _evidence_lines(divergence.evidence)
    for note in divergence.notes:
        yield f"  note: {note}"


def _evidence_lines(evidence: Evidence) -> Iterator[str]:
    """Say how the cause is known, a fact a line; of a segmentation also each stage."""
    yield f"  how this is known: {_HOW[evidence.how]}"
    facts = (
        *_counts(evidence),
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


def _counts(evidence: Evidence) -> Iterator[str]:
    """How often something was repeated, and how often the operation gave different bits."""
    if evidence.n_repetitions:
        yield f"computed again: {amount(evidence.n_repetitions, 'time')}"
    if evidence.n_replays:
        yield f"single operations computed again: {amount(evidence.n_replays, 'time')}"
    if evidence.flips is not None:
        yield (
            f"the operation gave different bits from equal inputs in {evidence.flips} of "
            f"{evidence.n_asked} repetitions"
        )
