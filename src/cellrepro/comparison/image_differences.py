"""What differs between the masks of two stored repeats, image by image."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.comparison.mask_comparison import MaskComparison, compare_masks
from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.comparison.verdicts import Verdict

if TYPE_CHECKING:
    import numpy as np

    from cellrepro.store.stored_run import Repeat

_MOST_PIXELS_KEPT = 2**26
"""Of label images in memory; many pairs need the same ones."""


@dataclass(frozen=True)
class ImageDifference:
    """The differences of two label images of one image, without the objects themselves."""

    verdict: Verdict
    """The verdict on this image alone."""
    n_objects: int
    """Objects of both sides together."""
    n_unmatched: int
    """Objects of either side without a match."""
    n_pixels: int
    """All pixels of the image."""
    n_differing: int
    """Pixels that are not the same object, or background, on both sides."""
    ap: float
    """1 - AP, mean over IoU 0.5 to 0.95; NaN where neither side has an object."""
    ap50: float
    """1 - AP at IoU 0.5; likewise."""
    kinds: Mapping[str, int]
    """Number of objects by `ObjectKind`."""

    @property
    def changed(self) -> float:
        """Share of the objects of both sides without a match; 0 over nothing."""
        return self.n_unmatched / max(1, self.n_objects)

    @property
    def ppm(self) -> float:
        """Differing pixels per million; 0 over nothing."""
        return 1e6 * self.n_differing / max(1, self.n_pixels)

    def part(self, measure: str) -> tuple[float, float]:
        """Get what this image adds to a measure over several images."""
        if measure == "changed":
            return self.n_unmatched, self.n_objects
        if measure == "ppm":
            return 1e6 * self.n_differing, self.n_pixels
        score = {"ap": self.ap, "ap50": self.ap50}[measure]
        return (0.0, 0.0) if math.isnan(score) else (score, 1.0)


class MaskPairs:
    """Compares the masks of stored repeats, with a cache of pairs of label images."""

    def __init__(self) -> None:
        self.n_compared = 0
        self._differences: dict[tuple[str, str, str], ImageDifference] = {}
        self._n_pixels: dict[str, int] = {}
        self._label_images: dict[tuple[str, str], np.ndarray] = {}

    def differences(
        self, a: Repeat, b: Repeat, results: Mapping[str, MaskComparison] | None = None
    ) -> dict[str, ImageDifference]:
        """Compare the masks of two repeats, image by image; ``results`` of them save the work."""
        for repeat in (a, b):
            repeat.refuse_damage()
        shared_images = [name for name in a.manifest.masks if name in b.manifest.masks]
        if results is not None:
            return {name: difference_of(results[name]) for name in shared_images}
        return {name: self._difference(name, a, b) for name in shared_images}

    def _difference(self, image: str, a: Repeat, b: Repeat) -> ImageDifference:
        record_a = a.manifest.masks[image]
        record_b = b.manifest.masks[image]
        if record_a.canonical_digest == record_b.canonical_digest:
            return self._same_objects(image, a, same_bits=record_a.digest == record_b.digest)
        key = (image, record_a.canonical_digest, record_b.canonical_digest)
        if key not in self._differences:
            result = compare_masks(self._masks(a, image), self._masks(b, image))
            self._differences[key] = difference_of(result)
            self.n_compared += result.n_pixels
        return self._differences[key]

    def _masks(self, repeat: Repeat, image: str) -> np.ndarray:
        """The label image of a repeat, from the cache if it is there."""
        key = (image, repeat.manifest.masks[image].digest)
        if key not in self._label_images:
            n_pixels_kept = sum(masks.size for masks in self._label_images.values())
            if n_pixels_kept > _MOST_PIXELS_KEPT:
                self._label_images.clear()
            self._label_images[key] = repeat.masks(image)
        return self._label_images[key]

    def _same_objects(self, image: str, repeat: Repeat, *, same_bits: bool) -> ImageDifference:
        """Get the difference of two sides with the outlines of one repeat: at most the numbers."""
        if image not in self._n_pixels:
            self._n_pixels[image] = self._masks(repeat, image).size
        n_objects = repeat.manifest.masks[image].n_objects
        if not n_objects:
            verdict = Verdict.VACUOUS
        elif same_bits:
            verdict = Verdict.IDENTICAL
        else:
            verdict = Verdict.SAME_OBJECTS
        no_difference = 0.0 if n_objects else math.nan
        kinds = {str(kind): 0 for kind in ObjectKind}
        kinds[str(ObjectKind.KEPT)] = n_objects
        return ImageDifference(
            verdict=verdict,
            n_objects=2 * n_objects,
            n_unmatched=0,
            n_pixels=self._n_pixels[image],
            n_differing=0,
            ap=no_difference,
            ap50=no_difference,
            kinds=kinds,
        )


def difference_of(result: MaskComparison) -> ImageDifference:
    """Keep of a comparison what adds up over many images."""
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
