"""The result of a replay: a recorded run computed again, compared with the original."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from cellrepro.comparison.verdicts import Verdict
from cellrepro.divergence.result import Divergence
from cellrepro.exchange.passport import Passport
from cellrepro.exchange.passport_comparison import DigestComparison
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.receipt import EnvironmentDifference, FirstDivergence, Receipt
from cellrepro.exchange.statement import utc_time
from cellrepro.explanation.setting_meanings import field_in_words
from cellrepro.explanation.two_results import Comparison
from cellrepro.store.stored_run import Repeat
from cellrepro.words import cut
from samebits.results import Result, Row, derived
from samebits.words import amount

_MOST_DIFFERENCES = 12
"""Limit of the differences of environments in a terminal; JSON has all."""


@dataclass(frozen=True, repr=False)
class Replay(Result):
    """A recorded run computed again, compared with the original."""

    verdict: Verdict
    """The verdict on weights and masks; ``vacuous`` where equality proves nothing."""
    environment: Mapping[str, EnvironmentDifference]
    """What numbers depend on and is not the same, by name."""
    reasons: tuple[str, ...]
    """Why it proves nothing, what could not be compared, what deserves a look."""
    passport: Passport = field(repr=False)
    """The passport of the original."""
    _repeat: Repeat
    _digests: DigestComparison
    _comparison: Comparison | None
    """Comparison of masks and weights; None where those of the original are not here."""
    _divergence: Divergence | None = None
    """Where the two part; None where they do not, or one of the ledgers is not here."""

    @derived
    def original(self) -> str:
        """``KEY/MACHINE/REPEAT`` of the original."""
        return self.passport.name

    @derived
    def repeat(self) -> str:
        """``KEY/MACHINE/REPEAT`` of the replay in the store."""
        return self._repeat.name

    @derived
    def weights_equal(self) -> bool | None:
        """Whether the weights are the same in every bit; null where nothing was trained."""
        return self._digests.weights_equal

    @derived
    def images(self) -> int:
        """Images that both segmented."""
        return self._digests.n_images

    @derived
    def equal_labels(self) -> int | None:
        """Images whose masks are the same in every bit; null where only all together were
        compared."""
        return self._digests.n_equal_labels

    @derived
    def equal_outlines(self) -> int | None:
        """Images with the same outlines."""
        return self._digests.n_equal_outlines

    @derived
    def changed_objects(self) -> int | None:
        """Cells that are lost or gained; null where the masks of the original are not here."""
        if self._comparison is None:
            return None
        kinds = self._comparison.totals.kinds
        return int(kinds["lost"] + kinds["gained"])

    @derived
    def first(self) -> FirstDivergence | None:
        """Where the two part; null where they do not, or it could not be found."""
        divergence = self._divergence
        if divergence is None or divergence.first is None:
            return None
        first = divergence.where or divergence.first
        # If environments differ, the operation shows in which phase that becomes visible.
        return FirstDivergence(
            stage=first.phase or first.stage,
            step=first.step,
            op=first.op,
            module=first.module,
            source=first.source,
            judgement=divergence.judgement,
        )

    @property
    def differs(self) -> bool:
        """Whether it is not shown that the run can be computed again."""
        return self.verdict != Verdict.IDENTICAL

    def sentence(self) -> str:
        """Say the verdict, over what it is, and where the two part."""
        return "; ".join([self._verdict_in_words(), *self._statements()])

    def _verdict_in_words(self) -> str:
        return f"{self.verdict}: {self.original} was computed again as {self.repeat}"

    def _statements(self) -> Iterator[str]:
        """Say what of the results is equal, and where the two part."""
        digests = self._digests
        divergence = self._divergence
        if digests.weights_equal is not None:
            how_far = "" if divergence is None else divergence.weights()
            yield how_far or f"the weights {'are equal' if digests.weights_equal else 'differ'}"
        yield _masks_in_words(digests)
        if divergence is not None and divergence.first is not None:
            if not digests.labels_equal:
                yield divergence.cells()
            yield from divergence.statements(divergence.first)

    def rows(self) -> Sequence[Row]:
        """Give what is not the same in the environments."""
        return [
            {"environment": field_in_words(name), "there": values.theirs, "here": values.here}
            for name, values in self.environment.items()
        ]

    def lines(self) -> Sequence[str]:
        """Give the verdict, each statement of its own, and what is not the same there and here."""
        statements = [f"  {statement}" for statement in self._statements()]
        return [self._verdict_in_words(), *statements, *self._remarks()]

    def _remarks(self) -> Iterator[str]:
        """Say what is not the same there and here, and what deserves a look."""
        differences = list(self.environment.items())
        if differences:
            yield "  not the same there and here:"
        for name, values in differences[:_MOST_DIFFERENCES]:
            theirs, ours = _shown(values.theirs), _shown(values.here)
            yield f"    {field_in_words(name)}: {theirs} there, {ours} here"
        if len(differences) > _MOST_DIFFERENCES:
            yield f"    and {len(differences) - _MOST_DIFFERENCES} more, with --json"
        for reason in self.reasons:
            yield f"  {reason}"

    def receipt(self) -> Receipt:
        """Make the receipt of this replay."""
        original = self.passport
        n_objects = original.all_masks.n_objects if original.all_masks else 0
        return Receipt(
            verdict=self.verdict,
            passport=original.digest,
            run=original.name,
            machine=self._repeat.machine,
            repeat=self._repeat.index,
            time=utc_time(datetime.now(timezone.utc)),
            packages=passport_of(self._repeat).packages,
            weights_equal=self.weights_equal,
            n_images=self.images,
            n_equal_labels=self.equal_labels,
            n_equal_outlines=self.equal_outlines,
            n_objects=None if self._comparison is None else n_objects,
            n_changed_objects=self.changed_objects,
            first_divergence=self.first,
            environment_differences=dict(self.environment),
            reasons=self.reasons,
        )


def _shown(value: object) -> str:
    return cut("nothing" if value is None else str(value), 60)


def _masks_in_words(digests: DigestComparison) -> str:
    n_images = amount(digests.n_images, "image")
    if not digests.n_images:
        return "no image was segmented"
    if digests.labels_equal:
        return f"the masks of {n_images} are equal"
    if digests.n_equal_labels is None or digests.n_equal_outlines is None:
        return f"the masks of {n_images} are not all equal"
    return (
        f"equal masks in {digests.n_equal_labels} of {n_images}, equal outlines in "
        f"{digests.n_equal_outlines}"
    )
