"""A result that shows a part of an image: where it lies, found by its masks, and what it lacks."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from cellrepro.comparison.mask_comparison import MaskComparison, compare_masks
from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.comparison.shifted_overlap import shifted_overlap
from cellrepro.explanation.conditions import IMAGE_CROP, Crop
from cellrepro.explanation.one_size import at_one_size, changed_besides, is_copy
from cellrepro.explanation.why import Cause
from cellrepro.images.size_factor import at_size, size_factors
from cellrepro.words import area_text
from samebits.errors import BadInput
from samebits.words import amount, verb_of, with_verb

if TYPE_CHECKING:
    from cellrepro.explanation.sides import Side
    from cellrepro.images.integer_images import Integers

_LEAST_DICE = 0.3  # of the pixels of cells, where a crop lies
# Where 528 pairs of unrelated images overlap most, up to 7 cells match; of more than three an F1 of
# 0.35 at most. Sixty crops that were segmented with another diameter have 0.59 or more.
_MOST_BY_CHANCE = 3
_LEAST_F1 = 0.45
_SURE_F1 = 0.75  # of however few cells
_OF_EDGE = 0.5  # share of the pieces of cells at the edge of a part that are equal in every pixel


@dataclass(frozen=True)
class Part:
    """The part of the image that one side shows, where the other shows the whole."""

    of: Literal["a", "b"]
    """The side that shows a part."""
    rows: tuple[int, int]
    """Pixels of the whole, the second left out."""
    columns: tuple[int, int]
    """Pixels of the whole, the second left out."""
    share: float
    """Share of the image's pixels."""
    n_cells: int
    """Cells of the side that shows the whole."""
    n_outside: int
    """Those of them that lie wholly outside the part."""
    n_cut: int
    """Those of them that the border of the part cuts."""

    @property
    def cropped(self) -> str:
        """The letter of the side that shows a part."""
        return self.of.upper()

    @property
    def whole(self) -> str:
        """The letter of the other one."""
        return "B" if self.of == "a" else "A"

    @property
    def place(self) -> str:
        """Name the pixels of the whole that the part shows."""
        return area_text(self.rows, self.columns)

    def cells_left_out(self, whole: str) -> str:
        """Say how many cells of the whole, which people know by this name, the part lacks."""
        of_whole = f"{whole}'s {amount(self.n_cells, 'cell')}"
        if not self.n_outside + self.n_cut:
            return f"None of {of_whole} lies outside of it, and none is cut by its border"
        return (
            f"Of {of_whole} {self.n_outside} {verb_of(self.n_outside, 'lies', 'lie')} outside of "
            f"it, and {self.n_cut} {verb_of(self.n_cut, 'is', 'are')} cut by its border, so that "
            "these differ for that alone"
        )


class _Match(NamedTuple):
    """Where masks lie in those of the whole image, and their Dice coefficient there."""

    crop: Crop
    dice: float
    is_sure: bool
    """Whether cells match there, too."""


def with_crop(side: Side, other: Side, shape: tuple[int, ...]) -> Side:
    """Add where its crop lies to what is known of a side, if it shows a part of the image."""
    if side.masks.shape == shape:
        return side
    sizes = f"{side.name} has masks of shape {side.masks.shape}, and the image has {shape}"
    if other.masks.shape != shape:
        raise BadInput(f"{sizes}; expected masks of this image, or of a part of it")
    fits = all(n <= n_of_image for n, n_of_image in zip(side.masks.shape, shape, strict=True))
    match = _best_match(side.masks, other.masks) if fits else None
    if match is None or not match.is_sure:
        _refuse_other_size(side.masks, other.masks, sizes)
    if match is None:
        raise BadInput(f"{sizes}; expected masks of this image, or of a part of it")
    if not side.masks.any():
        raise BadInput(f"{sizes}, and they hold no cell by which to find their place in the image")
    if match.dice < _LEAST_DICE:
        raise BadInput(f"{sizes}, and no part of {other.name} is like it; give the image of both")
    return side.in_crop(match.crop)


def _refuse_other_size(masks: Integers, whole: Integers, sizes: str) -> None:
    """Refuse masks of the whole image at another size, with how to bring them to its size."""
    factors = size_factors(whole.shape, masks.shape)
    scaled = at_one_size(masks, whole)
    if factors is None or scaled is None:
        return
    if not scaled.is_of_one_image(compare_masks(*scaled.masks)):
        return
    raise BadInput(
        f"{sizes}; they are the masks of the whole image at a different size: "
        f"{factors.text('the image', 'the masks')}. No image fits both sides: leave --image out, "
        "and both are compared at one size, or bring these masks to the size of the image without "
        f"new numbers: {at_size(factors)}"
    )


def in_common(side: Side, other: Side) -> np.ndarray:
    """Give the masks of a side where both show the image, (Y, X)."""
    if IMAGE_CROP not in other.known:
        return side.masks
    return _cut(side.masks, other.known[IMAGE_CROP])


def part_shown(a: Side, b: Side) -> Part | None:
    """Say where one side shows a part of the other, and what that leaves out."""
    if IMAGE_CROP in a.known:
        return _part("a", a.known[IMAGE_CROP], whole=b.masks)
    if IMAGE_CROP in b.known:
        return _part("b", b.known[IMAGE_CROP], whole=a.masks)
    return None


def part_by_masks(a: Integers, b: Integers) -> Part | None:
    """Find where one of two results, (Y, X), shows a part of the other; None where none is sure."""
    crop = _place_in(b, a)
    if crop is not None:
        return _part("a", crop, whole=b)
    crop = _place_in(a, b)
    return None if crop is None else _part("b", crop, whole=a)


def is_in_place(result: MaskComparison) -> bool:
    """Whether the cells that match show that a part lies where its masks overlap most."""
    f1 = result.f1[0]
    return f1 >= _SURE_F1 or (f1 >= _LEAST_F1 and result.n_matched > _MOST_BY_CHANCE)


def cut_out(a: Side, b: Side, result: MaskComparison) -> Cause | None:
    """Say that one side is cut out of the other's masks; None of a crop that was segmented.

    There hardly a cell is equal in every pixel, and least of all one at the edge.
    """
    part = part_shown(a, b)
    n_removed = n_removed_at_edge(a, b, result)
    if part is None or not is_copy(result, n_removed=n_removed):
        return None
    equal = {label for change in result.objects if change.is_equal for label in change.labels_a}
    at_edge = _labels_at_edge(in_common(a, b))
    if not n_removed and len(at_edge & equal) < _OF_EDGE * len(at_edge):
        return None
    crop = (part.rows, part.columns)
    return Cause(
        IMAGE_CROP,
        a=crop if part.of == "a" else None,
        b=crop if part.of == "b" else None,
        confirmed=not _n_unequal(result, n_removed),
        words=(
            f"{part.cropped} is cut out of {part.whole}'s masks{_without(n_removed)}, and "
            f"{_besides(result, n_removed)}"
        ),
    )


def n_removed_at_edge(a: Side, b: Side, result: MaskComparison) -> int:
    """Count the cells that a part lacks at its edge; 0 where it has any there."""
    part = part_shown(a, b)
    if part is None:
        return 0
    cropped, whole = (a, b) if part.of == "a" else (b, a)
    if _labels_at_edge(cropped.masks):
        return 0
    at_edge = _labels_at_edge(in_common(whole, cropped))
    lacking = ObjectKind.GAINED if part.of == "a" else ObjectKind.LOST
    return sum(
        change.kind == lacking and not at_edge.isdisjoint(change.labels_a + change.labels_b)
        for change in result.objects
    )


def edge_note(a: Side, b: Side, result: MaskComparison) -> str:
    """Say of the cells that a part lacks that they lie at its edge; empty where none does."""
    part = part_shown(a, b)
    n_removed = n_removed_at_edge(a, b, result)
    if part is None or not n_removed:
        return ""
    cropped = part.cropped
    n_lacking = result.kinds[ObjectKind.GAINED if part.of == "a" else ObjectKind.LOST]
    lie = with_verb(n_removed, "cell", "lies", "lie")
    which = f"{lie} at the edge of {cropped}"
    if n_lacking == n_removed:
        which = f"all cells that {cropped} lacks, {n_removed}, lie at its edge"
    return (
        f"{which}, where {cropped} has no cell: cells at the edge were probably removed (in "
        "Cellpose by exclude_on_edges)"
    )


def _without(n_removed: int) -> str:
    if not n_removed:
        return ""
    return f" without the {amount(n_removed, 'cell')} at its edge"


def _n_unequal(result: MaskComparison, n_removed: int) -> int:
    """Count the cells that are not equal in every pixel, but for the removed ones."""
    return sum(not change.is_equal for change in result.objects) - n_removed


def _besides(result: MaskComparison, n_removed: int) -> str:
    n_unequal = _n_unequal(result, n_removed)
    if not n_unequal:
        return "the masks are otherwise the same"
    reshaped = with_verb(n_unequal, "cell", "has a different outline", "have different outlines")
    return changed_besides(result, n_known=n_removed) or reshaped


def _labels_at_edge(masks: np.ndarray) -> set[int]:
    edge = np.concatenate([masks[0], masks[-1], masks[:, 0], masks[:, -1]])
    return {int(label) for label in np.unique(edge) if label}


def _cut(masks: Integers, crop: Crop) -> Integers:
    (top, bottom), (left, right) = crop
    return np.ascontiguousarray(masks[top:bottom, left:right])


def _part(of: Literal["a", "b"], crop: Crop, *, whole: Integers) -> Part:
    (top, bottom), (left, right) = crop
    inside = _cut(whole, crop)
    around = whole.copy()
    around[top:bottom, left:right] = 0
    labels_inside = np.unique(inside[inside > 0])
    labels_around = np.unique(around[around > 0])
    n_cells = len(np.union1d(labels_inside, labels_around))
    return Part(
        of=of,
        rows=(top, bottom),
        columns=(left, right),
        share=inside.size / whole.size,
        n_cells=n_cells,
        n_outside=n_cells - len(labels_inside),
        n_cut=len(np.intersect1d(labels_inside, labels_around)),
    )


def _place_in(whole: Integers, part: Integers) -> Crop | None:
    if not part.any() or any(map(operator.gt, part.shape, whole.shape)):
        return None
    match = _best_match(part, whole)
    return match.crop if match.is_sure else None


def _best_match(part: np.ndarray, whole: np.ndarray) -> _Match:
    """Where in the whole, (Y, X), the Dice coefficient with a part is highest."""
    cell_part = (part > 0).astype(np.float64)
    cell_whole = (whole > 0).astype(np.float64)
    n_in_both = shifted_overlap(cell_whole, cell_part)
    n_in_whole = shifted_overlap(cell_whole, np.ones_like(cell_part))
    dice = 2 * n_in_both / np.maximum(n_in_whole + cell_part.sum(), 1)
    # Farther down or to the right the part would leave the whole.
    n_places = [n - n_of_part + 1 for n, n_of_part in zip(whole.shape, part.shape, strict=True)]
    dice = dice[: n_places[0], : n_places[1]]
    top, left = (int(index) for index in np.unravel_index(int(dice.argmax()), dice.shape))
    height, width = part.shape
    crop = ((top, top + height), (left, left + width))
    best = float(dice[top, left])
    is_sure = best >= _LEAST_DICE and is_in_place(compare_masks(_cut(whole, crop), part))
    return _Match(crop, best, is_sure)
