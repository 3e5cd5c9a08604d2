"""The registry in which functions become portable forms of operations, and their refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

PortableForm: TypeAlias = Callable[..., Any]
"""Has the parameters of the ATen operation whose form it is."""


class NoPortableForm(Exception):
    """An operation was asked for something that has no portable form; its text says what."""


IN_ANY_TYPE: set[str] = set()
"""Names of the forms that are made for float16 and bfloat16, too; of the others these are refused
before."""

IN_PLACE: set[str] = set()
"""Names, with the ``_`` behind them, of operations that write in place and whose arguments are not
those of the operation without it."""


class PortableForms(dict[str, PortableForm]):
    """Forms by the name of the operation, without overload and the ``_`` of writing in place."""

    def of(self, *names: str, in_any_type: bool = False) -> Callable[[PortableForm], PortableForm]:
        """Register the function below as the form of operations."""
        if in_any_type:
            IN_ANY_TYPE.update(names)
        IN_PLACE.update(name for name in names if name.endswith("_"))

        def register(form: PortableForm) -> PortableForm:
            for name in names:
                self[name] = form
            return form

        return register


_PRECISE = (torch.float32, torch.float64)


def check_type(*tensors: torch.Tensor | None) -> None:
    """Refuse other numbers than those of float32 and float64, and one type beside the other; None
    stands for a tensor that is not there."""
    first: torch.dtype | None = None
    for tensor in tensors:
        if tensor is None:
            continue
        if tensor.dtype not in _PRECISE:
            raise NoPortableForm(
                f"has a portable form for float32 and float64, and got {tensor.dtype}"
            )
        if first is None:
            first = tensor.dtype
        elif tensor.dtype != first:
            raise NoPortableForm(
                f"has a portable form for one type of numbers, and got {first} beside "
                f"{tensor.dtype}"
            )


def is_double(numbers: torch.Tensor) -> bool:
    """Whether numbers are those of float64, and not of float32; others are refused."""
    check_type(numbers)
    return numbers.dtype == torch.float64
