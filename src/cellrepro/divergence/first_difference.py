"""The first difference of two runs, and the operation that made it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Protocol

from cellrepro.comparison.ledger_diff import Difference, LedgerComparison
from cellrepro.divergence.judgements import COMPUTED_IN_STEP
from cellrepro.results import derived

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
        """Give it in numbers, or in words where the largest difference is not finite."""
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
    """The things that differ: variables, files, generators, groups of layers, images."""
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
        """The module that called the operation."""
        return None if self.operation is None else self.operation.module

    @derived
    def source(self) -> str | None:
        """The line of Python that called the operation."""
        return None if self.operation is None else self.operation.source

    @derived
    def phase(self) -> str | None:
        """The phase of the operation: ``forward``, ``backward`` or ``update``."""
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
        """Whether the inputs of the operation agree, differ, or this is unknown."""
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
