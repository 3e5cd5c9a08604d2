"""An image and two label images of it, as arrays or files, checked and put into one view."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.images.axes import Axes
from cellrepro.images.decoding import read_bytes
from cellrepro.images.image_file import check_image, read_labels
from cellrepro.images.label_image import label_image, refuse_picture
from cellrepro.show.explorer.view import View


def read_view(
    image: np.ndarray | str | Path | None,
    masks_a: np.ndarray | str | Path,
    masks_b: np.ndarray | str | Path,
    *,
    truth: np.ndarray | str | Path | None = None,
    name: str = "",
) -> View:
    """Read an image and what two segmentations made of it.

    Parameters
    ----------
    image : ndarray, str or Path, or None
        Shape (Y, X) or (Z, Y, X), with or without channels last; or a TIFF, PNG or JPEG. None
        where there is none: the masks stand on black.
    masks_a, masks_b : ndarray of int, str or Path
        Label images, 0 is background; or a TIFF, PNG, ``.npy`` or ``_seg.npy``.
    truth : ndarray of int, str or Path, optional
        The annotated label image.
    name : str
        Of the image; that of its file by default.

    Returns
    -------
    View

    Raises
    ------
    BadInput
        If a file cannot be read, or a picture is given for masks.
    """
    labels_a = read_pixels_of_masks("masks_a", masks_a)
    labels_b = read_pixels_of_masks("masks_b", masks_b)
    labels_of_truth = None if truth is None else read_pixels_of_masks("truth", truth)
    default_name = "image" if image is None or isinstance(image, np.ndarray) else Path(image).stem
    return View(
        name or default_name,
        [labels_a, labels_b],
        None if image is None else read_pixels(image, labels_a.shape),
        labels_of_truth,
    )


def read_pixels(image: np.ndarray | str | Path, masks_shape: tuple[int, ...]) -> np.ndarray:
    """Read an image.

    Parameters
    ----------
    image : ndarray, str or Path
    masks_shape : tuple of int
        (Y, X), or (Z, Y, X) where the masks have planes: then the file may hold them, too.

    Returns
    -------
    ndarray

    Raises
    ------
    BadInput
        If the file cannot be read.
    """
    if isinstance(image, str | Path):
        file = Path(image)
        axes = Axes(stacks=True, planes_of=masks_shape) if len(masks_shape) == 3 else Axes()
        return check_image(file, read_bytes(file), axes).pixels
    return np.asarray(image)


def read_pixels_of_masks(name: str, masks: np.ndarray | str | Path) -> np.ndarray:
    """Read a label image.

    Parameters
    ----------
    name : str
        What messages call an array.
    masks : ndarray of int, str or Path

    Returns
    -------
    ndarray of int, shape (Y, X) or (Z, Y, X)

    Raises
    ------
    BadInput
        If the file cannot be read, or a picture is given for masks.
    """
    if isinstance(masks, str | Path):
        try:
            return read_labels(masks)
        except BadInput as error:
            if not Path(masks).exists():
                raise
            raise BadInput(f"{error} (the order is: image, masks A, masks B)") from error
    array = np.asarray(masks)
    if array.dtype.kind == "b":  # a map of the foreground
        return array.astype(np.uint8)
    try:
        refuse_picture(f"{name}:", label_image(name, array))
    except BadInput as error:
        raise BadInput(f"{error} (expected explore(image, masks_a, masks_b))") from error
    return array
