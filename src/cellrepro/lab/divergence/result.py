"""What two runs that diverge are told: places, evidence, judgement, and the sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cellrepro.compare.ledger_diff import LedgerComparison
from cellrepro.compare.operation_alignment import Alignment
from cellrepro.compare.verdicts import Verdict
from cellrepro.lab.compare_results import Comparison
from cellrepro.text import amount, ppm_text

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


@dataclass(frozen=True)
class Stage:
    """A stage of a run, in words, and what a difference that begins in it means.

    Attributes
    ----------
    name, meaning : str
        What it is called, and what that is to somebody who trains networks but writes none.
    judgement : str
        One of `JUDGEMENTS`, as long as no operation explains the difference.
    phases : tuple of str
        Operations of these phases may explain it; later ones run after it.
    """

    name: str
    meaning: str
    judgement: str = "unexplained"
    phases: tuple[str, ...] = ("forward",)


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
}
"""By their names in `cellrepro.store.ledger.STAGES`, in the order in which a run passes them."""

_COMPUTED = ("batch", "forward", "loss", "backward", "update", "weights")


@dataclass(frozen=True)
class Place:
    """A place in a run at which two runs diverge.

    Attributes
    ----------
    step : int or None
        Training step, from 0; None outside the training.
    epoch : int or None
    stage : str
        One of `OF_STAGE`.
    names : tuple of str
        What differs there: variables, files, generators, groups of layers, images.
    said : str
        The first of them, with what each side holds.
    op, module, source, phase : str or None
        The operation, where one could be named.
    max_abs : float or None
        Largest difference between its outputs, in their units; None where their tensors are not
        there to be compared, or have no difference (other shapes, NaN beside a number).
    apart : str or None
        What that difference is between, where it is not simply the operation's two results; in
        words how they differ, where no number says it.
    n_elements : int or None
        How many elements of its outputs differ.
    inputs : str or None
        Whether its inputs ``agree``, ``differ``, or this is ``unknown``.
    """

    step: int | None
    epoch: int | None
    stage: str
    names: tuple[str, ...]
    said: str
    op: str | None = None
    module: str | None = None
    source: str | None = None
    phase: str | None = None
    max_abs: float | None = None
    n_elements: int | None = None
    inputs: str | None = None
    apart: str | None = None

    def sentence(self) -> str:
        """Where, and what differs there; the operation, where one could be named."""
        step = "" if self.step is None else f"step {self.step}, "
        if self.op is None:
            return f"{step}{self.stage} ({self.said})"
        head = step if self.stage in _COMPUTED else f"{self.stage} ({self.said}); {step}"
        phase = f"{self.phase} of `{self.module}`" if self.module else str(self.phase)
        line = f" ({self.source})" if self.source else ""
        gave = {
            "agree": "got equal inputs and gave other outputs",
            "differ": "is the first whose outputs differ, and so do its inputs",
        }.get(self.inputs or "", "is the first whose outputs differ")
        number = None if self.max_abs is None else f"largest difference {self.max_abs:.2g}"
        size = " ".join(filter(None, (number, self.apart)))
        return f"{head}{phase}{line}: `{self.op}` {gave}{f', {size}' if size else ''}"


@dataclass(frozen=True)
class Evidence:
    """What a closer look at the diverging step saw.

    Attributes
    ----------
    how : str
        ``stored operations``, ``stored draws``, ``repetition``, ``audit`` or ``two replays``.
    n_repetitions, n_replays : int
        How often the step was repeated, and single operations were run again.
    flips : int or None
        Of the named operation, in that many replays of it (`n_asked`).
    n_asked : int or None
    alignment : str or None
        Which operations correspond, and which could not be aligned.
    parting : str or None
        How the operation is known.
    round_off : str or None
        Whether every operation stayed within the error of its class.
    ends_as : str or None
        Whether a replay of the step ends as ``a``, ``b``, ``both`` or ``neither``; None where
        that was not looked at, or the ledgers hold nothing of the step.
    arrival : tuple of str
        How the state before the step was reached, one sentence a side.
    draws : str or None
        The first draw of random numbers in which the two differ.
    substituted : str or None
        Where one side ran with substitutes: in how many calls they gave what they stand for.
    elimination : str or None
        Why it is no fault by elimination, where no race was seen: a race was possible all the
        same, or one of the two was computed elsewhere.
    """

    how: str
    n_repetitions: int = 0
    n_replays: int = 0
    flips: int | None = None
    n_asked: int | None = None
    alignment: str | None = None
    parting: str | None = None
    round_off: str | None = None
    ends_as: str | None = None
    arrival: tuple[str, ...] = ()
    draws: str | None = None
    substituted: str | None = None
    elimination: str | None = None


@dataclass(frozen=True)
class Divergence:
    """Where two runs diverge, and what comes of it.

    Attributes
    ----------
    a, b : str
        ``KEY/REPEAT``.
    first : Place or None
        The first stage, in the order in which a run passes them, in which they differ; None if
        they differ in nothing.
    computed : Place or None
        The first thing that the two computed otherwise; the same as ``first`` unless they
        differ in their settings or environments.
    stages : dict of str to tuple of str
        What differs, by stage.
    judgement : str or None
        One of `JUDGEMENTS`. A ``fault`` is an operation beyond the error of its class, or one
        that gave other bits and does not when it is repeated where no race is possible.
    verdict : Verdict
        Over weights and masks, as `cellrepro.lab.compare_results` gives it.
    comparison : Comparison
    evidence : Evidence or None
    n_compared : int
        Entries of the ledgers that could be compared.
    notes : tuple of str
        What was not looked at, and why.
    ledgers : LedgerComparison
        Every entry in which the ledgers differ.
    operations : Alignment or None
        The operations of the diverging step on both sides, where they were seen.
    """

    a: str
    b: str
    first: Place | None
    computed: Place | None
    stages: Mapping[str, tuple[str, ...]]
    judgement: str | None
    verdict: Verdict
    comparison: Comparison
    evidence: Evidence | None
    n_compared: int
    notes: tuple[str, ...] = ()
    ledgers: LedgerComparison | None = field(default=None, repr=False)
    operations: Alignment | None = field(default=None, repr=False)

    def sentence(self) -> str:
        """The answer in one sentence."""
        if self.first is None:
            over = f"no difference in {self.n_compared} entries of their ledgers and files"
            if self.verdict != Verdict.VACUOUS:
                return over
            return f"{over}; vacuous: nothing was trained or found, so that proves little"
        parts = [self.first.sentence()]
        if self.computed is not None and self.computed is not self.first:
            parts.append(f"it first shows in {self.computed.sentence()}")
        if self.judgement is not None:
            parts.append(JUDGEMENTS[self.judgement])
        return "; ".join([*parts, self.cells()])

    def cells(self) -> str:
        """What it came to in weights and cells."""
        found = self.comparison
        n = found.n_objects
        if not found.masks:
            return "no masks to compare"
        weights = ""
        if found.weights is not None and not found.weights.equal:
            weights = f"; the weights by {found.weights.relative_l2:.2g} of their length"
        n_outlines = n["matched"] - n["kept"]
        n_changed = n["lost"] + n["gained"] + n_outlines
        if not n_changed and not found.ppm:
            return f"no cell changes in the end{weights}"
        return (
            f"{n_changed} of {amount(n['matched'] + n['lost'] + n['gained'], 'cell')} "
            f"{'changes' if n_changed == 1 else 'change'} in the end ({n['lost']} lost, "
            f"{n['gained']} gained, {n_outlines} with another outline; {ppm_text(found.ppm)} of "
            f"the pixels){weights}"
        )
