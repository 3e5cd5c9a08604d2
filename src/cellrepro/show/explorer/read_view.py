"""An image and two label images of it, as arrays or files, checked and put into one view."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cellrepro.images.image_file import image_of_masks, read_labels
from cellrepro.images.label_image import label_image
from cellrepro.images.outline_files import is_outline_file
from cellrepro.images.pictures import refuse_picture
from cellrepro.images.pixel_size import pixel_size_in
from cellrepro.show.explorer.view import View
from samebits.errors import BadInput


def read_view(
    image: np.ndarray | str | Path | None,
    masks_a: np.ndarray | str | Path,
    masks_b: np.ndarray | str | Path,
    *,
    truth: np.ndarray | str | Path | None = None,
    name: str = "",
) -> View:
    """Read an image and two label images of it, and the truth if there is one."""
    sides = {"masks_a": masks_a, "masks_b": masks_b}
    if truth is not None:
        sides["truth"] = truth
    labels = {
        side: read_pixels_of_masks(side, masks)
        for side, masks in sides.items()
        if not _are_outlines(masks)
    }
    shape = next((each.shape for each in labels.values()), None)
    if shape is None and image is not None:
        shape = read_pixels(image, ()).shape[:2]
    for side in sides.keys() - labels.keys():
        labels[side] = read_pixels_of_masks(side, sides[side], shape=shape)
    default_name = "image" if image is None or isinstance(image, np.ndarray) else Path(image).stem
    return View(
        name or default_name,
        [labels["masks_a"], labels["masks_b"]],
        None if image is None else read_pixels(image, labels["masks_a"].shape),
        labels.get("truth"),
        pixel_size=pixel_size_in(Path(image)) if isinstance(image, str | Path) else None,
        napari_call=_napari_call(image, masks_a, masks_b, truth),
    )


def _napari_call(
    image: np.ndarray | str | Path | None,
    masks_a: np.ndarray | str | Path,
    masks_b: np.ndarray | str | Path,
    truth: np.ndarray | str | Path | None,
) -> str:
    """Write the call that opens files in napari; nothing for arrays."""
    given = [image, masks_a, masks_b, *([] if truth is None else [truth])]
    files = [str(each) for each in given if isinstance(each, str | Path)]
    if len(files) < len(given):
        return ""
    arguments = ", ".join(repr(file) for file in files[:3])
    if truth is not None:
        arguments += f", truth={files[3]!r}"
    return f"import cellrepro, napari; cellrepro.explore({arguments}).to_napari(); napari.run()"


def read_pixels(image: np.ndarray | str | Path, masks_shape: tuple[int, ...]) -> np.ndarray:
    """Read an image: a file, or an array as it is."""
    if isinstance(image, str | Path):
        return image_of_masks(image, masks_shape)
    return np.asarray(image)


def _are_outlines(masks: np.ndarray | str | Path) -> bool:
    return isinstance(masks, str | Path) and is_outline_file(Path(masks))


def read_pixels_of_masks(
    name: str, masks: np.ndarray | str | Path, *, shape: tuple[int, ...] | None = None
) -> np.ndarray:
    """Read a label image, and refuse what is a picture; ``name`` is the argument's.

    Outlines are drawn in an image of ``shape``.
    """
    if isinstance(masks, str | Path):
        try:
            return read_labels(masks, shape=shape)
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
