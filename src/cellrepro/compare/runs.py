"""Verdicts over the repeats of one spec, from their manifests alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.record.manifest import Manifest


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
        Why a verdict is ``vacuous``, or why there is none.
    """

    weights: Verdict | None
    masks: Verdict | None
    overall: Verdict | None
    n_repeats: int
    n_images: int
    reasons: tuple[str, ...]

    def sentence(self) -> str:
        """The judgement as one sentence."""
        over = f"{self.n_repeats} repeats, {self.n_images} images"
        if self.overall is None:
            text = "no verdict"
        else:
            parts = (
                [f"masks {self.masks}"]
                if self.weights is None
                else [
                    f"weights {self.weights}",
                    f"masks {self.masks}",
                ]
            )
            text = f"{self.overall} ({', '.join(parts)})"
        because = f": {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{text} over {over}{because}"


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
    reasons = tuple(dict.fromkeys(reason for m in manifests for reason in m.vacuous))
    n_images = len(manifests[0].masks) if manifests else 0
    if len(manifests) < 2:
        alone = ("a single repeat has nothing to be compared with",)
        return Judgement(None, None, None, len(manifests), n_images, alone + reasons)
    weights, masks = _weights(manifests), _masks(manifests)
    overall = combine([masks] if weights is None else [weights, masks])
    return Judgement(weights, masks, overall, len(manifests), n_images, reasons)


def _weights(manifests: Sequence[Manifest]) -> Verdict | None:
    records = [m.weights for m in manifests if m.weights is not None]
    if not records:
        return None
    if len({record.digest for record in records}) > 1:
        return Verdict.DIFFERENT
    trained = all(record.n_changed for record in records)
    return Verdict.IDENTICAL if trained else Verdict.VACUOUS


def _masks(manifests: Sequence[Manifest]) -> Verdict:
    if not any(manifest.n_objects for manifest in manifests):
        return Verdict.VACUOUS
    stored = {tuple((name, r.digest) for name, r in sorted(m.masks.items())) for m in manifests}
    outlines = {
        tuple((name, r.canonical_digest) for name, r in sorted(m.masks.items())) for m in manifests
    }
    if len(stored) == 1:
        return Verdict.IDENTICAL
    return Verdict.SAME_OBJECTS if len(outlines) == 1 else Verdict.DIFFERENT
