"""The five answers a comparison can give, and the one over many comparisons or repeats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cellrepro.store.manifest import Manifest


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
    equal_weights: Groups = ()  # repeats with the same bits in all weights,
    equal_masks: Groups = ()  # in all masks,
    equal_outlines: Groups = ()  # and with the same objects under any numbers

    @property
    def agreement(self) -> dict[str, Groups | None]:
        """The groups of equal repeats, by what was compared; None for what there is none of."""
        return {
            "weights": self.equal_weights or None,
            "masks": self.equal_masks,
            "outlines": self.equal_outlines,
        }

    def detail(self) -> str:
        """Weights and masks each by themselves, with how many of the repeats agree."""
        weights, masks = (_agreeing(g, "equal") for g in (self.equal_weights, self.equal_masks))
        if self.equal_outlines != self.equal_masks and self.masks == Verdict.DIFFERENT:
            masks += _agreeing(self.equal_outlines, "with the same objects")
        parts = (("weights", self.weights, weights), ("masks", self.masks, masks))
        return ", ".join(
            f"{name} {verdict}" + (f": {' and '.join(agreeing)}" if agreeing else "")
            for name, verdict, agreeing in parts
            if verdict is not None
        )

    def sentence(self) -> str:
        """The judgement as one sentence."""
        over = f"{self.n_repeats} repeats, {self.n_images} images"
        text = "no verdict" if self.overall is None else f"{self.overall} ({self.detail()})"
        because = f": {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{text} over {over}{because}"


def _agreeing(groups: Groups, what: str) -> list[str]:
    """How repeats fall into groups; nothing of two, where *different* says it all."""
    n = sum(map(len, groups))
    several = [str(len(group)) for group in groups if len(group) > 1]
    told = n > 2 and len(groups) > 1
    return [f"{' and '.join(several) or 'no two'} of {n} {what}"] if told else []


def judge(manifests: Sequence[Manifest]) -> Judgement:
    """Judge repeats of one spec, over the same images, by the digests of weights and masks."""
    reasons = tuple(
        dict.fromkeys(reason for m in manifests for reason in (*m.vacuous, *m.switches_that_moved))
    )
    n_images = len(manifests[0].masks) if manifests else 0
    trained = [m.weights for m in manifests if m.weights is not None]
    groups = (
        _groups((m.repeat, m.weights.digest) for m in manifests if m.weights is not None),
        _groups((m.repeat, _digests(m, "digest")) for m in manifests),
        _groups((m.repeat, _digests(m, "canonical_digest")) for m in manifests),
    )
    if len(manifests) < 2:
        alone = ("a single repeat has nothing to be compared with",)
        return Judgement(None, None, None, len(manifests), n_images, alone + reasons, *groups)
    weights = None
    if trained:
        proof = Verdict.IDENTICAL if all(one.n_changed for one in trained) else Verdict.VACUOUS
        weights = proof if len(groups[0]) == 1 else Verdict.DIFFERENT
    if not any(manifest.n_objects for manifest in manifests):
        masks = Verdict.VACUOUS
    elif len(groups[1]) == 1:
        masks = Verdict.IDENTICAL
    else:
        masks = Verdict.SAME_OBJECTS if len(groups[2]) == 1 else Verdict.DIFFERENT
    overall = combine([masks] if weights is None else [weights, masks])
    return Judgement(weights, masks, overall, len(manifests), n_images, reasons, *groups)


def _groups(results: Iterable[tuple[int, Any]]) -> Groups:
    found: dict[Any, list[int]] = {}
    for repeat, result in results:
        found.setdefault(result, []).append(repeat)
    return tuple(sorted(map(tuple, found.values()), key=len, reverse=True))


def _digests(manifest: Manifest, kind: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, getattr(record, kind)) for name, record in sorted(manifest.masks.items()))
