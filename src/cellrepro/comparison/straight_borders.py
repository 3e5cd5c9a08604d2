"""Straight borders in a label image: cells that end along one row, column or plane, as seams leave.

A round cell ends along a row over about twice the square root of its diameter, in pixels; a cut one
ends over its whole width. Where several cells do so at one row, that is no chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import pi

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, poisson

from cellrepro.comparison.object_matching import overlap
from cellrepro.images.label_image import label_image
from samebits.words import amount

_FLAT = 2.0  # times the square root of a cell's diameter: how far a round one is flat, pixels
_MORE = 1.5  # times as long: a straight end
_LEAST = 8  # pixels
_EDGE = 3  # pixels from the image's own edge, where outlines are often drawn along it
_CERTAIN = 0.01  # chance of a line like it anywhere in the image, at most
_SAME_OUTLINE = 0.5  # IoU of a cell's last plane and the first of the one that goes on for it
_AXES = ("y", "x")


@dataclass(frozen=True)
class StraightBorder:
    """A row, column or plane at which cells end straight."""

    axis: str
    """``y`` for a border between two rows, ``x`` for one between two columns, ``z`` for one between
    two planes."""
    at: int
    """The first row, column or plane behind it, from 0."""
    length: int
    """Pixels along which cells end there; between planes those where others go on."""
    n_objects: int
    """Cells that end there."""
    chance: float
    """Probability of as many straight ends at any line of this image."""


@dataclass(frozen=True)
class Seam:
    """Straight ends at some lines, beside those at all others."""

    n_at: int
    """Straight ends at these lines."""
    n_lines: int
    """How many lines these are."""
    n_elsewhere: int
    """Straight ends at all other lines."""
    n_other_lines: int
    """How many other lines there are."""
    chance: float
    """Probability of as many or more ends at these lines, if all lines were alike."""

    @property
    def stands_out(self) -> bool:
        """Whether it is more than one, and chance hardly explains them."""
        return self.n_at > 1 and self.chance < _CERTAIN

    def __str__(self) -> str:
        ends = f"{self.n_at} at {amount(self.n_lines, 'tile border')}"
        elsewhere = f"{self.n_elsewhere} at {self.n_other_lines} other rows and columns"
        probability = f"probability {self.chance:.2g} of as many by chance"
        if self.stands_out:
            verdict = f"tiles cut cells ({probability})"
        elif self.n_at < 2:
            verdict = "too few to show that tiles cut cells"
        else:
            verdict = f"not shown that tiles cut cells ({probability}; shown below {_CERTAIN:g})"
        return f"straight ends of cells: {ends}, {elsewhere}; {verdict}"


@dataclass(frozen=True)
class _End:
    """A straight end of one object."""

    axis: int
    at: int
    label: int
    length: int


def straight_borders(masks: ArrayLike) -> tuple[StraightBorder, ...]:
    """The rows, columns and planes at which more cells end straight than chance would have it.

    Most objects first. A single straight end is none: cells may be straight themselves; and where
    most are rectangles, no row or column is one.
    """
    image = label_image("the masks", masks)
    ends = list(_ends(image))
    if _are_rectangles(ends):
        ends = []
    borders = list(_standing_out([end for end in ends if end.axis == 0], image.shape[-2], "y"))
    borders += _standing_out([end for end in ends if end.axis == 1], image.shape[-1], "x")
    if image.ndim == 3:
        borders += _standing_out(list(_ends_between_planes(image)), len(image), "z")
    return tuple(sorted(borders, key=lambda border: (-border.n_objects, border.axis, border.at)))


def _standing_out(ends: Sequence[_End], n: int, axis: str) -> Iterator[StraightBorder]:
    """The lines of an axis of ``n`` pixels or planes at which more of some ends lie."""
    n_lines = n - 1
    # The same cell may end there in several planes.
    counts = Counter(at for at, _ in {(end.at, end.label) for end in ends})
    for at, n_ends in counts.items():
        usual = max(counts.total() - n_ends, 1) / max(n_lines - 1, 1)
        chance = min(1.0, n_lines * float(poisson.sf(n_ends - 1, usual)))
        if n_ends >= 2 and chance < _CERTAIN:
            length = sum(end.length for end in ends if end.at == at)
            yield StraightBorder(axis, at, length, n_ends, chance)


def _are_rectangles(ends: Sequence[_End]) -> bool:
    """Whether most of the cells with a straight end have one on three sides."""
    n_sides = Counter(label for _, _, label in {(end.axis, end.at, end.label) for end in ends})
    return 2 * sum(n >= 3 for n in n_sides.values()) > len(n_sides)


def _ends_between_planes(image: np.ndarray) -> Iterator[_End]:
    """Every object that ends where another begins in the next plane with the same outline."""
    for z, (plane, next_plane) in enumerate(pairwise(image), 1):
        table = overlap(plane, next_plane)
        goes_on = np.isin(table.labels_a, table.labels_b)
        was_there = np.isin(table.labels_b, table.labels_a)
        cut = (table.iou >= _SAME_OUTLINE) & ~goes_on[table.rows] & ~was_there[table.columns]
        for label, n_pixels in zip(table.labels_a[table.rows[cut]], table.pixels[cut], strict=True):
            yield _End(2, z, int(label), int(n_pixels))


def seam(masks: ArrayLike, lines: Collection[tuple[str, int]]) -> Seam:
    """Count straight ends at some lines of an image, beside all others."""
    image = label_image("the masks", masks)
    n_all = sum(size - 1 for size in image.shape[-2:])
    at_lines = {(axis, at) for axis, at in lines if 0 < at < image.shape[-2:][_AXES.index(axis)]}
    ends = [(_AXES[end.axis], end.at) for end in _ends(image)]
    n_at = sum(end in at_lines for end in ends)
    share = len(at_lines) / max(n_all, 1)
    chance = float(binom.sf(n_at - 1, len(ends), share)) if n_at else 1.0
    return Seam(n_at, len(at_lines), len(ends) - n_at, n_all - len(at_lines), chance)


def _ends(image: np.ndarray) -> Iterator[_End]:
    """Every straight end of every object; those of the image's own edge are none."""
    labels, areas = np.unique(image[image > 0], return_counts=True)
    planes = image if image.ndim == 3 else image[None]
    widths = np.sqrt(4 * areas / pi)
    least = dict(
        zip(labels.tolist(), np.maximum(_LEAST, _MORE * _FLAT * np.sqrt(widths)), strict=True)
    )
    for plane in planes:
        for axis in (0, 1):
            turned = plane if axis == 0 else plane.T
            seen = set()
            for before, behind in ((turned[:-1], turned[1:]), (turned[1:], turned[:-1])):
                for line, label, length in _runs(np.where(before != behind, before, 0)):
                    inside = _EDGE <= line + 1 <= len(turned) - _EDGE
                    if inside and length >= least[label] and (line + 1, label) not in seen:
                        seen.add((line + 1, label))
                        yield _End(axis, line + 1, label, length)


def _runs(ending: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Row, value and length of each run of equal values above 0 in a row."""
    flat = np.pad(ending, ((0, 0), (0, 1))).ravel()  # a run does not go on in the next row
    starts = np.flatnonzero(np.diff(flat, prepend=0))
    lengths = np.diff(starts, append=len(flat))
    width = ending.shape[1] + 1
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        if flat[start]:
            yield start // width, int(flat[start]), length
