"""Masks of two images are suspected, and bad masks of one image are not."""

import numpy as np
import pytest

from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.comparison.unrelated_masks import chance_overlap

SIZE = 256
RADIUS = 9


def discs(seed, *, n=40):
    """Masks of cells that lie anywhere."""
    random = np.random.default_rng(seed)
    y, x = np.ogrid[:SIZE, :SIZE]
    labels = np.zeros((SIZE, SIZE), np.int32)
    for number in range(1, n + 1):
        row, column = random.uniform(RADIUS, SIZE - RADIUS, 2)
        labels[((y - row) ** 2 + (x - column) ** 2 < RADIUS**2) & (labels == 0)] = number
    return labels


def crumbs(labels):
    """Every cell in pieces of four pixels."""
    y, x = np.indices(labels.shape) // 2
    return np.where(labels > 0, y * SIZE + x + 1, 0)


def around(labels):
    """What is no cell, in blocks."""
    y, x = np.indices(labels.shape) // 16
    return np.where(labels > 0, 0, y * SIZE + x + 1)


def middles(labels):
    """The middle of every third cell."""
    random = np.random.default_rng(5)
    small = np.zeros_like(labels)
    for number in random.permutation(np.unique(labels)[1:])[::3]:
        row, column = np.argwhere(labels == number).mean(axis=0).astype(int)
        small[row - 2 : row + 3, column - 2 : column + 3] = number
    return small


@pytest.mark.parametrize("pair", [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)])
def test_two_images(pair):
    a, b = map(discs, pair)
    found = chance_overlap(a, b, compare_masks(a, b))
    assert found is not None
    assert found.covered == pytest.approx((a > 0)[b > 0].mean())
    stacks = np.stack([a, a]), np.stack([b, b])
    assert chance_overlap(*stacks, compare_masks(*stacks)) is not None


BAD = {
    "in pieces": crumbs,
    "the background": around,
    "small parts of few cells": middles,
    "shifted by a cell": lambda labels: np.roll(labels, (RADIUS, 2 * RADIUS), (0, 1)),
    "transposed": np.transpose,
    "another image, four cells": lambda labels: discs(1, n=4),
}


@pytest.mark.parametrize("made", BAD.values(), ids=BAD)
def test_bad_masks_of_one_image(made):
    a = discs(0)
    b = np.ascontiguousarray(made(a))
    comparison = compare_masks(a, b)
    assert comparison.f1[0] < 0.1
    assert chance_overlap(a, b, comparison) is None
