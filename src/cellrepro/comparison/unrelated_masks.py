"""Masks that overlap no more than by chance: those of two images, taken for two of one image.

Even a bad segmentation lies where its image has something, or where it has nothing. So the pixels
that two results of one image share are far more, or far fewer, than where one of them is moved
elsewhere; of two images they are as many wherever it is moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.shifted_overlap import shifted_overlap
from cellrepro.comparison.systematic_change import TURNS
from cellrepro.words import share_text
from samebits.words import amount, grouped, verb_of

if TYPE_CHECKING:
    from cellrepro.comparison.mask_comparison import MaskComparison
    from cellrepro.images.integer_images import Integers

_FEWEST_CELLS = 5  # on either side; fewer may lie anywhere
_LARGEST_F1 = 0.1  # of 139 pairs of real images of one kind the largest is 0.098
_LARGEST_CHANCE = 2.5  # standard deviations; bad segmentations have 3.1 and more
_LEAST_PEAK = 6.0  # likewise; two images have up to 4.5, one that is shifted 7.9 and more
_LARGEST_SIDE = 1024  # pixels; of larger images every n-th row and column is looked at

_Shares = NDArray[np.float64]


@dataclass(frozen=True)
class ChanceOverlap:
    """Two label images that have nothing to do with each other, and what shows that."""

    n_matched: int
    """Cells with a match at IoU 0.5."""
    n_cells: tuple[int, int]
    """Cells of either side."""
    covered: float
    """Share of the pixels of b's cells that cells of a cover."""
    expected: float
    """Share of all pixels that cells of a cover, which is what chance gives."""

    def text(self, a: str, b: str) -> str:
        """Say what speaks for two images."""
        n_a, n_b = self.n_cells
        covered, expected = share_text(self.covered), share_text(self.expected)
        more = "hardly more" if self.covered > self.expected and covered != expected else "no more"
        n_matched = grouped(self.n_matched) if self.n_matched else "none"
        match = verb_of(max(1, self.n_matched), "matches", "match")
        return (
            f"{n_matched} of the {amount(n_a, 'cell')} of {a} {match} one of the "
            f"{grouped(n_b)} of {b} (IoU of 0.5 or more), and they overlap {more} than by chance: "
            f"the cells of {a} cover {covered} of those of {b}, where chance gives {expected}"
        )


def chance_overlap(a: Integers, b: Integers, comparison: MaskComparison) -> ChanceOverlap | None:
    """Find out whether two label images overlap as by chance; None where they do not."""
    n_cells = (comparison.n_objects_a, comparison.n_objects_b)
    if min(n_cells) < _FEWEST_CELLS or 2 * comparison.n_matched >= _LARGEST_F1 * sum(n_cells):
        return None
    shown_b = _shares_of_cells(b)
    here = _overlaps(_shares_of_cells(a), shown_b)
    if here is None or abs(here[0, 0]) > _LARGEST_CHANCE or here.max() > _LEAST_PEAK:
        return None
    for turned in TURNS.values():
        of_a = _shares_of_cells(turned(a.astype(np.int32)))
        there = _overlaps(of_a, shown_b) if of_a.shape == shown_b.shape else None
        if there is not None and there.max() > _LEAST_PEAK:
            return None  # one image that was turned, which is another cause
    is_cell_a = a > 0
    is_cell_b = b > 0
    return ChanceOverlap(
        n_matched=comparison.n_matched,
        n_cells=n_cells,
        covered=float(is_cell_a[is_cell_b].mean()),
        expected=float(is_cell_a.mean()),
    )


def lie_alike(a: Integers, b: Integers) -> bool:
    """Whether two label images overlap far more than where one of them is moved elsewhere."""
    here = _overlaps(_shares_of_cells(a), _shares_of_cells(b))
    return here is not None and bool(here[0, 0] > _LEAST_PEAK)


def _shares_of_cells(labels: Integers | NDArray[np.int32]) -> _Shares:
    """The share of the planes of a stack in which a pixel is cell, (Y, X); else whether it is."""
    every = -(-max(labels.shape[-2:]) // _LARGEST_SIDE)
    is_cell = labels[..., ::every, ::every] > 0
    return is_cell.astype(np.float64) if is_cell.ndim == 2 else is_cell.mean(axis=0)


def _overlaps(a: _Shares, b: _Shares) -> _Shares | None:
    """The overlap for every shift of b, in standard deviations from their mean.

    None where all shifts overlap alike, as where everything is cell.
    """
    overlaps = shifted_overlap(a, b) / a.size
    deviation = float(overlaps.std())
    if deviation < 1e-9:
        return None
    return (overlaps - a.mean() * b.mean()) / deviation
