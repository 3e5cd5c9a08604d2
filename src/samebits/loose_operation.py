"""One operation for which determinism is turned off, so that its effect alone can be seen."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from samebits.known_operations import base_name


class LooseOperation(TorchDispatchMode):
    """Turns determinism off for one operation's calls in a ``with`` block, in the backward too."""

    # Operations that take functions, such as flex attention, come here too (torch 2.7).
    supports_higher_order_operators = True

    def __init__(self, op: str) -> None:
        super().__init__()
        self.n_calls = 0
        self._name = base_name(op)

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        if base_name(str(func)) != self._name:
            return func(*args, **(kwargs or {}))
        self.n_calls += 1
        mode_before = torch.get_deterministic_debug_mode()
        cudnn_before = torch.backends.cudnn.deterministic
        try:
            torch.set_deterministic_debug_mode("default")
            torch.backends.cudnn.deterministic = False
            return func(*args, **(kwargs or {}))
        finally:
            torch.set_deterministic_debug_mode(mode_before)
            torch.backends.cudnn.deterministic = cudnn_before
