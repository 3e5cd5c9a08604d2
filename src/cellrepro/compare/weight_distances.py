"""What distances between two vectors of weights are made of, piece by piece."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cellrepro.compare.weight_files import Bits

_FLOATS = {"F64": (64, 52), "F32": (32, 23), "F16": (16, 10), "BF16": (16, 7)}  # bits, mantissa
_CLASSES = 65  # of a distance in ulp: 0, 1, 2 to 3, 4 to 7 ... 2**63 to 2**64 - 1


@dataclass(frozen=True)
class Sums:
    """Sums over two vectors a and b; those of two pieces add up.

    Attributes
    ----------
    difference, squares_a, squares_b, product : float
        Sums of (b - a)**2, a**2, b**2 and a*b.
    max_abs : float
        Largest difference of one parameter.
    """

    difference: float = 0.0
    squares_a: float = 0.0
    squares_b: float = 0.0
    product: float = 0.0
    max_abs: float = 0.0

    @classmethod
    def undefined(cls) -> "Sums":
        """Of vectors that have no distance."""
        return cls(math.nan, math.nan, math.nan, math.nan, math.nan)

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.difference + other.difference,
            self.squares_a + other.squares_a,
            self.squares_b + other.squares_b,
            self.product + other.product,
            float(np.maximum(self.max_abs, other.max_abs)),  # unlike max(), keeps NaN
        )

    @property
    def l2(self) -> float:
        """Length of b - a."""
        length = math.sqrt(self.difference)
        # Squares of float64 numbers below 1e-162 are lost, and a distance of 0 means equal values.
        return length if math.isnan(length) else max(length, self.max_abs)

    @property
    def relative_l2(self) -> float:
        """Length of b - a over that of a."""
        if self.l2 == 0:
            return 0.0
        return self.l2 / math.sqrt(self.squares_a) if self.squares_a else math.inf

    @property
    def cosine(self) -> float:
        """Of the angle between a and b."""
        if self.l2 == 0:
            return 1.0
        if self.squares_a == 0 or self.squares_b == 0:
            return math.nan
        cosine = self.product / (math.sqrt(self.squares_a) * math.sqrt(self.squares_b))
        return float(np.clip(cosine, -1, 1))  # rounding can exceed 1


def differences(
    values_a: NDArray[np.float64], values_b: NDArray[np.float64], same_bits: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """b - a, and 0 where bits or values are equal, also between two NaNs or two infinities."""
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaNs travel on
        difference = values_b - values_a
        difference[same_bits | (values_a == values_b)] = 0
    return difference


def sums_of(
    values_a: NDArray[np.float64],
    values_b: NDArray[np.float64],
    difference: NDArray[np.float64],
) -> Sums:
    """Sums over one piece; ``difference`` as from `differences`."""
    # Sums, not dot products: BLAS adds in an order that depends on its number of threads.
    with np.errstate(over="ignore", invalid="ignore"):
        return Sums(
            difference=float(np.square(difference).sum()),
            squares_a=float(np.square(values_a).sum()),
            squares_b=float(np.square(values_b).sum()),
            product=float((values_a * values_b).sum()),
            max_abs=float(np.abs(difference).max(initial=0)),
        )


@dataclass(frozen=True)
class Ulps:
    """How many floats of the dtype lie between two, over many parameters; pieces add up.

    Attributes
    ----------
    counts : tuple of int
        Parameters at distance 0, 1, 2 to 3, 4 to 7, and so on by powers of two, without empty
        classes at the end.
    largest : int or None
        Largest distance; None if there is no float, or if one has no distance: a NaN has none
        to anything but its own bits, and dtypes or shapes that differ leave all without.
    defined : bool
        Whether every parameter counted has a distance.
    """

    counts: tuple[int, ...] = ()
    largest: int | None = None
    defined: bool = True

    @property
    def median(self) -> int | None:
        """Median distance, rounded down to 0, 1, 2, 4, 8 ...; None where ``largest`` is.

        Of an even number of parameters the lower of the two in the middle.
        """
        if self.largest is None:
            return None
        half = (sum(self.counts) + 1) // 2
        up_to = np.cumsum(self.counts)
        return (1 << int(np.searchsorted(up_to, half))) >> 1


def ulps_of(bits_a: Bits, bits_b: Bits, dtype: str) -> Ulps:
    """Distances of two pieces of one dtype, in units in the last place of each float.

    Floats of one dtype in order of size are consecutive integers once the sign is taken off their
    bits, so the distance is how many steps to the next float lead from one to the other. Infinity
    is one step beyond the largest number, and -0 and 0 are the same.

    Parameters
    ----------
    bits_a, bits_b : ndarray of unsigned int, shape (n,)
    dtype : str
        Of both, as safetensors spells it; integers and flags have no distance.

    Examples
    --------
    >>> one = np.array([1, 1, 0], np.float32)
    >>> other = np.array([1, 1 + 2**-23, -(2**-149)], np.float32)
    >>> ulps_of(one.view(np.uint32), other.view(np.uint32), "F32")
    Ulps(counts=(1, 2), largest=1, defined=True)
    """
    if dtype not in _FLOATS or not len(bits_a):
        return Ulps()
    n_bits, n_mantissa = _FLOATS[dtype]
    where = np.flatnonzero(bits_a != bits_b)
    a, b = bits_a[where].astype(np.uint64), bits_b[where].astype(np.uint64)
    sign = np.uint64(1 << (n_bits - 1))
    size_a, size_b = a & (sign - np.uint64(1)), b & (sign - np.uint64(1))
    infinity = np.uint64((1 << (n_bits - 1)) - (1 << n_mantissa))
    numbers = (size_a <= infinity) & (size_b <= infinity)
    apart = np.where(
        (a ^ b) & sign,
        size_a + size_b,
        np.maximum(size_a, size_b) - np.minimum(size_a, size_b),
    )[numbers]
    counts = np.bincount(_bit_lengths(apart), minlength=1)
    counts[0] += len(bits_a) - len(where)
    defined = bool(numbers.all())
    return Ulps(
        _shortened(counts.tolist()), int(apart.max(initial=0)) if defined else None, defined
    )


def all_ulps(parts: Sequence[Ulps]) -> Ulps:
    """Of several pieces, tensors or layers together; those without floats do not count."""
    counts = np.zeros(_CLASSES, np.int64)
    for part in parts:
        counts[: len(part.counts)] += np.array(part.counts, np.int64)
    defined = all(part.defined for part in parts)
    known = [part.largest for part in parts if part.largest is not None]
    return Ulps(_shortened(counts.tolist()), max(known, default=None) if defined else None, defined)


def _bit_lengths(numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    # By halves, each of which float64 holds exactly.
    upper, lower = numbers >> np.uint64(32), numbers & np.uint64(0xFFFFFFFF)
    length = np.frexp(np.where(upper, upper, lower).astype(np.float64))[1].astype(np.int64)
    return length + 32 * (upper > 0)


def _shortened(counts: Sequence[int]) -> tuple[int, ...]:
    n = max((i + 1 for i, count in enumerate(counts) if count), default=0)
    return tuple(counts[:n])
