"""The five answers a comparison can give, and the one over many comparisons or repeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cellrepro.store.manifest import ResultSummary
from cellrepro.words import amount


class Verdict(StrEnum):
    """What a comparison found; each member equals its word, so it writes itself to JSON."""

    IDENTICAL = "identical"  # same bits, and there was something to compare
    SAME_OBJECTS = "same-objects"  # same outlines under other numbers
    WITHIN_SPREAD = "within-spread"  # differs, by less than seeds make it differ
    DIFFERENT = "different"  # differs, and no spread accounts for it
    VACUOUS = "vacuous"  # nothing was trained or found, so equality would prove nothing


# A part that proved nothing must not count as proof, so VACUOUS comes before both kinds of
# equality; it must not hide a measured difference, so it comes after both kinds of that.
_STRONGEST_FIRST = (
    Verdict.DIFFERENT,
    Verdict.WITHIN_SPREAD,
    Verdict.VACUOUS,
    Verdict.SAME_OBJECTS,
    Verdict.IDENTICAL,
)


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """Get the verdict of the least equal of many comparisons; ``vacuous`` of none."""
    found = {Verdict(word) for word in verdicts}
    return next((verdict for verdict in _STRONGEST_FIRST if verdict in found), Verdict.VACUOUS)


# -- repeats of one spec, from their manifests alone -----------------------------------------

Groups = tuple[tuple[int, ...], ...]
"""Numbers of the repeats that are equal, a group each; the largest group first."""


@dataclass(frozen=True)
class Judgement:
    """Whether repeats came out the same, and over what that was seen.

    The verdicts are None where nothing was compared: a single repeat, or no weights were trained.
    """

    weights: Verdict | None
    masks: Verdict | None
    overall: Verdict | None
    n_repeats: int
    n_images: int
    reasons: tuple[str, ...]  # why vacuous, or why no verdict; which switches changed
    agreement: Mapping[str, Groups | None]
    """Equal repeats: the same bits in all ``weights`` (None without any), the same bits in all
    ``masks``, and the same ``outlines`` under any numbers."""

    def detail(self) -> str:
        """Weights and masks each by themselves, with how many of the repeats agree."""
        weights, masks, outlines = (groups or () for groups in self.agreement.values())
        of_masks = _agreeing(masks, "equal")
        if outlines != masks and self.masks == Verdict.DIFFERENT:
            of_masks += _agreeing(outlines, "with the same objects")
        of_weights = _agreeing(weights, "equal")
        parts = (("weights", self.weights, of_weights), ("masks", self.masks, of_masks))
        return ", ".join(
            f"{name} {verdict}" + (f": {' and '.join(agreeing)}" if agreeing else "")
            for name, verdict, agreeing in parts
            if verdict is not None
        )

    def sentence(self) -> str:
        """The judgement as one sentence."""
        over = f"{amount(self.n_repeats, 'repeat')}, {amount(self.n_images, 'image')}"
        text = "no verdict" if self.overall is None else f"{self.overall} ({self.detail()})"
        because = f": {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{text} over {over}{because}"


def _agreeing(groups: Groups, what: str) -> list[str]:
    """How repeats fall into groups; nothing of two, where *different* says it all."""
    n = sum(map(len, groups))
    several = [str(len(group)) for group in groups if len(group) > 1]
    told = n > 2 and len(groups) > 1
    return [f"{' and '.join(several) or 'no two'} of {n} {what}"] if told else []


def judge(outcomes: Sequence[ResultSummary]) -> Judgement:
    """Judge repeats of one spec, over the same images, by the digests of weights and masks."""
    reasons = tuple(
        dict.fromkeys(reason for m in outcomes for reason in (*m.vacuous, *m.switches_that_moved))
    )
    n_images = len(outcomes[0].masks) if outcomes else 0
    trained = [m.weights for m in outcomes if m.weights is not None]
    of_weights = _groups((m.repeat, m.weights.digest) for m in outcomes if m.weights is not None)
    of_masks, of_outlines = (
        _groups(
            (m.repeat, str(sorted((name, getattr(one, kind)) for name, one in m.masks.items())))
            for m in outcomes
        )
        for kind in ("digest", "canonical_digest")
    )
    agreement = {"weights": of_weights or None, "masks": of_masks, "outlines": of_outlines}
    if len(outcomes) < 2:
        alone = ("a single repeat has nothing to be compared with",)
        return Judgement(None, None, None, len(outcomes), n_images, alone + reasons, agreement)
    weights = None
    if trained:
        proof = Verdict.IDENTICAL if all(one.n_changed for one in trained) else Verdict.VACUOUS
        weights = proof if len(of_weights) == 1 else Verdict.DIFFERENT
    if not any(one.n_objects for one in outcomes):
        masks = Verdict.VACUOUS
    elif len(of_masks) == 1:
        masks = Verdict.IDENTICAL
    else:
        masks = Verdict.SAME_OBJECTS if len(of_outlines) == 1 else Verdict.DIFFERENT
    overall = combine([masks] if weights is None else [weights, masks])
    return Judgement(weights, masks, overall, len(outcomes), n_images, reasons, agreement)


def _groups(results: Iterable[tuple[int, str]]) -> Groups:
    found: dict[str, list[int]] = {}
    for repeat, result in results:
        found.setdefault(result, []).append(repeat)
    return tuple(sorted(map(tuple, found.values()), key=len, reverse=True))
