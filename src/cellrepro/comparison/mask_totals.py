"""What adds up over the compared masks of many images: counts, one verdict, one sentence.

The sentence is what `cellrepro compare` prints for two folders of masks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.comparison.verdicts import Verdict, combine
from cellrepro.words import amount, any_of, pixels_text, share_text

if TYPE_CHECKING:
    from cellrepro.comparison.image_differences import ImageDifference
    from cellrepro.comparison.mask_comparison import MaskComparison


def verdict_over(images: Iterable[MaskComparison | ImageDifference]) -> Verdict:
    """Get the verdict of the least equal image; images without any object do not count.

    ``vacuous`` if no image has an object.
    """
    verdicts = [image.verdict for image in images]
    return combine(verdict for verdict in verdicts if verdict != Verdict.VACUOUS)


def kinds_over(images: Iterable[MaskComparison | ImageDifference]) -> dict[str, int]:
    """Count the objects of each `ObjectKind` over all images; every kind, in its order there."""
    total: Counter[str] = Counter()
    for image in images:
        total.update(image.kinds)
    return {str(kind): total[kind] for kind in ObjectKind}


@dataclass(frozen=True)
class MaskTotals:
    """The sums over several images; counts as `MaskComparison` has them."""

    verdict: Verdict
    n_images: int
    n_pixels: int
    n_differing: int
    n_objects_a: int
    n_objects_b: int
    n_matched: int
    n_renumbered: int
    some_renumbered: bool
    """Whether an image has equal outlines with different numbers."""
    same_numbering: bool
    """Whether what is one number on one side is one number on the other, in every image."""
    kinds: Mapping[str, int]

    @property
    def n_objects(self) -> int:
        """Objects of both sides together."""
        return self.n_objects_a + self.n_objects_b

    @property
    def n_unmatched(self) -> int:
        """Objects of either side without a match at IoU 0.5."""
        return self.n_objects - 2 * self.n_matched

    @property
    def ppm(self) -> float:
        """Differing pixels per million over all images; 0 over nothing."""
        return 1e6 * self.n_differing / self.n_pixels if self.n_pixels else 0.0

    def objects_by_name(self) -> dict[str, int]:
        """Get the numbers of objects as JSON shows them."""
        return {
            "a": self.n_objects_a,
            "b": self.n_objects_b,
            "matched": self.n_matched,
            **self.kinds,
            "renumbered": self.n_renumbered,
        }

    def sentence(self, *, a: str = "A", b: str = "B") -> str:
        """Say how the two sides differ over all images."""
        images = amount(self.n_images, "image")
        sides = f"{a[:1].upper()}{a[1:]} and {b}"
        if not self.n_objects:
            where = any_of(self.n_images, "image")
            return f"Neither {a} nor {b} has a cell in {where}: nothing can be compared."
        if not self.n_differing:
            also = ", some with different numbers" if self.some_renumbered else ""
            if not self.same_numbering:
                also = ", but not one number for each"
            cells = amount(self.n_objects_a, "cell")
            return f"{sides} have the same {cells}{also}, pixel for pixel, on {images}."
        changed = "Every cell has a counterpart that overlaps by half"
        if self.n_unmatched:
            changed = (
                f"{share_text(self.n_unmatched / self.n_objects)} of the cells changed, that is, "
                "have no counterpart that overlaps by half"
            )
        became = ", ".join(
            f"{n} {ObjectKind(kind).in_words}" for kind, n in self.kinds.items() if n
        )
        return (
            f"{sides} differ: {amount(self.n_objects_a, 'cell')} in {a}, {self.n_objects_b} in "
            f"{b}, over {images} ({became}). {changed}, and {pixels_text(self.ppm)} "
            "differ."
        )


def totals_over(images: Iterable[MaskComparison]) -> MaskTotals:
    """Add up what differs between the masks of several images.

    >>> from cellrepro import compare_masks
    >>> totals_over([compare_masks([[1, 0]], [[1, 0]]), compare_masks([[1, 2]], [[1, 0]])]).ppm
    250000.0
    """
    results = list(images)
    return MaskTotals(
        verdict=verdict_over(results),
        n_images=len(results),
        n_pixels=sum(result.n_pixels for result in results),
        n_differing=sum(result.n_differing for result in results),
        n_objects_a=sum(result.n_objects_a for result in results),
        n_objects_b=sum(result.n_objects_b for result in results),
        n_matched=sum(result.n_matched for result in results),
        n_renumbered=sum(result.n_renumbered for result in results),
        some_renumbered=any(result.verdict == Verdict.SAME_OBJECTS for result in results),
        same_numbering=all(result.same_numbering for result in results),
        kinds=kinds_over(results),
    )
