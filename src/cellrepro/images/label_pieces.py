"""The connected pieces of the values of a label image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import fastremap
import numpy as np
from numpy.typing import NDArray

from cellrepro.images.image_blocks import blocks_of

LEAST_OF_LARGEST = 0.25
"""Share of the largest piece with its number that a piece has which is no mere fragment."""


@dataclass(frozen=True)
class LabelPieces:
    """The connected pieces of one label (8-connectivity)."""

    label: int
    box: tuple[slice, ...]
    """The part of the image around all of them."""
    pieces: np.ndarray
    """Int32 of the box's shape: 0 elsewhere, 1 to n_pieces in the pieces."""
    n_pieces: int


def pieces_by_label(masks: np.ndarray) -> Iterator[LabelPieces]:
    """The pieces of each label of an image of integers, in order of labels; 0 is background."""
    from scipy import ndimage

    # find_objects makes one entry for each number up to the largest label
    renumbered, new_numbers = fastremap.renumber(masks, preserve_zero=True, in_place=False)
    boxes = ndimage.find_objects(renumbered)
    around = np.ones((3,) * masks.ndim)
    for label, number in sorted(new_numbers.items()):
        if label:
            box = boxes[number - 1]
            pieces, n_pieces = ndimage.label(renumbered[box] == number, around)
            yield LabelPieces(int(label), box, pieces, n_pieces)


def pieces_that_touch(image: NDArray[np.integer]) -> NDArray[np.int32]:
    """Number the pieces of equal values that touch across an edge or a face, not at a corner.

    >>> pieces_that_touch(np.array([[5, 5, 0, 5], [0, 7, 0, 5]])).tolist()
    [[1, 1, 0, 2], [0, 3, 0, 2]]
    """
    stretches = _stretches(image)
    number = np.zeros(len(stretches.values), np.int32)
    is_shown = stretches.values != 0
    _, piece = connected_components(len(number), stretches.touching)
    number[is_shown] = 1 + np.unique(piece[is_shown], return_inverse=True)[1]
    return number[stretches.of_pixel]


@dataclass(frozen=True, eq=False)
class TouchingPieces:
    """The pieces that `pieces_that_touch` numbers; P of them, in no order."""

    values: NDArray[np.integer]
    """The value of each."""
    areas: NDArray[np.int64]
    """Pixels of each."""


def touching_pieces(
    image: NDArray[np.integer], only: NDArray[np.integer] | None = None
) -> TouchingPieces:
    """Measure the pieces of all values but 0, or of some; in memory that grows with their rows.

    >>> pieces = touching_pieces(np.array([[5, 5, 0, 5], [0, 7, 0, 5]]))
    >>> sorted(zip(pieces.values.tolist(), pieces.areas.tolist()))
    [(5, 2), (5, 2), (7, 1)]
    """
    values = [np.zeros(0, image.dtype)]
    areas = [np.zeros(0, np.int64)]
    touching = [np.zeros((2, 0), np.int32)]
    n_before = 0
    for block in blocks_of(image.shape):
        reaches_back = int(block.start > 0)  # to the last row or plane of the block before
        part = image[block.start - reaches_back : block.stop]
        if only is not None:
            part = np.where(np.isin(part, only), part, 0)
        stretches = _stretches(part)
        n_known = reaches_back * int(stretches.of_pixel[0].max() + 1)
        values.append(stretches.values[n_known:])
        areas.append(np.bincount(stretches.of_pixel.ravel())[n_known:])
        touching.append(stretches.touching + np.int32(n_before - n_known))
        n_before += len(stretches.values) - n_known
    value = np.concatenate(values)
    n_pieces, piece = connected_components(n_before, np.concatenate(touching, axis=1))
    value_of_piece = np.zeros(n_pieces, image.dtype)
    value_of_piece[piece] = value
    pixels = np.bincount(piece, np.concatenate(areas), n_pieces).astype(np.int64)
    is_shown = value_of_piece != 0
    return TouchingPieces(value_of_piece[is_shown], pixels[is_shown])


class _Stretches(NamedTuple):
    """The stretches of one value in the rows of an image, of which there are far fewer than
    pixels; S of them, in raster order."""

    of_pixel: NDArray[np.int32]
    """The stretch of every pixel."""
    values: NDArray[np.integer]
    """The value of each stretch."""
    touching: NDArray[np.int32]
    """Pairs of stretches of one value, not 0, that touch in neighbouring rows or planes, (2, E)."""


def _stretches(image: NDArray[np.integer]) -> _Stretches:
    begins = np.ones(image.shape, bool)
    np.not_equal(image[..., 1:], image[..., :-1], out=begins[..., 1:])
    of_pixel = np.cumsum(begins, dtype=np.int32).reshape(image.shape) - 1
    touching = [np.zeros((2, 0), np.int32)]
    for axis in range(image.ndim - 1):
        ahead = (slice(None),) * axis + (slice(1, None),)
        behind = (slice(None),) * axis + (slice(None, -1),)
        first = (begins[ahead] | begins[behind]) & (image[ahead] == image[behind])
        first &= image[ahead] != 0
        touching.append(np.stack([of_pixel[ahead][first], of_pixel[behind][first]]))
    return _Stretches(of_pixel, image[begins], np.concatenate(touching, axis=1))


def connected_components(n: int, edges: NDArray[np.int32]) -> tuple[int, NDArray[np.int64]]:
    """Connected components of a graph: how many ``n`` nodes have, and that of each node.

    As ``scipy.sparse.csgraph.connected_components``, in its time; importing that takes longer than
    all else that a comparison of two small files does.
    """
    lowest = np.arange(n, dtype=np.int32)
    while edges.size:
        ends = lowest[edges]
        is_open = ends[0] != ends[1]
        edges = edges[:, is_open]
        ends = ends[:, is_open]
        np.minimum.at(lowest, ends.max(axis=0), ends.min(axis=0))
        lowest = _followed(lowest)
    of_component, component = np.unique(lowest, return_inverse=True)
    return len(of_component), component


def _followed(lowest: NDArray[np.int32]) -> NDArray[np.int32]:
    """Follow pointers to lower nodes to their ends, twice as far in every round."""
    while not np.array_equal(ends := lowest[lowest], lowest):
        lowest = ends
    return lowest
