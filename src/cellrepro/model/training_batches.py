"""The batches of a training: images fetched as Cellpose does, augmented, and cut to crops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.model.augmentation import Crop, augment, middle_crops, pass_over_crop, upcoming_crops
from cellrepro.model.prepared_images import PreparedImages
from cellrepro.spec.training_fields import Hyperparameters

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Batch:
    """Some prepared images, before they are augmented."""

    pixels: list[np.ndarray]
    flows: list[np.ndarray]
    sizes: np.ndarray | None
    """Divisor by which augmentation first scales each image."""

    @classmethod
    def of(cls, indices: np.ndarray, part: PreparedImages) -> Batch:
        """Fetch images of one part of a data set."""
        from cellpose.train import _get_batch

        pixels, flows = _get_batch(indices, data=part.images, labels=part.flows)
        return cls(pixels, flows, None if part.sizes is None else part.sizes[indices])

    def __len__(self) -> int:
        return len(self.pixels)

    def only(self, position: int) -> Batch:
        """The batch of one of its images."""
        part = slice(position, position + 1)
        sizes = None if self.sizes is None else self.sizes[part]
        return Batch(self.pixels[part], self.flows[part], sizes)


@dataclass(frozen=True)
class Shown:
    """The crops of some images that the network is shown."""

    inputs: torch.Tensor
    """Pixels."""
    targets: torch.Tensor
    """Flows."""

    @classmethod
    def joined(cls, images: Sequence[Shown]) -> Shown:
        """Concatenate several."""
        import torch

        inputs = torch.cat([image.inputs for image in images])
        return cls(inputs, torch.cat([image.targets for image in images]))


@dataclass(frozen=True)
class Cropping:
    """The crops that a training shows of its images, augmented or their middle."""

    settings: Hyperparameters
    device: torch.device

    def upcoming(self, batch: Batch) -> list[Crop]:
        """The crops that `shown` is about to draw; none without augmentation."""
        if not self.settings.augmentation:
            return []
        scale_range = self.settings.scale_range
        return upcoming_crops(batch.pixels, sizes=batch.sizes, scale_range=scale_range)

    def shown(self, batch: Batch) -> Shown:
        """Augment the images of a batch, or take their middle."""
        if not self.settings.augmentation:
            inputs = middle_crops(batch.pixels, self.device)
            return Shown(inputs, middle_crops(batch.flows, self.device))
        inputs, targets = augment(
            batch.pixels,
            batch.flows,
            self.device,
            sizes=batch.sizes,
            scale_range=self.settings.scale_range,
        )
        return Shown(inputs, targets)

    def shown_of_rank(self, batch: Batch, rank: int, n_ranks: int) -> list[Shown | None]:
        """Augment one rank's images of a batch; None stands for another rank's.

        The crops of those are drawn, too, so that every rank's generator has the state that it
        would have in one process.
        """
        shown: list[Shown | None] = []
        for position in range(len(batch)):
            if position % n_ranks == rank:
                shown.append(self.shown(batch.only(position)))
                continue
            shown.append(None)
            if self.settings.augmentation:
                pass_over_crop()
        return shown
