"""Pictures told from label images: both are integers of the same shape.

The numbers of a label image lie in pieces, mostly one each; the grey values of a picture are strewn
over all of it.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cellrepro.images.label_pieces import connected_components
from samebits.errors import BadInput
from samebits.words import amount

_SIDES_LOOKED_AT = {2: (512, 512), 3: (64, 64, 64)}
"""The part of an image that is looked at, pixels: where most of it is no background."""
_MOST_PLACES = 4096  # rows, columns or planes of which the fullest are sought
_LEAST_LOOKED_AT = 256  # pixels; in fewer nothing can be seen
_FEW_VALUES = 16  # of classes or of a foreground map; a picture has more
_FEWEST_LABELS = 3  # drawn shapes of one or two values may be an image
_MOST_OF_A_LABEL = 1.5  # pieces on average; an edge or another cell may cut one
_LEAST_COUNTED = 4  # pixels of a value that can lie scattered
# What pictures have: on average more pieces of a value than the first number, while a smaller share
# of neighbours than the second is equal. Sixteen photographs of 8 bit have 60 to 525 pieces and a
# share up to 0.61, eleven that fill 16 bit 6 to 10 pieces and 0.01; their masks 1 piece and 0.98.
_PIECES_AND_EQUAL_NEIGHBOURS = ((4, 0.3), (16, 0.9))
_SURELY_LABELS = max(most_equal for _, most_equal in _PIECES_AND_EQUAL_NEIGHBOURS)
_HARDLY_EQUAL = 0.1  # nearly every pixel is a different object than the one beside it
_HALF_EQUAL = 0.5  # of a map of few classes, however noisy


@dataclass(frozen=True)
class Pieces:
    """How the values of an image of integers lie, in the part of it that was looked at."""

    n_pixels: int
    """Pixels that are not 0."""
    n_values: int
    """Values other than 0."""
    n_pieces: int
    """Pieces of equal values that touch, at a corner, too."""
    n_scattered: int
    """Values of at least 4 pixels whose largest piece holds less than half of them."""
    n_counted: int
    """Values of at least 4 pixels."""
    n_neighbours: int
    """Pairs of pixels side by side of which neither is 0."""
    n_equal: int
    """Such pairs with one value."""

    @property
    def equal_neighbours(self) -> float:
        """Share of the pairs that have one value; 1 where there are none."""
        return self.n_equal / self.n_neighbours if self.n_neighbours else 1.0

    @property
    def in_many_pieces(self) -> bool:
        """Whether values have several pieces each: few values at all, or most of many."""
        few = self.n_values < _FEW_VALUES
        return self.n_pieces > _usual_pieces(self.n_values) and (few or self._mostly_scattered)

    @property
    def is_picture(self) -> bool:
        """Whether this is surely no label image.

        Unsure cases are none: a foreground map has one value in many pieces, a map of noisy
        classes a few, and numbers that were cut to 8 bits come again.
        """
        if self.n_pixels < _LEAST_LOOKED_AT:
            return False
        if self.n_neighbours >= self.n_pixels and self.equal_neighbours < _HARDLY_EQUAL:
            return True
        if self.n_values < _FEW_VALUES and self.equal_neighbours >= _HALF_EQUAL:
            return False
        return self._mostly_scattered and any(
            self._pieces_exceed(n_pieces) and self.equal_neighbours < most_equal
            for n_pieces, most_equal in _PIECES_AND_EQUAL_NEIGHBOURS
        )

    @property
    def _mostly_scattered(self) -> bool:
        return 2 * self.n_scattered > self.n_counted

    def _pieces_exceed(self, n_of_a_value: int) -> bool:
        """Whether there are more than so many pieces of a value on average."""
        return self.n_pieces > n_of_a_value * self.n_values + 8


def _usual_pieces(n_values: int) -> int:
    """How many pieces so many numbers of objects may have without doubt."""
    return 2 * n_values + 8


def pieces_of(image: NDArray[np.integer]) -> Pieces:
    """See how the values of an image lie."""
    part = image[_fullest_part(image)]
    shown = part != 0
    values, value_of_pixel = np.unique(part[shown], return_inverse=True)
    pixel_number = np.zeros(part.shape, np.int32)
    pixel_number[shown] = np.arange(value_of_pixel.size)
    edges: list[NDArray[np.int32]] = []
    for step in _steps(part.ndim):
        ahead, behind = _shifted(step)
        equal = shown[ahead] & (part[ahead] == part[behind])
        edges.append(np.stack([pixel_number[ahead][equal], pixel_number[behind][equal]]))
    n_neighbours, n_equal = _neighbours(part)
    n_pixels = value_of_pixel.size
    n_pieces, piece_of_pixel = connected_components(n_pixels, np.concatenate(edges, axis=1))
    pixels_of_value = np.bincount(value_of_pixel, minlength=values.size)
    largest_piece = np.zeros(values.size, np.int64)
    value_of_piece = np.zeros(n_pieces, np.int64)
    value_of_piece[piece_of_pixel] = value_of_pixel
    np.maximum.at(largest_piece, value_of_piece, np.bincount(piece_of_pixel, minlength=n_pieces))
    counted = pixels_of_value >= _LEAST_COUNTED
    return Pieces(
        n_pixels=n_pixels,
        n_values=values.size,
        n_pieces=n_pieces,
        n_scattered=int(np.count_nonzero(counted & (2 * largest_piece < pixels_of_value))),
        n_counted=int(np.count_nonzero(counted)),
        n_neighbours=n_neighbours,
        n_equal=n_equal,
    )


def _neighbours(part: NDArray[np.integer]) -> tuple[int, int]:
    """Count pairs of pixels side by side of which neither is 0, and those of one value."""
    n_neighbours = 0
    n_equal = 0
    for step in _steps(part.ndim):
        if np.count_nonzero(step) == 1:
            ahead, behind = _shifted(step)
            both = (part[ahead] != 0) & (part[behind] != 0)
            n_neighbours += int(np.count_nonzero(both))
            n_equal += int(np.count_nonzero(both & (part[ahead] == part[behind])))
    return n_neighbours, n_equal


def _most_pieces(part: NDArray[np.integer]) -> int:
    """Bound the number of pieces from above: each has a pixel without an equal one before it."""
    is_first = part != 0
    for step in _steps(part.ndim):
        ahead, behind = _shifted(step)
        is_first[ahead] &= part[ahead] != part[behind]
    return int(np.count_nonzero(is_first))


def is_like_labels(image: NDArray[np.integer]) -> bool:
    """Whether an image is hardly one that was taken: nearly each value lies in one piece."""
    n_neighbours, n_equal = _neighbours(image[_fullest_part(image)])
    if not n_neighbours or n_equal < _SURELY_LABELS * n_neighbours:
        return False
    pieces = pieces_of(image)
    most_pieces = _MOST_OF_A_LABEL * pieces.n_values
    return pieces.n_values >= _FEWEST_LABELS and pieces.n_pieces <= most_pieces


def refuse_picture(name: str, image: NDArray[np.integer]) -> None:
    """Refuse a picture that was given for masks."""
    n_neighbours, n_equal = _neighbours(image[_fullest_part(image)])
    if n_equal >= _SURELY_LABELS * n_neighbours:
        return
    pieces = pieces_of(image)
    if pieces.is_picture:
        raise BadInput(
            f"{name} a picture, no label image: its {amount(pieces.n_values, 'value')} are "
            f"scattered over {amount(pieces.n_pieces, 'place')}, while in masks each number is "
            "one cell, in one place, and 0 is background; give the masks of this image "
            "(NAME_masks.tif, NAME_seg.npy), or segment it first"
        )


def doubt(image: NDArray[np.integer], *, counts_pieces: bool = False) -> str | None:
    """Say what deserves a look in a label image that may be none; None without doubt.

    ``counts_pieces`` where its pieces are counted, and not its numbers.
    """
    pieces = many_pieces(image)
    if pieces is None:
        return None
    counted = "" if counts_pieces else ", and every number counts as one object"
    corners = "(3, 3)" if image.ndim == 2 else "(3, 3, 3)"
    return (
        f"{amount(pieces.n_values, 'number')} in {amount(pieces.n_pieces, 'separate piece')}"
        f"{counted}; if it is a foreground map, a map of classes or a picture, number its objects "
        f"first: scipy.ndimage.label(masks, numpy.ones({corners})), or in ImageJ Analyze Particles "
        "with Show: Count Masks (cells that touch stay one)"
    )


def many_pieces(image: NDArray[np.integer]) -> Pieces | None:
    """See how the values lie of a label image that may be none; None without doubt."""
    part = image[_fullest_part(image)]
    if _most_pieces(part) <= _usual_pieces(int(np.count_nonzero(np.unique(part)))):
        return None
    pieces = pieces_of(image)
    return pieces if pieces.in_many_pieces else None


def _fullest_part(image: NDArray[np.integer]) -> tuple[slice, ...]:
    """Find the part of an image to look at: that with the most pixels that are not 0."""
    sides = _SIDES_LOOKED_AT[image.ndim]
    if all(n <= most for n, most in zip(image.shape, sides, strict=True)):
        return (slice(None),) * image.ndim
    # Of a large image every so many rows and columns tell where that is.
    thinned = [max(1, n // _MOST_PLACES) for n in image.shape]
    shown = image[tuple(slice(None, None, step) for step in thinned)] != 0
    part = []
    for axis, (n, most, step) in enumerate(zip(image.shape, sides, thinned, strict=True)):
        others = tuple(other for other in range(image.ndim) if other != axis)
        up_to = np.concatenate([[0], np.cumsum(np.count_nonzero(shown, axis=others))])
        length = min(n, most)
        n_places = min(len(up_to) - 1, length // step)
        start = step * int(np.argmax(up_to[n_places:] - up_to[: len(up_to) - n_places]))
        start = min(start, n - length)
        part.append(slice(start, start + length))
    return tuple(part)


def _steps(n_axes: int) -> list[tuple[int, ...]]:
    """List the steps from a pixel to half of its neighbours; the other half have it as theirs."""
    every = itertools.product((-1, 0, 1), repeat=n_axes)
    return [step for step in every if step > (0,) * n_axes]


def _shifted(step: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Slice out the pixels that have a neighbour at a step, and these neighbours."""
    of_step = {-1: slice(None, -1), 0: slice(None), 1: slice(1, None)}
    ahead = tuple(of_step[along] for along in step)
    behind = tuple(of_step[-along] for along in step)
    return ahead, behind
