"""The ranks of a data parallel training, as the training loop of one of them sees the others."""

from __future__ import annotations

from typing import Any, Protocol

from cellrepro.model.gradient_sum import GradientSum


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
