"""An image a block of rows or planes at a time, so that memory does not grow with it."""

from __future__ import annotations

import math
from collections.abc import Iterator

_PIXELS = 2**21  # of a block


def blocks_of(shape: tuple[int, ...]) -> Iterator[slice[int, int, None]]:
    """Slices of the first axis, in order, which together are all of it; none of no pixel."""
    n, *others = shape
    n_pixels = math.prod(others)
    step = max(1, _PIXELS // max(1, n_pixels))
    for first in range(0, n if n_pixels else 0, step):
        yield slice(first, min(first + step, n))
