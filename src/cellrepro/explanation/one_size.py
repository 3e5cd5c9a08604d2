"""Two results of one image at two sizes: the larger is brought to the smaller, without new numbers.

Programs choose the pixels that stay in different ways; the one that leaves the smallest difference
is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.mask_comparison import MaskComparison
from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.comparison.verdicts import Verdict
from cellrepro.images.integer_images import Integers
from cellrepro.images.size_factor import (
    at_size,
    by_cellpose_text,
    diameter_of,
    size_factor,
)
from cellrepro.words import pixels_text
from samebits.words import amount, with_verb

LEAST_DICE = 0.6
"""Of the pixels of cells, where two results show the same at two sizes."""
_LEAST_F1 = 0.3
_OF_A_COPY = 0.5  # share of cells that are equal in every pixel


@dataclass(frozen=True)
class Scaled:
    """The larger of two results, brought to the size of the smaller."""

    of: Literal["a", "b"]
    """The side that is larger."""
    factor: float
    """How many times, along Y and X alike."""
    masks: Integers = field(repr=False)
    """Its labels at the size of the smaller, (Y, X) or (Z, Y, X)."""
    n_too_small: int = field(repr=False)
    """Cells that are too small to be seen at that size."""
    is_enlarged: bool = field(repr=False)
    """Whether it has no finer detail than the smaller size, as masks that were enlarged."""

    @property
    def larger(self) -> str:
        """The letter of the larger side."""
        return self.of.upper()

    @property
    def smaller(self) -> str:
        """The letter of the other one."""
        return "B" if self.of == "a" else "A"

    def of_both(self, a: Integers, b: Integers) -> tuple[Integers, Integers]:
        """Give the masks of both sides at one size."""
        return (self.masks, b) if self.of == "a" else (a, self.masks)

    def is_of_one_image(self, result: MaskComparison) -> bool:
        """Whether cells match at one size; where they fill the image, pixels agree by chance."""
        return bool(result.f1[0] >= _LEAST_F1)

    def text(self, result: MaskComparison) -> str:
        """Say how the sizes differ, and what else does, by the comparison at one size."""
        sizes = f"{self.larger} is {self.factor:.3g} times as large as {self.smaller}"
        if is_copy(result):
            enlarged = f"{self.larger} is {self.smaller} enlarged"
            reduced = f"{self.smaller} is {self.larger} reduced"
            sizes = f"{enlarged if self.is_enlarged else reduced} {self.factor:.3g} times"
        differ = changed_besides(result)
        if differ:
            return f"{sizes}, and {differ}"
        same = f"{sizes}, and holds the same {amount(result.n_objects_a, 'cell')}"
        if result.n_differing:
            return f"{same}, with outlines that differ in {pixels_text(result.ppm)}"
        return f"{same}, with different numbers" if result.verdict == Verdict.SAME_OBJECTS else same

    @property
    def compared_text(self) -> str:
        """Say at which size the two were compared."""
        bring = at_size(1 / self.factor, n_axes=self.masks.ndim)
        return (
            f"compared at the size of {self.smaller}: {self.larger} was reduced without new "
            f"numbers (in Python: {bring})"
        )

    def notes(self, result: MaskComparison, *, may_be_scaled: Sequence[str]) -> Iterator[str]:
        """Say which cells were not compared, and where two sizes come from.

        ``may_be_scaled`` are the letters of the sides whose records allow that Cellpose itself
        made them of another size than their image.
        """
        if self.n_too_small:
            yield (
                f"{with_verb(self.n_too_small, 'cell', 'is', 'are')} too small in {self.larger} to "
                f"be seen at the size of {self.smaller}, and not compared"
            )
        if is_copy(result):
            return
        yield "two sizes come from an image that was binned or enlarged before it was segmented"
        if may_be_scaled:
            factor_of = {self.larger: self.factor, self.smaller: 1 / self.factor}
            which = [f"{diameter_of(factor_of[side])} for {side}" for side in may_be_scaled]
            yield f"or from {by_cellpose_text(', or '.join(which))}"


def is_copy(result: MaskComparison) -> bool:
    """Whether one was made of the other, as cells are equal in every pixel."""
    n_equal = sum(change.iou == 1 for change in result.objects)
    return n_equal >= _OF_A_COPY * max(result.n_objects_a, result.n_objects_b, 1)


def changed_besides(result: MaskComparison) -> str:
    """Say how many cells differ in a copy; empty where none does."""
    n_changed = sum(result.kinds.values()) - result.kinds[ObjectKind.KEPT]
    if not n_changed:
        return ""
    return (
        f"{with_verb(n_changed, 'cell', 'differs', 'differ')} besides "
        f"({amount(result.n_objects_a, 'cell')} in A, {result.n_objects_b} in B)"
    )


def at_one_size(a: Integers, b: Integers) -> Scaled | None:
    """Bring the larger of two results to the size of the smaller.

    None where no one factor lies between the sizes, or the cells of the two do not agree.
    """
    factor = size_factor(a.shape, b.shape)
    if factor is None:
        return None
    large, small = (a, b) if factor > 1 else (b, a)
    reduced = _nearest_pixels(large, small)
    if _dice(reduced, small) <= LEAST_DICE:
        return None
    enlarged = _sampled(reduced, large.shape, _first_of_each)
    return Scaled(
        of="a" if factor > 1 else "b",
        factor=max(factor, 1 / factor),
        masks=reduced,
        n_too_small=len(np.unique(large)) - len(np.unique(reduced)),
        is_enlarged=np.array_equal(enlarged, large),
    )


def dice_at_one_size(masks: Integers, other: Integers) -> float:
    """The Dice coefficient of two results, one brought to the other's size."""
    return _dice(_sampled(masks, other.shape, _first_of_each), other)


def _dice(a: Integers, b: Integers) -> float:
    n_in_both = int(np.count_nonzero((a > 0) & (b > 0)))
    n_in_either = int(np.count_nonzero(a)) + int(np.count_nonzero(b))
    return 2 * n_in_both / max(1, n_in_either)


def _nearest_pixels(large: Integers, small: Integers) -> Integers:
    """Reduce a result in the way that leaves the smallest difference to another one."""
    ways = (_first_of_each, _middle_of_each, _from_end_to_end)
    reduced = [_sampled(large, small.shape, way) for way in ways]
    return min(reduced, key=lambda one: _unlike(one, small))


def _unlike(a: Integers, b: Integers) -> tuple[int, int]:
    """Count the pixels that are background in one alone, then those with other numbers."""
    return int(np.count_nonzero((a > 0) != (b > 0))), int(np.count_nonzero(a != b))


_Positions = NDArray[np.int64]
_Way = Callable[[int, int], _Positions]
"""Gives the positions, of so many pixels along an axis, of so many that stay."""


def _first_of_each(n_pixels: int, n_staying: int) -> _Positions:
    """As slices with a step and OpenCV take them."""
    return np.arange(n_staying) * n_pixels // n_staying


def _middle_of_each(n_pixels: int, n_staying: int) -> _Positions:
    """As Pillow and scikit-image take them."""
    return (2 * np.arange(n_staying) + 1) * n_pixels // (2 * n_staying)


def _from_end_to_end(n_pixels: int, n_staying: int) -> _Positions:
    """As scipy.ndimage.zoom takes them: first and last stay."""
    return np.floor(np.linspace(0, n_pixels - 1, n_staying) + 0.5).astype(np.int64)


def _sampled(labels: Integers, shape: tuple[int, ...], way: _Way) -> Integers:
    rows = way(labels.shape[-2], shape[-2])
    columns = way(labels.shape[-1], shape[-1])
    return np.ascontiguousarray(labels[..., rows[:, np.newaxis], columns])
