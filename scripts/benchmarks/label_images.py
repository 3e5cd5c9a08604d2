"""Label images of many cells, made up."""

from __future__ import annotations

import numpy as np


def grid_of_cells(size: int, n: int, seed: int, dtype: type = np.int32) -> np.ndarray:
    """A label image of about n discs on a grid, shape (size, size); 0 is background.

    Seeds jitter radius and place, leave some out, and cut some in two.
    """
    random = np.random.default_rng(seed)
    per_side = int(np.ceil(np.sqrt(n)))
    step = size // per_side
    labels = np.zeros((size, size), dtype)
    y, x = np.mgrid[:step, :step]
    for label, (i, j) in enumerate(np.ndindex(per_side, per_side), start=1):
        if random.random() < 0.02:
            continue
        radius = step * (0.35 + 0.12 * random.random())
        centre = step / 2 + random.normal(0, 0.5, 2)
        inside = (y - centre[0]) ** 2 + (x - centre[1]) ** 2 < radius**2
        if random.random() < 0.02:
            inside &= abs(x - centre[1]) > 1
        labels[i * step : (i + 1) * step, j * step : (j + 1) * step][inside] = label
    return labels
