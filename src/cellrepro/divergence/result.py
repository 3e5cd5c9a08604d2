"""What is known of two runs that diverge: the first difference, its cause, and the sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from cellrepro.changes.comparison import Comparison
from cellrepro.divergence.judgements import COMPUTED_IN_STEP, JUDGEMENTS, DivergenceJudgement
from cellrepro.results import Result, Row
from cellrepro.same.ledger_diff import Difference, LedgerComparison
from cellrepro.same.operation_alignment import Alignment
from cellrepro.same.verdicts import Verdict
from cellrepro.store.ledger import STAGES
from cellrepro.words import amount, share_text

_WHAT_IT_DID = {
    "agree": "got equal inputs and gave different outputs",
    "differ": "is the first whose outputs differ, and so do its inputs",
}


class HasSite(Protocol):
    """An operation that says where it was called."""

    @property
    def op(self) -> str:
        """As PyTorch names it."""

    @property
    def module(self) -> str | None:
        """In which it was called."""

    @property
    def source(self) -> str | None:
        """Line of Python that called it."""

    @property
    def phase(self) -> str | None:
        """``forward``, ``backward`` or ``update``."""


@dataclass(frozen=True)
class OperationAt:
    """The operation in which two runs diverge."""

    op: str | None
    """As PyTorch names it; or what a random number was drawn for."""
    module: str | None = None
    """In which it was called."""
    source: str | None = None
    """Line of Python that called it."""
    phase: str | None = None
    """``forward``, ``backward`` or ``update``; None for one of a segmentation's stages."""
    inputs: str | None = None
    """Whether these ``agree``, ``differ``, or this is ``unknown``."""

    @classmethod
    def of(cls, operation: HasSite, *, inputs: str | None = None) -> OperationAt:
        """Give where an operation that was written down stands in the code."""
        return cls(operation.op, operation.module, operation.source, operation.phase, inputs)

    def is_at(self, operation: HasSite) -> bool:
        """Whether an operation of this name was called in the same module and phase."""
        site = (self.op, self.module, self.phase)
        return site == (operation.op, operation.module, operation.phase)


@dataclass(frozen=True)
class Size:
    """How far apart two results are, as far as that is known."""

    max_abs: float | None = None
    """Largest difference, where results can be subtracted."""
    n_elements: int | None = None
    """That differ."""
    words: str | None = None
    """What the difference is between, if not an operation's two results; or how they differ."""

    @classmethod
    def of_elements(cls, n_elements: int, max_abs: float) -> Size:
        """By numbers; where no number says it, in words."""
        if math.isfinite(max_abs):
            return cls(max_abs=max_abs, n_elements=n_elements)
        return cls(n_elements=n_elements, words="with NaN or infinity beside a number")

    def sentence(self) -> str:
        """Say it; nothing where it is not known."""
        number = None if self.max_abs is None else f"largest difference {self.max_abs:.2g}"
        return " ".join(part for part in (number, self.words) if part)


@dataclass(frozen=True)
class FirstDifference:
    """The first difference of two runs, in a stage of one step, of one image, or of neither."""

    step: int | None
    """Of the training, from 0, or the number of the image; None outside of both."""
    epoch: int | None
    stage: str
    """One of `OF_STAGE`."""
    names: tuple[str, ...]
    """What differs: variables, files, generators, groups of layers, images."""
    both_values: str
    """The first of these, with its value on each side."""
    operation: OperationAt | None = None
    """That made it, where one could be named."""
    size: Size = Size()
    image: str | None = None
    """Of a segmentation."""

    @classmethod
    def of(cls, difference: Difference, ledgers: LedgerComparison) -> FirstDifference:
        """Give a difference of two ledgers, with all that differs at the same stage and step."""
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
            both_values=difference.said(),
        )

    @property
    def op(self) -> str | None:
        """The operation's name, where one could be named."""
        return None if self.operation is None else self.operation.op

    def of_image(self, image: str, step: int) -> FirstDifference:
        """Give the same as a difference of one image, by its name and number."""
        return replace(self, image=image, step=step)

    def sentence(self) -> str:
        """Say where, and what differs there; the operation, where one could be named."""
        operation = self.operation
        is_of_stage = operation is None or operation.phase is None
        if self.image is not None and is_of_stage and self.size.sentence():
            return self._sentence_of_image_stage()
        if operation is None or operation.op is None:
            return f"{self._step_in_words()}{self.stage} ({self.both_values})"
        return f"{self._beginning()}{self._what_the_operation_did(operation)}"

    def _sentence_of_image_stage(self) -> str:
        """Say how far apart two segmentations are at a stage, and what made it."""
        operation = self.operation
        has_name = operation is not None and operation.op is not None
        made_by = f" (`{operation.module}.{operation.op}`)" if operation and has_name else ""
        return f"{self.stage} of {self.image}{made_by}: {self.size.sentence()}"

    def _step_in_words(self) -> str:
        return "" if self.step is None or self.image else f"step {self.step}, "

    def _beginning(self) -> str:
        """Where the operation ran: the image, or the stage and the step."""
        if self.image is not None:
            return f"{self.stage} of {self.image}; "
        if self.stage in COMPUTED_IN_STEP:
            return self._step_in_words()
        return f"{self.stage} ({self.both_values}); {self._step_in_words()}"

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
    """Of the step."""
    n_replays: int = 0
    """Of single operations."""
    flips: int | None = None
    """How often the named operation gave different bits."""
    n_asked: int | None = None
    """In so many replays of it."""
    alignment: str | None = None
    """Which operations correspond."""
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
    """Of a segmentation, how far apart each stage is, from the first that differs."""


@dataclass(frozen=True)
class Cause:
    """What made a difference: its operation, what it was, and how that is known."""

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
    """In the first stage in which they differ, in the order of a run."""
    computed: FirstDifference | None
    """The first that was computed otherwise; ``first`` where that was."""
    stages: Mapping[str, tuple[str, ...]]
    """What differs, by stage."""
    judgement: DivergenceJudgement | None
    """One of `JUDGEMENTS`; None where nothing differs."""
    verdict: Verdict
    """Over weights and masks."""
    comparison: Comparison
    evidence: Evidence | None
    n_compared: int
    """Entries of the ledgers that could be compared."""
    notes: tuple[str, ...] = ()
    """What was not inspected, and why."""
    ledgers: LedgerComparison | None = field(default=None, repr=False)
    operations: Alignment | None = field(default=None, repr=False)
    """Of the diverging step."""
    chain: tuple[str, ...] = STAGES
    """Stages that both passed."""

    @property
    def where(self) -> FirstDifference | None:
        """The difference of which an operation is named, or else the first; None if none is."""
        for difference in (self.computed, self.first):
            if difference is not None and difference.op is not None:
                return difference
        return self.first

    def sentence(self) -> str:
        """Say where they diverge, what that is, and what it came to."""
        if self.first is None:
            over = f"no difference in {self.n_compared} entries of their ledgers and files"
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
