"""Which objects of many results are the same object.

Every object of the typical result starts a *group*. Objects of the other results, the nearest
result first, join the group whose first object they match at IoU >= 0.5, so that no chain of small
shifts joins two cells; those that match none start a group. Above this threshold an object has at
most one counterpart in a label image (Kirillov et al. 2019, "Panoptic segmentation").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from cellrepro.comparison.distinct_results import DistinctResult
from cellrepro.comparison.object_matching import Integers, matches, overlap

_LEAST_IOU = 0.5  # of two objects that are the same


@dataclass(frozen=True, eq=False)
class ObjectGroups:
    """Objects of R results in G groups, which count from 1; 0 is the background."""

    by_result: tuple[Integers, ...]
    """The group of every label, for each of the R results; element 0, of the background, is 0."""
    n_runs_with: Integers
    """Runs that have an object of the group; element 0 is 0."""

    @property
    def size(self) -> int:
        """G + 1: length of an array with one element per group and one for the background."""
        return len(self.n_runs_with)


def group_objects(results: Sequence[DistinctResult]) -> ObjectGroups:
    """Put every object of every result into the group of its like."""
    grouping = _Grouping(results[0])
    by_result = [np.arange(results[0].n_objects + 1)]
    for result in results[1:]:
        by_result.append(grouping.add(result))
    n_runs_with = np.zeros(grouping.n_groups + 1, np.int64)
    for result, groups in zip(results, by_result, strict=True):
        n_runs_with[groups[1:]] += len(result.runs)
    return ObjectGroups(by_result=tuple(by_result), n_runs_with=n_runs_with)


class _Grouping:
    """Groups as they grow, one result after the other."""

    def __init__(self, typical: DistinctResult):
        self.n_groups = typical.n_objects
        self._typical = typical.image
        # First objects of groups that the typical result does not have. They may overlap each
        # other, so a pixel may stand in several of these pairs.
        self._first_pixels = LabelledPixels.none()
        self._first_areas = np.zeros(self.n_groups + 1, np.int64)  # by group

    def add(self, result: DistinctResult) -> Integers:
        """Give the group of every label of one more result."""
        groups = np.zeros(result.n_objects + 1, np.int64)
        areas = self._join_typical(result, groups)
        left_over = LabelledPixels.of(result.image, groups == 0)
        self._join_others(left_over, areas, groups)
        self._start_groups(left_over, areas, groups)
        return groups

    def _join_typical(self, result: DistinctResult, groups: Integers) -> Integers:
        """Set the groups of objects that match one of the typical result; give all areas."""
        table = overlap(self._typical, result.image)
        same = matches(table, _LEAST_IOU)
        groups[table.columns[same] + 1] = table.rows[same] + 1
        return np.append(0, table.areas_b)

    def _join_others(self, left_over: LabelledPixels, areas: Integers, groups: Integers) -> None:
        """Set the groups of objects that match the first object of any other group, best first."""
        shared = self._first_pixels.overlap(left_over, self._typical.size)
        unions = self._first_areas[shared.row] + areas[shared.col] - shared.data
        ious = shared.data / unions
        best_first = np.argsort(-ious, kind="stable")
        joined: set[int] = set()
        for pair in best_first[ious[best_first] >= _LEAST_IOU]:
            group = int(shared.row[pair])
            label = int(shared.col[pair])
            if not groups[label] and group not in joined:
                groups[label] = group
                joined.add(group)

    def _start_groups(self, left_over: LabelledPixels, areas: Integers, groups: Integers) -> None:
        """Start a group with each object that has none."""
        new = np.flatnonzero(groups[1:] == 0) + 1
        groups[new] = self.n_groups + 1 + np.arange(len(new))
        self.n_groups += len(new)
        self._first_areas = np.append(self._first_areas, areas[new])
        is_new = np.isin(left_over.labels, new)
        self._first_pixels = LabelledPixels(
            np.append(self._first_pixels.pixels, left_over.pixels[is_new]),
            np.append(self._first_pixels.labels, groups[left_over.labels[is_new]]),
        )


@dataclass(frozen=True, eq=False)
class LabelledPixels:
    """Pixels with a label; a pixel may have several."""

    pixels: Integers
    """Position in the flat image."""
    labels: Integers
    """Labels, counted from 1."""

    @classmethod
    def none(cls) -> LabelledPixels:
        """No pixels."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))

    @classmethod
    def of(cls, image: NDArray[np.unsignedinteger], is_listed: NDArray[np.bool_]) -> LabelledPixels:
        """List every pixel of some labels of a label image; never of the background."""
        is_listed = np.append(False, is_listed[1:])
        labels = image.ravel()
        pixels = np.flatnonzero(is_listed[labels])
        return cls(pixels, labels[pixels].astype(np.int64))

    def overlap(self, other: LabelledPixels, n_pixels: int) -> coo_array:
        """Count the pixels that each label has in common with each label of another list."""
        shared = csr_array(self._membership(n_pixels).T @ other._membership(n_pixels))
        shared.sort_indices()
        return shared.tocoo()

    def _membership(self, n_pixels: int) -> csr_array:
        """Matrix of pixels and labels: 1 where the pixel has the label."""
        shape = (n_pixels, 1 + int(self.labels.max(initial=0)))
        ones = np.ones(len(self.pixels), np.int64)
        return csr_array((ones, (self.pixels, self.labels)), shape=shape)
