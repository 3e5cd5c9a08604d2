"""Straight borders in a label image: cells that end along one row, column or plane, as seams leave.

A round cell ends along a row over about twice the square root of its diameter, in pixels; a cut one
ends over its whole width. Where several cells do so at one row, that is no chance. Two cells that
touch along the row share one straight border: where one of them is straight, the other has to be,
so that they are one observation. Networks see an image in patches of 8 pixels, at whose borders
cells end straight more often: a line is held against those at the same place of a patch, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from math import ceil, log1p, pi, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from scipy.stats import binom, poisson

from cellrepro.comparison.object_matching import overlap
from cellrepro.images.label_image import label_image
from cellrepro.words import images_in_text
from samebits.words import amount, grouped

_FLAT = 2.0  # times the square root of a cell's diameter: how far a round one is flat, pixels
_MORE = 1.5  # times as long: a straight end
_LEAST = 8  # pixels
_PATCH = 8  # pixels, of Cellpose-SAM; Cellpose 1 to 3 halve their images as far
_EDGE = 3  # pixels from the image's own edge, where outlines are often drawn along it
_CERTAIN = 0.01  # chance of a line like it anywhere in the image, at most
_LEAST_BLOCK = 32  # pixels
_SAME_OUTLINE = 0.5  # IoU of a cell's last plane and the first of the one that goes on for it
_AXES = ("y", "x", "z")

_Line = tuple[str, int]
"""An axis, and the first row, column or plane behind it."""


@dataclass(frozen=True)
class StraightBorder:
    """A row, column or plane at which cells end straight."""

    axis: str
    """``y`` for a border between two rows, ``x`` for one between two columns, ``z`` for one between
    two planes."""
    at: int
    """The first row, column or plane behind it, from 0."""
    length: int
    """Pixels of the line along which cells end, those with a cell on both sides counted once;
    between planes those where others go on."""
    n_objects: int
    """Labels that end there. The two halves of a cell that was cut are two labels."""
    n_before: int
    """Those above the line, or left of it; between planes all."""
    n_behind: int
    """Those below the line, or right of it; between planes 0."""
    n_borders: int
    """Straight borders there; cells that touch along the line share one."""
    chance: float
    """Probability of as many straight borders at any line of this image."""
    labels: tuple[int, ...] = ()
    """The labels that end there, as far as they are known."""


class StraightEnd(NamedTuple):
    """What counts as a straight end of a cell."""

    width: int
    """Of the cell, as of a circle of its area, pixels."""
    length: int
    """Pixels along which it ends, at least."""

    @classmethod
    def of_width(cls, width: float) -> StraightEnd:
        """Give that of a cell of a width."""
        return cls(round(width), ceil(_straight_from(width)))


@dataclass(frozen=True)
class LeastFound:
    """The least cut that is found in a label image."""

    n_borders: int
    """Cells that it goes through."""
    typical: StraightEnd
    """Of a cell of median width."""
    largest: StraightEnd
    """Of the largest cell."""


@dataclass(frozen=True)
class Seam:
    """Straight borders of cells at some lines, beside those at all others."""

    n_at: int
    """Straight borders at these lines; cells that touch along one share a border."""
    n_lines: int
    """How many lines these are."""
    n_elsewhere: int
    """Straight borders at all other lines."""
    n_other_lines: int
    """How many other lines there are."""
    chance: float
    """Probability of as many or more at these lines, if all lines were alike."""

    @property
    def stands_out(self) -> bool:
        """Whether it is more than one, and chance hardly explains them."""
        return self.n_at > 1 and self.chance < _CERTAIN

    def __str__(self) -> str:
        if not self.n_lines:
            return "it fits into one tile, so that no tile border lies in it"
        tile_borders = amount(self.n_lines, "tile border")
        if not self.n_at:
            return f"no cell ends in a straight line at its {tile_borders}"
        counted = (
            f"straight ends of cells: {self.n_at} at its {tile_borders}, "
            f"{self.n_elsewhere} at the {grouped(self.n_other_lines)} other rows and columns"
        )
        if self.n_at == 1:
            return f"{counted}; a single one shows no cut"
        probability = f"by chance as many in {images_in_text(self.chance)}"
        if self.stands_out:
            return f"tiles cut cells: {counted} ({probability})"
        return (
            f"{counted}; not shown that tiles cut cells ({probability}; shown below "
            f"{images_in_text(_CERTAIN)})"
        )


@dataclass(frozen=True)
class BlockGrid:
    """Blocks of one size at whose borders cells end straight, beyond the lines that stand out."""

    size: int
    """Of a block along y and x, pixels."""
    lines: tuple[tuple[str, int], ...]
    """Those further borders of blocks at which a cell ends straight: axis, and the first row or
    column behind it."""
    seam: Seam
    """The straight borders there, beside all others."""


@dataclass(frozen=True)
class _End:
    """A straight end of one object."""

    axis: int
    plane: int
    at: int
    is_behind: bool
    """Whether the object lies behind the line, not before it."""
    start: int
    """The first pixel along the line; between planes a count, as these pixels lie in no line."""
    length: int
    label: int

    def touches(self, other: _End) -> bool:
        """Whether an object on the other side of the same line ends along the same pixels."""
        return (
            self.plane == other.plane
            and self.start < other.start + other.length
            and other.start < self.start + self.length
        )


def straight_borders(masks: ArrayLike) -> tuple[StraightBorder, ...]:
    """The rows, columns and planes at which more cells end straight than chance would have it.

    Most objects first. A single straight end is none: cells may be straight themselves; and where
    most are rectangles, no row or column is one.
    """
    image = label_image("the masks", masks)
    borders = [border for axis in _axes_of(image) for border in axis.standing_out()]
    return tuple(sorted(borders, key=lambda border: (-border.n_objects, border.axis, border.at)))


def lines_between_parts(
    masks: ArrayLike, groups: Sequence[Collection[int]]
) -> tuple[frozenset[tuple[str, int]], ...]:
    """The rows and columns along which two of some labels meet in a straight line, by group.

    A group holds the parts into which another result shows one cell cut: that such a line divides
    a cell needs no second cell beside it, which chance alone would have.
    """
    image = label_image("the masks", masks)
    group_of = {label: number for number, labels in enumerate(groups) for label in labels}
    lines: list[set[tuple[str, int]]] = [set() for _ in groups]
    for end in _ends(image):
        number = group_of.get(end.label)
        if number is None:
            continue
        plane = image[end.plane] if image.ndim == 3 else image
        turned = plane if end.axis == 0 else plane.T
        beyond = turned[end.at - end.is_behind, end.start : end.start + end.length]
        others = set(groups[number]) - {end.label}
        if 2 * np.count_nonzero(np.isin(beyond, [*others])) > end.length:
            lines[number].add((_AXES[end.axis], end.at))
    return tuple(map(frozenset, lines))


def least_found(masks: ArrayLike) -> LeastFound | None:
    """The least cut through a label image that is found; none where most cells are rectangles."""
    image = label_image("the masks", masks)
    ends = list(_ends(image))
    widths = sorted(_widths(image).values())
    if not widths or _are_rectangles(ends):
        return None
    n_borders = max(axis.least_found() for axis in _axes_of(image))
    typical = StraightEnd.of_width(widths[len(widths) // 2])
    return LeastFound(n_borders, typical, largest=StraightEnd.of_width(widths[-1]))


@dataclass(frozen=True)
class _Axis:
    """The straight ends along one axis of an image."""

    name: str
    n: int
    """Its pixels or planes."""
    patch: int
    """How many lines on a network sees the image alike."""
    by_line: Mapping[_Line, Sequence[_End]]

    def standing_out(self) -> Iterator[StraightBorder]:
        """The lines at which more ends lie than chance would have it."""
        for (_, at), at_line in self.by_line.items():
            n_borders = _n_borders(at_line)
            chance = self._chance(n_borders, self._usual(at, n_new=0))
            if n_borders < 2 or chance >= _CERTAIN:
                continue
            before = {end.label for end in at_line if not end.is_behind}
            behind = {end.label for end in at_line if end.is_behind}
            labels = tuple(sorted(before | behind))
            yield StraightBorder(
                axis=self.name,
                at=at,
                length=_length(at_line),
                n_objects=len(labels),
                n_before=len(before),
                n_behind=len(behind),
                n_borders=n_borders,
                chance=chance,
                labels=labels,
            )

    def least_found(self) -> int:
        """The fewest straight borders that stand out at any line that has none yet."""
        usual = max(self._usual(place, n_new=1) for place in range(self.patch))
        return next(n for n in count(2) if self._chance(n, usual) < _CERTAIN)

    def _chance(self, n_borders: int, usual: float) -> float:
        n_lines = self.n - 1
        return min(1.0, n_lines * float(poisson.sf(n_borders - 1, usual)))

    def _usual(self, at: int, *, n_new: int) -> float:
        """How many straight borders a line has, among all or those at its place of a patch."""
        n_lines = self.n - 1
        n_all = len(self.by_line) + n_new
        n_alike = sum(other % self.patch == at % self.patch for _, other in self.by_line) + n_new
        return max(_usual(n_all, n_lines), _usual(n_alike, n_lines // self.patch))


def _axes_of(image: np.ndarray) -> Iterator[_Axis]:
    """The axes along which cells may be cut, with the ends that count."""
    ends = list(_ends(image))
    if _are_rectangles(ends):
        ends = []
    for number, name in enumerate("yx"):
        along = _by_line(end for end in ends if end.axis == number)
        yield _Axis(name, image.shape[number - 2], _PATCH, along)
    if image.ndim == 3:
        yield _Axis("z", len(image), 1, _by_line(_ends_between_planes(image)))


def _length(ends: Sequence[_End]) -> int:
    """Pixels of one line along which objects end on either side of it, or on both."""
    pixels = {(end.plane, end.start + n) for end in ends for n in range(end.length)}
    return len(pixels)


def _usual(n_with_any: int, n_lines: int) -> float:
    """How many straight borders a line has on average, by how many others have any.

    To count the borders of those would let one seam hide another.
    """
    n_others = max(n_lines - 1, 1)
    share = min(max(n_with_any - 1, 1), n_others - 0.5) / n_others
    return -log1p(-share)


def _by_line(ends: Iterable[_End]) -> dict[_Line, list[_End]]:
    found: dict[_Line, list[_End]] = {}
    for end in ends:
        found.setdefault((_AXES[end.axis], end.at), []).append(end)
    return found


def _n_borders(ends: Sequence[_End]) -> int:
    """How many of the ends at one line are independent: the fewest straight objects behind all.

    Where objects on both sides touch, one of them explains the end of the other. The fewest that
    explain all are as many as the pairs of a maximum matching (Kőnig's theorem), and those that
    touch none. An object that ends there in several planes counts once.
    """
    before = [end for end in ends if not end.is_behind]
    behind = [end for end in ends if end.is_behind]
    row = {label: n for n, label in enumerate({end.label for end in before})}
    column = {label: n for n, label in enumerate({end.label for end in behind})}
    touching = np.zeros((len(row), len(column)), bool)
    for a in before:
        for b in behind:
            if a.label == b.label or a.touches(b):
                touching[row[a.label], column[b.label]] = True
    n_alone = np.count_nonzero(~touching.any(axis=1)) + np.count_nonzero(~touching.any(axis=0))
    if not touching.any():
        return int(n_alone)
    pairs = maximum_bipartite_matching(csr_array(touching), perm_type="column")
    return int(n_alone + np.count_nonzero(pairs >= 0))


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
        start = 0
        for label, n_pixels in zip(table.labels_a[table.rows[cut]], table.pixels[cut], strict=True):
            yield _End(2, 0, z, False, start, int(n_pixels), int(label))
            start += int(n_pixels)


def seam(masks: ArrayLike, lines: Collection[tuple[str, int]]) -> Seam:
    """Count straight borders of cells at some lines of an image, beside all others."""
    image = label_image("the masks", masks)
    counts = {line: _n_borders(ends) for line, ends in _by_line(_ends(image)).items()}
    return _seam(counts, lines, image.shape[-2:])


def block_grid(masks: ArrayLike, borders: Iterable[StraightBorder]) -> BlockGrid | None:
    """Find the size of blocks that have one of some lines that stand out among their borders.

    At their other borders too few cells may end for one of these to stand out, but all together
    do. None where they do not, or where every border stands out by itself.
    """
    image = label_image("the masks", masks)
    shape = image.shape[-2:]
    known = {(border.axis, border.at) for border in borders if border.axis != "z"}
    counts = {
        line: _n_borders(ends) for line, ends in _by_line(_ends(image)).items() if line not in known
    }
    sizes = {n for _, at in known for n in range(_LEAST_BLOCK, at + 1) if at % n == 0}
    grids = []
    for size in sizes:
        every = {
            (axis, at) for axis, n in zip("yx", shape, strict=True) for at in range(size, n, size)
        }
        found = _seam(counts, every - known, shape)
        lines = tuple(sorted(line for line in every if line in counts))
        grids.append(BlockGrid(size, lines, found))
    best = min(grids, key=lambda grid: (grid.seam.chance, grid.size), default=None)
    if best is None or best.seam.n_at < 2:
        return None
    return best if best.seam.chance * len(sizes) < _CERTAIN else None


def _seam(
    counts: Mapping[_Line, int], lines: Collection[tuple[str, int]], shape: Sequence[int]
) -> Seam:
    n_all = sum(size - 1 for size in shape)
    at_lines = {(axis, at) for axis, at in lines if 0 < at < shape[_AXES.index(axis)]}
    n_borders = sum(counts.values())
    n_at = sum(n for line, n in counts.items() if line in at_lines)
    chance = _chance(n_at, counts, at_lines, shape)
    return Seam(n_at, len(at_lines), n_borders - n_at, n_all - len(at_lines), chance)


def _chance(
    n_at: int, counts: Mapping[_Line, int], at_lines: Collection[_Line], shape: Sequence[int]
) -> float:
    """The probability of as many at some lines, if all at one place of a patch are alike."""
    probability = np.ones(1)  # of each number of borders at these lines
    for axis, n_pixels in zip(("y", "x"), shape, strict=True):
        for place in range(_PATCH):
            alike = [(axis, at) for at in range(1, n_pixels) if at % _PATCH == place]
            n_alike = sum(counts.get(line, 0) for line in alike)
            share = sum(line in at_lines for line in alike) / max(len(alike), 1)
            of_alike = binom.pmf(np.arange(n_alike + 1), n_alike, share)
            probability = np.convolve(probability, of_alike)
    return float(probability[n_at:].sum())


def _widths(image: np.ndarray) -> dict[int, float]:
    """The diameter of a circle with the area of each object, by label."""
    labels, areas = np.unique(image[image > 0], return_counts=True)
    return dict(zip(labels.tolist(), np.sqrt(4 * areas / pi).tolist(), strict=True))


def _straight_from(width: float) -> float:
    """Pixels from which on an object of a width ends straight."""
    return max(_LEAST, _MORE * _FLAT * sqrt(width))


def _ends(image: np.ndarray) -> Iterator[_End]:
    """Every straight end of every object; those of the image's own edge are none."""
    planes = image if image.ndim == 3 else image[None]
    least = {label: _straight_from(width) for label, width in _widths(image).items()}
    for number, plane in enumerate(planes):
        for axis in (0, 1):
            turned = plane if axis == 0 else plane.T
            seen = set()
            sides = ((turned[:-1], turned[1:]), (turned[1:], turned[:-1]))
            for side, (near, far) in enumerate(sides):
                for run in _runs(np.where(near != far, near, 0)):
                    at = run.line + 1
                    inside = _EDGE <= at <= len(turned) - _EDGE
                    is_long = run.length >= least[run.label]
                    if inside and is_long and (at, run.label) not in seen:
                        seen.add((at, run.label))
                        yield _End(axis, number, at, side == 1, run.start, run.length, run.label)


class _Run(NamedTuple):
    """Equal values in a row of an array."""

    line: int
    start: int
    length: int
    label: int


def _runs(ending: np.ndarray) -> Iterator[_Run]:
    """Each run of equal values above 0 in a row."""
    flat = np.pad(ending, ((0, 0), (0, 1))).ravel()  # a run does not go on in the next row
    starts = np.flatnonzero(np.diff(flat, prepend=0))
    lengths = np.diff(starts, append=len(flat))
    width = ending.shape[1] + 1
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        if flat[start]:
            yield _Run(start // width, start % width, length, int(flat[start]))
