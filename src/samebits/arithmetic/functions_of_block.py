"""Functions of PyTorch that are others in a block of portable arithmetic."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch.nn import init

from samebits.arithmetic.threads_of_block import block_of_this_thread
from samebits.replaced_functions import Replacement, SharedByBlocks, replaced


def _functions() -> Iterator[Replacement]:
    yield Replacement(init, "_no_grad_trunc_normal_", _truncated_alike)
    yield Replacement(torch, "set_flush_denormal", _keeping_small_numbers)


FUNCTIONS_OF_BLOCK = SharedByBlocks(lambda: replaced(_functions()))
"""Truncated normal numbers, drawn alike by every PyTorch; the switch that flushes small numbers."""


class _Drawing(Protocol):
    def __call__(
        self,
        tensor: torch.Tensor,
        mean: float,
        std: float,
        a: float,
        b: float,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor: ...


def _truncated_alike(original: _Drawing) -> _Drawing:
    """Draw as PyTorch 2.15 does; 2.6 inverts the distribution's function instead."""

    @functools.wraps(original)
    def truncated(
        tensor: torch.Tensor,
        mean: float,
        std: float,
        a: float,
        b: float,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        if block_of_this_thread() is None or tensor.is_meta:
            return original(tensor, mean, std, a, b, generator=generator)
        share = _normal_share((b - mean) / std) - _normal_share((a - mean) / std)
        with torch.no_grad():
            if share > 0.3:
                return _normal_within(tensor, mean, std, a, b, generator)
            return _uniform_accepted(tensor, mean, std, a, b, generator)

    return truncated


def _normal_share(x: float) -> float:
    """The share of normal numbers below one, by the portable error function."""
    return (1.0 + torch.erf(torch.tensor(x / math.sqrt(2.0), dtype=torch.float64)).item()) / 2.0


def _normal_within(
    tensor: torch.Tensor,
    mean: float,
    std: float,
    a: float,
    b: float,
    generator: torch.Generator | None,
) -> torch.Tensor:
    """Normal numbers, drawn again where they lie outside of the bounds."""
    lowest, highest = torch.tensor([a, b], dtype=tensor.dtype).tolist()
    numbers = tensor.normal_(mean, std, generator=generator)
    while (outside := (numbers < lowest) | (numbers > highest)).any():
        again = torch.empty_like(numbers).normal_(mean, std, generator=generator)
        numbers = torch.where(outside, again, numbers)
    return tensor if numbers is tensor else tensor.copy_(numbers)


def _uniform_accepted(
    tensor: torch.Tensor,
    mean: float,
    std: float,
    a: float,
    b: float,
    generator: torch.Generator | None,
) -> torch.Tensor:
    """Uniform numbers, each accepted with a chance that is its normal density, else drawn again."""
    distance = (max(a, min(mean, b)) - mean) / std
    log_peak = -0.5 * (distance * distance)
    pending = None
    numbers = tensor
    while pending is None or pending.any():
        drawn = torch.empty_like(tensor).uniform_(a, b, generator=generator)
        log_density = (drawn - mean).div_(std).pow_(2).mul_(-0.5).sub_(log_peak)
        log_chance = torch.empty_like(tensor).uniform_(generator=generator).log_()
        refused = log_chance > log_density
        numbers = drawn if pending is None else torch.where(pending, drawn, numbers)
        pending = refused if pending is None else pending & refused
    return tensor.copy_(numbers)


def _keeping_small_numbers(original: Callable[[bool], bool]) -> Callable[[bool], bool]:
    @functools.wraps(original)
    def switched(mode: bool) -> bool:
        block = block_of_this_thread()
        if mode and block is not None:
            block.refuse(
                "torch.set_flush_denormal", "makes results below 2**-126 zero, where a machine can"
            )
        return original(mode)

    return switched
