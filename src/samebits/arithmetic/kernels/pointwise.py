"""Operations that PyTorch fuses, taken apart: a factor and a sum, a quotient by a number."""

from __future__ import annotations

from typing import Any

import torch

from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms

FORMS = PortableForms()


@FORMS.of("add")
def _add(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return a + (b if alpha == 1 else b * alpha)


@FORMS.of("sub")
def _sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    return a - (b if alpha == 1 else b * alpha)


@FORMS.of("rsub")
def _rsub(a: Any, b: Any, alpha: Any = 1) -> Any:
    return b - (a if alpha == 1 else a * alpha)


@FORMS.of("div")
def _div(a: Any, b: Any, *, rounding_mode: str | None = None) -> torch.Tensor:
    if rounding_mode is not None and not torch.result_type(a, b).is_floating_point:
        return torch.div(a, b, rounding_mode=rounding_mode)  # of whole numbers
    if rounding_mode == "floor" and torch.result_type(a, b).is_floating_point:
        raise NoPortableForm("has a portable form for rounding_mode='trunc', and got 'floor'")
    if not isinstance(b, torch.Tensor) or b.dim() == 0:
        # CUDA multiplies by the reciprocal of a single number
        dtype = torch.result_type(a, b)
        if not dtype.is_floating_point:
            dtype = torch.get_default_dtype()
        number = b.item() if isinstance(b, torch.Tensor) else b
        b = torch.full_like(a, number, dtype=dtype)
    return torch.div(a, b, rounding_mode=rounding_mode)


@FORMS.of("reciprocal")
def _reciprocal(a: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(a) / a


@FORMS.of("addcmul")
def _addcmul(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *, value: Any = 1) -> torch.Tensor:
    return a + (b * c if value == 1 else (b * value) * c)


@FORMS.of("addcdiv")
def _addcdiv(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *, value: Any = 1) -> torch.Tensor:
    return a + (b / c if value == 1 else (b * value) / c)


@FORMS.of("lerp")
def between(a: torch.Tensor, b: torch.Tensor, weight: Any) -> torch.Tensor:
    """A part of the way from one tensor to another: ``lerp``."""
    return a + (b - a) * weight
