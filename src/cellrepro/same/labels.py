"""Two label images of one shape, and objects under numbers that depend on outlines alone."""

from __future__ import annotations

from typing import Any

import fastremap
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellrepro.errors import BadInput
from cellrepro.images.label_image import label_image


def label_images(
    first: tuple[str, ArrayLike], second: tuple[str, ArrayLike]
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Two label images of one shape; each is given with what messages call it."""
    a, b = label_image(*first), label_image(*second)
    if a.shape != b.shape:
        # Cellpose 4.2.1.1 compares sizes only, and scores (2, 3) against (3, 2).
        raise BadInput(
            f"label images differ in shape: {first[0]} has {a.shape}, {second[0]} has {b.shape}; "
            "check that both belong to the same image, then transpose, crop or resize one of them"
        )
    return a, b


def canonical(masks: ArrayLike) -> NDArray[np.uint32]:
    """Number the objects 1 to N in raster order of first appearance, as uint32."""
    return renumbered(label_image("masks", masks))[0].astype(np.uint32)


def renumbered(image: NDArray[np.integer]) -> tuple[NDArray[np.integer], dict[Any, Any]]:
    """A label image under the numbers of `canonical`, and these by the labels it had."""
    plain = np.ascontiguousarray(image, image.dtype.newbyteorder("="))  # what fastremap reads
    return fastremap.renumber(plain, preserve_zero=True, in_place=False)
