"""Tensors that are created: random numbers, ranges, even steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms

FORMS = PortableForms()


@FORMS.of("rand")
def _rand(size: Sequence[int], **options: Any) -> torch.Tensor:
    device = options.pop("device", None)
    return torch.rand(size, **options).to(device)  # CUDA has a generator of its own


@FORMS.of("uniform")
def _uniform(
    a: torch.Tensor, begin: float = 0.0, end: float = 1.0, *, generator: Any = None
) -> torch.Tensor:
    drawn = torch.rand(a.shape, dtype=a.dtype, generator=generator)
    return (drawn * (end - begin) + begin).to(a.device)


@FORMS.of("randint")
def _randint(*arguments: Any, **options: Any) -> torch.Tensor:
    device = options.pop("device", None)
    return torch.randint(*arguments, **options).to(device)


@FORMS.of("randperm")
def _randperm(n: int, **options: Any) -> torch.Tensor:
    device = options.pop("device", None)
    return torch.randperm(n, **options).to(device)


@FORMS.of("arange")
def _arange(*limits: float, **options: Any) -> torch.Tensor:
    dtype = options.get("dtype") or torch.get_default_dtype()
    start = limits[0] if len(limits) > 1 else 0
    end = limits[1] if len(limits) > 1 else limits[0]
    step = limits[2] if len(limits) > 2 else 1
    count = max(0, math.ceil((end - start) / step))
    index = torch.arange(count, dtype=torch.float64)
    return (index * float(step) + float(start)).to(dtype).to(options.get("device"))


@FORMS.of("bernoulli")
def _bernoulli(
    a: torch.Tensor, chance: float | None = None, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    """1 where a uniform number is below the chance; PyTorch's own may come from MKL."""
    if chance is None or isinstance(chance, torch.Tensor):
        raise NoPortableForm("has a portable form for a chance that is a number only")
    drawn = torch.rand(a.shape, generator=generator).to(a.device)
    return (drawn < chance).to(a.dtype)


@FORMS.of("linspace")
def _linspace(start: float, end: float, steps: int, **options: Any) -> torch.Tensor:
    dtype = options.get("dtype") or torch.get_default_dtype()
    index = torch.arange(steps, dtype=torch.float64)
    step = (float(end) - float(start)) / max(1, steps - 1)
    upward = index * step + float(start)
    downward = float(end) - (steps - 1 - index) * step
    values = torch.where(index < max(1, steps // 2), upward, downward)
    return values.to(dtype).to(options.get("device"))
