"""Random numbers and blurs in whole numbers alone, with the same bits on every machine.

Three scales of fixed point are used: positions and distances count 1/256 of a pixel (``SUBPIXEL``),
light 1/256 of a camera count (``SUBCOUNT``), fractions 1/65536 (``ONE``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

SUBPIXEL = 256
SUBCOUNT = 256
ONE = 65536

NOISE_SPREAD = 209
"""Standard deviation of the sum of eight random bytes: sqrt(8 * 65535 / 12)."""


class Draws:
    """Random integers from the raw stream of PCG64, which no version of NumPy changes (NEP 19)."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def between(self, low: int, high: int) -> int:
        """A whole number in [low, high], both included; at most 2**31 apart."""
        return low + ((int(self._bits.random_raw()) >> 32) * (high - low + 1) >> 32)

    def chance(self, fraction: int) -> bool:
        """True with probability fraction / ONE."""
        return self.between(0, ONE - 1) < fraction

    def bell(self, low: int, high: int) -> int:
        """A whole number in [low, high], most often near the middle."""
        return sum(self.between(low, high) for _ in range(3)) // 3

    def direction(self) -> tuple[int, int, int]:
        """A rational rotation: (p, q, r) with p*p + q*q == r*r, in any of the four quadrants."""
        step = self.between(0, 256)
        p = 256 * 256 - step * step
        q = 2 * 256 * step
        r = 256 * 256 + step * step
        if self.chance(ONE // 2):
            p, q = q, p
        if self.chance(ONE // 2):
            p = -p
        if self.chance(ONE // 2):
            q = -q
        return p, q, r

    def noise(self, shape: tuple[int, int]) -> Integers:
        """Bell-shaped noise: sums of eight random bytes less their mean, spread NOISE_SPREAD."""
        raw = self._bits.random_raw(shape[0] * shape[1]).reshape(shape)
        total = np.zeros(shape, np.int64)
        for shift in range(0, 64, 8):
            total += ((raw >> np.uint64(shift)) & np.uint64(255)).astype(np.int64)
        return total - 8 * 255 // 2


def square_root(value: Integers) -> Integers:
    """The whole part of the square root of whole numbers below 2**52, exactly.

    >>> square_root(np.array([0, 15, 16, 17])).tolist()
    [0, 3, 4, 4]
    """
    root = np.sqrt(value.astype(np.float64)).astype(np.int64)
    root -= root * root > value
    root += (root + 1) * (root + 1) <= value
    return root


def box_blur(values: Integers, width: int) -> Integers:
    """Three passes of a moving average along both axes: close to a Gaussian."""
    half = width // 2
    for _ in range(6):  # along Y, X, Y, X, Y, X: each round turns the image
        padded = np.pad(values, ((half + 1, half), (0, 0)), mode="edge")
        sums = np.cumsum(padded, axis=0)
        values = ((sums[width:] - sums[:-width]) // width).T
    return values


def fine_blur(values: Integers, n_passes: int) -> Integers:
    """Passes of the weights 1, 2, 1 along both axes; each adds 1/2 to the variance in pixels."""
    for _ in range(2 * n_passes):  # along Y, then X: each round turns the image
        padded = np.pad(values, ((1, 1), (0, 0)), mode="edge")
        values = ((padded[:-2] + 2 * padded[1:-1] + padded[2:]) >> 2).T
    return values


def smooth_noise(draws: Draws, shape: tuple[int, int], width: int) -> Integers:
    """Noise that varies over about `width` pixels, mean 0 and standard deviation ONE."""
    blurred = box_blur(draws.noise(shape) << 16, width | 1)
    blurred -= int(blurred.sum()) // blurred.size
    blurred >>= 4  # keeps the squares, summed over 4096 * 4096 pixels, inside 63 bits
    spread = square_root(np.array(int((blurred * blurred >> 8).sum()) // blurred.size))
    return blurred * (ONE // 16) // max(1, int(spread))
