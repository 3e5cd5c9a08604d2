"""What differs between the masks of two stored repeats, image by image, each file read seldom."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cellrepro.same.metrics import MaskComparison, compare_masks
from cellrepro.same.object_changes import ObjectKind
from cellrepro.same.verdicts import Verdict
from cellrepro.store.store import Repeat

_MOST_HELD = 2**26  # pixels of label images, as many pairs need the same


@dataclass(frozen=True)
class ImageDifference:
    """What differs between two label images of one image, without the objects themselves."""

    verdict: Verdict
    n_objects: int  # of both sides together
    n_unmatched: int  # those without a counterpart at IoU 0.5
    n_pixels: int
    n_differing: int
    ap: float  # 1 - AP, mean over IoU 0.5 to 0.95; NaN where neither side found an object
    ap50: float
    kinds: Mapping[str, int]

    def part(self, measure: str) -> tuple[float, float]:
        """Numerator and denominator of a measure; over several images both add up."""
        if measure == "changed":
            return self.n_unmatched, self.n_objects
        if measure == "ppm":
            return 1e6 * self.n_differing, self.n_pixels
        score = getattr(self, measure)
        return (0.0, 0.0) if math.isnan(score) else (score, 1.0)


class MaskPairs:
    """Compares the masks of repeats; each different pair of label images is compared once."""

    def __init__(self) -> None:
        self.n_compared = 0  # pixels so far
        self._known: dict[tuple[str, str, str], ImageDifference] = {}
        self._sizes: dict[str, int] = {}
        self._held: dict[tuple[str, str], np.ndarray] = {}

    def differences(
        self, a: Repeat, b: Repeat, results: Mapping[str, MaskComparison] | None = None
    ) -> dict[str, ImageDifference]:
        """By image that both segmented; ``results`` where the files were compared already."""
        for repeat in (a, b):
            repeat.refuse_damage()
        shared = [name for name in a.manifest.masks if name in b.manifest.masks]
        if results is not None:
            return {name: difference_of(results[name]) for name in shared}
        return {name: self._difference(name, a, b) for name in shared}

    def _difference(self, image: str, a: Repeat, b: Repeat) -> ImageDifference:
        one, other = a.manifest.masks[image], b.manifest.masks[image]
        key = (image, one.canonical_digest, other.canonical_digest)
        if one.canonical_digest == other.canonical_digest:
            return self._equal(image, a, one.digest == other.digest)
        if key not in self._known:
            found = difference_of(compare_masks(self._masks(a, image), self._masks(b, image)))
            self._known[key] = found
            self.n_compared += found.n_pixels
        return self._known[key]

    def _masks(self, repeat: Repeat, image: str) -> np.ndarray:
        key = (image, repeat.manifest.masks[image].digest)
        if key not in self._held:
            if sum(masks.size for masks in self._held.values()) > _MOST_HELD:
                self._held.clear()
            self._held[key] = repeat.masks(image)
        return self._held[key]

    def _equal(self, image: str, repeat: Repeat, same_bits: bool) -> ImageDifference:
        if image not in self._sizes:
            self._sizes[image] = self._masks(repeat, image).size
        n = repeat.manifest.masks[image].n_objects
        verdict = Verdict.IDENTICAL if same_bits else Verdict.SAME_OBJECTS
        verdict, score = (verdict, 0.0) if n else (Verdict.VACUOUS, math.nan)
        kinds = {**dict.fromkeys(map(str, ObjectKind), 0), "kept": n}
        return ImageDifference(verdict, 2 * n, 0, self._sizes[image], 0, score, score, kinds)


def difference_of(result: MaskComparison) -> ImageDifference:
    """What differs, without the objects themselves."""
    return ImageDifference(
        verdict=result.verdict,
        n_objects=result.n_objects_a + result.n_objects_b,
        n_unmatched=result.n_unmatched,
        n_pixels=result.n_pixels,
        n_differing=result.n_differing,
        ap=1 - float(result.ap.mean()),
        ap50=1 - result.ap50,
        kinds={str(kind): result.kinds[kind] for kind in ObjectKind},
    )
