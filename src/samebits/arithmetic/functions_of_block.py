"""Functions of PyTorch that are others in a block of portable arithmetic."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True)
class _Normal:
    """Normal numbers between two bounds."""

    mean: float
    std: float
    lowest: float
    highest: float
    generator: torch.Generator | None

    @property
    def share(self) -> float:
        """The share of all normal numbers that lies between the bounds."""
        return self._share_below(self.highest) - self._share_below(self.lowest)

    def _share_below(self, bound: float) -> float:
        """By the portable error function."""
        distance = (bound - self.mean) / self.std
        scaled = torch.tensor(distance / math.sqrt(2.0), dtype=torch.float64)
        return (1.0 + torch.erf(scaled).item()) / 2.0


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
        normal = _Normal(mean, std, a, b, generator)
        with torch.no_grad():
            draw = _drawn_until_within if normal.share > 0.3 else _drawn_until_accepted
            return draw(tensor, normal)

    return truncated


def _drawn_until_within(tensor: torch.Tensor, normal: _Normal) -> torch.Tensor:
    """Normal numbers, drawn again where they lie outside of the bounds."""
    bounds = torch.tensor([normal.lowest, normal.highest], dtype=tensor.dtype)
    lowest, highest = bounds.tolist()
    numbers = tensor.normal_(normal.mean, normal.std, generator=normal.generator)
    while (outside := (numbers < lowest) | (numbers > highest)).any():
        again = torch.empty_like(numbers)
        again.normal_(normal.mean, normal.std, generator=normal.generator)
        numbers = torch.where(outside, again, numbers)
    return tensor if numbers is tensor else tensor.copy_(numbers)


def _drawn_until_accepted(tensor: torch.Tensor, normal: _Normal) -> torch.Tensor:
    """Uniform numbers, each accepted with a chance that is its normal density, else drawn again."""
    mean = normal.mean
    std = normal.std
    distance = (max(normal.lowest, min(mean, normal.highest)) - mean) / std
    log_peak = -0.5 * (distance * distance)
    pending = None
    numbers = tensor
    while pending is None or pending.any():
        drawn = torch.empty_like(tensor)
        drawn.uniform_(normal.lowest, normal.highest, generator=normal.generator)
        log_density = (drawn - mean).div_(std).pow_(2).mul_(-0.5).sub_(log_peak)
        log_chance = torch.empty_like(tensor).uniform_(generator=normal.generator).log_()
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
