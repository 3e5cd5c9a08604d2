"""The crops of images that a training is shown: Cellpose's random ones, or the middle as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.spec.defaults import CROP_SIZE, SCALE_RANGE

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Crop:
    """How Cellpose's augmentation resizes, turns, flips and moves one image."""

    scale: float
    degrees: float
    """Degrees, from -180 to 180."""
    flipped: bool
    """Whether left and right change places."""
    y: float
    """Pixels by which the middle is moved, drawn within the height of the resized image. Cellpose
    hands them to torchvision as those along X (4.2.1.1), which shows in images that are not square.
    """
    x: float
    """Likewise within the width, handed on as those along Y."""


def augment(
    images: Sequence[np.ndarray],
    flows: Sequence[np.ndarray],
    device: torch.device | str = "cpu",
    *,
    sizes: np.ndarray | None = None,
    scale_range: float = SCALE_RANGE,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Crop, turn, flip and resize a batch through Cellpose, drawn anew at every call."""
    from cellpose.transforms import random_rotate_and_resize

    cropped, cropped_flows, *_scales = random_rotate_and_resize(
        images,
        lbls=flows,
        rescale=np.ones(len(images), "float32") if sizes is None else sizes,
        bsize=CROP_SIZE,
        scale_range=scale_range,
        device=device,
    )
    return cropped, cropped_flows


def upcoming_crops(
    images: Sequence[np.ndarray],
    *,
    sizes: np.ndarray | None = None,
    scale_range: float = SCALE_RANGE,
) -> list[Crop]:
    """Foresee the next crops of `augment`, from a copy of NumPy's global generator.

    Draws in the order of ``cellpose.transforms.random_rotate_and_resize`` of Cellpose 4.2.1.1.
    """
    generator = np.random.RandomState()
    generator.set_state(np.random.get_state())
    if sizes is None:
        sizes = np.ones(len(images))
    crops = []
    for image, size in zip(images, sizes, strict=True):
        scale = ((1 - scale_range / 2) + scale_range * generator.rand()) * (1.0 / size)
        degrees = 360 * generator.rand() - 180
        flipped = bool(generator.rand() > 0.5)
        height, width = image.shape[-2:]
        along_y, along_x = generator.rand(2)
        crops.append(
            Crop(
                scale=scale,
                degrees=degrees,
                flipped=flipped,
                y=float(max(0.0, height * scale - CROP_SIZE) * (along_y - 0.5)),
                x=float(max(0.0, width * scale - CROP_SIZE) * (along_x - 0.5)),
            )
        )
    return crops


def pass_over_crop() -> None:
    """Move NumPy's global generator as `augment` moves it for one image.

    Five draws: scale, angle, flip, and the position along Y and X.
    """
    np.random.rand(5)


def middle_crops(arrays: Sequence[np.ndarray], device: torch.device | str) -> torch.Tensor:
    """Take the middle of each array, as it is; a smaller one is padded with zeros."""
    import torch

    n_channels = len(arrays[0])
    crops = np.zeros((len(arrays), n_channels, CROP_SIZE, CROP_SIZE), np.float32)
    for crop, array in zip(crops, arrays, strict=True):
        height, width = array.shape[-2:]
        crop[:, _middle(CROP_SIZE, height), _middle(CROP_SIZE, width)] = array[
            :, _middle(height, CROP_SIZE), _middle(width, CROP_SIZE)
        ]
    return torch.from_numpy(crops).to(device)


def _middle(length: int, other: int) -> slice:
    """The middle of an axis of one length that fits into another length."""
    n_shared = min(length, other)
    begin = (length - n_shared) // 2
    return slice(begin, begin + n_shared)
