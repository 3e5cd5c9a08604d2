"""Operations on lists of tensors, which optimizers of PyTorch use on GPUs, tensor by tensor."""

from __future__ import annotations

import torch

PREFIX = "_foreach_"
"""With which the names of these operations begin (torch 2.6 to 2.15)."""

_OTHER_NAMES = {"norm": "linalg_vector_norm", "max": "amax"}
_WITH_VALUE = ("addcdiv", "addcmul")
"""Whose last argument is by name in the operation on one tensor."""


def each_by_itself(
    func: object, args: tuple[object, ...], kwargs: dict[str, object]
) -> list[torch.Tensor] | None:
    """Carry out an operation on lists of tensors as one operation for each tensor.

    None from one that writes into the tensors it is given.
    """
    name = str(func).split(".")[1].removeprefix(PREFIX)
    is_in_place = name.endswith("_")
    base = name.rstrip("_")
    operation = getattr(torch.ops.aten, _OTHER_NAMES.get(base, base) + "_" * is_in_place)
    n_tensors = max(len(argument) for argument in args if isinstance(argument, list | tuple))
    results = []
    for index in range(n_tensors):
        own = [_own(argument, index) for argument in args]
        named = {key: _own(argument, index) for key, argument in kwargs.items()}
        if base in _WITH_VALUE and len(own) > 3:
            value = own.pop()
            named["value"] = value.item() if isinstance(value, torch.Tensor) else value
        results.append(operation(*own, **named))
    return None if is_in_place else results


def _own(argument: object, index: int) -> object:
    """What of an argument belongs to one tensor."""
    return argument[index] if isinstance(argument, list | tuple) else argument
