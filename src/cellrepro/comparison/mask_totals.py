"""What adds up over the compared masks of many images: counts, one verdict, one sentence.

The sentence is what `cellrepro compare` prints for two folders of masks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from cellrepro.comparison.changed_cells import resized_cells
from cellrepro.comparison.object_changes import ObjectChange, ObjectKind
from cellrepro.comparison.verdicts import Verdict, combine
from cellrepro.words import as_sentence, differing_text
from samebits.words import amount, grouped

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
    unit: Literal["pixels", "voxels"]
    """What the images consist of; voxels where all are stacks."""
    resized: Sequence[ObjectChange]
    """Kept cells of which one side has fewer than three quarters of the pixels of the other."""

    @property
    def n_objects(self) -> int:
        """Objects of both sides together."""
        return self.n_objects_a + self.n_objects_b

    @property
    def n_unmatched(self) -> int:
        """Objects of either side without a match at IoU 0.5."""
        return self.n_objects - 2 * self.n_matched

    @property
    def changed(self) -> float:
        """Share of the objects of both sides without a match; 0 over nothing."""
        return self.n_unmatched / max(1, self.n_objects)

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
        sides = f"{a[:1].upper()}{a[1:]} and {b}"
        where = f" in any of the {self.n_images} images" if self.n_images > 1 else ""
        if not self.n_objects:
            return f"Neither {a} nor {b} has a cell{where}: nothing can be compared."
        if not self.n_differing:
            also = "; some have different numbers" if self.some_renumbered else ""
            if not self.same_numbering:
                also = "; but one number is not one cell"
            cells = amount(self.n_objects_a, "cell")
            one = self.unit.removesuffix("s")
            on = f", on {self.n_images} images" if self.n_images > 1 else ""
            return f"{sides} have the same {cells}, {one} for {one}{on}{also}."
        differ = differing_text(self.n_differing, self.n_pixels, self.unit)
        return f"{self.cells_text(a=a, b=b)}. {as_sentence(differ)}"

    def cells_text(self, *, a: str = "A", b: str = "B") -> str:
        """Say how many cells both sides have, and what became of them."""
        over = f", over {self.n_images} images" if self.n_images > 1 else ""
        in_a = f"{amount(self.n_objects_a, 'cell')} in {a}"
        in_b = f"{grouped(self.n_objects_b)} in {b}{over}"
        return f"{in_a}, {in_b}: {fates_text(self.kinds, self.resized)}"


def fates_text(
    kinds: Mapping[str, int],
    resized: Sequence[ObjectChange],
    *,
    words: Mapping[ObjectKind, str] | None = None,
) -> str:
    """Say how many cells are kept, how many of these in another size, and how many changed how.

    ``words`` replace those of some kinds, as "missed" beside a ground truth.

    >>> fates_text({"kept": 3, "lost": 1}, []), fates_text({"kept": 3, "lost": 1, "split": 2}, [])
    ('3 kept, 1 lost', '3 kept, 3 changed (1 lost, 2 split)')
    >>> from cellrepro import compare_masks
    >>> result = compare_masks([[1, 1, 1, 2, 2]], [[1, 1, 0, 2, 2]])
    >>> fates_text(result.kinds, resized_cells(result.objects))
    '2 kept (1 of them 33 % smaller), no other change'
    >>> result = compare_masks([[1, 1, 1, 2, 2, 2]], [[1, 1, 0, 2, 2, 0]])
    >>> fates_text(result.kinds, resized_cells(result.objects))
    '2 kept (both more than a quarter smaller), no other change'
    >>> fates_text({}, [])
    'no cell on either side'
    """
    n_kept = kinds.get(ObjectKind.KEPT, 0)
    kept = f"{grouped(n_kept)} kept"
    if resized:
        of_them = f"{grouped(len(resized))} of them "
        if len(resized) == n_kept:
            of_them = {1: "", 2: "both "}.get(n_kept, "all ")
        kept += f" ({of_them}{_sizes_text(resized)})"
    changed = changes_in_words(kinds, words)
    if not changed:
        rest = "no other change" if resized else "none changed"
        return f"{kept}, {rest}" if n_kept else "no cell on either side"
    if len(changed) == 1:
        return f"{kept}, {changed[0]}"
    n_changed = sum(kinds.values()) - n_kept
    return f"{kept}, {grouped(n_changed)} changed ({', '.join(changed)})"


def _sizes_text(resized: Sequence[ObjectChange]) -> str:
    """Say how much larger or smaller some cells are in B."""
    if len(resized) == 1:
        return resized[0].growth_in_words
    limits = {"a third larger" if change.growth > 0 else "a quarter smaller" for change in resized}
    return f"more than {' or '.join(sorted(limits))}"


def changes_in_words(
    kinds: Mapping[str, int], words: Mapping[ObjectKind, str] | None = None
) -> list[str]:
    """Say how many cells changed in each way that there is: "2 lost", "1 split"."""
    return [
        f"{grouped(kinds[kind])} {(words or {}).get(kind, kind.in_words)}"
        for kind in ObjectKind
        if kinds.get(kind) and kind != ObjectKind.KEPT
    ]


class ImageShares(Protocol):
    """How much of an image differs between two label images."""

    @property
    def changed(self) -> float:
        """Share of the cells of both sides without a match; NaN where there is none."""

    @property
    def ppm(self) -> float:
        """Differing pixels per million."""


def image_weight(image: ImageShares) -> float:
    """Get a weight to sort images by: the share of cells without a match, then of pixels."""
    of_cells = 0.0 if math.isnan(image.changed) else image.changed
    return of_cells + 1e-12 * image.ppm


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
        unit="voxels" if all(len(result.shape) == 3 for result in results) else "pixels",
        resized=[change for result in results for change in resized_cells(result.objects)],
    )
