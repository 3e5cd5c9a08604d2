"""Images as Cellpose prepares them for a training: normalised, with flows from their masks."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.images.folder import LabelledImage
from cellrepro.spec.training_fields import Hyperparameters
from samebits.errors import BadInput

if TYPE_CHECKING:
    import torch

    from cellrepro.model.encoders import CellposeNetwork

USUAL = Hyperparameters()
"""Cellpose's defaults."""


@dataclass(frozen=True, eq=False)
class ImageWithFlows(LabelledImage):
    """A labelled image with its flows, so that no training computes them again."""

    flows: np.ndarray = field(kw_only=True, repr=False)
    """Labels, cell or not, flows in y and x, as ``cellpose.dynamics.labels_to_flows`` returns
    them."""


def with_flows(
    images: Sequence[LabelledImage], device: torch.device, *, most: int | None = None
) -> tuple[ImageWithFlows, ...]:
    """Compute the flows of images once, for several trainings on them."""
    from cellpose.dynamics import labels_to_flows

    usable = trainable_images(images)[:most]
    flows = labels_to_flows([training_labels(image) for image in usable], device=device)
    return tuple(
        ImageWithFlows(**_fields_of(image), flows=image_flows)
        for image, image_flows in zip(usable, flows, strict=True)
    )


def _fields_of(image: LabelledImage) -> dict[str, Any]:
    return {field.name: getattr(image, field.name) for field in fields(LabelledImage)}


def training_labels(image: LabelledImage) -> np.ndarray:
    """Copy the flows of an image, or else its masks: Cellpose's target of training.

    Cellpose renumbers masks in place (4.2.1.1, ``dynamics.py``).
    """
    if isinstance(image, ImageWithFlows):
        return image.flows.copy()
    if image.masks is None:
        raise BadInput(f"{image.name} has no masks to train on; label it, or leave it out")
    return image.masks.copy()


def trainable(image: LabelledImage, least: int = USUAL.min_train_masks) -> bool:
    """Whether an image has enough masks for Cellpose to train on it."""
    if image.masks is None:
        return False
    return len(np.unique(image.masks)) - 1 >= least


def trainable_images(
    images: Sequence[LabelledImage], least: int = USUAL.min_train_masks
) -> list[LabelledImage]:
    """Filter images by `trainable`, and refuse a set without any."""
    usable = [image for image in images if trainable(image, least)]
    if not usable:
        raise BadInput(
            f"none of the {len(images)} training images has {least} masks or more, the "
            "least Cellpose trains on (in an image without background it does not count the "
            "lowest label); add images, or label more of their cells"
        )
    return usable


@dataclass(frozen=True, eq=False)
class PreparedImages:
    """The images of one part, training or test, as Cellpose prepared them."""

    images: list[np.ndarray]
    """Normalised pixels, before augmentation."""
    flows: list[np.ndarray]
    """Labels, cell or not, flows in y and x."""
    chances: np.ndarray | None
    """Probability of each to be drawn; None where all are equally likely."""
    sizes: np.ndarray | None
    """Mean diameter of each image's cells, divided by the network's; None without ``rescale``."""

    def __len__(self) -> int:
        return len(self.images)

    def drawn_order(self, n_draws: int) -> np.ndarray:
        """Draw the order of images, from NumPy's global generator."""
        if n_draws == len(self.images):
            return np.random.permutation(n_draws)
        return np.random.choice(len(self.images), size=n_draws, p=self.chances)


@dataclass(frozen=True, eq=False)
class CellposeImages:
    """The images of a training as Cellpose prepares them."""

    names: tuple[str, ...]
    """The training images that Cellpose kept, which are those with enough masks."""
    train: PreparedImages
    test: PreparedImages
    """Empty without test images."""
    mean_diameter: float
    """Mean diameter of the cells in the training images, in pixels; it is stored in the network."""

    @classmethod
    def of(
        cls,
        network: CellposeNetwork,
        train_images: Sequence[LabelledImage],
        test_images: Sequence[LabelledImage],
        *,
        settings: Hyperparameters,
    ) -> CellposeImages:
        """Prepare images as ``cellpose.train.train_seg`` (4.2.1.1) does."""
        from cellpose.train import _process_train_test

        usable = trainable_images(train_images, settings.min_train_masks)
        # Of images and masks of different numbers Cellpose drops all test images, and only its log
        # says so (4.2.1.1, ``_process_train_test``).
        labelled_test = [image for image in test_images if image.masks is not None]
        (
            train_pixels,
            train_flows,
            _train_files,
            _train_label_files,
            train_chances,
            train_diameters,
            test_pixels,
            test_flows,
            _test_files,
            _test_label_files,
            test_chances,
            test_diameters,
            _is_normalised,
        ) = _process_train_test(
            train_data=[image.image for image in train_images],
            train_labels=[training_labels(image) for image in train_images],
            train_probs=_chances(train_images, settings),
            test_data=[image.image for image in labelled_test] or None,
            test_labels=[training_labels(image) for image in labelled_test] or None,
            min_train_masks=settings.min_train_masks,
            normalize_params={"normalize": settings.normalize},
            channel_axis=-1,
            device=network.device,
        )
        unit = network.diam_mean.item() if settings.rescale else None
        return cls(
            names=tuple(image.name for image in usable),
            train=PreparedImages(
                train_pixels, train_flows, train_chances, _sizes(train_diameters, unit)
            ),
            test=PreparedImages(
                test_pixels or [], test_flows or [], test_chances, _sizes(test_diameters, unit)
            ),
            mean_diameter=train_diameters.mean(),
        )


def _chances(images: Sequence[LabelledImage], settings: Hyperparameters) -> np.ndarray | None:
    """Relative probabilities of being drawn; an image that is not named has 1."""
    if not settings.train_probs:
        return None
    by_name = dict(settings.train_probs)
    return np.array([by_name.get(image.name, 1.0) for image in images])


def _sizes(diameters: np.ndarray | None, unit: float | None) -> np.ndarray | None:
    """Diameters divided by a unit; None without a unit, or for a part without images."""
    if diameters is None or unit is None:
        return None
    return diameters / unit


def listed_by_cellpose(folder: Path) -> list[Path]:
    """List the images of a folder as Cellpose does, which knows fewer endings than the lab."""
    from cellpose.io import get_image_files

    try:
        # Its argument is a pattern, and a folder's name may hold brackets.
        return [Path(path) for path in get_image_files(glob.escape(str(folder)), "_masks")]
    except ValueError:  # where it finds none
        return []
