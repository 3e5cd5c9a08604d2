"""N networks, every one against every other, from one reading of their files.

Two of them at a time, in float64, while a piece of every file is in memory: nothing is subtracted
from sums of squares, in which close networks would cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cellrepro.compare.weight_files import (
    Bits,
    WeightsFile,
    layer_group,
    layer_groups,
    open_weights,
    pieces,
    values,
)
from cellrepro.compare.weights import differences
from cellrepro.errors import BadInput

_READ = 2**21  # parameters in memory at a time, of all files together
_BLOCK = 2**18  # of these in float64 at a time: 2 MiB, which stays in the nearer caches

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Similarity:
    """Every file of weights against every other; N files in the order given, in L layers.

    Attributes
    ----------
    paths : tuple of Path
        The N files.
    equal : ndarray of bool, shape (N, N)
        Same names, shapes, dtypes and bits.
    l2, relative_l2, cosine, max_abs : ndarray of float64, shape (N, N)
        As in `cellrepro.compare.weights.Distance`, row as a and column as b: all but
        ``relative_l2``, which is relative to the row's network, are symmetric. NaN where the two
        are not the same network. They differ from those of `compare_weights` by rounding only,
        and are 0 only if all values are equal.
    layers : tuple of str
        Parts of the networks, of all files, in natural order.
    layer_relative_l2 : ndarray of float64, shape (L, N, N)
        The same for each layer; NaN also where the networks do not have that layer.
    """

    paths: tuple[Path, ...]
    equal: NDArray[np.bool_]
    l2: Matrix
    relative_l2: Matrix
    cosine: Matrix
    max_abs: Matrix
    layers: tuple[str, ...]
    layer_relative_l2: Matrix


def similarity(paths: Sequence[str | Path]) -> Similarity:
    """Get how far each of N networks is from each other one, in all and layer by layer.

    Parameters
    ----------
    paths : sequence of str or Path
        Files as `compare_weights` takes them. Each is read once, a piece of every file at a time.

    Returns
    -------
    Similarity
    """
    if not paths:
        raise BadInput("no weights file was given to compare; give at least one path")
    files = [open_weights(path) for path in paths]
    n = len(files)
    layers = layer_groups({name for file in files for name in file.tensors})
    l2, relative, cosine, largest = (np.full((n, n), np.nan) for _ in range(4))
    equal = np.eye(n, dtype=bool)
    layer_relative = np.full((len(layers), n, n), np.nan)
    left = list(range(n))
    while left:  # files of one network, by names and shapes
        members = [i for i in left if files[i].layout() == files[left[0]].layout()]
        left = [i for i in left if i not in members]
        totals = _Totals([files[i] for i in members])
        here = np.ix_(members, members)
        equal[here], largest[here] = totals.equal, totals.largest.max(0, initial=0)
        l2[here], relative[here], cosine[here] = _distances(
            totals.squares.sum(0), totals.apart.sum(0), largest[here]
        )
        for i, layer in enumerate(totals.layers):
            layer_relative[layers.index(layer)][here] = _distances(
                totals.squares[i], totals.apart[i], totals.largest[i]
            )[1]
    return Similarity(
        paths=tuple(file.path for file in files),
        equal=equal,
        l2=l2,
        relative_l2=relative,
        cosine=cosine,
        max_abs=largest,
        layers=layers,
        layer_relative_l2=layer_relative,
    )


def _distances(squares: Matrix, apart: Matrix, largest: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """L2, relative L2 and cosine, as of two networks alone."""
    lengths = np.sqrt(squares)
    l2 = np.maximum(np.sqrt(apart), largest)  # squares below 1e-308 are lost
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        relative = np.where(lengths[:, None] == 0, np.inf, l2 / lengths[:, None])
        product = (squares[:, None] + squares - apart) / 2
        cosine = np.clip(product / (lengths[:, None] * lengths), -1, 1)
    return l2, np.where(l2 == 0, 0, relative), np.where(l2 == 0, 1, cosine)


class _Totals:
    """Sums over all pieces of M files of one network with L layers.

    Attributes
    ----------
    squares : ndarray of float64, shape (L, M)
        Squared length of each layer of each network.
    apart, largest : ndarray of float64, shape (L, M, M)
        Squared distance and largest difference of one parameter, of each two.
    equal : ndarray of bool, shape (M, M)
        Whether all dtypes and bits were equal.
    """

    def __init__(self, files: Sequence[WeightsFile]):
        m = len(files)
        self.layers = layer_groups(files[0].tensors)
        self.squares = np.zeros((len(self.layers), m))
        self.apart = np.zeros((len(self.layers), m, m))
        self.largest = np.zeros((len(self.layers), m, m))
        self.equal = np.ones((m, m), bool)
        if m == 1:  # at distance 0 from itself, unread
            return
        step = max(1, _BLOCK // m)
        self._memory = np.empty((m, step))  # new memory would cost more than what is done in it
        for name in files[0].tensors:
            dtypes = [file.tensors[name].dtype for file in files]
            layer = self.layers.index(layer_group(name))
            for _, bits in pieces(files, name, max(step, _READ // m)):
                for start in range(0, max(len(bits[0]), 1), step):
                    self._add(layer, [each[start : start + step] for each in bits], dtypes)

    def _add(self, layer: int, bits: Sequence[Bits], dtypes: Sequence[str]) -> None:
        x = np.stack([values(*each) for each in zip(bits, dtypes, strict=True)])
        with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaNs travel on
            self.squares[layer] += np.einsum("ij,ij->i", x, x)
            for i in range(len(x) - 1):
                rest = slice(i + 1, len(x))
                difference = np.subtract(x[rest], x[i], out=self._memory[rest, : x.shape[1]])
                apart = np.einsum("ij,ij->i", difference, difference)
                for j in np.flatnonzero(~np.isfinite(apart)).tolist():
                    alike = dtypes[i] == dtypes[i + 1 + j]
                    same_bits = bits[i] == bits[i + 1 + j] if alike else False
                    difference[j] = differences(x[i], x[i + 1 + j], same_bits)
                    apart[j] = np.einsum("j,j->", difference[j], difference[j])
                largest = np.maximum(difference.max(1, initial=0), -difference.min(1, initial=0))
                self._count(layer, i, rest, apart, largest)
                for j in (i + 1 + np.flatnonzero(largest == 0)).tolist():  # -0 and 0 are equal
                    if dtypes[i] != dtypes[j] or not np.array_equal(bits[i], bits[j]):
                        self.equal[i, j] = self.equal[j, i] = False

    def _count(self, layer: int, i: int, rest: slice, apart: Matrix, largest: Matrix) -> None:
        self.apart[layer, i, rest] += apart
        self.apart[layer, rest, i] += apart
        self.largest[layer, i, rest] = np.maximum(self.largest[layer, i, rest], largest)
        self.largest[layer, rest, i] = self.largest[layer, i, rest]
        self.equal[i, rest] &= largest == 0
        self.equal[rest, i] = self.equal[i, rest]


@dataclass(frozen=True)
class LayerDistances:
    """How far networks are apart in one layer.

    Attributes
    ----------
    layer : str
        Part of the networks.
    pairs : tuple of (int, int)
        Numbers of the files a and b; each two networks are there in both orders.
    relative_l2 : tuple of float
        Of each pair, relative to a's layer; infinite where only a's layer is all zero.
    least, median, most : float
        Of these.
    furthest : (int, int)
        The first pair with ``most``.
    """

    layer: str
    pairs: tuple[tuple[int, int], ...]
    relative_l2: tuple[float, ...]
    least: float
    median: float
    most: float
    furthest: tuple[int, int]


def layers_by_distance(table: Similarity) -> tuple[LayerDistances, ...]:
    """Get the layers of N networks, those that differ most first.

    Returns
    -------
    tuple of LayerDistances
        By falling median of the relative L2 distance over all pairs of networks that are not
        equal; pairs without a distance, of other names or shapes or with NaN in that layer, are
        left out. Without a pair there is no row.
    """
    found = []
    for layer, relative in zip(table.layers, table.layer_relative_l2, strict=True):
        with_distance = ~table.equal & ~np.isnan(relative)
        pairs = [(int(i), int(j)) for i, j in np.argwhere(with_distance)]
        if not pairs:
            continue
        sizes = relative[with_distance]
        found.append(
            LayerDistances(
                layer=layer,
                pairs=tuple(pairs),
                relative_l2=tuple(sizes.tolist()),
                least=float(sizes.min()),
                median=float(np.median(sizes)),
                most=float(sizes.max()),
                furthest=pairs[int(np.argmax(sizes))],
            )
        )
    return tuple(sorted(found, key=lambda row: -row.median))
