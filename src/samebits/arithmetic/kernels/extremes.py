"""Largest and smallest numbers, among which +0 and -0 are one: where both are there, instruction
sets take one or the other, so a zero is always +0 here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from samebits.arithmetic.kernels.indexing import scattered_sum
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms

FORMS = PortableForms()


def _positive_zeros(result: torch.Tensor) -> torch.Tensor:
    """-0 + 0 is +0, and no other number changes; whole numbers have one zero."""
    return result.add_(0.0) if result.is_floating_point() else result


# -- of two tensors ------------------------------------------------------------------------


@FORMS.of("maximum", in_any_type=True)
def _maximum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _positive_zeros(torch.maximum(a, b))


@FORMS.of("minimum", in_any_type=True)
def _minimum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _positive_zeros(torch.minimum(a, b))


@FORMS.of("fmax", in_any_type=True)
def _fmax(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _positive_zeros(torch.fmax(a, b))


@FORMS.of("fmin", in_any_type=True)
def _fmin(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _positive_zeros(torch.fmin(a, b))


# -- between bounds ------------------------------------------------------------------------


@FORMS.of("clamp", in_any_type=True)
def _clamp(a: torch.Tensor, min: Any = None, max: Any = None) -> torch.Tensor:
    result = torch.clamp(a, min, max)
    return _positive_zeros(result) if _may_be_zero(min, max) else result


@FORMS.of("clamp_min", in_any_type=True)
def _clamp_min(a: torch.Tensor, min: Any) -> torch.Tensor:
    return _clamp(a, min)


@FORMS.of("clamp_max", in_any_type=True)
def _clamp_max(a: torch.Tensor, max: Any) -> torch.Tensor:
    return _clamp(a, None, max)


@FORMS.of("hardtanh", in_any_type=True)
def _hardtanh(a: torch.Tensor, min_val: float = -1.0, max_val: float = 1.0) -> torch.Tensor:
    result = torch.ops.aten.hardtanh.default(a, min_val, max_val)
    return _positive_zeros(result) if _may_be_zero(min_val, max_val) else result


@FORMS.of("relu6", in_any_type=True)
def _relu6(a: torch.Tensor) -> torch.Tensor:
    return _hardtanh(a, 0.0, 6.0)


@FORMS.of("relu", in_any_type=True)
def _relu(a: torch.Tensor) -> torch.Tensor:
    """A threshold, which compares, and takes +0 for -0; NaN stays."""
    return torch.threshold(a, 0, 0)


def _may_be_zero(*bounds: Any) -> bool:
    """Whether a number may be a zero of two signs: its own and that of a bound."""
    return any(isinstance(bound, torch.Tensor) or bound == 0 for bound in bounds)


# -- along axes ----------------------------------------------------------------------------


@FORMS.of("amax", in_any_type=True)
def _amax(a: torch.Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> torch.Tensor:
    return _positive_zeros(torch.amax(a, tuple(dim), keepdim))


@FORMS.of("amin", in_any_type=True)
def _amin(a: torch.Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> torch.Tensor:
    return _positive_zeros(torch.amin(a, tuple(dim), keepdim))


@FORMS.of("aminmax", in_any_type=True)
def _aminmax(
    a: torch.Tensor, *, dim: int | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    least, most = torch.aminmax(a, dim=dim, keepdim=keepdim)
    return _positive_zeros(least), _positive_zeros(most)


@FORMS.of("max", in_any_type=True)
def _max(a: torch.Tensor, *arguments: Any) -> Any:
    return _of_places(torch.max(a, *arguments))


@FORMS.of("min", in_any_type=True)
def _min(a: torch.Tensor, *arguments: Any) -> Any:
    return _of_places(torch.min(a, *arguments))


@FORMS.of("cummax", in_any_type=True)
def _cummax(a: torch.Tensor, dim: int) -> Any:
    return _of_places(torch.cummax(a, dim))


@FORMS.of("cummin", in_any_type=True)
def _cummin(a: torch.Tensor, dim: int) -> Any:
    return _of_places(torch.cummin(a, dim))


def _of_places(result: Any) -> Any:
    """A number alone, or numbers and the places where they stand."""
    if isinstance(result, torch.Tensor):
        return _positive_zeros(result)
    values, places = result
    return _positive_zeros(values), places


@FORMS.of("_unique2", in_any_type=True)
def _unique(
    a: torch.Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[torch.Tensor, ...]:
    values, *places = torch.ops.aten._unique2.default(a, sorted, return_inverse, return_counts)
    return (_positive_zeros(values), *places)


@FORMS.of("_unique", in_any_type=True)
def _old_unique(
    a: torch.Tensor, sorted: bool = True, return_inverse: bool = False
) -> tuple[torch.Tensor, ...]:
    values, places = torch.ops.aten._unique.default(a, sorted, return_inverse)
    return _positive_zeros(values), places


@FORMS.of("unique_dim", in_any_type=True)
def _unique_rows(
    a: torch.Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[torch.Tensor, ...]:
    values, *places = torch.ops.aten.unique_dim.default(
        a, dim, sorted, return_inverse, return_counts
    )
    return (_positive_zeros(values), *places)


@FORMS.of("scatter_reduce", in_any_type=True)
def _scatter_reduce(
    a: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> torch.Tensor:
    if reduce in ("sum", "mean"):
        return scattered_sum(
            a, dim, index, source, include_self=include_self, mean=reduce == "mean"
        )
    if reduce not in ("amax", "amin"):
        raise NoPortableForm(f"multiplies in the order of threads with reduce={reduce!r}")
    result = torch.scatter_reduce(a, dim, index, source, reduce, include_self=include_self)
    return _positive_zeros(result)
