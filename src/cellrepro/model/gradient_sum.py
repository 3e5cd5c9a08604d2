"""Gradients of single images, added in the order of the images, whichever rank computed them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from cellrepro.model.encoders import CellposeNetwork


class GradientSum:
    """The sum of a batch's gradients, in an order of additions that no number of ranks changes."""

    def __init__(self, network: CellposeNetwork) -> None:
        self.parameters: list[torch.nn.Parameter] = list(network.parameters())
        self._sums: dict[int, torch.Tensor] = {}

    def taken(self) -> list[torch.Tensor | None]:
        """Take the gradients out of the network; None for a parameter without one."""
        gradients = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        return gradients

    def add(
        self, gradients: Sequence[torch.Tensor | None], *, which: Iterable[int] | None = None
    ) -> None:
        """Add the gradients of one image: of all parameters, or of those at some indices."""
        indices = range(len(self.parameters)) if which is None else which
        for index, gradient in zip(indices, gradients, strict=True):
            if gradient is None:
                continue
            if index in self._sums:
                self._sums[index] += gradient
            else:
                self._sums[index] = gradient

    def leave_mean(self, n_images: int) -> None:
        """Store the mean over ``n_images`` as the network's gradients."""
        for index, total in self._sums.items():
            self.parameters[index].grad = total.div_(total.new_full((1,) * total.dim(), n_images))
