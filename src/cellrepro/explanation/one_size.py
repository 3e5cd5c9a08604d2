"""Two results of one image at two sizes: both are brought to the smaller, without new numbers.

Programs choose the pixels that stay in different ways; the one that leaves the smallest difference
is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.mask_comparison import MaskComparison
from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.comparison.unrelated_masks import lie_alike
from cellrepro.comparison.verdicts import Verdict
from cellrepro.images.integer_images import Integers
from cellrepro.images.size_factor import (
    SizeFactors,
    at_size,
    by_cellpose_text,
    diameter_of,
    size_factors,
)
from cellrepro.words import pixels_text
from samebits.words import amount, with_verb

_LEAST_DICE = 0.6  # of the pixels of cells, where two results show the same at two sizes
_LEAST_F1 = 0.3
_FEWEST_CELLS = 5  # on either side, where most differ; fewer may lie anywhere
_LEAST_WITH_COUNTERPART = 0.5  # share of the cells of both sides
_AS_GOOD_AS_EQUAL = 0.02  # of the factors of two diameters and two sizes
_OF_A_COPY = 0.5  # share of cells that are equal in every pixel


@dataclass(frozen=True)
class Scaled:
    """Two results at one size, the smaller one along each axis."""

    of: Literal["a", "b"]
    """The side that is larger, with more pixels."""
    factor: float
    """How many times, along Y and X alike; the geometric mean where the two differ."""
    factors: tuple[float, float]
    """How many times as many rows, and columns, the larger one has; below 1 it has fewer."""
    masks: tuple[Integers, Integers] = field(repr=False)
    """The labels of A and B at one size, (Y, X) or (Z, Y, X)."""
    n_too_small: int = field(repr=False)
    """Cells that are too small to be seen at that size."""

    @property
    def larger(self) -> str:
        """The letter of the larger side."""
        return self.of.upper()

    @property
    def smaller(self) -> str:
        """The letter of the other one."""
        return "B" if self.of == "a" else "A"

    @property
    def _along(self) -> SizeFactors:
        return SizeFactors(*self.factors)

    def is_of_one_image(self, result: MaskComparison) -> bool:
        """Whether cells match at one size, or lie alike though most of them differ.

        Where cells fill the image, pixels agree by chance.
        """
        have_match = bool(result.f1[0] >= _LEAST_F1)
        n_cells = (result.n_objects_a, result.n_objects_b)
        is_even = self.factors[0] == self.factors[1]
        # A crop of one or two cells may look like the whole with two factors.
        can_be_told = is_even or min(n_cells) >= _FEWEST_CELLS
        if have_match and can_be_told and _dice(*self.masks) > _LEAST_DICE:
            return True
        n_alone = result.kinds[ObjectKind.LOST] + result.kinds[ObjectKind.GAINED]
        have_counterpart = n_alone <= (1 - _LEAST_WITH_COUNTERPART) * sum(n_cells)
        are_told = min(n_cells) >= _FEWEST_CELLS and (have_match or have_counterpart)
        return are_told and lie_alike(*self.masks)

    def text(self, result: MaskComparison) -> str:
        """Say how the sizes differ, and what else does, by the comparison at one size."""
        sizes = self._along.text(self.larger, self.smaller)
        differ = changed_besides(result)
        if differ:
            return f"{sizes}, and {differ}"
        same = f"{sizes}, and holds the same {amount(result.n_objects_a, 'cell')}"
        if result.n_differing:
            return f"{same}, with outlines that differ in {pixels_text(result.ppm)}"
        return f"{same}, with different numbers" if result.verdict == Verdict.SAME_OBJECTS else same

    def corresponds(self, diameter_a: object, diameter_b: object) -> bool:
        """Whether two diameters differ as the sizes do, so that they are one setting."""
        if not isinstance(diameter_a, int | float) or not isinstance(diameter_b, int | float):
            return False
        if not (self._along.are_one and diameter_a and diameter_b):
            return False
        larger, smaller = (diameter_a, diameter_b) if self.of == "a" else (diameter_b, diameter_a)
        return abs(larger / smaller / self.factor - 1) < _AS_GOOD_AS_EQUAL

    @property
    def compared_text(self) -> str:
        """Say at which size the two were compared."""
        n_rows, n_columns = self.masks[0].shape[-2:]
        if min(self.factors) < 1:  # each is smaller along one axis
            of_smaller, of_larger = ("Y", "X") if self.factors[0] < 1 else ("X", "Y")
            return (
                f"compared at {n_rows} x {n_columns} pixels, the smaller size along each axis: "
                f"{self.smaller} was reduced along {of_smaller} and {self.larger} along "
                f"{of_larger}, without new numbers"
            )
        bring = at_size(self._along.inverse, n_axes=self.masks[0].ndim)
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
                f"{with_verb(self.n_too_small, 'cell', 'is', 'are')} too small to be seen at the "
                "smaller size, and not compared"
            )
        if is_copy(result):
            return
        yield "two sizes come from an image that was binned or enlarged before it was segmented"
        if self._along.are_one:
            yield (
                f"in pixels a cell of {self.larger} is {self.factor:.3g} times as wide as in "
                f"{self.smaller}: the diameter that corresponds to one for {self.smaller} is "
                f"{self.factor:.3g} times as large"
            )
        if may_be_scaled and self._along.are_one:
            factor_of = {self.larger: self.factor, self.smaller: 1 / self.factor}
            which = [f"{diameter_of(factor_of[side])} for {side}" for side in may_be_scaled]
            yield f"or from {by_cellpose_text(', or '.join(which))}"


def is_copy(result: MaskComparison, *, n_removed: int = 0) -> bool:
    """Whether one was made of the other, as cells are equal in every pixel, but for some."""
    n_equal = sum(change.is_equal for change in result.objects)
    n_cells = max(result.n_objects_a, result.n_objects_b) - n_removed
    return n_equal >= _OF_A_COPY * max(n_cells, 1)


def changed_besides(result: MaskComparison, *, n_known: int = 0) -> str:
    """Say how many cells differ in a copy, but for known ones; empty where none does."""
    n_changed = sum(result.kinds.values()) - result.kinds[ObjectKind.KEPT] - n_known
    if not n_changed:
        return ""
    return (
        f"{with_verb(n_changed, 'cell', 'differs', 'differ')} besides "
        f"({amount(result.n_objects_a, 'cell')} in A, {result.n_objects_b} in B)"
    )


def at_one_size(a: Integers, b: Integers) -> Scaled | None:
    """Bring two results to the smaller size along each axis; None where the sizes nearly agree."""
    factors = size_factors(a.shape, b.shape)
    if factors is None:
        return None
    smaller = (min(sizes) for sizes in zip(a.shape, b.shape, strict=True))
    masks = _nearest_pixels(a, b, tuple(smaller))
    n_before = len(np.unique(a)) + len(np.unique(b))
    of_larger = factors if factors.mean > 1 else factors.inverse
    return Scaled(
        of="a" if factors.mean > 1 else "b",
        factor=of_larger.mean,
        factors=(of_larger.y, of_larger.x),
        masks=masks,
        n_too_small=n_before - sum(len(np.unique(labels)) for labels in masks),
    )


def _dice(a: Integers, b: Integers) -> float:
    n_in_both = int(np.count_nonzero((a > 0) & (b > 0)))
    n_in_either = int(np.count_nonzero(a)) + int(np.count_nonzero(b))
    return 2 * n_in_both / max(1, n_in_either)


def _nearest_pixels(a: Integers, b: Integers, shape: tuple[int, ...]) -> tuple[Integers, Integers]:
    """Reduce two results in the way that leaves the smallest difference."""
    of_a, of_b = (list(_reduced(labels, shape)) for labels in (a, b))
    return min(product(of_a, of_b), key=lambda both: _unlike(*both))


def _reduced(labels: Integers, shape: tuple[int, ...]) -> Iterator[Integers]:
    """Reduce a result in each way, unless it has that size."""
    if labels.shape == shape:
        yield labels
        return
    for way in (_first_of_each, _first_of_enlarged, _middle_of_each, _from_end_to_end):
        yield _sampled(labels, shape, way)


def _unlike(a: Integers, b: Integers) -> tuple[int, int]:
    """Count the pixels that are background in one alone, then those with other numbers."""
    return int(np.count_nonzero((a > 0) != (b > 0))), int(np.count_nonzero(a != b))


_Positions = NDArray[np.int64]
_Way = Callable[[int, int], _Positions]
"""Gives the positions, of so many pixels along an axis, of so many that stay."""


def _first_of_each(n_pixels: int, n_staying: int) -> _Positions:
    """As slices with a step and OpenCV take them."""
    return np.arange(n_staying) * n_pixels // n_staying


def _first_of_enlarged(n_pixels: int, n_staying: int) -> _Positions:
    """The first copy of each pixel where OpenCV or `at_size` enlarged them."""
    return -(-np.arange(n_staying) * n_pixels // n_staying)


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
