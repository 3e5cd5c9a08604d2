"""The connected pieces of the values of a label image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import fastremap
import numpy as np
from numpy.typing import NDArray

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
    begins = np.ones(image.shape, bool)
    np.not_equal(image[..., 1:], image[..., :-1], out=begins[..., 1:])
    # Stretches of one value in a row are joined, of which there are far fewer than pixels.
    stretch = np.cumsum(begins, dtype=np.int32).reshape(image.shape) - 1
    is_shown = image[begins] != 0
    edges = [np.zeros((2, 0), np.int32)]
    for axis in range(image.ndim - 1):
        ahead = (slice(None),) * axis + (slice(1, None),)
        behind = (slice(None),) * axis + (slice(None, -1),)
        first = (begins[ahead] | begins[behind]) & (image[ahead] == image[behind])
        edges.append(np.stack([stretch[ahead][first], stretch[behind][first]]))
    _, piece = connected_components(len(is_shown), np.concatenate(edges, axis=1))
    number = np.zeros(len(is_shown), np.int32)
    number[is_shown] = 1 + np.unique(piece[is_shown], return_inverse=True)[1]
    return number[stretch]


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
