"""Operations on a block of numbers that PyTorch and NumPy write in two ways, for functions that
take tensors and arrays; both round them as IEEE 754 says."""

from __future__ import annotations

import numpy as np
import torch

from samebits.arithmetic.memory import Block


def clamp_(numbers: Block, *, low: float | None = None, high: float | None = None) -> Block:
    """Write a bound where numbers are beyond it; NaN stays. The bounds are not 0, whose sign NumPy
    does not promise."""
    if isinstance(numbers, np.ndarray):
        if low is not None:
            np.maximum(numbers, low, out=numbers)
        if high is not None:
            np.minimum(numbers, high, out=numbers)
        return numbers
    return numbers.clamp_(min=low, max=high)


def clamp(numbers: Block, *, low: float | None = None, high: float | None = None) -> Block:
    """The same in new memory."""
    return clamp_(
        numbers.copy() if isinstance(numbers, np.ndarray) else numbers.clone(), low=low, high=high
    )


def copy_sign(numbers: Block, signs: Block) -> Block:
    """Numbers with the signs of others."""
    if isinstance(numbers, np.ndarray):
        return np.copysign(numbers, signs)
    return torch.copysign(numbers, signs)


def ones_like(numbers: Block) -> Block:
    """As many ones."""
    return np.ones_like(numbers) if isinstance(numbers, np.ndarray) else torch.ones_like(numbers)


def where(chosen: Block, if_so: Block | float, otherwise: Block | float) -> Block:
    """Numbers of the one where a condition holds, else of the other."""
    if isinstance(chosen, np.ndarray):
        return np.where(chosen, if_so, otherwise)
    return torch.where(chosen, if_so, otherwise)


def double(numbers: Block) -> Block:
    """In float64."""
    return numbers.astype(np.float64) if isinstance(numbers, np.ndarray) else numbers.double()


def single(numbers: Block) -> Block:
    """Rounded to float32."""
    return numbers.astype(np.float32) if isinstance(numbers, np.ndarray) else numbers.float()


def all_within(numbers: Block, least: float, most: float) -> bool:
    """Whether all numbers lie between two, which are not among them; there is no NaN then."""
    if isinstance(numbers, np.ndarray):
        return bool(least < numbers.min() and numbers.max() < most) if numbers.size else True
    if numbers.numel() == 0:
        return True
    lowest, highest = torch.aminmax(numbers)
    return least < lowest.item() and highest.item() < most
