"""Whether the repeats of one spec came out the same, by what their manifests record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.comparison.verdicts import Verdict, combine
from samebits.results import Result
from samebits.words import amount

if TYPE_CHECKING:
    from cellrepro.store.manifest import ResultSummary

TO_FIND_CELLS = (
    "Train for more epochs, or segment with a network or program that finds cells: results "
    "without a cell say nothing of cells."
)
"""The advice for results without a cell."""
Groups = tuple[tuple[int, ...], ...]
"""Numbers of the repeats that are equal, a group each; the largest group first."""


@dataclass(frozen=True)
class EqualRepeats:
    """The repeats that are equal, in the three senses of the word."""

    weights: Groups | None
    """Equal in every bit of their weights; None where none were trained."""
    masks: Groups
    """Equal in every bit of all masks."""
    outlines: Groups
    """Equal in the outlines of all objects, under any numbers."""

    @property
    def first_apart(self) -> tuple[int, int] | None:
        """The first repeat and the first one that is not equal to it; None where all are."""
        for groups in (self.weights, self.masks):
            if groups and len(groups) > 1:
                first, second, *_ = sorted(min(members) for members in groups)
                return first, second
        return None


@dataclass(frozen=True, repr=False)
class Judgement(Result):
    """Whether repeats came out the same, and over what that was seen.

    The verdicts are None where nothing was compared: a single repeat, or no weights were trained.
    """

    weights: Verdict | None
    """The verdict on the weights."""
    masks: Verdict | None
    """The verdict on the masks."""
    overall: Verdict | None
    """The verdict on both together."""
    n_repeats: int
    """Repeats that were compared."""
    n_images: int
    """Images of each repeat."""
    reasons: tuple[str, ...]
    """Why a verdict is ``vacuous``, why there is none, and which switches changed."""
    agreement: EqualRepeats
    """The repeats that are equal."""

    def detail(self, *, with_vacuous: bool = True) -> str:
        """Weights and masks each by themselves, with how many of the repeats agree."""
        agreement = self.agreement
        of_weights = _agreeing(agreement.weights or (), "equal")
        of_masks = _agreeing(agreement.masks, "equal")
        if agreement.outlines != agreement.masks and self.masks == Verdict.DIFFERENT:
            of_masks += _agreeing(agreement.outlines, "with the same objects")
        parts = (("weights", self.weights, of_weights), ("masks", self.masks, of_masks))
        return ", ".join(
            _VACUOUS[name]
            if verdict == Verdict.VACUOUS
            else f"{name} {verdict}" + (f": {' and '.join(agreeing)}" if agreeing else "")
            for name, verdict, agreeing in parts
            if verdict is not None and (with_vacuous or verdict != Verdict.VACUOUS)
        )

    def sentence(self) -> str:
        """The judgement as one sentence."""
        over = f"{amount(self.n_repeats, 'repeat')}, {amount(self.n_images, 'image')}"
        text = "no verdict" if self.overall is None else self._verdict()
        because = f": {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{text} over {over}{because}"

    def _verdict(self) -> str:
        """The verdict, and what makes it up where that says more than the reasons do."""
        detail = self.detail(with_vacuous=not self.reasons)
        if detail == f"weights {self.overall}, masks {self.overall}":
            return f"{self.overall} (weights and masks)"
        says_more = detail not in ("", f"masks {self.overall}")
        return f"{self.overall} ({detail})" if says_more else f"{self.overall}"


_VACUOUS = {"weights": "weights not trained", "masks": "no cell found"}
"""What is said of a part whose equality would prove nothing."""


def _agreeing(groups: Groups, what: str) -> list[str]:
    """How repeats fall into groups; nothing of two, where *different* says it all."""
    n = sum(map(len, groups))
    if n < 3 or len(groups) < 2:
        return []
    several = [str(len(group)) for group in groups if len(group) > 1]
    return [f"{' and '.join(several) or 'no two'} of {n} {what}"]


def judge(repeats: Sequence[ResultSummary]) -> Judgement:
    """Judge repeats of one spec by the digests of their weights and masks; no file is read."""
    reasons_of_each = [
        reason for repeat in repeats for reason in (*repeat.vacuous, *repeat.switches_that_moved)
    ]
    reasons = tuple(dict.fromkeys(reasons_of_each))
    agreement = _equal_repeats(repeats)
    n_images = len(repeats[0].masks) if repeats else 0
    if len(repeats) < 2:
        return Judgement(
            weights=None,
            masks=None,
            overall=None,
            n_repeats=len(repeats),
            n_images=n_images,
            reasons=("a single repeat has nothing to be compared with", *reasons),
            agreement=agreement,
        )
    weights = _verdict_on_weights(repeats, agreement)
    masks = _verdict_on_masks(repeats, agreement)
    return Judgement(
        weights=weights,
        masks=masks,
        overall=combine([masks] if weights is None else [weights, masks]),
        n_repeats=len(repeats),
        n_images=n_images,
        reasons=reasons,
        agreement=agreement,
    )


def _equal_repeats(repeats: Sequence[ResultSummary]) -> EqualRepeats:
    weights = []
    masks = []
    outlines = []
    for summary in repeats:
        if summary.weights is not None:
            weights.append((summary.repeat, summary.weights.digest))
        records = sorted(summary.masks.items())
        digests = [(name, record.digest) for name, record in records]
        canonical_digests = [(name, record.canonical_digest) for name, record in records]
        masks.append((summary.repeat, str(digests)))
        outlines.append((summary.repeat, str(canonical_digests)))
    return EqualRepeats(
        weights=_groups(weights) or None, masks=_groups(masks), outlines=_groups(outlines)
    )


def _groups(contents: Iterable[tuple[int, str]]) -> Groups:
    """Repeats by what they hold, as a digest or text."""
    by_content: dict[str, list[int]] = {}
    for repeat, content in contents:
        by_content.setdefault(content, []).append(repeat)
    return tuple(sorted(map(tuple, by_content.values()), key=len, reverse=True))


def _verdict_on_weights(
    repeats: Sequence[ResultSummary], agreement: EqualRepeats
) -> Verdict | None:
    """None where no weights were trained."""
    if agreement.weights is None:
        return None
    if len(agreement.weights) > 1:
        return Verdict.DIFFERENT
    trained = [summary.weights for summary in repeats if summary.weights is not None]
    changed = all(weights.n_changed for weights in trained)
    return Verdict.IDENTICAL if changed else Verdict.VACUOUS


def _verdict_on_masks(repeats: Sequence[ResultSummary], agreement: EqualRepeats) -> Verdict:
    if not any(summary.n_objects for summary in repeats):
        return Verdict.VACUOUS
    if len(agreement.masks) == 1:
        return Verdict.IDENTICAL
    return Verdict.SAME_OBJECTS if len(agreement.outlines) == 1 else Verdict.DIFFERENT
