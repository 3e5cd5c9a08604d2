"""Long tensors, taken block by block, so that a sequence of operations stays in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

_BLOCK = 2**17
"""Numbers in a block on a processor: 0.5 MB of float32, and more than PyTorch gives one thread."""
_BLOCK_OF_GPU = 2**26
"""Numbers in a block elsewhere, where only memory limits it."""


def slices(n_items: int, *, item_size: int, device: torch.device) -> Iterator[slice]:
    """Cut a number of items into blocks.

    Of the items, in order; at least one item each.
    """
    block = _BLOCK if device.type == "cpu" else _BLOCK_OF_GPU
    n_together = max(1, block // max(1, item_size))
    for begin in range(0, n_items, n_together):
        yield slice(begin, min(n_items, begin + n_together))


def mapped(
    function: Callable[..., torch.Tensor], *tensors: torch.Tensor, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Apply a function that works number by number to tensors, block by block.

    With the shape of the tensors; contiguous unless the first tensor is laid out otherwise.
    """
    first = tensors[0]
    result = torch.empty_like(first, dtype=dtype)
    if not _is_dense_alike(result, tensors):
        tensors = tuple(tensor.contiguous() for tensor in tensors)
        result = torch.empty(first.shape, dtype=result.dtype, device=first.device)
    flat = [_flat(tensor) for tensor in tensors]
    flat_result = _flat(result)
    for part in slices(first.numel(), item_size=1, device=first.device):
        flat_result[part] = function(*(tensor[part] for tensor in flat))
    return result


def _is_dense_alike(result: torch.Tensor, tensors: tuple[torch.Tensor, ...]) -> bool:
    """Whether all lie in memory in the same order, without gaps."""
    return all(tensor.stride() == result.stride() for tensor in tensors)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """All numbers in the order in which they lie in memory, without a copy."""
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())
