"""One change of all cells: a pixel smaller, shifted, mirrored. One cause, and no list of cells.

What is looked for is what programs do to whole label images: they take outlines off, draw an
outline of pixels as one of corners, begin to count at another pixel, exchange rows and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.label_numbers import numbered_by_plane, renumbered
from cellrepro.comparison.verdicts import Verdict
from samebits.words import amount, joined

if TYPE_CHECKING:
    from cellrepro.comparison.mask_comparison import MaskComparison
    from cellrepro.images.integer_images import Integers

_Labels = NDArray[np.int32]
_Mask = NDArray[np.bool_]
_Offsets = Iterable[tuple[int, int]]

_LEAST_SHARE = 0.9  # of the cells that follow; more others are changes of their own
_LEAST_CELLS = 3
_MOST_PIXELS = 3  # by which cells are smaller or larger
_MOST_OF_CUT = 0.25  # pixels gained for one lost: an outline of corners cuts off inner corners, too
_LARGEST_SIDE = 1024  # pixels of the middle of a larger image that are looked at
_MOST_PLANES = 16
_LEAST_EQUAL = 0.99  # of the pixels in which turned foregrounds agree

TURNS: Mapping[str, Callable[[_Labels], _Labels]] = {
    "mirrored left to right": lambda image: image[..., ::-1],
    "upside down": lambda image: image[..., ::-1, :],
    "turned by 180°": lambda image: image[..., ::-1, ::-1],
    "transposed, y and x exchanged": lambda image: image.swapaxes(-1, -2),
    "turned by 90° to the left": lambda image: image.swapaxes(-1, -2)[..., ::-1, :],
    "turned by 90° to the right": lambda image: image.swapaxes(-1, -2)[..., ::-1],
}
"""What was done to all of an image, with the words for it."""


@dataclass(frozen=True)
class SystematicChange:
    """The one change by which the cells of one side follow from those of the other."""

    kind: Literal["smaller", "larger", "cut", "shifted", "turned"]
    """Smaller or larger all around, without their last row and column (``cut``), shifted, or turned
    with the whole image."""
    n_pixels: int
    """By how many pixels they are smaller or larger; of the others 0."""
    shift: tuple[int, int]
    """By how many pixels b lies farther down and to the right; (0, 0) of the others."""
    turn: str
    """How the image was turned or mirrored; else empty."""
    n_following: int
    """Cells that follow from the other side by this change, pixel for pixel."""
    n_cells: int
    """Cells that were looked at: of large images those in the middle, without those at its edge."""
    n_alone: int = 0
    """Cells of these that only one side has."""
    n_gained: int = 0
    """Those of them that only the side that follows has."""
    is_reversed: bool = False
    """Whether the cells of a follow from those of b: of outlines that were expanded, what they were
    before cannot be computed."""

    @property
    def explains_all(self) -> bool:
        """Whether it does, but for one cell in ten; else only the cells that both sides have."""
        return _are_enough(self.n_following, self.n_cells)

    @property
    def which(self) -> tuple[str, int, tuple[int, int], str, bool]:
        """What is done to the cells, without how many follow: equal of images changed alike."""
        return self.kind, self.n_pixels, self.shift, self.turn, self.is_reversed

    def text(self, a: str, b: str) -> str:
        """Say by which change the cells of one side follow from those of the other."""
        fates = ("lost", "gained")
        if self.is_reversed:
            a, b = b, a
            fates = ("gained", "lost")
        which = "" if self.kind == "turned" else " away from the edge"
        of_both = "" if self.explains_all else " that both have"
        n_cells = self.n_cells if self.explains_all else self.n_cells - self.n_alone
        cells = f"{amount(n_cells, 'cell')}{of_both}{which}"
        follow = f"{self.n_following} of {cells} follow from {a} by that"
        pixels = amount(self.n_pixels, "pixel")
        match self.kind:
            case "smaller":
                what = f"{b}'s cells are {pixels} smaller all around than {a}'s"
                why = ", as where outlines are taken off or drawn as background"
            case "larger":
                what = f"{b}'s cells are {pixels} larger all around than {a}'s"
                why = ", as where cells are expanded"
            case "cut":
                what = f"{b}'s cells lack the last row and column of {a}'s"
                why = (
                    ", as where outlines that Cellpose wrote are filled in ImageJ: their points "
                    "are pixels, and ImageJ takes them for corners of pixels"
                )
            case "shifted":
                y, x = self.shift
                what = f"{b} is {a} shifted by (y, x) = ({y:+d}, {x:+d}) pixels"
                why = ""
            case "turned":
                what = f"{b} is {a} {self.turn}"
                why = ""
        every = "all of " if self.n_following == n_cells and self.n_pixels else ""
        rest = ""
        if not self.explains_all:
            parts = zip(fates, (self.n_alone - self.n_gained, self.n_gained), strict=True)
            alone = joined([amount(n, f"{fate} cell") for fate, n in parts if n])
            rest = f"; not explained by that: {alone}" if alone else ""
        return f"{every}{what}: {follow}{why}{rest}"


def images_by_change(changes: Mapping[str, SystematicChange]) -> list[list[str]]:
    """Group images that were changed alike, the largest group first."""
    groups: dict[tuple[str, int, tuple[int, int], str, bool], list[str]] = {}
    for name, change in changes.items():
        groups.setdefault(change.which, []).append(name)
    return sorted(groups.values(), key=lambda names: -len(names))


def over_images(changes: Sequence[SystematicChange]) -> SystematicChange:
    """Give the one change of several images that were changed alike, over all their cells."""
    return replace(
        changes[0],
        n_following=sum(change.n_following for change in changes),
        n_cells=sum(change.n_cells for change in changes),
        n_alone=sum(change.n_alone for change in changes),
        n_gained=sum(change.n_gained for change in changes),
    )


def systematic_change(a: Integers, b: Integers, result: MaskComparison) -> SystematicChange | None:
    """Find the one change that makes b of a, or a of b; None where none explains nine of ten cells.

    Where none does, it is one that makes smaller or larger nine of ten of the cells of both sides.
    """
    if result.verdict != Verdict.DIFFERENT or a.shape != b.shape:
        return None
    if min(result.n_objects_a, result.n_objects_b) < _LEAST_CELLS:
        return None
    candidates = [*_resizings(result)] if _most_differ(result) else []
    candidates.sort(key=lambda resizing: resizing.is_reversed)
    is_elsewhere = 2 * result.n_kept < result.n_objects_a
    if not candidates and not is_elsewhere:
        return None
    part_a, part_b = (_numbered(image, by_plane=result.by_plane) for image in (a, b))
    of_both = None
    for resizing in candidates:
        sides = (part_b, part_a) if resizing.is_reversed else (part_a, part_b)
        for change in _resized(*sides, resizing):
            if change.explains_all:
                return change
            of_both = of_both or change
    elsewhere = next(_elsewhere(part_a, part_b), None) if is_elsewhere else None
    return elsewhere or of_both


def _most_differ(result: MaskComparison) -> bool:
    """Whether most cells that have a counterpart are not equal to it."""
    equal = [change.iou == 1 for change in result.objects if change.kind in ("kept", "moved")]
    return sum(equal) < (1 - _LEAST_SHARE) * len(equal)


def _numbered(image: Integers, *, by_plane: bool) -> _Labels:
    """The middle of a label image, its objects numbered from 1.

    It lies in the middle to the pixel, so that it still does when the image is turned.
    """
    sides = []
    for n, most in zip(
        image.shape[::-1], (_LARGEST_SIDE, _LARGEST_SIDE, _MOST_PLANES), strict=False
    ):
        length = n if n <= most else most - (n - most) % 2
        start = (n - length) // 2
        sides.append(slice(start, start + length))
    part = image[tuple(sides[::-1])]
    numbers = numbered_by_plane(part).image if by_plane else renumbered(part)[0]
    return numbers.astype(np.int32)


# -- smaller and larger ----------------------------------------------------------------------


class _Resizing(NamedTuple):
    """A change of size that may have been made."""

    kind: Literal["smaller", "larger", "cut"]
    n_pixels: int
    is_reversed: bool
    """Whether it makes a of b."""


def _resizings(result: MaskComparison) -> Iterator[_Resizing]:
    """The changes of size that the counts of pixels allow: one side has few pixels of its own."""
    for is_reversed in (False, True):
        own, others = result.n_only_a, result.n_only_b
        if is_reversed:
            own, others = others, own
        if others + result.n_other_object <= _MOST_OF_CUT * own:
            yield _Resizing("cut", 1, is_reversed)
        for n in range(1, _MOST_PIXELS + 1):
            if others + result.n_other_object <= (1 - _LEAST_SHARE) * own:
                yield _Resizing("smaller", n, is_reversed)
            elif own + result.n_other_object <= (1 - _LEAST_SHARE) * others:
                yield _Resizing("larger", n, is_reversed)


def _resized(a: _Labels, b: _Labels, resizing: _Resizing) -> Iterator[SystematicChange]:
    """Give the changes that nine of ten of the cells of both sides follow, or of all cells."""
    kind, n_pixels, is_reversed = resizing
    for expected in _EXPECTED[kind](a, n_pixels):
        cells = _following(expected, a, b, margin=n_pixels)
        if _are_enough(cells.n_following, cells.n - cells.n_alone):
            n = 0 if kind == "cut" else n_pixels
            yield SystematicChange(kind, n, (0, 0), "", *cells, is_reversed)


@dataclass(frozen=True, eq=False)
class _Expected:
    """What a change makes of a: the least and the most of each cell."""

    least: _Labels
    most: _Labels
    open_pixels: _Mask | None = None
    """Where anything may be: two cells that grow meet there."""


def _smaller(a: _Labels, n: int) -> Iterator[_Expected]:
    """Cells without the pixels near anything else, or near the background alone.

    A pixel is near in a square around it at most, in a rhombus at least.
    """
    inside_square = _all_equal(a, _square(n))
    inside_rhombus = _all_equal(a, _rhombus(n))
    yield _Expected(np.where(inside_square, a, 0), np.where(inside_rhombus, a, 0))
    shown = (a > 0).astype(np.int32)
    in_square = _all_equal(shown, _square(n))
    in_rhombus = _all_equal(shown, _rhombus(n))
    yield _Expected(np.where(in_square, a, 0), np.where(in_rhombus, a, 0))


def _larger(a: _Labels, n: int) -> Iterator[_Expected]:
    """Cells with the background near them; where it is near two, either may have it."""
    largest = np.int32(a.max(initial=0) + 1)
    highest = _over(a, _square(n), np.maximum)
    lowest = _over(np.where(a > 0, a, largest), _square(n), np.minimum)
    in_rhombus = _over(a, _rhombus(n), np.maximum)
    most = np.where(a > 0, a, highest)
    is_open = (a == 0) & (highest > 0) & (highest != lowest)
    yield _Expected(np.where((a > 0) | (in_rhombus > 0), most, 0), most, is_open)


def _cut(a: _Labels, _: int) -> Iterator[_Expected]:
    """Cells as ImageJ fills an outline through their outermost pixels.

    A pixel is inside where its lower right corner is, the middle of four pixels: inside if all are
    of the cell, on the line if three are.
    """
    four = np.stack(list(_at_offsets(a, [(0, 0), (0, 1), (1, 0), (1, 1)])))
    least = np.where((four == four[0]).all(axis=0), a, 0)
    of_first = (four == four[0]).sum(axis=0) >= 3
    of_last = (four == four[3]).sum(axis=0) >= 3
    yield _Expected(least, np.where(of_first, four[0], np.where(of_last, four[3], 0)))


_EXPECTED: Mapping[str, Callable[[_Labels, int], Iterator[_Expected]]] = {
    "smaller": _smaller,
    "larger": _larger,
    "cut": _cut,
}


def _square(n: int) -> list[tuple[int, int]]:
    return [(y, x) for y, x in product(range(-n, n + 1), repeat=2)]


def _rhombus(n: int) -> list[tuple[int, int]]:
    return [(y, x) for y, x in _square(n) if abs(y) + abs(x) <= n]


def _at_offsets(image: _Labels, offsets: _Offsets) -> Iterator[_Labels]:
    """The image as it is so many rows below and columns to the right; its edge goes on."""
    offsets = list(offsets)
    n = max(max(abs(y), abs(x)) for y, x in offsets)
    around = [(0, 0)] * (image.ndim - 2) + [(n, n), (n, n)]
    padded = np.pad(image, around, mode="edge")
    height, width = image.shape[-2:]
    for y, x in offsets:
        yield padded[..., n + y : n + y + height, n + x : n + x + width]


def _over(
    image: _Labels, offsets: _Offsets, choose: Callable[[_Labels, _Labels], _Labels]
) -> _Labels:
    chosen = image
    for other in _at_offsets(image, offsets):
        chosen = choose(chosen, other)
    return chosen


def _all_equal(image: _Labels, offsets: _Offsets) -> _Mask:
    equal = np.ones(image.shape, bool)
    for other in _at_offsets(image, offsets):
        equal &= image == other
    return equal


# -- elsewhere -------------------------------------------------------------------------------


def _elsewhere(a: _Labels, b: _Labels) -> Iterator[SystematicChange]:
    """Find by which shift or turn of the whole image b follows from a."""
    y, x = _likely_shift(a, b)
    if (y, x) != (0, 0):
        here, there = _overlapping(a, b, y, x)
        cells = _following(_Expected(here, here), here, there, margin=1)
        if _are_enough(cells.n_following, cells.n):
            yield SystematicChange("shifted", 0, (y, x), "", *cells)
    for turn in turns_between(a > 0, b > 0):
        of_a = TURNS[turn](a)
        cells = _following(_Expected(of_a, of_a), of_a, b, margin=0)
        if _are_enough(cells.n_following, cells.n):
            yield SystematicChange("turned", 0, (0, 0), turn, *cells)


def turns_between(cells_a: _Mask, cells_b: _Mask) -> Iterator[str]:
    """Give the turns by which nearly the same pixels are of cells in both."""
    of_a = cells_a.astype(np.int32)
    for turn, turned in TURNS.items():
        shown = turned(of_a)
        if shown.shape == cells_b.shape and np.mean(shown == cells_b) >= _LEAST_EQUAL:
            yield turn


def _likely_shift(a: _Labels, b: _Labels) -> tuple[int, int]:
    """The shift at which most pixels of the outlines of b lie on those of a."""
    of_a, of_b = (np.fft.rfft2(_outlines(image)) for image in (a, b))
    both = (np.conj(of_a) * of_b).reshape(-1, *of_a.shape[-2:]).sum(axis=0)
    shape = a.shape[-2] - 1, a.shape[-1] - 1
    at = np.unravel_index(np.argmax(np.fft.irfft2(both, shape)), shape)
    y, x = (int(i) - n if 2 * i > n else int(i) for i, n in zip(at, shape, strict=True))
    return y, x


def _outlines(image: _Labels) -> NDArray[np.float32]:
    """Where a pixel is not of the cell of the pixel below it or to its right."""
    here = image[..., :-1, :-1]
    is_edge = (here != image[..., 1:, :-1]) | (here != image[..., :-1, 1:])
    return is_edge.astype(np.float32)


def _overlapping(a: _Labels, b: _Labels, y: int, x: int) -> tuple[_Labels, _Labels]:
    """The parts of a and of b that lie on each other where b is shifted back."""
    height, width = a.shape[-2:]
    here = a[..., max(0, -y) : height - max(0, y), max(0, -x) : width - max(0, x)]
    there = b[..., max(0, y) : height - max(0, -y), max(0, x) : width - max(0, -x)]
    return here, there


# -- how many cells follow -------------------------------------------------------------------


def _are_enough(n_following: int, n_cells: int) -> bool:
    return n_cells >= _LEAST_CELLS and n_following >= _LEAST_SHARE * n_cells


class _Cells(NamedTuple):
    """Cells that were looked at."""

    n_following: int
    n: int
    n_alone: int
    """Cells that only one side has."""
    n_gained: int


def _following(expected: _Expected, a: _Labels, b: _Labels, *, margin: int) -> _Cells:
    """How many cells are in b as expected, and of how many; those at the edge are left out.

    So are those that a change makes vanish: that a small cell is not there tells nothing.
    """
    partner = _partners(expected.most, b)
    of_a = partner[b]
    is_wrong = (expected.least > 0) & (of_a != expected.least)
    is_wrong |= (b > 0) & (of_a != expected.most)
    if expected.open_pixels is not None:
        is_wrong &= ~expected.open_pixels
    wrong = np.unique(
        np.concatenate([image[is_wrong] for image in (expected.least, expected.most, of_a)])
    )
    at_edge = np.unique(np.concatenate([_edge(image, margin) for image in (a, of_a)]))
    cells = np.setdiff1d(np.flatnonzero(np.bincount(a.ravel())), [*at_edge, 0])
    strangers = np.setdiff1d(np.flatnonzero(partner < 0), _edge(b, margin))
    wrong_cells = np.intersect1d(cells, wrong)
    cells = np.union1d(wrong_cells, np.intersect1d(cells, partner))
    n = len(cells) + len(strangers)
    n_wrong = len(wrong_cells) + len(strangers)
    n_alone = len(np.setdiff1d(wrong_cells, partner)) + len(strangers)
    return _Cells(max(0, n - n_wrong), n, n_alone, len(strangers))


def _partners(a: _Labels, b: _Labels) -> NDArray[np.int64]:
    """The cell of a that each cell of b is, by its number; -1 of none, 0 of the background."""
    n_b = int(b.max(initial=0)) + 1
    both = (a > 0) & (b > 0)
    codes, n_pixels = np.unique(a[both].astype(np.int64) * n_b + b[both], return_counts=True)
    partner = np.full(n_b, -1, np.int64)
    partner[0] = 0
    taken: set[int] = set()
    for code in codes[np.argsort(-n_pixels, kind="stable")].tolist():
        of_a, of_b = divmod(code, n_b)
        if partner[of_b] < 0 and of_a not in taken:
            partner[of_b] = of_a
            taken.add(of_a)
    return partner


def _edge(image: NDArray[np.int32] | NDArray[np.int64], margin: int) -> NDArray[np.int64]:
    """The numbers within a margin of the edge of an image."""
    if not margin:
        return np.zeros(0, np.int64)
    sides = (
        image[..., :margin, :],
        image[..., -margin:, :],
        image[..., :margin],
        image[..., -margin:],
    )
    return np.unique(np.concatenate([side.ravel() for side in sides])).astype(np.int64)
