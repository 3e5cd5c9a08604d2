"""Memory in use: long tensors taken block by block, and buffers that are used again."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

_BLOCK = 2**17
"""Numbers in a block on a processor: 0.5 MB of float32, and more than PyTorch gives one thread."""
_BLOCK_OF_GPU = 2**26
"""Numbers in a block elsewhere, where only memory limits it."""
IN_DOUBLE = 4
"""``item_size`` of functions that compute in float64, so that their many intermediate results fit
the cache and are taken from memory that was used before."""


_MOST_FOR_NUMPY = 2**16
"""Numbers up to which calls cost more than arithmetic: a call of NumPy costs a third of one of
PyTorch, which shares longer tensors among threads."""
_OF_NUMPY = (torch.float32, torch.float64)


def as_array(tensor: torch.Tensor, *, of_any_size: bool = False) -> NDArray[Any] | None:
    """The memory of a tensor as an array, where NumPy computes with it faster than PyTorch."""
    is_small = of_any_size or tensor.numel() <= _MOST_FOR_NUMPY
    if not is_small or tensor.device.type != "cpu" or tensor.dtype not in _OF_NUMPY:
        return None
    array: NDArray[Any] = tensor.numpy(force=True)
    return array


Block = TypeVar("Block", torch.Tensor, NDArray[Any])
"""Numbers of one block, as a tensor of PyTorch or an array of NumPy."""
_OF_EITHER: set[Callable[..., Any]] = set()
_Function = TypeVar("_Function", bound=Callable[..., Any])

_MOST_OF_A_FUNCTION = 2**14
"""The same of a function made of some twenty operations, whose intermediate results PyTorch takes
from memory that was used before."""


def of_either(function: _Function) -> _Function:
    """Let `mapped` give small blocks of float32 to a function as arrays: it is written with
    operators and what `samebits.arithmetic.kernels.blocks` has, which take both."""
    _OF_EITHER.add(function)
    return function


def arrays_of(first: torch.Tensor, *others: torch.Tensor | None) -> list[Any] | None:
    """The memory of tensors as arrays where the first one is small and has numbers; None stands for
    a tensor that is not there."""
    array = as_array(first)
    if array is None or array.size == 0:
        return None
    return [array, *(None if each is None else each.numpy(force=True) for each in others)]


def slices(n_items: int, *, item_size: int, device: torch.device) -> Iterator[slice]:
    """Slices that cut items into blocks small enough for the cache, of one item or more."""
    block = _BLOCK if device.type == "cpu" else _BLOCK_OF_GPU
    n_together = max(1, block // max(1, item_size))
    for begin in range(0, n_items, n_together):
        yield slice(begin, min(n_items, begin + n_together))


def mapped(
    function: Callable[..., torch.Tensor],
    *tensors: torch.Tensor,
    dtype: torch.dtype | None = None,
    item_size: int = 1,
) -> torch.Tensor:
    """Apply a function that works number by number to tensors of one shape, block by block.

    A function that needs much memory for each number says how many times more by ``item_size``. The
    result lies in memory as the first tensor does, or contiguous where there are gaps.
    """
    first = tensors[0]
    is_one_block = 0 < first.numel() * item_size <= _BLOCK and first.dim() > 0
    if is_one_block and dtype is None and all(each.is_contiguous() for each in tensors):
        if function not in _OF_EITHER or first.numel() > _MOST_OF_A_FUNCTION:
            return function(*tensors)
        if any(each.dtype != torch.float32 or each.device.type != "cpu" for each in tensors):
            return function(*tensors)
        arrays = (tensor.numpy(force=True) for tensor in tensors)
        with np.errstate(all="ignore"):
            return torch.from_numpy(function(*arrays))
    result = torch.empty_like(first, dtype=dtype)
    if not _is_dense_alike(result, tensors):
        tensors = tuple(tensor.contiguous() for tensor in tensors)
        result = torch.empty(first.shape, dtype=result.dtype, device=first.device)
    flat = [_flat(tensor) for tensor in tensors]
    flat_result = _flat(result)
    for part in slices(first.numel(), item_size=item_size, device=first.device):
        flat_result[part] = function(*(tensor[part] for tensor in flat))
    return result


def _is_dense_alike(result: torch.Tensor, tensors: tuple[torch.Tensor, ...]) -> bool:
    """Whether all lie in memory in the same order, without gaps."""
    return all(tensor.stride() == result.stride() for tensor in tensors)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """All numbers in the order in which they lie in memory, without a copy."""
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


_MOST_KEPT = 2**23
"""Numbers of one buffer that is kept; a larger one is given back."""

_FEWEST_KEPT = 2**13


class Workspace(threading.local):
    """Buffers of a thread by their role; what a role held is gone when it is taken again.

    On some systems new memory costs more than the arithmetic.
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.dtype], torch.Tensor] = {}
        self._arrays: dict[tuple[str, type], NDArray[Any]] = {}

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

    def array(self, shape: Sequence[int], role: str, dtype: type) -> NDArray[Any]:
        """The same for NumPy, whose small arrays cost nothing."""
        n_numbers = math.prod(shape)
        if n_numbers <= _FEWEST_KEPT:
            return np.empty(shape, dtype)
        buffer = self._arrays.get((role, dtype))
        if buffer is None or buffer.size < n_numbers:
            buffer = self._arrays[role, dtype] = np.empty(n_numbers, dtype)
        return buffer[:n_numbers].reshape(shape)

    def array_like(self, array: NDArray[Any], role: str, dtype: type) -> NDArray[Any]:
        """An array of the shape of another, and contiguous where that one is dense."""
        if array.size <= _FEWEST_KEPT:
            return np.empty_like(array, dtype)
        if array.strides[-1] > array.strides[-2]:
            return self.array(array.swapaxes(-1, -2).shape, role, dtype).swapaxes(-1, -2)
        return self.array(array.shape, role, dtype)

    def like(self, tensor: torch.Tensor, role: str, *, dtype: torch.dtype) -> torch.Tensor:
        """A tensor of the shape of another, and contiguous where that one is dense."""
        return self.laid_out(tensor, tensor.shape, role, dtype=dtype)

    def laid_out(
        self, tensor: torch.Tensor, shape: Sequence[int], role: str, *, dtype: torch.dtype
    ) -> torch.Tensor:
        """A tensor of some shape whose last two axes lie in memory as those of another."""
        is_transposed = tensor.dim() >= 2 and tensor.stride(-2) == 1 and tensor.stride(-1) != 1
        if is_transposed:
            swapped = (*shape[:-2], shape[-1], shape[-2])
            return self.take(swapped, role, dtype=dtype, device=tensor.device).transpose(-1, -2)
        return self.take(shape, role, dtype=dtype, device=tensor.device)


workspace = Workspace()
"""The one of this process, with buffers for each thread."""
