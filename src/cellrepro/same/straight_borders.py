"""Straight borders in a label image: cells that end along one row or column, as tile seams leave.

A round cell ends along a row over about twice the square root of its diameter, in pixels; a cut one
ends over its whole width. Where several cells do so at one row, that is no chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import pi

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, poisson

from cellrepro.images.label_image import label_image

_FLAT = 2.0  # times the square root of a cell's diameter: how far a round one is flat, pixels
_MORE = 1.5  # times as long: a straight end
_LEAST = 8  # pixels
_EDGE = 3  # pixels from the image's own edge, where outlines are often drawn along it
_CERTAIN = 0.01  # chance of a line like it anywhere in the image, at most
_AXES = ("y", "x")


@dataclass(frozen=True)
class StraightBorder:
    """A row or column at which cells end straight.

    Attributes
    ----------
    axis : str
        ``y`` for a border between two rows, ``x`` for one between two columns.
    at : int
        The first row or column behind it, pixels.
    length : int
        Pixels along which cells end there.
    n_objects : int
        Cells that end there.
    chance : float
        Probability of as many straight ends at any line of this image.
    """

    axis: str
    at: int
    length: int
    n_objects: int
    chance: float


@dataclass(frozen=True)
class Seam:
    """Straight ends at some lines, beside those at all others.

    Attributes
    ----------
    n_at : int
        Straight ends at these lines.
    n_lines : int
        How many lines these are.
    n_elsewhere : int
        Straight ends at all other lines.
    n_other_lines : int
        How many other lines there are.
    chance : float
        Probability of as many or more ends at these lines, if all lines were alike.
    """

    n_at: int
    n_lines: int
    n_elsewhere: int
    n_other_lines: int
    chance: float

    @property
    def stands_out(self) -> bool:
        """Whether it is more than one, and chance hardly explains them."""
        return self.n_at > 1 and self.chance < _CERTAIN


@dataclass(frozen=True)
class _End:
    """A straight end of one object."""

    axis: int
    at: int
    label: int
    length: int


def straight_borders(masks: ArrayLike) -> tuple[StraightBorder, ...]:
    """The rows and columns at which more cells end straight than chance would have it.

    Parameters
    ----------
    masks : array_like of int, shape (Y, X) or (Z, Y, X)
        0 is background; of a stack every plane counts.

    Returns
    -------
    tuple of StraightBorder
        Most objects first. A single straight end is none: cells may be straight themselves.
    """
    image = label_image("the masks", masks)
    borders = []
    ends = list(_ends(image))
    for axis in (0, 1):
        along_axis = [end for end in ends if end.axis == axis]
        n_lines = image.shape[-2:][axis] - 1
        # The same cell may end there in several planes.
        counts = Counter(at for at, _ in {(end.at, end.label) for end in along_axis})
        for at, n in counts.items():
            usual = max(counts.total() - n, 1) / max(n_lines - 1, 1)
            chance = min(1.0, n_lines * float(poisson.sf(n - 1, usual)))
            if n >= 2 and chance < _CERTAIN:
                length = sum(end.length for end in along_axis if end.at == at)
                borders.append(StraightBorder(_AXES[axis], at, length, n, chance))
    return tuple(sorted(borders, key=lambda border: (-border.n_objects, border.axis, border.at)))


def seam(masks: ArrayLike, lines: Collection[tuple[str, int]]) -> Seam:
    """Count straight ends at some lines of an image, beside all others.

    Parameters
    ----------
    masks : array_like of int, shape (Y, X) or (Z, Y, X)
        0 is background; of a stack every plane counts.
    lines : collection of tuple of str and int
        Where tiles may have ended: ``("y", 128)`` lies between rows 127 and 128. What is not
        inside the image does not count.

    Returns
    -------
    Seam
    """
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
