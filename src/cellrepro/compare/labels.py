"""Label images: what one is, and its objects under numbers that depend on nothing but outlines.

A label image is an integer array of shape (Y, X) or (Z, Y, X); 0 is background and every other
number, up to 2**32 - 1 and with gaps allowed, is one object.
"""

from __future__ import annotations

import fastremap
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellrepro.errors import BadInput

LARGEST_LABEL = 2**32 - 1


def label_image(name: str, masks: ArrayLike) -> NDArray[np.integer]:
    """The array that was given, not copied, once it is known to be a label image.

    ``name`` is what messages call it.
    """
    try:
        image = np.asarray(masks)
    except ValueError as error:  # rows of other lengths
        raise BadInput(f"{name} is no array ({error}); give one of shape (Y, X)") from error
    if image.dtype.kind not in "iu":
        raise BadInput(
            f"{name} has dtype {image.dtype}, and a label image holds integers, 0 for background "
            "and one number per object; label a foreground map first (scipy.ndimage.label), or "
            "cast with .astype('int32') if every value is whole and none is NaN"
        )
    if image.ndim not in (2, 3):
        raise BadInput(
            f"{name} has shape {image.shape}, and a label image has shape (Y, X) or (Z, Y, X); "
            "compare the images of a series one by one, without channels"
        )
    if image.size and image.min() < 0:
        raise BadInput(
            f"{name} holds the negative label {image.min()}, and labels are 0 for background and "
            "positive for objects; set what is to be ignored to 0 in both images"
        )
    if image.size and image.dtype.itemsize > 4 and image.max() > LARGEST_LABEL:
        raise BadInput(
            f"{name} holds the label {image.max()}, and the largest one is {LARGEST_LABEL}; "
            "renumber the objects first (skimage.segmentation.relabel_sequential)"
        )
    return image


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
    """Number the objects 1 to N in raster order of first appearance; 0 stays background.

    Equal outlines give equal arrays, and therefore equal digests, whatever their numbers were.
    Always uint32, which holds as many objects as there can be labels.

    >>> canonical([[0, 9], [7, 9]]).tolist()
    [[0, 1], [2, 1]]
    """
    image = label_image("masks", masks)
    plain = np.ascontiguousarray(image, image.dtype.newbyteorder("="))  # what fastremap reads
    return fastremap.renumber(plain, preserve_zero=True, in_place=False)[0].astype(np.uint32)
