"""An image and two label images of it, as arrays or files, checked and put into one view."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.images.image_axes import MOST_LOOKED_AT, Axes
from cellrepro.images.image_file import image_in, read_labels
from cellrepro.images.label_image import label_image
from cellrepro.images.pictures import refuse_picture
from cellrepro.images.pixel_size import pixel_size_in
from cellrepro.show.explorer.view import View


def read_view(
    image: np.ndarray | str | Path | None,
    masks_a: np.ndarray | str | Path,
    masks_b: np.ndarray | str | Path,
    *,
    truth: np.ndarray | str | Path | None = None,
    name: str = "",
) -> View:
    """Read an image and two label images of it, and the truth if there is one."""
    labels_a = read_pixels_of_masks("masks_a", masks_a)
    labels_b = read_pixels_of_masks("masks_b", masks_b)
    labels_of_truth = None if truth is None else read_pixels_of_masks("truth", truth)
    default_name = "image" if image is None or isinstance(image, np.ndarray) else Path(image).stem
    return View(
        name or default_name,
        [labels_a, labels_b],
        None if image is None else read_pixels(image, labels_a.shape),
        labels_of_truth,
        pixel_size=pixel_size_in(Path(image)) if isinstance(image, str | Path) else None,
    )


def read_pixels(image: np.ndarray | str | Path, masks_shape: tuple[int, ...]) -> np.ndarray:
    """Read an image: a file, or an array as it is."""
    if isinstance(image, str | Path):
        file = Path(image)
        is_stack = len(masks_shape) == 3
        axes = Axes(
            stacks=is_stack,
            most_channels=MOST_LOOKED_AT,
            planes_of=masks_shape if is_stack else None,
        )
        return image_in(file, axes).pixels
    return np.asarray(image)


def read_pixels_of_masks(name: str, masks: np.ndarray | str | Path) -> np.ndarray:
    """Read a label image, and refuse what is a picture; ``name`` is the argument's."""
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
