"""What a label image is: integers of shape (Y, X) or (Z, Y, X), 0 for background, gaps allowed."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellrepro.errors import BadInput

LARGEST_LABEL = 2**32 - 1


def label_image(
    name: str, masks: ArrayLike, *, largest: int = LARGEST_LABEL
) -> NDArray[np.integer]:
    """The array that was given, not copied, once it is known to be a label image."""
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
    if image.dtype.kind == "i" and image.min(initial=0) < 0:
        raise BadInput(
            f"{name} holds the negative label {image.min()}, and labels are 0 for background and "
            "positive for objects; set what is to be ignored to 0"
        )
    if np.iinfo(image.dtype).max > largest and image.max(initial=0) > largest:
        raise BadInput(
            f"{name} holds the label {image.max()}, and the largest one is {largest}; renumber the "
            "objects first (skimage.segmentation.relabel_sequential)"
        )
    return image
