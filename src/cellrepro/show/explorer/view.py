"""A view: one image with the masks of several runs, and how its arrays are read and checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cellrepro.images.image_axes import MOST_LOOKED_AT
from cellrepro.images.label_image import label_image
from cellrepro.images.size_factor import other_size_text
from samebits.errors import BadInput

Source = np.ndarray | Callable[[], np.ndarray | None]
"""An array, or a function without arguments that reads it; None if the file is not there."""

TRUTH = "truth"
"""The name of the ground truth. Like a run it can be A or B, by the number after the last run's."""


@dataclass(frozen=True, eq=False)
class View:
    """One image and the masks of every run."""

    name: str
    """The image's."""
    masks: Sequence[Source | None]
    """A label image of each run, shape (Y, X) or (Z, Y, X), 0 is background; None where a run has
    no masks of this image."""
    image: Source | None = None
    """In the shape of the masks, with or without channels last; black if there is none."""
    truth: Source | None = None
    """The annotated label image."""
    digests: Sequence[str | None] | None = None
    """One for each run. Runs with equal digests have equal masks, which are read once."""
    n_repeats: Sequence[int] | None = None
    """How many repeats each run stands for, where it stands for all that have its masks."""
    pixel_size: float | None = None
    """The side of a pixel, micrometres; None where no file says it."""
    napari_call: str = ""
    """The Python that opens it in napari; empty where it was not read from files."""

    @property
    def runs_with_masks(self) -> list[int]:
        """The numbers of the runs that have masks of the image."""
        return [run for run, masks in enumerate(self.masks) if masks is not None]


def read_source(source: Source | None) -> np.ndarray | None:
    """Read the array; None if there is none."""
    array = source() if callable(source) else source
    return None if array is None else np.asarray(array)


def checked_image(image: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Add the axis of channels that is missing, and refuse what does not fit the masks."""
    with_channels = image[..., np.newaxis] if image.shape == shape else image
    fits = with_channels.shape[:-1] == shape and 1 <= with_channels.shape[-1] <= MOST_LOOKED_AT
    is_real = image.dtype.kind in "buif"
    if not fits or not image.size or not is_real or not np.isfinite(image).all():
        size = image.shape[: len(shape)]
        by_a_factor = other_size_text(shape, size)
        if by_a_factor:
            raise BadInput(
                f"the image has shape {image.shape}, the masks have {shape}{by_a_factor}"
            )
        raise BadInput(
            f"image has shape {image.shape} and dtype {image.dtype}; expected finite real numbers "
            f"in the shape of the masks, {shape}, with or without 1 to {MOST_LOOKED_AT} channels "
            "last. Move them with np.moveaxis(image, 0, -1), fill gaps with np.nan_to_num(image)."
        )
    return with_channels


def checked_labels(name: str, labels: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Refuse what is no label image of that shape; a map of the foreground is one object."""
    if labels.shape != shape:
        raise BadInput(
            f"{name} has shape {labels.shape}; expected {shape}, that of the image. Give the masks "
            "of this very image, neither cropped nor resized" + other_size_text(labels.shape, shape)
        )
    return label_image(name, labels.astype(np.uint8) if labels.dtype.kind == "b" else labels)
