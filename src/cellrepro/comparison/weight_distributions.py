"""Histograms of the weights of networks, and of their differences, read a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.weight_reading import open_weights
from cellrepro.comparison.weight_tensors import (
    Network,
    Tensor,
    Values,
    differences,
    layer_of,
    layers_of,
    natural_order,
    pieces,
    values,
)
from samebits.errors import BadInput
from samebits.results import Result, Row
from samebits.words import amount, joined, with_verb

_PIECE = 2**16  # parameters of each file in memory at a time
_LEAST = -1074  # exponent of the least float64; those below the greatest end at 1024
_N_SIZES = 1024 - _LEAST  # of numbers on one side of zero, each twice as large as the one before


# -- histograms of weights -------------------------------------------------------------------


class Histogram(NamedTuple):
    """How the finite weights of one layer are distributed over B intervals."""

    counts: NDArray[np.int64]
    """Values in each interval."""
    edges: Values
    """Ends of the intervals, rising."""


def distributions(
    paths: Mapping[str, str | Path], *, bins: int = 61
) -> dict[str, dict[str, Histogram]]:
    """Histograms of the weights of several networks, by label, then by layer in natural order."""
    files = {label: open_weights(path) for label, path in paths.items()}
    largest = _largest_by_layer(files)
    histograms: dict[str, dict[str, Histogram]] = {}
    for label, file in files.items():
        histograms[label] = {}
        for name in natural_order(file):
            layer = layer_of(name)
            limit = largest[layer] or 1.0
            if layer not in histograms[label]:
                edges = np.linspace(-limit, limit, bins + 1)
                histograms[label][layer] = Histogram(np.zeros(bins, np.int64), edges)
            counts = histograms[label][layer].counts
            for piece in _finite_values(file[name]):
                # Intervals given by number and ends are found six times faster than by edges.
                counts += np.histogram(piece, bins, (-limit, limit))[0]
    return histograms


def _largest_by_layer(files: Mapping[str, Network]) -> dict[str, float]:
    """The largest magnitude in all networks."""
    largest: dict[str, float] = {}
    for file in files.values():
        for name, tensor in file.items():
            sizes = [float(np.abs(piece).max(initial=0)) for piece in _finite_values(tensor)]
            layer = layer_of(name)
            largest[layer] = max(largest.get(layer, 0.0), *sizes)
    return largest


def _finite_values(tensor: Tensor) -> Iterator[Values]:
    """The finite values of a tensor, piece by piece."""
    for (bits,) in pieces([tensor], _PIECE):
        piece = values(bits, tensor.dtype)
        yield piece[np.isfinite(piece)]


# -- histograms of differences ---------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class DifferenceDistributions(Result):
    """How N - 1 networks differ from the first, in L layers, over B intervals common to all."""

    paths: tuple[Path, ...]
    """The files, N of them."""
    layers: tuple[str, ...]
    """L layers in natural order."""
    edges: Values
    """Powers of two on both sides of zero."""
    counts: NDArray[np.int64]
    """Parameters in each interval; in the middle one those of equal value alone."""
    n_undefined: NDArray[np.int64]
    """Parameters whose difference is NaN or infinite, in no interval."""

    @property
    def n_zero(self) -> NDArray[np.int64]:
        """Parameters of equal value, shape (N - 1, L)."""
        return self.counts[..., self.counts.shape[-1] // 2]

    def sentence(self) -> str:
        """Say how many parameters have different values than in the first network."""
        n_all = self.counts.sum(axis=(1, 2)) + self.n_undefined.sum(axis=1)
        n_other = n_all - self.n_zero.sum(axis=1)
        others = [
            f"{path.name}: {n} of {amount(int(total), 'parameter')}"
            for path, n, total in zip(self.paths[1:], n_other, n_all, strict=True)
        ]
        return f"different values than in {self.paths[0].name}: {joined(others)}"

    def rows(self) -> list[Row]:
        """Give how many parameters differ, by network and layer."""
        return [
            {
                "network": path.name,
                "layer": layer,
                "parameters": int(counts.sum()),
                "of other value": int(counts.sum() - counts[counts.size // 2]),
            }
            for path, by_layer in zip(self.paths[1:], self.counts, strict=True)
            for layer, counts in zip(self.layers, by_layer, strict=True)
        ]


def difference_distributions(paths: Sequence[str | Path]) -> DifferenceDistributions:
    """Get histograms of the differences of networks from the first, by layer.

    Parameters
    ----------
    paths : sequence of str or Path
        Two or more files of one network. Each is read once, in pieces.

    Returns
    -------
    DifferenceDistributions
        Its intervals reach from the least to the greatest difference there is, on both sides of 0.

    Raises
    ------
    BadInput
        If there are fewer than two files, one cannot be read, or they hold different networks.
    """
    if len(paths) < 2:
        given = with_verb(len(paths), "weights file", "was", "were")
        raise BadInput(f"{given} given, and differences need two or more")
    files = [open_weights(path) for path in paths]
    _refuse_other_networks(paths, files)
    layers = layers_of(files[0])
    # By sign and exponent: as many intervals below zero as above it, and one for zero.
    counts = np.zeros((len(files) - 1, len(layers), 2 * _N_SIZES + 1), np.int64)
    n_undefined = np.zeros(counts.shape[:2], np.int64)
    for name in files[0]:
        layer = layers.index(layer_of(name))
        dtypes = [file[name].dtype for file in files]
        for bits in pieces([file[name] for file in files], _PIECE):
            first = values(bits[0], dtypes[0])
            for i in range(1, len(files)):
                same_bits = bits[0] == bits[i] if dtypes[0] == dtypes[i] else False
                difference = differences(first, values(bits[i], dtypes[i]), same_bits)
                finite = difference[np.isfinite(difference)]
                n_undefined[i - 1, layer] += len(difference) - len(finite)
                counts[i - 1, layer] += _counts_by_sign_and_exponent(finite)
    low, high = _range_of_sizes(counts)
    with np.errstate(over="ignore"):  # above the largest float64 there is only infinity
        powers = np.ldexp(1.0, np.arange(low, high + 1) + _LEAST)
    sizes = np.arange(low, high) + 1
    shown = [*(_N_SIZES - sizes[::-1]), _N_SIZES, *(_N_SIZES + sizes)]
    return DifferenceDistributions(
        paths=tuple(map(Path, paths)),
        layers=layers,
        edges=np.concatenate([-powers[::-1], powers]),
        counts=counts[..., shown],
        n_undefined=n_undefined,
    )


def _refuse_other_networks(paths: Sequence[str | Path], files: Sequence[Network]) -> None:
    first, *others = [{name: tensor.shape for name, tensor in file.items()} for file in files]
    for path, shapes in zip(paths[1:], others, strict=True):
        if shapes != first:
            raise BadInput(
                f"{path} holds different tensors than {paths[0]}, by name or shape; see "
                "compare_weights for which, and give files of one network"
            )


def _counts_by_sign_and_exponent(finite: Values) -> NDArray[np.int64]:
    """Shape (2 * _N_SIZES + 1,): negative numbers from the greatest, 0, positive from the least."""
    size = np.frexp(finite)[1] - _LEAST  # of 2**-1074 it is 1, of the greatest 2098
    index = _N_SIZES + np.sign(finite).astype(int) * size
    return np.bincount(index, minlength=2 * _N_SIZES + 1)


def _range_of_sizes(counts: NDArray[np.int64]) -> tuple[int, int]:
    """The least size there is on either side of zero, and the first above the greatest."""
    total = counts.sum((0, 1))
    of_both_signs = (total + total[::-1])[_N_SIZES + 1 :]
    used = np.flatnonzero(of_both_signs)
    if not len(used):
        return -_LEAST, -_LEAST
    return int(used[0]), int(used[-1]) + 1
