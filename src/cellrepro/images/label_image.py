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
    if image.dtype.kind not in "iu" or image.ndim not in (2, 3):
        raise BadInput(
            f"{name} has dtype {image.dtype} and shape {image.shape}, and a label image holds "
            "integers, 0 for background and one number per object, of shape (Y, X) or (Z, Y, X); "
            "label a foreground map first (scipy.ndimage.label), cast whole numbers with "
            ".astype('int32'), and compare the images of a series one by one, without channels"
        )
    negative = image.dtype.kind == "i" and image.min(initial=0) < 0
    if negative or (np.iinfo(image.dtype).max > largest and image.max(initial=0) > largest):
        raise BadInput(
            f"{name} holds labels from {image.min()} to {image.max()}, expected 0 for background "
            f"and up to {largest} for objects; set what is to be ignored to 0 and renumber the "
            "objects (skimage.segmentation.relabel_sequential)"
        )
    return image
