"""A map of where two label images agree, and how they differ where they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cellrepro.comparison.label_pair import ReadPair, read_pair
from cellrepro.comparison.object_matching import overlap, partners, runs
from cellrepro.images.label_image import label_images

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def categories(a: ArrayLike, b: ArrayLike) -> NDArray[np.uint8]:
    """Get a map of where two label images agree and how they differ where they do not.

    Parameters
    ----------
    a, b : array_like of int, shape (Y, X) or (Z, Y, X)
        0 is background, every other label one object.

    Returns
    -------
    ndarray of uint8, same shape
        0 background in both, 1 the same object, 2 only in a, 3 only in b, 4 a different object.
        Objects are the same if they are partners. Where several assignments overlap equally, as
        for an object cut into exact halves, the map shows one of them, chosen by outlines and
        never by numbers; the counts are equal for all.

    Examples
    --------
    >>> categories([[1, 1, 1, 0]], [[4, 4, 9, 9]]).tolist()
    [[1, 1, 4, 3]]
    """
    return category_map(read_pair(*label_images(("a", a), ("b", b))))


def category_map(pair: ReadPair) -> NDArray[np.uint8]:
    """Get the map of `categories` of two label images that are read."""
    image_a = pair.a.image
    image_b = pair.b.image
    table = pair.table
    if pair.a.given is not None or pair.b.given is not None:
        table = overlap(image_a, image_b)  # with the numbers of these two
    chosen = partners(table)
    labels = table.labels_a[table.rows[chosen]]
    order = np.argsort(labels)
    # Sorted labels of a, and the partner of each; -1 stands behind the last.
    with_partner = np.append(labels[order], -1)
    partner = np.append(table.labels_b[table.columns[chosen]][order], -1)
    result = np.empty(image_a.size, np.uint8)
    for block in runs(image_a, image_b):
        of_a = block.labels_a.astype(np.int64)
        of_b = block.labels_b.astype(np.int64)
        index = np.searchsorted(with_partner[:-1], of_a)
        same_object = (with_partner[index] == of_a) & (partner[index] == of_b)
        category = np.where((of_a > 0) & (of_b > 0), 4, 2 * (of_a > 0) + 3 * (of_b > 0))
        category[same_object] = 1
        start = block.starts[0]
        result[start : start + block.lengths.sum()] = np.repeat(category, block.lengths)
    return result.reshape(image_a.shape)
