"""Two networks side by side, parameter by parameter, from safetensors files.

Equality is decided by the bits of every parameter, never by a hash or a norm that swapped or
negated values leave unchanged (``torch.hash_tensor`` and the L1 norm do, PyTorch 2.15.0), and
never by the bytes of the file, which also hold metadata. So NaN payloads and the sign of zero
count. Distances are computed in float64, from one piece of a tensor at a time, so that memory
does not grow with the files.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cellrepro.compare.verdicts import Verdict
from cellrepro.compare.weight_distances import Sums, Ulps, all_ulps, differences, sums_of, ulps_of
from cellrepro.compare.weight_files import (
    Tensor,
    WeightsFile,
    layer_group,
    layer_groups,
    natural_order,
    open_weights,
    values,
)

_PIECE = 2**15  # parameters of each file in memory at a time, with some ten float64 values each


@dataclass(frozen=True)
class TensorComparison:
    """One tensor of a that b holds under the same name.

    Attributes
    ----------
    name : str
        As in the files.
    shape, dtype : tuple of int, str
        Of a; the dtype as safetensors spells it, such as ``F32`` or ``BF16``.
    shape_b, dtype_b : tuple of int, str
        Of b.
    n : int
        Parameters; where the shapes differ, of the larger one.
    n_differing : int
        Parameters with other bits; all of them where shape or dtype differ.
    l2 : float
        Euclidean length of b - a; NaN where the shapes differ. Where bits are equal the difference
        is 0, also between two NaNs or two infinities.
    relative_l2 : float
        ``l2`` over the length of a; 0 if ``l2`` is 0, infinite if only a is all zero.
    cosine : float
        Of the angle between a and b; 1 if ``l2`` is 0 (so also for two zero vectors), NaN if
        exactly one is all zero, because that has no direction.
    max_abs : float
        Largest difference of one parameter; 0 for a tensor without parameters.
    mean_a, std_a, mean_b, std_b : float
        Mean and population standard deviation of each; NaN for a tensor without parameters.
    max_abs_index : tuple of int or None
        Where in the tensor the largest difference is, the first of equal ones, NaN counting as
        the largest; None if ``max_abs`` is 0 or the shapes differ.
    max_ulp : int or None
        Largest distance in units in the last place: how many steps from float to next float of
        this dtype lead from a to b, where -0 and 0 are the same and infinity follows the largest
        number. None for integers, for other shapes or dtypes, for a tensor without parameters,
        and where one of the two is NaN and the bits differ.
    median_ulp : int or None
        Median of these distances, rounded down to 0, 1, 2, 4, 8 ...; None where ``max_ulp`` is.
    ulp_counts : tuple of int
        Parameters at distance 0, 1, 2 to 3, 4 to 7, and so on by powers of two; those without a
        distance are not counted.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    shape_b: tuple[int, ...]
    dtype_b: str
    n: int
    n_differing: int
    l2: float
    relative_l2: float
    cosine: float
    max_abs: float
    mean_a: float
    std_a: float
    mean_b: float
    std_b: float
    max_abs_index: tuple[int, ...] | None
    max_ulp: int | None
    median_ulp: int | None
    ulp_counts: tuple[int, ...]


@dataclass(frozen=True)
class LayerComparison:
    """One part of the network, see `layer_group`.

    Attributes
    ----------
    name : str
        As from `layer_group`.
    n_tensors, n, n_differing : int
        Tensors and parameters in either file, and parameters with other bits, in another shape or
        dtype, or in one file only.
    l2, relative_l2, cosine, max_abs : float
        As in `TensorComparison`, over all parameters of the layer as one vector; NaN if a name or
        a shape differs.
    max_abs_name, max_abs_index : str or None, tuple of int or None
        Tensor and place of the largest difference, NaN counting as the largest; None if there is
        no difference or the layer has no distance.
    max_ulp, median_ulp, ulp_counts : int or None, int or None, tuple of int
        As in `TensorComparison`, over all floats of the layer.
    """

    name: str
    n_tensors: int
    n: int
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


@dataclass(frozen=True)
class WeightsComparison:
    """How two files of weights differ.

    Attributes
    ----------
    equal : bool
        Whether both hold the same names, shapes and dtypes, and the same bits in every parameter.
    n_tensors, n_parameters : int
        In either file: a name both hold counts once, with the larger shape.
    n_differing : int
        Parameters with other bits, in another shape or dtype, or in one file only.
    only_a, only_b : tuple of str
        Tensors in one file only, in natural order.
    l2, relative_l2, cosine, max_abs : float
        As in `TensorComparison`, over all parameters as one vector. NaN if the two are not the
        same network (a name or shape differs): a distance over what they share would understate
        it. Two files without parameters have distance 0; see ``verdict``.
    max_abs_name : str or None
        The tensor with the largest difference of one parameter, NaN counting as the largest; None
        if ``max_abs`` is 0 or the two are not the same network.
    per_tensor : tuple of TensorComparison
        Every name both hold, in natural order (block 2 before block 10).
    max_abs_index : tuple of int or None
        Where in that tensor.
    max_ulp, median_ulp, ulp_counts : int or None, int or None, tuple of int
        As in `TensorComparison`, over all floats; None if the two are not the same network.
    per_layer : tuple of LayerComparison
        Every layer of either file, in the order of its tensors.
    """

    equal: bool
    n_tensors: int
    n_parameters: int
    n_differing: int
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    l2: float
    relative_l2: float
    cosine: float
    max_abs: float
    max_abs_name: str | None
    per_tensor: tuple[TensorComparison, ...]
    max_abs_index: tuple[int, ...] | None
    max_ulp: int | None
    median_ulp: int | None
    ulp_counts: tuple[int, ...]
    per_layer: tuple[LayerComparison, ...]

    @property
    def verdict(self) -> Verdict:
        """``identical``, ``different``, or ``vacuous`` if neither file holds a parameter."""
        if not self.equal:
            return Verdict.DIFFERENT
        return Verdict.IDENTICAL if self.n_parameters else Verdict.VACUOUS


def compare_weights(path_a: str | Path, path_b: str | Path) -> WeightsComparison:
    """Get whether two networks are equal to the last bit, and where and how far they are not.

    Parameters
    ----------
    path_a, path_b : str or Path
        Safetensors files. They are read in pieces.

    Returns
    -------
    WeightsComparison
        Also where names, shapes or dtypes differ; that is a finding, not an error. Equal shapes
        with different dtypes (float32 and bfloat16) have a distance, and all bits count as other.

    Raises
    ------
    BadInput
        If a file is missing, incomplete, no safetensors file, or holds a dtype without a value
        in float64 (complex, 8 bits and less).
    """
    a, b = open_weights(path_a), open_weights(path_b)
    shared = natural_order(name for name in a.tensors if name in b.tensors)
    compared = [_compare_tensor(a, b, name) for name in shared]
    alone = {name: file.tensors[name].n for file in (a, b) for name in file.tensors}
    alone = {name: n for name, n in alone.items() if name not in shared}
    whole = _together("", compared, alone)
    rows = tuple(part.row for part in compared)
    same_layout = not alone and all((r.shape, r.dtype) == (r.shape_b, r.dtype_b) for r in rows)
    return WeightsComparison(
        equal=same_layout and whole.n_differing == 0,
        n_tensors=whole.n_tensors,
        n_parameters=whole.n,
        n_differing=whole.n_differing,
        only_a=natural_order(set(a.tensors) - set(b.tensors)),
        only_b=natural_order(set(b.tensors) - set(a.tensors)),
        l2=whole.l2,
        relative_l2=whole.relative_l2,
        cosine=whole.cosine,
        max_abs=whole.max_abs,
        max_abs_name=whole.max_abs_name,
        per_tensor=rows,
        max_abs_index=whole.max_abs_index,
        max_ulp=whole.max_ulp,
        median_ulp=whole.median_ulp,
        ulp_counts=whole.ulp_counts,
        per_layer=_per_layer(compared, alone),
    )


# One tensor


@dataclass(frozen=True)
class _Compared:
    row: TensorComparison
    sums: Sums
    ulps: Ulps


def _compare_tensor(a: WeightsFile, b: WeightsFile, name: str) -> _Compared:
    tensor_a, tensor_b = a.tensors[name], b.tensors[name]
    moments_a, moments_b = _Moments(), _Moments()
    if tensor_a.shape == tensor_b.shape:
        sums, ulps, n_differing, place = _in_pieces(a, b, name, moments_a, moments_b)
    else:
        sums, ulps, place = Sums.undefined(), Ulps(defined=False), None
        n_differing = max(tensor_a.n, tensor_b.n)
        for file, tensor, moments in ((a, tensor_a, moments_a), (b, tensor_b, moments_b)):
            for _, bits in file.pieces(name, _PIECE):
                moments.add(values(bits, tensor.dtype))
    row = TensorComparison(
        name=name,
        shape=tensor_a.shape,
        dtype=tensor_a.dtype,
        shape_b=tensor_b.shape,
        dtype_b=tensor_b.dtype,
        n=max(tensor_a.n, tensor_b.n),
        n_differing=n_differing,
        l2=sums.l2,
        relative_l2=sums.relative_l2,
        cosine=sums.cosine,
        max_abs=sums.max_abs,
        mean_a=moments_a.mean,
        std_a=moments_a.std,
        mean_b=moments_b.mean,
        std_b=moments_b.std,
        max_abs_index=None if place is None else _index(place, tensor_a),
        max_ulp=ulps.largest,
        median_ulp=ulps.median,
        ulp_counts=ulps.counts,
    )
    return _Compared(row, sums, ulps)


def _in_pieces(
    a: WeightsFile, b: WeightsFile, name: str, moments_a: "_Moments", moments_b: "_Moments"
) -> tuple[Sums, Ulps, int, int | None]:
    """Sums, distances in ulp, differing parameters, and where the largest difference is."""
    dtype_a, dtype_b = a.tensors[name].dtype, b.tensors[name].dtype
    sums, ulps, n_differing = Sums(), [], 0
    place: int | None = None
    for (start, bits_a), (_, bits_b) in zip(
        a.pieces(name, _PIECE), b.pieces(name, _PIECE), strict=True
    ):
        values_a, values_b = values(bits_a, dtype_a), values(bits_b, dtype_b)
        same_bits = np.zeros(len(bits_a), bool)
        if dtype_a == dtype_b:
            same_bits = bits_a == bits_b
            ulps.append(ulps_of(bits_a, bits_b, dtype_a))
        else:
            ulps.append(Ulps(defined=False))
        n_differing += len(same_bits) - int(np.count_nonzero(same_bits))
        apart = differences(values_a, values_b, same_bits)
        piece = sums_of(values_a, values_b, apart)
        if piece.max_abs > sums.max_abs or math.isnan(piece.max_abs) > math.isnan(sums.max_abs):
            place = start + int(np.argmax(np.abs(apart)))  # the first NaN, if there is one
        sums += piece
        moments_a.add(values_a)
        moments_b.add(values_b)
    return sums, all_ulps(ulps), n_differing, place


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


def _index(place: int, tensor: Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(place, tensor.shape)) if tensor.shape else ()


# Several tensors


def _per_layer(compared: Iterable[_Compared], alone: dict[str, int]) -> tuple[LayerComparison, ...]:
    parts: dict[str, list[_Compared]] = {}
    for part in compared:
        parts.setdefault(layer_group(part.row.name), []).append(part)
    names = layer_groups([*(p.row.name for part in parts.values() for p in part), *alone])
    return tuple(
        _together(
            name,
            parts.get(name, []),
            {tensor: n for tensor, n in alone.items() if layer_group(tensor) == name},
        )
        for name in names
    )


def _together(name: str, compared: Sequence[_Compared], alone: dict[str, int]) -> LayerComparison:
    """Tensors as one vector; ``alone`` has the sizes of those in one file only."""
    rows = [part.row for part in compared]
    same_network = not alone and all(row.shape == row.shape_b for row in rows)
    sums = sum((part.sums for part in compared), Sums()) if same_network else Sums.undefined()
    ulps = all_ulps([part.ulps for part in compared]) if same_network else Ulps(defined=False)
    largest = _largest(rows) if same_network else None
    return LayerComparison(
        name=name,
        n_tensors=len(rows) + len(alone),
        n=sum(row.n for row in rows) + sum(alone.values()),
        n_differing=sum(row.n_differing for row in rows) + sum(alone.values()),
        l2=sums.l2,
        relative_l2=sums.relative_l2,
        cosine=sums.cosine,
        max_abs=sums.max_abs,
        max_abs_name=None if largest is None else largest.name,
        max_abs_index=None if largest is None else largest.max_abs_index,
        max_ulp=ulps.largest,
        median_ulp=ulps.median,
        ulp_counts=ulps.counts,
    )


def _largest(rows: Sequence[TensorComparison]) -> TensorComparison | None:
    differing = [row for row in rows if row.max_abs != 0]  # NaN != 0
    return max(differing, key=lambda row: (math.isnan(row.max_abs), row.max_abs), default=None)
