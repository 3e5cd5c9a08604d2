"""Histograms of weights and of their differences, by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cellrepro.compare.weight_files import (
    WeightsFile,
    layer_group,
    layer_groups,
    natural_order,
    open_weights,
    pieces,
    values,
)
from cellrepro.compare.weights import differences
from cellrepro.errors import BadInput

_PIECE = 2**16  # parameters of each file in memory at a time
# float64 in bits: sign, 11 of exponent (0 for zero and numbers below 2**-1022), 52 of mantissa.
_MANTISSA, _FIELDS, _BIAS = 52, 2**12, 1023
_NO_NUMBER = 2**11 - 1


def magnitudes(path: str | Path) -> dict[str, float]:
    """Get the largest magnitude among the finite weights of each layer, in natural order."""
    file = open_weights(path)
    largest: dict[str, float] = {}
    for name in natural_order(file.tensors):
        group = layer_group(name)
        for piece in _finite_values(file, name):
            largest[group] = max(largest.get(group, 0.0), float(np.max(np.abs(piece), initial=0)))
    return largest


def distribution(
    path: str | Path, limits: Mapping[str, float], *, bins: int = 61
) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Get a histogram of the weights of each layer.

    Parameters
    ----------
    path : str or Path
        A file as `compare_weights` takes it. It is read once, in pieces.
    limits : mapping of str to float
        Magnitude at which the histogram of each layer ends: the largest of `magnitudes` over all
        files that are to be compared. Weights beyond are in no bin.
    bins : int
        Per histogram. An odd number gives 0 a bin in the middle.

    Returns
    -------
    dict of str to (counts, edges)
        By layer, in natural order. ``counts``: ndarray of int64, shape (bins,); ``edges``: ndarray
        of float64, shape (bins + 1,), from minus to plus the limit (-1 to 1 if that is 0).
        Infinities and NaNs are in no bin.
    """
    file = open_weights(path)
    result = {}
    for group in layer_groups(file.tensors):
        edges = np.linspace(-limits[group] or -1.0, limits[group] or 1.0, bins + 1)
        result[group] = (np.zeros(bins, np.int64), edges)
    for name in file.tensors:
        counts, edges = result[layer_group(name)]
        for piece in _finite_values(file, name):
            # Intervals given by number and ends are found six times faster than by their edges.
            counts += np.histogram(piece, bins, (edges[0], edges[-1]))[0]
    return result


def _finite_values(file: WeightsFile, name: str) -> Iterator[NDArray[np.float64]]:
    for _, (bits,) in pieces([file], name, _PIECE):
        piece = values(bits, file.tensors[name].dtype)
        yield piece[np.isfinite(piece)]


@dataclass(frozen=True, eq=False)
class DifferenceDistributions:
    """How the differences between networks are spread, over intervals common to all.

    Attributes
    ----------
    paths : tuple of Path
        The files, in the order given.
    pairs : tuple of (int, int)
        The P pairs of them: differences are the second's parameter minus the first's.
    layers : tuple of str
        The L layers, in natural order.
    edges : ndarray of float64, shape (B + 1,)
        Powers of two, mirrored: from the largest difference below zero to that above it, with one
        interval in the middle for what is smaller than the least power, and for 0.
    counts : ndarray of int64, shape (P, L, B)
        Parameters per interval; one on an edge belongs to the interval farther from zero.
    n_zero : ndarray of int64, shape (P, L)
        Parameters of equal value, which are in the middle interval too.
    n_undefined : ndarray of int64, shape (P, L)
        Parameters whose difference is NaN or infinite, which are in no interval.
    """

    paths: tuple[Path, ...]
    pairs: tuple[tuple[int, int], ...]
    layers: tuple[str, ...]
    edges: NDArray[np.float64]
    counts: NDArray[np.int64]
    n_zero: NDArray[np.int64]
    n_undefined: NDArray[np.int64]


def difference_distributions(paths: Sequence[str | Path]) -> DifferenceDistributions:
    """Get histograms of the differences of networks from the first, by layer.

    Differences reach over many powers of ten, so the intervals are powers of two on both sides of
    zero. Their number comes from the exponent of the float64 difference, so that one reading is
    enough.

    Parameters
    ----------
    paths : sequence of str or Path
        Two or more files of one network. Each is read once, in pieces.

    Returns
    -------
    DifferenceDistributions
    """
    if len(paths) < 2:
        raise BadInput(f"{len(paths)} weights files were given, and differences need two or more")
    files = [open_weights(path) for path in paths]
    for file in files[1:]:
        if file.layout() != files[0].layout():
            raise BadInput(
                f"{file.path} holds other tensors than {files[0].path}, by name or shape; see "
                "compare_weights for which, and give files of one network"
            )
    layers = layer_groups(files[0].tensors)
    fields = np.zeros((len(files) - 1, len(layers), _FIELDS), np.int64)
    n_zero = np.zeros((len(files) - 1, len(layers)), np.int64)
    for name in files[0].tensors:
        layer = layers.index(layer_group(name))
        dtypes = [file.tensors[name].dtype for file in files]
        for _, bits in pieces(files, name, _PIECE):
            first = values(bits[0], dtypes[0])
            for p in range(len(files) - 1):
                same = bits[0] == bits[p + 1] if dtypes[0] == dtypes[p + 1] else False
                apart = differences(first, values(bits[p + 1], dtypes[p + 1]), same)
                n_zero[p, layer] += len(apart) - np.count_nonzero(apart)
                found = (apart.view(np.int64) >> _MANTISSA) & (_FIELDS - 1)
                fields[p, layer] += np.bincount(found, minlength=_FIELDS)
    edges, counts, n_undefined = _without_empty_ends(fields, n_zero)
    return DifferenceDistributions(
        paths=tuple(file.path for file in files),
        pairs=tuple((0, p) for p in range(1, len(files))),
        layers=layers,
        edges=edges,
        counts=counts,
        n_zero=n_zero,
        n_undefined=n_undefined,
    )


def _without_empty_ends(
    fields: NDArray[np.int64], n_zero: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Edges, counts and what is no number, from counts by sign and exponent."""
    positive, negative = fields[..., : _FIELDS // 2].copy(), fields[..., _FIELDS // 2 :].copy()
    n_undefined = positive[..., _NO_NUMBER] + negative[..., _NO_NUMBER]
    middle = positive[..., 0] + negative[..., 0]  # 0, and what is smaller than 2**-1022
    used = np.flatnonzero((positive + negative)[..., 1:_NO_NUMBER].sum((0, 1))) + 1
    low, high = (int(used[0]), int(used[-1]) + 1) if len(used) else (_BIAS, _BIAS)
    with np.errstate(over="ignore"):  # above the largest float64 there is only infinity
        steps = np.ldexp(1.0, np.arange(low, high + 1) - _BIAS)
    counts = np.concatenate(
        [negative[..., low:high][..., ::-1], middle[..., None], positive[..., low:high]], axis=-1
    )
    return np.concatenate([-steps[::-1], steps]), counts, n_undefined
