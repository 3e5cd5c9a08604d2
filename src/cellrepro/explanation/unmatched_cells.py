"""Cells that only one of two results of an image has."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cellrepro.comparison.object_matching import matches, overlap
from cellrepro.images.integer_images import Integers


class UnmatchedCells(NamedTuple):
    """Labels without a counterpart in the other result."""

    before: set[int]
    after: set[int]


def unmatched_cells(before: Integers, after: Integers, *, least_iou: float = 0.5) -> UnmatchedCells:
    """Find the labels of either result that have no counterpart of so high an IoU."""
    table = overlap(before, after)
    pairs = matches(table, least_iou)
    matched_before = set(table.labels_a[table.rows[pairs]].tolist())
    matched_after = set(table.labels_b[table.columns[pairs]].tolist())
    return UnmatchedCells(labels_in(before) - matched_before, labels_in(after) - matched_after)


def labels_in(masks: Integers) -> set[int]:
    """The labels of all cells."""
    return set(np.unique(masks[masks > 0]).tolist())
