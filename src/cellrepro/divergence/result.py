"""The answer of `diverge`: the first difference of two runs, its cause, and how that is known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from cellrepro.comparison.ledger_diff import Difference, LedgerComparison
from cellrepro.comparison.operation_diff import Alignment, DivergingOperation
from cellrepro.comparison.verdicts import Verdict
from cellrepro.divergence.judgements import COMPUTED_IN_STEP, JUDGEMENTS, DivergenceJudgement
from cellrepro.explanation.two_results import Comparison
from cellrepro.results import Result, Row, derived, in_json
from cellrepro.store.ledger import STAGES
from cellrepro.words import amount, share_text, some

_MOST_NAMES = 4
"""Listed of what differs in a stage."""
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
_WHAT_IT_DID = {
    "agree": "got equal inputs and gave different outputs",
    "differ": "is the first whose outputs differ, and so do its inputs",
}


class HasSite(Protocol):
    """An operation of PyTorch with the place in the code that called it; see `OperationAt`."""

    @property
    def op(self) -> str:
        """Its name."""

    @property
    def module(self) -> str | None:
        """The module that called it."""

    @property
    def source(self) -> str | None:
        """The line of Python that called it."""

    @property
    def phase(self) -> str | None:
        """``forward``, ``backward`` or ``update``."""


@dataclass(frozen=True)
class OperationAt:
    """The operation in which two runs diverge."""

    op: str | None
    """Its name in PyTorch, or what a random number was drawn for."""
    module: str | None = None
    """The module that called it."""
    source: str | None = None
    """The line of Python that called it."""
    phase: str | None = None
    """``forward``, ``backward`` or ``update``; None in a stage of a segmentation."""
    inputs: str | None = None
    """Whether its inputs ``agree``, ``differ``, or this is ``unknown``."""

    @classmethod
    def of(cls, operation: HasSite, *, inputs: str | None = None) -> OperationAt:
        """The place of a recorded operation."""
        return cls(operation.op, operation.module, operation.source, operation.phase, inputs)

    def is_at(self, operation: HasSite) -> bool:
        """Whether an operation has the same name, module and phase."""
        site = (self.op, self.module, self.phase)
        return site == (operation.op, operation.module, operation.phase)


@dataclass(frozen=True)
class Size:
    """How far apart two results are, as far as that is known."""

    max_abs: float | None = None
    """Largest difference, where results can be subtracted."""
    n_elements: int | None = None
    """How many elements differ."""
    words: str | None = None
    """How they differ, or between what, if not between an operation's two results."""

    @classmethod
    def of_elements(cls, n_elements: int, max_abs: float) -> Size:
        """In numbers, or in words where the largest difference is not finite."""
        if math.isfinite(max_abs):
            return cls(max_abs=max_abs, n_elements=n_elements)
        return cls(n_elements=n_elements, words="with NaN or infinity beside a number")

    def sentence(self) -> str:
        """Say it; empty where it is not known."""
        number = None if self.max_abs is None else f"largest difference {self.max_abs:.2g}"
        return " ".join(part for part in (number, self.words) if part)


@dataclass(frozen=True)
class FirstDifference:
    """The first difference of two runs, in a stage of one step, of one image, or of neither."""

    step: int | None
    """Training step, from 0, or the number of the image; None outside both."""
    epoch: int | None
    """Epoch of the training, from 0; None outside."""
    stage: str
    """Stage of the run: ``spec``, ``data``, ``batch``, ``forward``, ``masks`` …"""
    names: tuple[str, ...]
    """What differs: variables, files, generators, groups of layers, images."""
    said: str
    """The first of these, with what each side holds."""
    is_of_bits: bool = field(default=False, repr=False)
    """Whether digests alone are known of the two sides, which tell nothing in a picture."""
    operation: OperationAt | None = field(default=None, repr=False)
    """The operation that made it, where one could be named."""
    size: Size = field(default=Size(), repr=False)
    """How far apart the two are."""
    image: str | None = None
    """The image that was segmented; None in a training."""

    @classmethod
    def of(cls, difference: Difference, ledgers: LedgerComparison) -> FirstDifference:
        """A difference of two ledgers, with the names of all at the same stage and step."""
        names = [
            entry.name
            for entry in ledgers.of_stage(difference.stage)
            if entry.step == difference.step
        ]
        return cls(
            step=difference.step,
            epoch=difference.epoch,
            stage=difference.stage,
            names=tuple(names),
            said=difference.in_words(),
            is_of_bits=difference.is_of_bits,
        )

    @derived
    def op(self) -> str | None:
        """The operation as PyTorch names it; None where no operation could be named."""
        return None if self.operation is None else self.operation.op

    @derived
    def module(self) -> str | None:
        """Which called the operation."""
        return None if self.operation is None else self.operation.module

    @derived
    def source(self) -> str | None:
        """The line of Python that called the operation."""
        return None if self.operation is None else self.operation.source

    @derived
    def phase(self) -> str | None:
        """Of the operation: ``forward``, ``backward`` or ``update``."""
        return None if self.operation is None else self.operation.phase

    @derived
    def max_abs(self) -> float | None:
        """Largest difference of two numbers; None where results cannot be subtracted."""
        return self.size.max_abs

    @derived
    def n_elements(self) -> int | None:
        """How many numbers differ."""
        return self.size.n_elements

    @derived
    def inputs(self) -> str | None:
        """Whether those of the operation agree, differ, or this is unknown."""
        return None if self.operation is None else self.operation.inputs

    @derived
    def apart(self) -> str | None:
        """How the two differ, in words."""
        return self.size.words

    def of_image(self, image: str, step: int) -> FirstDifference:
        """The same as a difference of one image."""
        return replace(self, image=image, step=step)

    def sentence(self) -> str:
        """Say where, and what differs there; the operation, where one could be named."""
        operation = self.operation
        is_of_stage = operation is None or operation.phase is None
        if self.image is not None and is_of_stage and self.size.sentence():
            return self._sentence_of_image_stage()
        if operation is None or operation.op is None:
            return f"{self._step_in_words()}{self.stage} ({self.said})"
        return f"{self._beginning()}{self._what_the_operation_did(operation)}"

    def _sentence_of_image_stage(self) -> str:
        """Say how far apart two segmentations are in a stage, and which function computes it."""
        operation = self.operation
        has_name = operation is not None and operation.op is not None
        made_by = f" (`{operation.module}.{operation.op}`)" if operation and has_name else ""
        return f"{self.stage} of {self.image}{made_by}: {self.size.sentence()}"

    def _step_in_words(self) -> str:
        return "" if self.step is None or self.image else f"step {self.step}, "

    def _beginning(self) -> str:
        """The place of the operation: the image, or the stage and the step."""
        if self.image is not None:
            return f"{self.stage} of {self.image}; "
        if self.stage in COMPUTED_IN_STEP:
            return self._step_in_words()
        return f"{self.stage} ({self.said}); {self._step_in_words()}"

    def _what_the_operation_did(self, operation: OperationAt) -> str:
        module = f"`{operation.module}`" if operation.module else None
        called = " of ".join(part for part in (operation.phase, module) if part)
        line = f" ({operation.source})" if operation.source else ""
        what = _WHAT_IT_DID.get(operation.inputs or "", "is the first whose outputs differ")
        size = self.size.sentence()
        by_how_much = f", {size}" if size else ""
        return f"{called}{line}: `{operation.op}` {what}{by_how_much}"


@dataclass(frozen=True)
class Evidence:
    """How the cause of a difference is known."""

    how: str
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
    """Which operations of the two correspond."""
    parting: str | None = None
    """How the operation is known."""
    round_off: str | None = None
    """Whether every operation stayed within the error of its class."""
    ends_as: Literal["a", "b", "both", "neither"] | None = None
    """Whose bits a replay ends in; None if unknown."""
    arrival: tuple[str, ...] = ()
    """How the state before the step was reached, on each side."""
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
    """What made a difference: its operation, the judgement, and how that is known."""

    difference: FirstDifference
    judgement: DivergenceJudgement
    evidence: Evidence
    operations: Alignment | None = None


@dataclass(frozen=True, repr=False)
class Divergence(Result):
    """Where two runs diverge, and what comes of it."""

    a: str
    """``KEY/MACHINE/REPEAT``."""
    b: str
    """``KEY/MACHINE/REPEAT``."""
    first: FirstDifference | None
    """The first stage in which they differ, in the order of a run."""
    computed: FirstDifference | None
    """The first that was computed otherwise."""
    stages: Mapping[str, tuple[str, ...]]
    """What differs, by stage."""
    judgement: DivergenceJudgement | None
    """``race``, ``round-off``, ``fault``, ``unwritten-memory``, ``settings``, ``environment``,
    ``data``, ``draws`` or ``unexplained``; None where nothing differs."""
    verdict: Verdict
    """Over weights and masks."""
    comparison: Comparison = field(repr=False)
    """Comparison of weights and masks."""
    evidence: Evidence | None
    """How the cause is known."""
    compared: int
    """Entries of the ledgers that were compared."""
    notes: tuple[str, ...] = ()
    """What was not compared, and why."""
    ledgers: LedgerComparison | None = field(default=None, repr=False)
    """What differs in the ledgers."""
    operations: Alignment | None = field(default=None, repr=False)
    """The operations of the diverging step, side by side."""
    chain: tuple[str, ...] = field(default=STAGES, repr=False)
    """Stages that both passed."""

    @derived
    def objects(self) -> Mapping[str, int]:
        """How many objects each side found."""
        return self.comparison.n_objects

    @derived
    def ppm(self) -> float | None:
        """Differing pixels per million."""
        return self.comparison.ppm

    @property
    def differs(self) -> bool:
        """Whether anything differs, or nothing was trained or found."""
        return self.first is not None or self.verdict == Verdict.VACUOUS

    @property
    def where(self) -> FirstDifference | None:
        """The difference with a named operation, or else the first; None if there is none."""
        for difference in (self.computed, self.first):
            if difference is not None and difference.op is not None:
                return difference
        return self.first

    @in_json
    def sentence(self) -> str:
        """In words: where they diverge, what that is, and what it came to."""
        if self.first is None:
            over = f"no difference in {self.compared} entries of their ledgers and files"
            vacuous = "; vacuous: nothing was trained or found, so that proves little"
            return over + vacuous if self.verdict == Verdict.VACUOUS else over
        parts = [self.first.sentence()]
        if self.computed is not None and self.computed is not self.first:
            parts.append(f"it first shows in {self.computed.sentence()}")
        if self.judgement is not None:
            parts.append(JUDGEMENTS[self.judgement])
        return "; ".join([*parts, self.cells()])

    def rows(self) -> list[Row]:
        """Give every stage that differs."""
        return [
            {"stage": stage, "what differs": ", ".join(names)}
            for stage, names in self.stages.items()
        ]

    def lines(self) -> list[str]:
        """Give the sentence, every stage that differs, the evidence, and what was left out."""
        stages = (
            f"  {stage:12} {some(list(names), _MOST_NAMES)}" for stage, names in self.stages.items()
        )
        evidence = () if self.evidence is None else _evidence_lines(self.evidence)
        notes = (f"  note: {note}" for note in self.notes)
        return [self.sentence(), *stages, *evidence, *notes]

    def cells(self) -> str:
        """Say what it came to in cells and weights."""
        comparison = self.comparison
        if not comparison.masks:
            return "no masks to compare"
        totals = comparison.totals
        n_kept = totals.kinds["kept"]
        n_lost = totals.kinds["lost"]
        n_gained = totals.kinds["gained"]
        n_outlines = totals.n_matched - n_kept
        n_changed = n_lost + n_gained + n_outlines
        n_cells = n_kept + n_changed
        if not n_cells:
            text = "neither run found a cell"
        elif not n_changed:
            text = f"none of {amount(n_cells, 'cell')} changed in the end"
        else:
            text = (
                f"{n_changed} of {amount(n_cells, 'cell')} changed in the end "
                f"({n_lost} lost, {n_gained} gained, {n_outlines} with a different outline; "
                f"{share_text(comparison.ppm / 1e6)} of the pixels)"
            )
        if comparison.weights is not None and not comparison.weights.equal:
            text += f"; the weights by {comparison.weights.relative_l2:.2g} of their length"
        return text


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
