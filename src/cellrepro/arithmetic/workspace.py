"""Memory that is used again and again: on some systems new memory costs more than arithmetic."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import torch

_MOST_KEPT = 2**23
"""Numbers of one buffer that is kept; a larger one is given back."""


class Workspace(threading.local):
    """Buffers of a thread by their role; what a role held is gone when it is taken again."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.dtype], torch.Tensor] = {}

    def take(
        self, shape: Sequence[int], role: str, *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """A tensor whose numbers are what was left in it.

        Parameters
        ----------
        shape : sequence of int
            Its shape; it is contiguous.
        role : str
            Only tensors of other roles are left untouched.
        dtype : torch.dtype
            Of its numbers.
        device : torch.device
            Only on the processor are buffers kept: GPUs have a cache of their own.
        """
        n_numbers = math.prod(shape)
        if device.type != "cpu" or n_numbers > _MOST_KEPT:
            return torch.empty(tuple(shape), dtype=dtype, device=device)
        key = (role, dtype)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.numel() < n_numbers:
            buffer = torch.empty(n_numbers, dtype=dtype)
            self._buffers[key] = buffer
        return buffer[:n_numbers].view(tuple(shape))

    def like(self, tensor: torch.Tensor, role: str, *, dtype: torch.dtype) -> torch.Tensor:
        """A tensor of the shape of another, and contiguous where that one is dense.

        Parameters
        ----------
        tensor : torch.Tensor
            Gives shape, device, and the order of the last two axes in memory.
        role, dtype
            As for `take`.
        """
        is_transposed = tensor.dim() >= 2 and tensor.stride(-2) == 1 and tensor.stride(-1) != 1
        if is_transposed:
            swapped = tensor.transpose(-1, -2)
            return self.take(swapped.shape, role, dtype=dtype, device=tensor.device).transpose(
                -1, -2
            )
        return self.take(tensor.shape, role, dtype=dtype, device=tensor.device)


workspace = Workspace()
"""The one of this process, with buffers for each thread."""
