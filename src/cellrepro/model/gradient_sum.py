"""Gradients of single images, added in the order of the images, whoever computed them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from cellrepro.model.encoders import CellposeNetwork


class GradientSum:
    """The sum of gradients of a batch, to which images are added one by one.

    The order of additions follows from the order of the images alone, and not from their number
    at a time, nor from who computed them.
    """

    def __init__(self, network: CellposeNetwork) -> None:
        self.parameters: list[torch.nn.Parameter] = list(network.parameters())
        self._sums: dict[int, torch.Tensor] = {}

    def taken(self) -> list[torch.Tensor | None]:
        """Take the gradients out of the network; none of a parameter that has none."""
        gradients = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        return gradients

    def add(
        self, gradients: Sequence[torch.Tensor | None], *, which: Iterable[int] | None = None
    ) -> None:
        """Add gradients of one image."""
        indices = range(len(self.parameters)) if which is None else which
        for index, gradient in zip(indices, gradients, strict=True):
            if gradient is None:
                continue
            if index in self._sums:
                self._sums[index] += gradient
            else:
                self._sums[index] = gradient

    def leave_mean(self, n_images: int) -> None:
        """Leave the mean over so many images in the network."""
        for index, total in self._sums.items():
            self.parameters[index].grad = total.div_(total.new_full((1,) * total.dim(), n_images))
