"""What two runs that diverge are told: places, evidence, judgement, and the sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cellrepro.changes.comparison import Comparison
from cellrepro.same.ledger_diff import Difference, LedgerComparison
from cellrepro.same.operation_alignment import Alignment
from cellrepro.same.verdicts import Verdict
from cellrepro.store.ledger import STAGES
from cellrepro.words import amount, ppm_text

JUDGEMENTS = {
    "race": "a race: on equal inputs, the same process gives other bits",
    "round-off": "round-off: every operation of both runs stays within the error of its class",
    "fault": "a fault: neither round-off nor a race explains it",
    "unwritten-memory": "unwritten memory: a result was computed from what happened to stand there",
    "settings": "the two have other settings",
    "environment": "the environments differ, the results do not",
    "data": "what went in differs",
    "draws": "other random numbers were drawn",
    "unexplained": "what made them diverge was not found",
}
"""What a divergence may be, and how that is said."""


class Stage(NamedTuple):
    """A stage of a run, in words, and what a difference that begins in it means."""

    name: str
    meaning: str  # to somebody who trains networks but writes none
    judgement: str = "unexplained"  # as long as no operation explains the difference
    phases: tuple[str, ...] = ("forward",)  # of operations that may explain it; others run after it


_TO_BACKWARD = ("forward", "backward")
_TO_UPDATE = (*_TO_BACKWARD, "update")

OF_STAGE = {
    "environment": Stage("environment", "machine, versions", "environment"),
    "spec": Stage("spec", "settings", "settings"),
    "data": Stage("data", "images and true masks", "data"),
    "weights-init": Stage("initial weights", "before any training", "data"),
    "rng": Stage("generators", "random numbers", "draws"),
    "batch": Stage("batch", "images shown"),
    "forward": Stage("forward", "network's answer"),
    "loss": Stage("loss", "how far it is off"),
    "backward": Stage("backward", "gradients", phases=_TO_BACKWARD),
    "update": Stage("update", "optimizer's change", phases=_TO_UPDATE),
    "weights": Stage("weights", "network after it", phases=_TO_UPDATE),
    "flows": Stage("flows", "towards cell centres"),
    "masks": Stage("masks", "outlined cells"),
    "file": Stage("file", "as it lies on disk", "data"),
    "decoded": Stage("decoded", "pixels as read", "data"),
    "channels": Stage("channels", "brought to three"),
    "normalised": Stage("normalised", "brightness set"),
    "resized": Stage("resized", "to the diameter"),
    "tiles": Stage("tiles", "cut for the network"),
    "network": Stage("network", "its answer by tile"),
    "dynamics": Stage("dynamics", "where pixels arrive"),
    "filtered": Stage("filtered", "filled, small ones out"),
}
"""By their names in `cellrepro.store.ledger.STAGES`, then those of segmentations alone."""

_COMPUTED = ("batch", "forward", "loss", "backward", "update", "weights")


@dataclass(frozen=True)
class Place:
    """A place in a run at which two runs diverge."""

    step: int | None  # of the training, from 0; None outside
    epoch: int | None
    stage: str  # one of `OF_STAGE`
    names: tuple[str, ...]  # what differs: variables, files, generators, groups of layers, images
    said: str  # the first of them, with what each side holds
    op: str | None = None  # the operation, where one could be named
    module: str | None = None
    source: str | None = None
    phase: str | None = None
    max_abs: float | None = None  # largest difference of its outputs, where they can be subtracted
    n_elements: int | None = None  # of its outputs that differ
    inputs: str | None = None  # whether these agree, differ, or this is unknown
    apart: str | None = None
    """What the difference is between, if not the operation's two results; or how they differ."""
    image: str | None = None  # of a segmentation; ``step`` is its number

    @classmethod
    def of(cls, difference: Difference, ledgers: LedgerComparison, **more: Any) -> Place:
        """A difference, with all that differs at the same stage and step."""
        there = [one for one in ledgers.of_stage(difference.stage) if one.step == difference.step]
        names = tuple(one.name for one in there)
        place = {"step": difference.step, "epoch": difference.epoch, **more}
        return cls(stage=difference.stage, names=names, said=difference.said(), **place)

    def sentence(self) -> str:
        """Where, and what differs there; the operation, where one could be named."""
        step = "" if self.step is None or self.image else f"step {self.step}, "
        if self.image is not None and self.phase is None and self.size():
            made = f" (`{self.module}.{self.op}`)" if self.op else ""
            return f"{self.stage} of {self.image}{made}: {self.size()}"
        if self.op is None:
            return f"{step}{self.stage} ({self.said})"
        head = step if self.stage in _COMPUTED else f"{self.stage} ({self.said}); {step}"
        if self.image is not None:
            head = f"{self.stage} of {self.image}; "
        phase = " of ".join(filter(None, (self.phase, self.module and f"`{self.module}`")))
        line = f" ({self.source})" if self.source else ""
        gave = {
            "agree": "got equal inputs and gave other outputs",
            "differ": "is the first whose outputs differ, and so do its inputs",
        }.get(self.inputs or "", "is the first whose outputs differ")
        size = self.size()
        return f"{head}{phase}{line}: `{self.op}` {gave}{f', {size}' if size else ''}"

    def size(self) -> str:
        """How far apart the two are; nothing where that is not known."""
        number = None if self.max_abs is None else f"largest difference {self.max_abs:.2g}"
        return " ".join(filter(None, (number, self.apart)))


@dataclass(frozen=True)
class Evidence:
    """What a closer look at the diverging step saw."""

    how: str  # stored operations, stored draws, repetition, audit, two replays
    n_repetitions: int = 0  # of the step
    n_replays: int = 0  # of single operations
    flips: int | None = None  # of the named operation,
    n_asked: int | None = None  # in so many replays of it
    alignment: str | None = None  # which operations correspond
    parting: str | None = None  # how the operation is known
    round_off: str | None = None  # whether every operation stayed within the error of its class
    ends_as: str | None = None  # whether a replay ends as a, b, both or neither; None if unknown
    arrival: tuple[str, ...] = ()  # how the state before the step was reached, on each side
    draws: str | None = None  # the first draw of random numbers in which the two differ
    elimination: str | None = None  # why it may be no fault though no race was seen
    stages_apart: tuple[str, ...] = ()  # of a segmentation, how far, from the first that differs


@dataclass(frozen=True)
class Divergence:
    """Where two runs diverge, and what comes of it."""

    a: str  # this and the next as ``KEY/MACHINE/REPEAT``
    b: str
    first: Place | None  # the first stage in which they differ, in the order of a run
    computed: Place | None  # the first that was computed otherwise; ``first`` where that was
    stages: Mapping[str, tuple[str, ...]]  # what differs, by stage
    judgement: str | None
    """One of `JUDGEMENTS`. A ``fault`` is an operation beyond the error of its class, or one that
    gave other bits and does not when it is repeated where no race is possible."""
    verdict: Verdict  # over weights and masks
    comparison: Comparison
    evidence: Evidence | None
    n_compared: int  # entries of the ledgers that could be compared
    notes: tuple[str, ...] = ()  # what was not looked at, and why
    ledgers: LedgerComparison | None = field(default=None, repr=False)
    operations: Alignment | None = field(default=None, repr=False)  # of the diverging step
    chain: tuple[str, ...] = STAGES  # that both passed

    def sentence(self) -> str:
        """The answer in one sentence."""
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

    def cells(self) -> str:
        """What it came to in cells and weights."""
        found = self.comparison
        if not found.masks:
            return "no masks to compare"
        n = found.n_objects
        n_outlines = n["matched"] - n["kept"]
        n_changed = n["lost"] + n["gained"] + n_outlines
        n_cells = n["kept"] + n_changed
        text = (
            f"{n_changed} of {amount(n_cells, 'cell')} changed in the end "
            f"({n['lost']} lost, {n['gained']} gained, {n_outlines} with another outline; "
            f"{ppm_text(found.ppm)} of the pixels)"
        )
        if not n_changed:
            text = f"none of {amount(n_cells, 'cell')} changed in the end"
        if not n_cells:
            text = "neither run found a cell"
        if found.weights is not None and not found.weights.equal:
            text += f"; the weights by {found.weights.relative_l2:.2g} of their length"
        return text
