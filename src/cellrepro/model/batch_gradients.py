"""The gradients of one batch: of all its images at once, shared by ranks, or image by image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cellrepro.model.gradient_sum import GradientSum
from cellrepro.model.prepared_images import CellposeImages, PreparedImages
from cellrepro.model.training_batches import Batch, Cropping, Shown

if TYPE_CHECKING:
    import torch

    from cellrepro.model.augmentation import Crop
    from cellrepro.model.encoders import CellposeNetwork
    from cellrepro.model.watches import Watch


class Team(Protocol):
    """The ranks of a data parallel training, as seen by one of them."""

    rank: int
    n_ranks: int
    generators: list[dict[str, Any]]

    def share(self, network: Any, loss: float, n_images: int) -> tuple[float, int]:
        """Turn this rank's gradients into those of the batch; gives the batch's loss and size."""

    def add(self, gradients: GradientSum, loss: float | None) -> list[float]:
        """Add each rank's gradients of one image, in the order of the ranks.

        A rank without an image gives None as its loss; the losses of the others are returned.
        """

    def compare(self, network: Any) -> None:
        """After an epoch: raise unless all ranks have the same weights."""


@dataclass(frozen=True)
class BatchLoss:
    """The mean loss of a batch."""

    mean: torch.Tensor | float
    """A number where ranks share the batch."""
    n_images: int

    def as_number(self) -> float:
        """Read the loss, which synchronises with a GPU: best after the update."""
        return self.mean if isinstance(self.mean, float) else self.mean.item()


@dataclass(frozen=True)
class BatchGradients:
    """Computes gradients, which stay in the network."""

    network: CellposeNetwork
    images: CellposeImages
    cropping: Cropping
    watch: Watch
    team: Team | None
    """The ranks that share each batch; None where this process computes alone."""
    image_by_image: bool
    """Whether gradients are added in the order of the images, as mode ``portable`` does."""

    def compute(self, batch: np.ndarray) -> BatchLoss:
        """Compute the gradients of a batch, whose images are given by their indices."""
        if self.image_by_image:
            return self._added_image_by_image(batch)
        if self.team is None:
            loss = self.loss(batch, self.images.train, is_watched=True)
            loss.backward()
            return BatchLoss(loss, len(batch))
        return self._shared(self.team, batch)

    def loss(
        self, indices: np.ndarray, part: PreparedImages, *, is_watched: bool = False
    ) -> torch.Tensor:
        """Compute the mean loss of some images; the watch is told of those trained on."""
        images = Batch.of(indices, part)
        crops = self.cropping.upcoming(images) if is_watched else []
        shown = self.cropping.shown(images)
        if is_watched:
            self._tell_of_batch(indices, crops, shown)
        output = self.network(shown.inputs)[0]
        loss = self._loss_of(shown, output)
        if is_watched:
            self.watch.forward(output)
            self.watch.loss(loss)
        return loss

    def _shared(self, team: Team, batch: np.ndarray) -> BatchLoss:
        """Compute this rank's share of the gradients, and average those of all ranks."""
        own = batch[team.rank :: team.n_ranks]
        own_loss = 0.0
        if len(own) > 0:  # a rank may have no image of a small last batch
            loss = self.loss(own, self.images.train, is_watched=True)
            loss.backward()
            own_loss = loss.item()
        mean, n_images = team.share(self.network, own_loss, len(own))
        return BatchLoss(mean, n_images)

    def _added_image_by_image(self, batch: np.ndarray) -> BatchLoss:
        """Compute the gradients of each image, and add them in the order of the images."""
        shown = self._shown_to_this_rank(batch)
        gradients = GradientSum(self.network)
        losses: list[float] = []
        outputs: list[torch.Tensor] = []
        n_ranks = 1 if self.team is None else self.team.n_ranks
        for first in range(0, len(shown), n_ranks):
            own_loss = None
            for image in shown[first : first + n_ranks]:
                if image is None:
                    self._pass_over_dropping()
                    continue
                output = self.network(image.inputs)[0]
                loss = self._loss_of(image, output)
                loss.backward()
                own_loss = loss.item()
                outputs.append(output.detach())
            if self.team is not None:
                losses += self.team.add(gradients, own_loss)
            elif own_loss is not None:
                losses.append(own_loss)
                gradients.add(gradients.taken())
        gradients.leave_mean(len(batch))
        mean_loss = sum(losses) / len(batch)
        self._tell_of_outputs(outputs, mean_loss)
        return BatchLoss(mean_loss, len(batch))

    def _shown_to_this_rank(self, batch: np.ndarray) -> list[Shown | None]:
        """Augment this rank's images of a batch, and tell the watch of them."""
        images = Batch.of(batch, self.images.train)
        crops = self.cropping.upcoming(images)
        rank, n_ranks = (0, 1) if self.team is None else (self.team.rank, self.team.n_ranks)
        shown = self.cropping.shown_of_rank(images, rank, n_ranks)
        own = [image for image in shown if image is not None]
        if own:
            self._tell_of_batch(batch[rank::n_ranks], crops[rank::n_ranks], Shown.joined(own))
        return shown

    def _pass_over_dropping(self) -> None:
        """Draw for dropped layers what another rank draws for its image.

        ``CPSAM.forward`` of Cellpose 4.2.1.1 draws a number for each layer.
        """
        import torch

        if self.network.rdrop > 0:
            torch.rand((1, len(self.network.encoder.blocks)), device=self.network.device)

    def _loss_of(self, shown: Shown, output: torch.Tensor) -> torch.Tensor:
        from cellpose.train import _loss_fn_seg

        return _loss_fn_seg(shown.targets, output, self.network.device)

    def _tell_of_batch(self, indices: np.ndarray, crops: Sequence[Crop], shown: Shown) -> None:
        names = [self.images.names[index] for index in indices]
        cropped = [asdict(crop) for crop in crops]
        self.watch.batch(names, cropped, shown.inputs, shown.targets)

    def _tell_of_outputs(self, outputs: list[torch.Tensor], mean_loss: float) -> None:
        import torch

        if outputs:
            self.watch.forward(torch.cat(outputs))
        self.watch.loss(torch.tensor(mean_loss, dtype=torch.float64))
