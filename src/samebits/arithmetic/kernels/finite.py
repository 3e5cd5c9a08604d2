"""Whether numbers are finite: forms that take infinities and NaN in another way ask it first."""

from __future__ import annotations

import math

import numpy as np
import torch

from samebits.arithmetic.memory import as_array


def all_finite(numbers: torch.Tensor) -> bool:
    """Whether there is no infinity and no NaN among numbers."""
    if numbers.numel() == 0:
        return True
    array = as_array(numbers)
    if array is not None:
        return bool(np.isfinite(array).all())
    least, most = torch.aminmax(numbers.detach())
    return math.isfinite(least.item()) and math.isfinite(most.item())
