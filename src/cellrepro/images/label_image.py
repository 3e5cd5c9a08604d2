"""What a label image is: integers of shape (Y, X) or (Z, Y, X), 0 for background, gaps allowed."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellrepro.images.size_factor import at_size, size_factor, times_text
from samebits.errors import BadInput

LARGEST_LABEL = 2**32 - 1


def label_image(
    name: str, masks: ArrayLike, *, largest: int = LARGEST_LABEL
) -> NDArray[np.integer]:
    """Refuse what is no label image."""
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
    if image.dtype.kind == "i" and image.min(initial=0) < 0:
        raise BadInput(
            f"{name} holds labels from {image.min()} to {image.max()}, expected 0 for background "
            f"and up to {largest} for objects; where a mark such as -1 is to be ignored, set it to "
            f"0; where there were too many objects for {image.dtype}, the numbers began anew below "
            "0: save the masks again as int32"
        )
    if np.iinfo(image.dtype).max > largest and image.max(initial=0) > largest:
        raise BadInput(
            f"{name} holds labels from {image.min()} to {image.max()}, expected 0 for background "
            f"and up to {largest} for objects; set what is to be ignored to 0 and renumber the "
            "objects (skimage.segmentation.relabel_sequential)"
        )
    return image


def label_images(
    first: tuple[str, ArrayLike], second: tuple[str, ArrayLike]
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Check that two arrays are label images of one shape."""
    a = label_image(*first)
    b = label_image(*second)
    if a.shape != b.shape:
        # Cellpose 4.2.1.1 compares sizes only, and scores (2, 3) against (3, 2).
        what_to_do = (
            "check that both belong to the same image, then transpose, crop or resize one of them"
        )
        factor = size_factor(a.shape, b.shape)
        if factor is not None:
            larger = first[0] if factor > 1 else second[0]
            smaller = at_size(min(factor, 1 / factor), larger, n_axes=a.ndim)
            what_to_do = (
                f"{times_text(first[0], a.shape, second[0], b.shape)}: are both of one image? Then "
                f"bring {larger} to the smaller size without new numbers: {smaller}"
            )
        raise BadInput(
            f"label images differ in shape: {first[0]} has {a.shape}, {second[0]} has {b.shape}; "
            f"{what_to_do}"
        )
    return a, b
