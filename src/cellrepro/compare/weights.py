"""Two networks side by side, parameter by parameter, from safetensors files or Cellpose's own.

Equality is decided by the bits of every parameter, never by a hash or a norm that swapped or
negated values leave unchanged (``torch.hash_tensor`` and the L1 norm do, PyTorch 2.15.0), and
never by the bytes of the file, which also hold metadata. So NaN payloads and the sign of zero
count. Distances are computed in float64, from one piece of a tensor at a time, so that memory
does not grow with the files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellrepro.compare.verdicts import Verdict
from cellrepro.compare.weight_files import (
    Bits,
    WeightsFile,
    layer_group,
    layer_groups,
    natural_order,
    open_weights,
    pieces,
    values,
)

_PIECE = 2**15  # parameters of each file in memory at a time, with some ten float64 values each
_FLOATS = {"F64": (64, 52), "F32": (32, 23), "F16": (16, 10), "BF16": (16, 7)}  # bits, mantissa
_CLASSES = 65  # of a distance in ulp: 0, 1, 2 to 3, 4 to 7 ... 2**63 to 2**64 - 1


@dataclass(frozen=True, kw_only=True)
class Distance:
    """How far the second of two vectors of parameters is from the first.

    Attributes
    ----------
    n_differing : int
        Parameters with other bits, in another shape or dtype, or in one file only.
    l2 : float
        Euclidean length of b - a; NaN if a name or a shape differs, since a distance over what the
        two share would understate it. Where bits are equal the difference is 0, also between two
        NaNs or two infinities.
    relative_l2 : float
        ``l2`` over the length of a; 0 if ``l2`` is 0, infinite if only a is all zero.
    cosine : float
        Of the angle between a and b; 1 if ``l2`` is 0 (so also for two zero vectors), NaN if
        exactly one is all zero, because that has no direction.
    max_abs : float
        Largest difference of one parameter; 0 without parameters.
    max_abs_name, max_abs_index : str or None, tuple of int or None
        Tensor and place of the largest difference, the first of equal ones, NaN counting as the
        largest; None if there is no difference or no distance.
    max_ulp : int or None
        Largest distance in units in the last place: how many steps from float to next float of
        this dtype lead from a to b, where -0 and 0 are the same and infinity follows the largest
        number. None without floats, for other shapes or dtypes, and where one of the two is NaN
        and the bits differ.
    median_ulp : int or None
        Median of these distances, rounded down to 0, 1, 2, 4, 8 ...; None where ``max_ulp`` is.
    ulp_counts : tuple of int
        Parameters at distance 0, 1, 2 to 3, 4 to 7, and so on by powers of two; those without a
        distance are not counted.
    """

    n_differing: int
    l2: float
    relative_l2: float
    cosine: float
    max_abs: float
    max_abs_name: str | None
    max_abs_index: tuple[int, ...] | None
    max_ulp: int | None
    median_ulp: int | None
    ulp_counts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TensorComparison(Distance):
    """One tensor that both hold under the same name.

    Attributes
    ----------
    name : str
    shape, dtype, shape_b, dtype_b : tuple of int, str, tuple of int, str
        Of a and of b; the dtype as safetensors spells it, such as ``F32`` or ``BF16``.
    n : int
        Parameters; where the shapes differ, of the larger one.
    mean_a, std_a, mean_b, std_b : float
        Mean and population standard deviation of each; NaN for a tensor without parameters.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    shape_b: tuple[int, ...]
    dtype_b: str
    n: int
    mean_a: float
    std_a: float
    mean_b: float
    std_b: float


@dataclass(frozen=True, kw_only=True)
class LayerComparison(Distance):
    """One part of the network, `layer_group`, with its tensors and parameters in either file."""

    name: str
    n_tensors: int
    n: int


@dataclass(frozen=True, kw_only=True)
class WeightsComparison(Distance):
    """How two files of weights differ.

    Attributes
    ----------
    equal : bool
        Whether both hold the same names, shapes and dtypes, and the same bits in every parameter.
    n_tensors, n_parameters : int
        In either file: a name both hold counts once, with the larger shape.
    only_a, only_b : tuple of str
        Tensors in one file only, in natural order (block 2 before block 10).
    per_tensor : tuple of TensorComparison
        Every name both hold, in natural order.
    per_layer : tuple of LayerComparison
        Every layer of either file, in the order of its tensors.
    """

    equal: bool
    n_tensors: int
    n_parameters: int
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    per_tensor: tuple[TensorComparison, ...]
    per_layer: tuple[LayerComparison, ...]

    @property
    def verdict(self) -> Verdict:
        """``identical``, ``different``, or ``vacuous`` if neither file holds a parameter."""
        if not self.equal:
            return Verdict.DIFFERENT
        return Verdict.IDENTICAL if self.n_parameters else Verdict.VACUOUS


def compare_weights(
    path_a: str | Path, path_b: str | Path, *, prefix: str = ""
) -> WeightsComparison:
    """Get whether two networks are equal to the last bit, and where and how far they are not.

    Parameters
    ----------
    path_a, path_b : str or Path
        Safetensors files, or networks as Cellpose and PyTorch save them. They are read in pieces.
    prefix : str
        With which the names begin of the tensors that count.

    Returns
    -------
    WeightsComparison
        Also where names, shapes or dtypes differ; that is a finding, not an error. Equal shapes
        with different dtypes (float32 and bfloat16) have a distance, and all bits count as other.
    """
    a, b = open_weights(path_a), open_weights(path_b)
    names_a, names_b = ({n for n in file.tensors if n.startswith(prefix)} for file in (a, b))
    tensors = [_compare_tensor(a, b, name) for name in natural_order(names_a & names_b)]
    alone = {name: a.tensors[name].n for name in names_a - names_b}
    alone |= {name: b.tensors[name].n for name in names_b - names_a}
    rows = tuple(row for row, _ in tensors)
    layers = []
    for layer in layer_groups(names_a | names_b):
        members = [(row, sums) for row, sums in tensors if layer_group(row.name) == layer]
        others = {name: n for name, n in alone.items() if layer_group(name) == layer}
        n = sum(row.n for row, _ in members) + sum(others.values())
        n_tensors = len(members) + len(others)
        together = _together(members, others)
        layers.append(LayerComparison(name=layer, n_tensors=n_tensors, n=n, **together))
    whole = _together(tensors, alone)
    alike = not alone and all((r.shape, r.dtype) == (r.shape_b, r.dtype_b) for r in rows)
    return WeightsComparison(
        **whole,
        equal=alike and whole["n_differing"] == 0,
        n_tensors=len(rows) + len(alone),
        n_parameters=sum(row.n for row in rows) + sum(alone.values()),
        only_a=natural_order(names_a - names_b),
        only_b=natural_order(names_b - names_a),
        per_tensor=rows,
        per_layer=tuple(layers),
    )


def _compare_tensor(a: WeightsFile, b: WeightsFile, name: str) -> tuple[TensorComparison, Sums]:
    one, other = a.tensors[name], b.tensors[name]
    sums, moments = Sums(), (_Moments(), _Moments())
    if one.shape == other.shape:
        for start, bits in pieces([a, b], name, _PIECE):
            numbers = values(bits[0], one.dtype), values(bits[1], other.dtype)
            dtype = one.dtype if one.dtype == other.dtype else None
            sums.add((name, one.shape, start), bits, numbers, dtype)
            for moment, piece in zip(moments, numbers, strict=True):
                moment.add(piece)
    else:
        sums = Sums.undefined(max(one.n, other.n))
        for file, tensor, moment in ((a, one, moments[0]), (b, other, moments[1])):
            for _, (bits_,) in pieces([file], name, _PIECE):
                moment.add(values(bits_, tensor.dtype))
    row = TensorComparison(
        **sums.distance(),
        name=name,
        shape=one.shape,
        dtype=one.dtype,
        shape_b=other.shape,
        dtype_b=other.dtype,
        n=max(one.n, other.n),
        mean_a=moments[0].mean,
        std_a=moments[0].std,
        mean_b=moments[1].mean,
        std_b=moments[1].std,
    )
    return row, sums


def _together(
    tensors: Sequence[tuple[TensorComparison, Sums]], alone: dict[str, int]
) -> dict[str, Any]:
    """Distance of several tensors as one vector; ``alone``: the sizes of those in one file only."""
    total = Sums()
    for _, sums in tensors:
        total.merge(sums)
    if alone or any(row.shape != row.shape_b for row, _ in tensors):
        total = Sums.undefined(total.n_differing + sum(alone.values()))
    return total.distance()


# -- sums ------------------------------------------------------------------------------------


def differences(a: NDArray[np.float64], b: NDArray[np.float64], same_bits: Any) -> NDArray:
    """b - a, and 0 where bits or values are equal, also between two NaNs or two infinities."""
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaNs travel on
        difference = b - a
        difference[same_bits | (a == b)] = 0
    return difference


@dataclass
class Sums:
    """What distances between two vectors are made of; those of two pieces add up."""

    n_differing: int = 0
    difference: float = 0.0  # squares of b - a
    squares_a: float = 0.0
    squares_b: float = 0.0
    product: float = 0.0
    max_abs: float = 0.0
    place: tuple[str, tuple[int, ...]] | None = None  # of the largest difference
    ulp_counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_CLASSES, np.int64))
    max_ulp: int | None = None  # None before the first float
    all_ulps_known: bool = True

    @classmethod
    def undefined(cls, n_differing: int) -> Sums:
        """Of vectors that have no distance."""
        nan = math.nan
        return cls(n_differing, nan, nan, nan, nan, nan, all_ulps_known=False)

    def add(
        self,
        at: tuple[str, tuple[int, ...], int],
        bits: Sequence[Bits],
        numbers: tuple[NDArray[np.float64], NDArray[np.float64]],
        dtype: str | None,
    ) -> None:
        """Count a piece in, given its tensor, shape and start; of one dtype, or none in common."""
        a, b = numbers
        same_bits = bits[0] == bits[1] if dtype else np.zeros(len(a), bool)
        difference = differences(a, b, same_bits)
        # Sums, not dot products: BLAS adds in an order that depends on its number of threads.
        with np.errstate(over="ignore", invalid="ignore"):
            piece = Sums(
                n_differing=len(a) - int(np.count_nonzero(same_bits)),
                difference=float(np.square(difference).sum()),
                squares_a=float(np.square(a).sum()),
                squares_b=float(np.square(b).sum()),
                product=float((a * b).sum()),
                max_abs=float(np.abs(difference).max(initial=0)),
                all_ulps_known=dtype is not None,
            )
        name, shape, start = at
        if piece.max_abs != 0:  # also NaN
            first = start + int(np.argmax(np.abs(difference)))  # the first NaN, if there is one
            index = np.unravel_index(first, shape) if shape else ()
            piece.place = name, tuple(int(i) for i in index)
        if dtype and dtype in _FLOATS and len(a):
            piece._count_ulps(bits[0], bits[1], *_FLOATS[dtype])
        self.merge(piece)

    def _count_ulps(self, bits_a: Bits, bits_b: Bits, n_bits: int, n_mantissa: int) -> None:
        # Floats of one dtype in order of size are consecutive integers once the sign is taken off
        # their bits, so the distance is how many steps to the next float lead from one to the
        # other. Infinity is one step beyond the largest number, and -0 and 0 are the same.
        where = np.flatnonzero(bits_a != bits_b)
        a, b = bits_a[where].astype(np.uint64), bits_b[where].astype(np.uint64)
        sign = np.uint64(1 << (n_bits - 1))
        size_a, size_b = a & (sign - np.uint64(1)), b & (sign - np.uint64(1))
        infinity = np.uint64((1 << (n_bits - 1)) - (1 << n_mantissa))
        known = (size_a <= infinity) & (size_b <= infinity)
        larger, smaller = np.maximum(size_a, size_b), np.minimum(size_a, size_b)
        apart = np.where((a ^ b) & sign, size_a + size_b, larger - smaller)[known]
        # Classes by the number of bits; by halves, each of which float64 holds exactly.
        upper, lower = apart >> np.uint64(32), apart & np.uint64(0xFFFFFFFF)
        length = np.frexp(np.where(upper, upper, lower).astype(np.float64))[1] + 32 * (upper > 0)
        self.ulp_counts += np.bincount(length, minlength=_CLASSES)
        self.ulp_counts[0] += len(bits_a) - len(where)
        self.max_ulp = int(apart.max(initial=0))
        self.all_ulps_known = bool(known.all())

    def merge(self, other: Sums) -> None:
        """Count another piece, tensor or layer in."""
        self.n_differing += other.n_differing
        self.difference += other.difference
        self.squares_a += other.squares_a
        self.squares_b += other.squares_b
        self.product += other.product
        if other.max_abs > self.max_abs or math.isnan(other.max_abs) > math.isnan(self.max_abs):
            self.max_abs, self.place = other.max_abs, other.place
        self.ulp_counts += other.ulp_counts
        known = [each for each in (self.max_ulp, other.max_ulp) if each is not None]
        self.max_ulp = max(known, default=None)
        self.all_ulps_known &= other.all_ulps_known

    def distance(self) -> dict[str, Any]:
        """The fields of `Distance`."""
        length = math.sqrt(self.difference)
        # Squares of float64 numbers below 1e-162 are lost, and a distance of 0 means equal values.
        l2 = length if math.isnan(length) else max(length, self.max_abs)
        lengths = math.sqrt(self.squares_a), math.sqrt(self.squares_b)
        relative_l2, cosine = 0.0, 1.0
        if l2 != 0:
            relative_l2 = l2 / lengths[0] if lengths[0] else math.inf
            cosine = math.nan
            if lengths[0] and lengths[1]:  # rounding can exceed 1
                cosine = float(np.clip(self.product / (lengths[0] * lengths[1]), -1, 1))
        max_ulp = self.max_ulp if self.all_ulps_known else None
        half = (int(self.ulp_counts.sum()) + 1) // 2
        middle = int(np.searchsorted(np.cumsum(self.ulp_counts), half))
        n_classes = max((i + 1 for i in np.flatnonzero(self.ulp_counts).tolist()), default=0)
        return {
            "n_differing": self.n_differing,
            "l2": l2,
            "relative_l2": relative_l2,
            "cosine": cosine,
            "max_abs": self.max_abs,
            "max_abs_name": self.place[0] if self.place else None,
            "max_abs_index": self.place[1] if self.place else None,
            "max_ulp": max_ulp,
            "median_ulp": None if max_ulp is None else (1 << middle) >> 1,
            "ulp_counts": tuple(self.ulp_counts[:n_classes].tolist()),
        }


class _Moments:
    """Mean and standard deviation from pieces, by the update of Chan, Golub and LeVeque (1979)."""

    def __init__(self) -> None:
        self._n = 0
        self._mean = self._squares = 0.0

    def add(self, piece: NDArray[np.float64]) -> None:
        if not len(piece):
            return
        n = self._n + len(piece)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = piece.mean()
            step = mean - self._mean
            self._squares += float(np.square(piece - mean).sum())
            self._squares += float(step * step) * self._n * len(piece) / n
            self._mean += float(step) * len(piece) / n
        self._n = n

    @property
    def mean(self) -> float:
        return self._mean if self._n else math.nan

    @property
    def std(self) -> float:
        return math.sqrt(self._squares / self._n) if self._n else math.nan
