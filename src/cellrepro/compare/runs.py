"""Verdicts over the repeats of one spec, from their manifests alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.store.manifest import Manifest

Groups = tuple[tuple[int, ...], ...]
"""Numbers of the repeats that are equal, a group each; the largest group first."""


@dataclass(frozen=True)
class Judgement:
    """Whether repeats came out the same, and over what that was seen.

    Attributes
    ----------
    weights, masks, overall : Verdict or None
        None where nothing was compared: a single repeat, or no weights were trained.
    n_repeats, n_images : int
        What the verdicts are about.
    reasons : tuple of str
        Why a verdict is ``vacuous``, or why there is none; which switches moved during a repeat.
    equal_weights, equal_masks, equal_outlines : tuple of tuple of int
        Which repeats have the same bits in all weights and in all masks, and the same objects
        under any numbers.
    """

    weights: Verdict | None
    masks: Verdict | None
    overall: Verdict | None
    n_repeats: int
    n_images: int
    reasons: tuple[str, ...]
    equal_weights: Groups = ()
    equal_masks: Groups = ()
    equal_outlines: Groups = ()

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
        weights, masks = [], []
        if self.weights == Verdict.DIFFERENT:
            weights = _agreeing(self.equal_weights, "equal")
        if self.masks in (Verdict.DIFFERENT, Verdict.SAME_OBJECTS):
            masks = _agreeing(self.equal_masks, "equal")
        if self.masks == Verdict.DIFFERENT and self.equal_outlines != self.equal_masks:
            masks += _agreeing(self.equal_outlines, "with the same objects")
        return ", ".join(
            f"{name} {verdict}" + (f": {' and '.join(agreeing)}" if agreeing else "")
            for name, verdict, agreeing in (
                ("weights", self.weights, weights),
                ("masks", self.masks, masks),
            )
            if verdict is not None
        )

    def sentence(self) -> str:
        """The judgement as one sentence."""
        over = f"{self.n_repeats} repeats, {self.n_images} images"
        text = "no verdict" if self.overall is None else f"{self.overall} ({self.detail()})"
        because = f": {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{text} over {over}{because}"


def _agreeing(groups: Groups, what: str) -> list[str]:
    """How repeats fall into groups; nothing of two, where *different* says it all.

    Examples
    --------
    >>> _agreeing(((0, 2), (1,)), "equal"), _agreeing(((0,), (1,), (2,)), "equal")
    (['2 of 3 equal'], ['no two of 3 equal'])
    >>> _agreeing(((0, 3), (1, 2), (4,)), "equal"), _agreeing(((0,), (1,)), "equal")
    (['2 and 2 of 5 equal'], [])
    """
    n = sum(map(len, groups))
    several = [str(len(group)) for group in groups if len(group) > 1]
    return [f"{' and '.join(several) or 'no two'} of {n} {what}"] if n > 2 else []


def judge(manifests: Sequence[Manifest]) -> Judgement:
    """Judge repeats of one spec by the digests of their weights and masks.

    Parameters
    ----------
    manifests : sequence of Manifest
        Of one spec; they cover the same images.

    Returns
    -------
    Judgement
    """
    reasons = tuple(
        dict.fromkeys(reason for m in manifests for reason in (*m.vacuous, *m.switches_that_moved))
    )
    n_images = len(manifests[0].masks) if manifests else 0
    trained = [m for m in manifests if m.weights is not None]
    groups = (
        _groups((m.repeat, m.weights and m.weights.digest) for m in trained),
        _groups((m.repeat, _digests(m, "digest")) for m in manifests),
        _groups((m.repeat, _digests(m, "canonical_digest")) for m in manifests),
    )
    if len(manifests) < 2:
        alone = ("a single repeat has nothing to be compared with",)
        return Judgement(None, None, None, len(manifests), n_images, alone + reasons, *groups)
    weights, masks = _weights(manifests), _masks(manifests, *groups[1:])
    overall = combine([masks] if weights is None else [weights, masks])
    return Judgement(weights, masks, overall, len(manifests), n_images, reasons, *groups)


def _groups(results: Iterable[tuple[int, Any]]) -> Groups:
    """Repeats by their result."""
    found: dict[Any, list[int]] = {}
    for repeat, result in results:
        found.setdefault(result, []).append(repeat)
    return tuple(sorted(map(tuple, found.values()), key=len, reverse=True))


def _digests(manifest: Manifest, kind: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, getattr(record, kind)) for name, record in sorted(manifest.masks.items()))


def _weights(manifests: Sequence[Manifest]) -> Verdict | None:
    records = [m.weights for m in manifests if m.weights is not None]
    if not records:
        return None
    if len({record.digest for record in records}) > 1:
        return Verdict.DIFFERENT
    trained = all(record.n_changed for record in records)
    return Verdict.IDENTICAL if trained else Verdict.VACUOUS


def _masks(manifests: Sequence[Manifest], equal: Groups, same_objects: Groups) -> Verdict:
    if not any(manifest.n_objects for manifest in manifests):
        return Verdict.VACUOUS
    if len(equal) == 1:
        return Verdict.IDENTICAL
    return Verdict.SAME_OBJECTS if len(same_objects) == 1 else Verdict.DIFFERENT
