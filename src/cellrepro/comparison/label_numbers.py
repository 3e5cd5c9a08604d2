"""The numbers of a label image: how they run through planes, and how they are given anew.

Cellpose without ``stitch_threshold`` and ``do_3D`` numbers every plane from 1, as every
segmentation frame by frame does: an object is then known by its plane and its number. A stack that
was stitched or segmented in 3-D has one number for all planes of an object. Nothing in a file says
which of both it is, but its numbers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, cast

import fastremap
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellrepro.images.label_image import label_image

Numbering = Literal["apart", "through", "anew"]
"""No number is in two planes; or objects keep theirs through planes; or they begin anew in each."""

_Labels = NDArray[np.integer]


def renumbered(image: _Labels) -> tuple[_Labels, dict[int, int]]:
    """Number the objects of a label image 1 to N in raster order of first appearance."""
    native = np.ascontiguousarray(image, image.dtype.newbyteorder("="))  # what fastremap reads
    renumbered_image, numbers = fastremap.renumber(native, preserve_zero=True, in_place=False)
    return renumbered_image, cast("dict[int, int]", numbers)  # floats of arrays of floats alone


def numbering(image: _Labels) -> Numbering:
    """Say how the numbers of a label image run through its planes.

    Of an object that goes on, most pixels have its number in the next plane, too. Numbers begin
    anew where more of those that two planes share lie apart than go on; and also where a number
    lies apart while every plane has the first numbers of the one that has most, as 1 to 20 and 1
    to 18, which no stack of objects has whose ends lie in different planes.
    """
    if image.ndim == 2 or not image.size:
        return "apart"
    planes = [plane for plane in image if plane.any()]
    labels = [_labels_of(plane) for plane in planes]
    n_distinct = len(np.unique(np.concatenate(labels))) if labels else 0
    n_repeated = sum(map(len, labels)) - n_distinct
    if not n_repeated:
        return "apart"
    n_shared = 0
    n_touching = 0
    for (plane, next_plane), (here, there) in zip(pairwise(planes), pairwise(labels), strict=True):
        n_shared += len(np.intersect1d(here, there, assume_unique=True))
        n_touching += len(_labels_of(np.where(plane == next_plane, plane, 0)))
    if n_touching == n_repeated:  # every object is in one piece from plane to plane
        return "through"
    if n_shared > n_touching and _are_first_numbers(labels):
        return "anew"
    n_going_on = sum(_n_going_on(*both) for both in pairwise(planes))
    return "anew" if n_repeated - n_going_on > n_going_on else "through"


def _labels_of(plane: _Labels) -> _Labels:
    labels = fastremap.unique(np.ascontiguousarray(plane))
    return labels[labels > 0]


def _are_first_numbers(labels: Sequence[_Labels]) -> bool:
    """Whether planes have unequal sets of numbers, of which each holds all of every smaller one."""
    by_size = sorted(labels, key=len)
    return len(by_size[0]) < len(by_size[-1]) and all(
        np.isin(smaller, larger).all() for smaller, larger in pairwise(by_size)
    )


def _n_going_on(plane: _Labels, next_plane: _Labels) -> int:
    """Count the numbers that are the best continuation of themselves in the next plane."""
    both = (plane > 0) & (next_plane > 0)
    pairs = np.stack([plane[both], next_plane[both]], axis=1).astype(np.int64)
    if not len(pairs):
        return 0
    here, there = (np.unique(column, return_inverse=True) for column in pairs.T)
    codes, n_pixels = np.unique(here[1] * len(there[0]) + there[1], return_counts=True)
    rows, columns = np.divmod(codes, len(there[0]))
    most_of_row = np.zeros(len(here[0]), np.int64)
    most_of_column = np.zeros(len(there[0]), np.int64)
    np.maximum.at(most_of_row, rows, n_pixels)
    np.maximum.at(most_of_column, columns, n_pixels)
    is_best = (n_pixels == most_of_row[rows]) | (n_pixels == most_of_column[columns])
    return int(np.count_nonzero(is_best & (here[0][rows] == there[0][columns])))


@dataclass(frozen=True, eq=False)
class NumberedByPlane:
    """A stack in which every object of every plane has a number of its own."""

    image: _Labels
    """Numbers from 1 in raster order; 0 is background."""
    given: NDArray[np.int64]
    """The number that each object had, by its new one; element 0, of the background, is 0."""


def numbered_by_plane(image: _Labels) -> NumberedByPlane:
    """Give every object of every plane a number of its own.

    >>> numbered = numbered_by_plane(np.array([[[0, 2, 1]], [[1, 1, 0]]]))
    >>> numbered.image.tolist(), numbered.given.tolist()
    ([[[0, 1, 2]], [[3, 3, 0]]], [0, 2, 1, 1])
    """
    result = np.zeros(image.shape, np.int32 if image.size < 2**31 else np.int64)
    given: list[int] = [0]
    for plane, numbers_of_plane in zip(image, result, strict=True):
        numbers, by_label = renumbered(plane)
        numbers_of_plane[:] = numbers
        numbers_of_plane[numbers > 0] += len(given) - 1
        given += sorted((label for label in by_label if label), key=by_label.__getitem__)
    return NumberedByPlane(result, np.array(given, np.int64))


def canonical(masks: ArrayLike) -> NDArray[np.uint32]:
    """Number the objects 1 to N in raster order of first appearance.

    >>> canonical([[0, 7], [3, 7]]).tolist()
    [[0, 1], [2, 1]]
    """
    image = label_image("masks", masks)
    if numbering(image) == "anew":
        return numbered_by_plane(image).image.astype(np.uint32)
    return renumbered(image)[0].astype(np.uint32)
