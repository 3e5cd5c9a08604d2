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
        """A tensor whose numbers are what was left in it."""
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
        """A tensor of the shape of another, and contiguous where that one is dense."""
        is_transposed = tensor.dim() >= 2 and tensor.stride(-2) == 1 and tensor.stride(-1) != 1
        if is_transposed:
            swapped = tensor.transpose(-1, -2)
            return self.take(swapped.shape, role, dtype=dtype, device=tensor.device).transpose(
                -1, -2
            )
        return self.take(tensor.shape, role, dtype=dtype, device=tensor.device)


workspace = Workspace()
"""The one of this process, with buffers for each thread."""
