"""One operation left as it is while everything else is held fixed.

What an operation does to the cells shows when it alone is loose: in mode ``strict`` with its
substitute left out (`cellrepro.determinism.substitutes.applied`) and PyTorch's deterministic switch
off for its calls.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cellrepro.determinism.known_operations import base_name
from cellrepro.errors import BadInput


class Loose(TorchDispatchMode):
    """Turn determinism off for the calls of some operations, inside a ``with`` block.

    Their calls in the backward pass count, and all else stays as the mode in force has it.

    Parameters
    ----------
    operations : collection of str
        In any form: ``index_put``, ``aten.index_put.default``.

    Attributes
    ----------
    n_calls : int
        How many calls were left loose; 0 means that the block proved nothing about them.

    Raises
    ------
    BadInput
        If ``operations`` is a single text, is empty, or names no operation.

    Examples
    --------
    >>> with Loose(["index_put"]) as loose:
    ...     _ = torch.zeros(2).index_put((torch.tensor([0]),), torch.ones(1), accumulate=True)
    >>> loose.n_calls
    1
    """

    # Operations that take functions, such as flex attention, come here too (torch 2.7).
    supports_higher_order_operators = True

    def __init__(self, operations: Collection[str]) -> None:
        super().__init__()
        if isinstance(operations, str) or not operations:
            raise BadInput(
                f"operations is {operations!r}; expected a collection of names, such as "
                '["index_put"]'
            )
        self._names = {base_name(operation) for operation in operations}
        self._loose: dict[Any, bool] = {}
        self.n_calls = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """PyTorch's entry: one operation."""
        loose = self._loose.get(func)
        if loose is None:
            loose = self._loose[func] = base_name(str(func)) in self._names
        if not loose:
            return func(*args, **(kwargs or {}))
        self.n_calls += 1
        mode, cudnn = torch.get_deterministic_debug_mode(), torch.backends.cudnn.deterministic
        try:
            torch.set_deterministic_debug_mode("default")
            torch.backends.cudnn.deterministic = False
            return func(*args, **(kwargs or {}))
        finally:
            torch.set_deterministic_debug_mode(mode)
            torch.backends.cudnn.deterministic = cudnn
