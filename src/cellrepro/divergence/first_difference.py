"""The first difference of two runs, and the operation that made it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from cellrepro.comparison.ledger_diff import Difference, LedgerComparison
from cellrepro.divergence.judgements import COMPUTED_IN_STEP, OF_STAGE
from cellrepro.explanation.setting_meanings import field_in_words
from samebits.words import some

if TYPE_CHECKING:
    from samebits import NondeterministicOperation, OperationRow

OF_FIELDS = ("environment", "spec")
"""Stages in which fields of a run's record differ."""

_MOST_FIELDS = 4  # that a sentence names

_WHAT_IT_DID = {
    "agree": "got equal inputs and gave different outputs",
    "differ": "is the first whose outputs differ, and so do its inputs",
}


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
        """Give it in numbers, or in words where the largest difference is not finite."""
        if math.isfinite(max_abs):
            return cls(max_abs=max_abs, n_elements=n_elements)
        return cls(n_elements=n_elements, words="with NaN or infinity beside a number")

    def sentence(self) -> str:
        """Say it; empty where it is not known."""
        number = None if self.max_abs is None else f"largest difference {self.max_abs:.2g}"
        return " ".join(part for part in (number, self.words) if part)


Operation: TypeAlias = "OperationRow | NondeterministicOperation | FirstDifference"
"""What names an operation of PyTorch, and the place in the code that called it."""


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
    """The things that differ: variables, files, generators, groups of layers, images."""
    said: str
    """The first of these, of settings and environments all, with what each side holds."""
    is_of_bits: bool = field(default=False, repr=False)
    """Whether digests alone are known of the two sides, which tell nothing in a picture."""
    image: str | None = None
    """The image that was segmented; None in a training."""
    op: str | None = None
    """The operation that made it, as PyTorch names it, or what a random number was drawn for; None
    where no operation could be named."""
    module: str | None = None
    """The module that called the operation."""
    source: str | None = None
    """The line of Python that called the operation."""
    phase: str | None = None
    """The phase of the operation: ``forward``, ``backward`` or ``update``; None in a stage of a
    segmentation."""
    max_abs: float | None = None
    """Largest difference of two numbers; None where results cannot be subtracted."""
    n_elements: int | None = None
    """How many numbers differ."""
    inputs: str | None = None
    """Whether the inputs of the operation ``agree``, ``differ``, or this is ``unknown``."""
    apart: str | None = None
    """How the two differ, in words."""

    @classmethod
    def of(cls, difference: Difference, ledgers: LedgerComparison) -> FirstDifference:
        """A difference of two ledgers, with the names of all at the same stage and step."""
        of_step = [
            entry for entry in ledgers.of_stage(difference.stage) if entry.step == difference.step
        ]
        if difference.stage == "environment":
            said = _said_of_environment(of_step)
        elif difference.stage in OF_FIELDS:
            said = [f"{field_in_words(each.name)}: {each.values_in_words()}" for each in of_step]
        else:
            said = [f"{difference.name}: {difference.values_in_words()}"]
        return cls(
            step=difference.step,
            epoch=difference.epoch,
            stage=difference.stage,
            names=tuple(entry.name for entry in of_step),
            said=some(said, _MOST_FIELDS, between="; "),
            is_of_bits=difference.is_of_bits,
        )

    @property
    def size(self) -> Size:
        """How far apart the two are."""
        return Size(max_abs=self.max_abs, n_elements=self.n_elements, words=self.apart)

    def of_size(self, size: Size) -> FirstDifference:
        """The same with how far apart the two are."""
        return replace(self, max_abs=size.max_abs, n_elements=size.n_elements, apart=size.words)

    def made_by(self, operation: Operation, *, inputs: str | None) -> FirstDifference:
        """The same with the operation that made it."""
        return replace(
            self,
            op=operation.op,
            module=operation.module,
            source=operation.source,
            phase=operation.phase,
            inputs=inputs,
        )

    def is_made_by(self, operation: Operation) -> bool:
        """Whether an operation has the name, module and phase of the one that made it."""
        site = (self.op, self.module, self.phase)
        return site == (operation.op, operation.module, operation.phase)

    def of_image(self, image: str, step: int) -> FirstDifference:
        """The same as a difference of one image."""
        return replace(self, image=image, step=step)

    def sentence(self) -> str:
        """Say where, and what differs there; the operation, where one could be named."""
        if self.image is not None and self.phase is None and self.size.sentence():
            made_by = f" (`{self.module}.{self.op}`)" if self.op is not None else ""
            stage = f"the stage “{self._stage_in_words()}” of {self.image}"
            return f"{stage}{made_by}: {self.size.sentence()}"
        if self.op is None:
            return f"{self._step_in_words()}{self._stage_in_words()} ({self._what_differs()})"
        return f"{self._beginning()}{self._what_the_operation_did()}"

    def _step_in_words(self) -> str:
        return "" if self.step is None or self.image else f"step {self.step}, "

    def _stage_in_words(self) -> str:
        return OF_STAGE[self.stage].name

    def _what_differs(self) -> str:
        """The first thing that differs; with its values, but for digests, which tell nothing."""
        return self.names[0] if self.is_of_bits else self.said

    def _beginning(self) -> str:
        """The place of the operation: the image, or the stage and the step."""
        if self.image is not None:
            return f"{self._stage_in_words()} of {self.image}; "
        if self.stage in COMPUTED_IN_STEP:
            return self._step_in_words()
        return f"{self._stage_in_words()} ({self._what_differs()}); {self._step_in_words()}"

    def _what_the_operation_did(self) -> str:
        module = f"`{self.module}`" if self.module else None
        called = " of ".join(part for part in (self.phase, module) if part)
        line = f" ({self.source})" if self.source else ""
        what = _WHAT_IT_DID.get(self.inputs or "", "is the first whose outputs differ")
        size = self.size.sentence()
        by_how_much = f", {size}" if size else ""
        return f"{called}{line}: `{self.op}` {what}{by_how_much}"


def _said_of_environment(differences: Iterable[Difference]) -> list[str]:
    """Say what fields hold, once what several say; lists and digests are only named.

    The number of threads stands in the profile, beside it, and in variables that follow from it.
    """
    told: dict[tuple[str, str], str] = {}
    named: dict[str, None] = {}
    for each in differences:
        group, _, _ = each.name.partition(".")
        words = field_in_words(each.name)
        values = each.values_in_words()
        follows = group == "variables" and any(values == other for _, other in told)
        if follows or not each.is_plain:
            named[field_in_words(group)] = None
        else:
            told.setdefault((words.rpartition(", ")[2], values), f"{words}: {values}")
    return [*told.values(), *named]
