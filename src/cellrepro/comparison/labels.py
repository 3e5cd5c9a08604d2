"""Two label images of one shape, and objects under numbers that depend on outlines alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cellrepro.comparison.planes import numbered_by_plane, numbering, renumbered
from cellrepro.errors import BadInput
from cellrepro.images.label_image import label_image
from cellrepro.images.size_factor import factor_text

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def label_images(
    first: tuple[str, ArrayLike], second: tuple[str, ArrayLike]
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Check that two arrays are label images of one shape."""
    a = label_image(*first)
    b = label_image(*second)
    if a.shape != b.shape:
        # Cellpose 4.2.1.1 compares sizes only, and scores (2, 3) against (3, 2).
        by_a_factor = factor_text(first[0], a.shape, second[0], b.shape)
        raise BadInput(
            f"label images differ in shape: {first[0]} has {a.shape}, {second[0]} has {b.shape}"
            + (
                by_a_factor
                or "; check that both belong to the same image, then transpose, crop or resize "
                "one of them"
            )
        )
    return a, b


def canonical(masks: ArrayLike) -> NDArray[np.uint32]:
    """Number the objects 1 to N in raster order of first appearance.

    >>> canonical([[0, 7], [3, 7]]).tolist()
    [[0, 1], [2, 1]]
    """
    image = label_image("masks", masks)
    if numbering(image) == "anew":
        return numbered_by_plane(image).image.astype(np.uint32)
    return renumbered(image)[0].astype(np.uint32)
