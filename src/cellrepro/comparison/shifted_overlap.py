"""How far two arrays overlap wherever one of them is moved."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def shifted_overlap(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum a times b, moved by each number of rows and columns, (Y, X), as a.

    What leaves ``a`` at one edge comes back at the other; ``b`` is at most as large.
    """
    spectrum = np.fft.rfft2(a) * np.conj(np.fft.rfft2(b, s=a.shape))
    return np.fft.irfft2(spectrum, s=a.shape)
