"""The answer of `diverge`: the first difference of two runs, its cause, and how that is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cellrepro.comparison.ledger_diff import LedgerComparison
from cellrepro.comparison.mask_totals import changes_in_words
from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.comparison.verdicts import Verdict
from cellrepro.divergence.evidence import Evidence, evidence_lines
from cellrepro.divergence.first_difference import OF_FIELDS, FirstDifference
from cellrepro.divergence.judgements import (
    JUDGEMENTS,
    NOT_LOOKED_FOR,
    OF_STAGE,
    REMEDIES,
    DivergenceJudgement,
)
from cellrepro.explanation.setting_meanings import field_in_words
from cellrepro.explanation.two_results import Comparison
from cellrepro.store.ledger import IN_EVERY_STEP, STAGES
from cellrepro.words import differing_text
from samebits import Alignment
from samebits.known_operations import base_name
from samebits.results import Result, Row, derived, in_json
from samebits.words import amount, grouped, some

_MOST_NAMES = 4
"""Listed of what differs in a stage before or after the training."""
_MOST_PARTS = 1
"""Named of the parts of a network that differ in a step: from the first on nearly all do."""


@dataclass(frozen=True, repr=False)
class Divergence(Result):
    """The place where two runs diverge, and what comes of it."""

    a: str
    """``KEY/MACHINE/REPEAT``."""
    b: str
    """``KEY/MACHINE/REPEAT``."""
    first: FirstDifference | None
    """The first stage in which they differ, in the order of a run."""
    computed: FirstDifference | None
    """The first that was computed otherwise."""
    stages: Mapping[str, tuple[str, ...]]
    """The things that differ, by stage."""
    judgement: DivergenceJudgement | None
    """``race``, ``round-off``, ``fault``, ``unwritten-memory``, ``settings``, ``environment``,
    ``data``, ``draws`` or ``unexplained``; None where nothing differs."""
    verdict: Verdict
    """The verdict over weights and masks."""
    comparison: Comparison = field(repr=False)
    """Comparison of weights and masks."""
    evidence: Evidence | None
    """How the cause is known."""
    compared: int
    """Entries of the ledgers that were compared."""
    notes: tuple[str, ...] = ()
    """Sentences about what was not compared, and why."""
    ledgers: LedgerComparison | None = field(default=None, repr=False)
    """The ledgers, compared."""
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
        """Say where they diverge, what that is, and what it came to."""
        if self.first is None:
            over = f"no difference in {grouped(self.compared)} entries of their ledgers and files"
            if self.verdict == Verdict.VACUOUS:
                return f"vacuous: {over}; nothing was trained or found, so that proves little"
            return f"identical: {over}"
        return "; ".join([self._result(), *self.statements(self.first)])

    def _result(self) -> str:
        """Say what it came to in cells and weights."""
        return "; ".join(filter(None, [self.cells(), self.weights()]))

    def statements(self, first: FirstDifference) -> list[str]:
        """Say where they diverge, where that shows, and what it is."""
        statements = [f"the first difference: {first.sentence()}"]
        if self.computed is not None and self.computed is not first:
            statements.append(f"it first shows in {self.computed.sentence()}")
        is_said = self.judgement == "settings" and first.stage == "spec"
        if self._why_not_looked_for:
            statements.append(self._why_not_looked_for)
        elif self.judgement is not None and not is_said:
            statements.append(f"{self._probably}{JUDGEMENTS[self.judgement]}")
        if self.evidence is not None and self.evidence.doubt is not None:
            statements.append(self.evidence.doubt)
        return statements

    @property
    def _why_not_looked_for(self) -> str:
        """Why the operations of the step were not looked at; empty where they were."""
        return next((note for note in self.notes if note.startswith(NOT_LOOKED_FOR)), "")

    def rows(self) -> list[Row]:
        """Give every stage that differs."""
        return [
            {
                "stage": OF_STAGE[stage].name,
                "what differs": self._what_differs(stage, len(names)),
            }
            for stage, names in self.stages.items()
        ]

    def lines(self) -> list[str]:
        """Give the answer, every stage that differs, the evidence, and what was left out."""
        exactly = []
        if self.first is not None and not self._first_is_headline:
            exactly = [f"  {self.statements(self.first)[0]}"]
        title = ["in detail, for whoever works on the code:"] if self.stages else []
        stages = ["  what differs, by stage:"] if self.stages else []
        for stage in self.stages:
            most = _MOST_PARTS if stage in IN_EVERY_STEP else _MOST_NAMES
            stages.append(f"    {OF_STAGE[stage].name:15}  {self._what_differs(stage, most)}")
        evidence = () if self.evidence is None else evidence_lines(self.evidence)
        notes = (f"  note: {note}" for note in self.notes if note != self._why_not_looked_for)
        return [*self.answer(), *title, *exactly, *stages, *evidence, *notes]

    def answer(self) -> list[str]:
        """Say what it came to, where it began, of which kind the difference is, and what to do."""
        if self.first is None:
            return [self.sentence()]
        first, *kind = self.statements(self.first)
        began = first if self._first_is_headline else f"where it began: {self.headline}"
        remedy = None if self.judgement is None else REMEDIES.get(self.judgement)
        what_to_do = [f"what to do: {remedy}"] if remedy else []
        return [self._result(), began, *kind, *what_to_do]

    @property
    def _first_is_headline(self) -> bool:
        return self.first is not None and self.headline == self.statements(self.first)[0]

    @property
    def headline(self) -> str:
        """The step, the operation and of which kind the difference is, as a title; without an
        operation that got equal inputs the first difference, as `sentence` says it."""
        if self.first is None:
            return self.sentence()
        where = self.where
        if where is None or where.op is None or where.inputs != "agree" or self.judgement is None:
            return self.statements(self.first)[0]
        kind = f"{self._probably}{JUDGEMENTS[self.judgement].partition(':')[0]}"
        return (
            f"in training step {where.step} the operation `{base_name(where.op)}` gave different "
            f"numbers from equal ones ({where.phase} pass): {kind}"
        )

    @property
    def _probably(self) -> str:
        """Before a judgement that is in doubt."""
        return "probably " if self.evidence is not None and self.evidence.doubt else ""

    def _what_differs(self, stage: str, most: int) -> str:
        """Name what differs in a stage, and in a training the first step in which something does.

        A stage that comes first in a step may differ first in the next one.
        """
        text = _names_in_words(stage, self.stages[stage], most)
        if stage not in IN_EVERY_STEP or self.ledgers is None:
            return text
        steps = [each.step for each in self.ledgers.of_stage(stage) if each.step is not None]
        if not steps:
            return text
        is_later = (
            stage == "weights" and self._begins_in("weights", 1) and self._begins_in("update", 0)
        )
        why = ", as Cellpose's learning rate is 0 in the first epoch" if is_later else ""
        return f"from step {min(steps)}{why}: {text}"

    def _begins_in(self, stage: str, epoch: int) -> bool:
        """Whether a stage first differs in an epoch, which count from 0."""
        epochs = (
            [] if self.ledgers is None else [each.epoch for each in self.ledgers.of_stage(stage)]
        )
        return min((each for each in epochs if each is not None), default=None) == epoch

    def cells(self) -> str:
        """Say what it came to in cells."""
        comparison = self.comparison
        if not comparison.masks:
            return "no masks to compare"
        totals = comparison.totals
        n_cells = sum(totals.kinds.values())
        n_changed = n_cells - totals.kinds[ObjectKind.KEPT]
        differing = differing_text(totals.n_differing, totals.n_pixels, totals.unit)
        if not n_cells:
            text = "neither run found a cell"
        elif not n_changed:
            text = f"none of {amount(n_cells, 'cell')} changed in the end"
            if totals.n_differing:
                text += f", though {differing}"
        else:
            changes = ", ".join(changes_in_words(totals.kinds))
            text = (
                f"in the end {amount(n_changed, 'cell')} changed ({changes}) and "
                f"{totals.kinds[ObjectKind.KEPT]} were kept; {differing}"
            )
        return text

    def weights(self) -> str:
        """Say how far the weights are apart; empty where they are equal, or not there."""
        weights = self.comparison.weights
        if weights is None or weights.equal:
            return ""
        return f"the weights differ by {weights.relative_l2:.2g} of their size"


def _names_in_words(stage: str, names: Sequence[str], most: int) -> str:
    """What differs in a stage; fields of a record in words, several of one group by its name."""
    if stage not in OF_FIELDS:
        return some(list(names), most)
    groups = [name.partition(".")[0] for name in names]
    fields = dict.fromkeys(
        field_in_words(name if groups.count(group) == 1 else group)
        for name, group in zip(names, groups, strict=True)
    )
    return some(list(fields), most, between="; ")
