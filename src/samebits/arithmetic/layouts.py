"""How PyTorch's own results lie in memory, so that ``view`` can be used as on them."""

from __future__ import annotations

import functools
from typing import Protocol

import torch
from torch._prims_common import suggest_memory_format
from torch.utils._pytree import tree_map

from samebits.arithmetic.operation_forms import Operation
from samebits.torch_internals import modes_suspended
from samebits.trace.observer import Invocation

_Strides = tuple[int, ...]
_Layouts = tuple[tuple[torch.Size, _Strides], ...]
_MOST_KEPT = 4096
_LAYOUTS: dict[tuple[object, ...], _Layouts] = {}
"""Shapes and strides of results, by operation and by the layout of what it was given."""


_CONTIGUOUS = frozenset(("addmm", "baddbmm", "bmm", "mm"))
"""Operations whose results are contiguous whatever they are given: most calls of a network."""
_BY_FORMAT = frozenset(("convolution", "_convolution", "max_unpool2d"))
"""Operations whose result has its channels last where one of the first two tensors has, and of
which PyTorch says otherwise where it has no numbers (torch 2.6 to 2.15)."""


def laid_out(operation: Operation, call: Invocation, result: object) -> object:
    """A result of an operation, with its numbers where those of PyTorch's own would be.

    Of contiguous tensors PyTorch's results are contiguous, as those of portable forms are.
    """
    if operation.name in _CONTIGUOUS:
        return result
    tensors = result if isinstance(result, tuple | list) else (result,)
    if not any(map(_is_laid_out_otherwise, (*call.args, *tensors))):
        return result
    if operation.name in _BY_FORMAT and isinstance(result, torch.Tensor):
        formats = map(suggest_memory_format, call.args[:2])
        last = [each for each in formats if each is not torch.contiguous_format]
        return result.contiguous(memory_format=last[0]) if last else result
    layouts = _layouts_of(call)
    if len(layouts) != len(tensors):
        return result
    moved = [
        tensor if tensor is None else _moved(tensor, *layout)
        for tensor, layout in zip(tensors, layouts, strict=True)
    ]
    return type(result)(moved) if isinstance(result, tuple | list) else moved[0]


def _is_laid_out_otherwise(argument: object) -> bool:
    return isinstance(argument, torch.Tensor) and not argument.is_contiguous()


def _moved(tensor: torch.Tensor, shape: torch.Size, strides: _Strides) -> torch.Tensor:
    if tensor.shape != shape or tensor.stride() == strides or tensor.numel() < 2:
        return tensor
    like = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)
    return like.copy_(tensor)


def _layouts_of(call: Invocation) -> _Layouts:
    """The layouts of PyTorch's results, from its operation without numbers."""
    arguments = (*call.args, *call.kwargs.values())
    key = (id(call.func), *call.kwargs, *map(_key_of, arguments))  # its own hash is slow
    known = _LAYOUTS.get(key)
    if known is None:
        if len(_LAYOUTS) >= _MOST_KEPT:
            _LAYOUTS.clear()
        known = _LAYOUTS[key] = _found_layouts(call)
    return known


def _key_of(argument: object) -> object:
    if isinstance(argument, torch.Tensor):
        return argument.shape, argument.stride(), argument.dtype
    if isinstance(argument, list | tuple):
        return tuple(map(_key_of, argument))
    return type(argument), argument


def _found_layouts(call: Invocation) -> _Layouts:
    """Nothing where PyTorch cannot tell without numbers."""
    try:
        with modes_suspended(), torch.no_grad():
            args, kwargs = tree_map(_without_numbers, (tuple(call.args), dict(call.kwargs)))
            found = call.func(*args, **kwargs)
    except Exception:  # shapes that follow from numbers, or operations that PyTorch has not written
        return ()
    tensors = found if isinstance(found, tuple | list) else (found,)
    return tuple(
        (each.shape, each.stride()) if isinstance(each, torch.Tensor) else (torch.Size(), ())
        for each in tensors
    )


def _without_numbers(leaf: object) -> object:
    if isinstance(leaf, torch.device):
        return torch.device("meta")
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")


class _Attention(Protocol):
    def __call__(
        self, query: torch.Tensor, *arguments: object, **settings: object
    ) -> torch.Tensor: ...


def attention_laid_out(attention: _Attention) -> _Attention:
    """``scaled_dot_product_attention`` whose result lies in memory as the query does.

    So do the results of PyTorch's attention in one operation, which takes no dropout on processors
    and has no gradient of the mask (torch 2.6 to 2.15).
    """

    @functools.wraps(attention)
    def attended(query: torch.Tensor, *arguments: object, **settings: object) -> torch.Tensor:
        result = attention(query, *arguments, **settings)
        mask, dropout = (*arguments[2:4], None, None)[:2]
        mask = settings.get("attn_mask", mask)
        is_single = not settings.get("dropout_p", dropout) and not getattr(
            mask, "requires_grad", False
        )
        if not is_single or result.dim() != 4 or query.stride(-1) != 1:
            return result
        order = sorted(range(4), key=query.stride, reverse=True)
        is_alike = result.shape == query.shape and order != [*range(4)]
        if not is_alike:
            return result
        return result.permute(order).contiguous().permute([order.index(axis) for axis in range(4)])

    return attended
