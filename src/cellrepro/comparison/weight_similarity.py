"""N networks, every one against every other, in all and by layer; files are read in pieces."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.weight_reading import open_weights
from cellrepro.comparison.weight_tensors import (
    Bits,
    Network,
    Tensor,
    Values,
    differences,
    layer_of,
    layers_of,
    pieces,
    values,
)
from samebits.errors import BadInput
from samebits.results import Result, Row
from samebits.words import amount

_BLOCK = 2**21  # parameters of all files in a piece; larger ones cost less
_MOST_THREADS = 4  # a piece in memory for each


@dataclass(frozen=True, eq=False, repr=False)
class Similarity(Result):
    """Every file of weights against every other; N files in the order given, in L layers.

    Distances as of `compare_weights`, row as a and column as b, shape (N, N): NaN where the two
    are not the same network, 0 only if all values are equal.
    """

    paths: tuple[Path, ...]
    """The files."""
    equal: NDArray[np.bool_]
    """Whether names, shapes, dtypes and bits are the same."""
    l2: Values
    """Length of the difference."""
    relative_l2: Values
    """The same over the length of the row's network; all other arrays are symmetric."""
    cosine: Values
    """Cosine of the angle between the two."""
    max_abs: Values
    """Largest difference of one parameter."""
    layers: tuple[str, ...]
    """The layers of all files, in natural order."""
    layer_relative_l2: Values
    """`relative_l2` of each layer; NaN also where the networks lack that layer."""

    def sentence(self) -> str:
        """How many of the networks are equal, and how far the others lie apart."""
        n_different = len(np.unique(self.equal, axis=0))
        networks = amount(len(self.paths), "network")
        if n_different == 1:
            return f"{networks}, all equal to the last bit"
        known = self.relative_l2[~self.equal & np.isfinite(self.relative_l2)]
        if not len(known):
            return f"{networks}, {n_different} of them different, without a distance"
        return (
            f"{networks}, {n_different} of them different, at relative distances of "
            f"{known.min():.3g} to {known.max():.3g}"
        )

    def rows(self) -> Sequence[Row]:
        """A row for every layer in which networks differ, the farthest apart first."""
        return [
            {
                "layer": layer.layer,
                "least": f"{layer.least:.3g}",
                "median": f"{layer.median:.3g}",
                "most": f"{layer.most:.3g}",
            }
            for layer in layers_by_distance(self)
        ]


def similarity(paths: Sequence[str | Path]) -> Similarity:
    """Get how far each of N networks is from each other one, in all and layer by layer.

    Parameters
    ----------
    paths : sequence of str or Path
        Files as `compare_weights` takes them. Each is read once, a piece of every file at a time.

    Returns
    -------
    Similarity
        Also where the files hold different networks; such pairs have no distance.

    Raises
    ------
    BadInput
        If there is no path, or one is no weights file that can be read.
    """
    if not paths:
        raise BadInput("no weights file was given to compare; give at least one path")
    files = [open_weights(path) for path in paths]
    n_files = len(files)
    layers = layers_of(name for file in files for name in file)
    layouts = [_layout(file) for file in files]
    one_network = np.array([[a == b for b in layouts] for a in layouts])
    has_layer = np.array([[layer in layers_of(file) for file in files] for layer in layers])
    equal = one_network.copy()
    sums = _Sums.zeros(len(layers), n_files)
    for members in {tuple(np.flatnonzero(row).tolist()) for row in one_network}:
        if len(members) == 1:  # at distance 0 from itself, unread
            continue
        table = np.ix_(members, members)
        for name in files[members[0]]:
            layer = layers.index(layer_of(name))
            tensors = [files[i][name] for i in members]
            dtypes = [tensor.dtype for tensor in tensors]
            for piece in _compared_pieces(tensors, dtypes):
                sums.squared_lengths[layer, members] += piece.squared_lengths
                sums.squared_distances[layer][table] += piece.squared_distances
                largest = np.maximum(sums.largest[layer][table], piece.largest)
                sums.largest[layer][table] = largest
                equal[table] &= piece.equal
    whole = _distances(
        sums.squared_lengths.sum(0), sums.squared_distances.sum(0), sums.largest.max(0, initial=0)
    )
    by_layer = _distances(sums.squared_lengths, sums.squared_distances, sums.largest)
    known = one_network & has_layer.reshape(len(layers), n_files, 1)
    return Similarity(
        paths=tuple(map(Path, paths)),
        equal=equal,
        l2=np.where(one_network, whole.l2, np.nan),
        relative_l2=np.where(one_network, whole.relative_l2, np.nan),
        cosine=np.where(one_network, whole.cosine, np.nan),
        max_abs=np.where(one_network, whole.max_abs, np.nan),
        layers=layers,
        layer_relative_l2=np.where(known, by_layer.relative_l2, np.nan),
    )


def _layout(file: Network) -> dict[str, tuple[int, ...]]:
    """Equal for files of one network, whatever the dtypes."""
    return {name: tensor.shape for name, tensor in file.items()}


class _Sums(NamedTuple):
    """The sums that distances are made of, added up over pieces, by layer."""

    squared_lengths: Values
    """The squared length of each network, layer by layer."""
    squared_distances: Values
    """The squared distance of each two networks, layer by layer."""
    largest: Values
    """Largest difference of one parameter."""

    @classmethod
    def zeros(cls, n_layers: int, n_files: int) -> _Sums:
        shape = (n_layers, n_files, n_files)
        return cls(np.zeros(shape[:2]), np.zeros(shape), np.zeros(shape))


class _PieceOfAll(NamedTuple):
    """One piece of a tensor in M files, every one against every other."""

    squared_lengths: Values
    """The squared length of each network."""
    squared_distances: Values
    """The squared distance of each two networks."""
    largest: Values
    """Largest difference of one parameter."""
    equal: NDArray[np.bool_]
    """Whether all bits are equal."""


def _compared_pieces(tensors: Sequence[Tensor], dtypes: Sequence[str]) -> Iterator[_PieceOfAll]:
    """Compare a tensor piece by piece, in order, while the next ones are read and compared."""
    n_threads = min(_MOST_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(n_threads) as threads:
        waiting: deque[Future[_PieceOfAll]] = deque()
        for bits in pieces(tensors, max(1, _BLOCK // len(tensors))):
            waiting.append(threads.submit(_compared, bits, dtypes))
            if len(waiting) > n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _compared(bits: Sequence[Bits], dtypes: Sequence[str]) -> _PieceOfAll:
    """Distances from differences: in sums of squares close networks would cancel."""
    from scipy.spatial.distance import pdist, squareform

    x = np.stack([values(*each) for each in zip(bits, dtypes, strict=True)])
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaNs travel on
        squared_lengths = np.einsum("ij,ij->i", x, x)
        squared_distances = pdist(x, "sqeuclidean")
        largest = pdist(x, "chebyshev")
        equal = largest == 0
        pairs = list(itertools.combinations(range(len(x)), 2))
        for k in np.flatnonzero(equal | ~np.isfinite(squared_distances)).tolist():
            i, j = pairs[k]
            one_dtype = dtypes[i] == dtypes[j]
            if not np.isfinite(squared_distances[k]):
                same_bits = bits[i] == bits[j] if one_dtype else False
                difference = differences(x[i], x[j], same_bits)
                squared_distances[k] = np.einsum("i,i->", difference, difference)
                largest[k] = np.abs(difference).max()
            equal[k] = one_dtype and np.array_equal(bits[i], bits[j])  # -0 and 0 are not equal
    return _PieceOfAll(
        squared_lengths=squared_lengths,
        squared_distances=squareform(squared_distances),
        largest=squareform(largest),
        equal=squareform(~equal) == 0,
    )


class _Distances(NamedTuple):
    """The distances of `compare_weights`, each of shape (..., N, N)."""

    l2: Values
    relative_l2: Values
    cosine: Values
    max_abs: Values


def _distances(squared_lengths: Values, squared_distances: Values, largest: Values) -> _Distances:
    """The distances that sums over pieces make; shapes (..., N), (..., N, N) and (..., N, N)."""
    lengths = np.sqrt(squared_lengths)[..., :, None]
    l2 = np.maximum(np.sqrt(squared_distances), largest)  # squares below 1e-308 are lost
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        relative = np.where(lengths == 0, np.inf, l2 / lengths)
        both_squared = squared_lengths[..., :, None] + squared_lengths[..., None, :]
        product = (both_squared - squared_distances) / 2
        cosine = np.clip(product / (lengths * lengths.swapaxes(-1, -2)), -1, 1)
    return _Distances(
        l2=l2,
        relative_l2=np.where(l2 == 0, 0, relative),
        cosine=np.where(l2 == 0, 1, cosine),
        max_abs=largest,
    )


class LayerDistances(NamedTuple):
    """How far networks are apart in one layer."""

    layer: str
    """Its name."""
    pairs: list[tuple[int, int]]
    """The files a and b of each pair; each two are there in both orders."""
    relative_l2: Values
    """The distance of each pair in lengths of a; infinite where only a's layer is all zero."""
    least: float
    """The smallest of these."""
    median: float
    """Their median."""
    most: float
    """The largest of these."""
    furthest: tuple[int, int]
    """The first pair with the largest."""


def layers_by_distance(table: Similarity) -> list[LayerDistances]:
    """The layers by falling median of their distances over all pairs of different networks."""
    layers = []
    for layer, relative in zip(table.layers, table.layer_relative_l2, strict=True):
        shown = ~table.equal & ~np.isnan(relative)
        pairs = [(int(i), int(j)) for i, j in np.argwhere(shown)]
        if not pairs:
            continue
        distances = relative[shown]
        layers.append(
            LayerDistances(
                layer=layer,
                pairs=pairs,
                relative_l2=distances,
                least=float(np.min(distances)),
                median=float(np.median(distances)),
                most=float(np.max(distances)),
                furthest=pairs[int(distances.argmax())],
            )
        )
    return sorted(layers, key=lambda row: -row.median)
