"""N networks: every one against every other, by layer, and histograms; files are read in pieces."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellrepro.errors import BadInput
from cellrepro.same.weights import (
    Bits,
    Tensor,
    Values,
    differences,
    layer_group,
    layer_groups,
    natural_order,
    open_weights,
    pieces,
    values,
)

_BLOCK = 2**21  # parameters of all files in memory at a time; read in pieces, larger ones cost less
_PIECE = 2**16  # parameters of each file in memory at a time, for histograms
_LEAST = -1074  # exponent of the least float64; those below the greatest end at 1024


@dataclass(frozen=True, eq=False)
class Similarity:
    """Every file of weights against every other; N files in the order given, in L layers.

    Distances as of `compare_weights`, row as a and column as b, shape (N, N): NaN where the two
    are not the same network, 0 only if all values are equal.
    """

    paths: tuple[Path, ...]
    equal: NDArray[np.bool_]  # shape (N, N): same names, shapes, dtypes and bits
    l2: Values
    relative_l2: Values  # to the row's network; all others are symmetric
    cosine: Values
    max_abs: Values
    layers: tuple[str, ...]  # of all files, in natural order
    layer_relative_l2: Values  # shape (L, N, N); NaN also where the networks lack that layer


def similarity(paths: Sequence[str | Path]) -> Similarity:
    """Get how far each of N networks is from each other one, in all and layer by layer.

    Parameters
    ----------
    paths : sequence of str or Path
        Files as `compare_weights` takes them. Each is read once, a piece of every file at a time.
    """
    if not paths:
        raise BadInput("no weights file was given to compare; give at least one path")
    files = [open_weights(path) for path in paths]
    layers = layer_groups(name for file in files for name in file)
    layouts = [_layout(file) for file in files]
    one_network = np.array([[a == b for b in layouts] for a in layouts])
    has_layer = np.array([[layer in layer_groups(file) for file in files] for layer in layers])
    shape = (len(layers), len(files), len(files))
    equal, apart, largest = one_network.copy(), np.zeros(shape), np.zeros(shape)
    squares = np.zeros(shape[:2])
    for members in {tuple(np.flatnonzero(row).tolist()) for row in one_network}:
        if len(members) == 1:  # at distance 0 from itself, unread
            continue
        here = np.ix_(members, members)
        for name in files[members[0]]:
            layer = layers.index(layer_group(name))
            tensors = [files[i][name] for i in members]
            for bits in pieces(tensors, max(1, _BLOCK // len(members))):
                found = _pairwise(bits, [tensor.dtype for tensor in tensors])
                squares[layer, members] += found[0]
                apart[layer][here] += found[1]
                largest[layer][here] = np.maximum(largest[layer][here], found[2])
                equal[here] &= found[3]
    whole = _distances(squares.sum(0), apart.sum(0), largest.max(0, initial=0))
    l2, relative, cosine, max_abs = (np.where(one_network, each, np.nan) for each in whole)
    known = one_network & has_layer.reshape(*shape[:2], 1)
    return Similarity(
        paths=tuple(map(Path, paths)),
        equal=equal,
        l2=l2,
        relative_l2=relative,
        cosine=cosine,
        max_abs=max_abs,
        layers=layers,
        layer_relative_l2=np.where(known, _distances(squares, apart, largest)[1], np.nan),
    )


def _layout(file: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Equal for files of one network, whatever the dtypes."""
    return {name: tensor.shape for name, tensor in file.items()}


def _pairwise(
    bits: Sequence[Bits], dtypes: Sequence[str]
) -> tuple[Values, Values, Values, NDArray[np.bool_]]:
    """Squared lengths, (M,); squared distances, largest differences, equality of bits, (M, M)."""
    # Nothing is subtracted from sums of squares, in which close networks would cancel.
    from scipy.spatial.distance import pdist, squareform

    x = np.stack([values(*each) for each in zip(bits, dtypes, strict=True)])
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaNs travel on
        squares = np.einsum("ij,ij->i", x, x)
        apart, largest = pdist(x, "sqeuclidean"), pdist(x, "chebyshev")
        equal = largest == 0
        pairs = list(itertools.combinations(range(len(x)), 2))
        for k in np.flatnonzero(equal | ~np.isfinite(apart)).tolist():
            i, j = pairs[k]
            alike = dtypes[i] == dtypes[j]
            if not np.isfinite(apart[k]):
                difference = differences(x[i], x[j], bits[i] == bits[j] if alike else False)
                apart[k] = np.einsum("i,i->", difference, difference)
                largest[k] = np.abs(difference).max()
            equal[k] = alike and np.array_equal(bits[i], bits[j])  # -0 and 0 are not equal
    return squares, squareform(apart), squareform(largest), squareform(~equal) == 0


def _distances(
    squares: Values, apart: Values, largest: Values
) -> tuple[Values, Values, Values, Values]:
    """L2, relative L2, cosine and largest difference, as of two networks alone."""
    lengths = np.sqrt(squares)[..., :, None]
    l2 = np.maximum(np.sqrt(apart), largest)  # squares below 1e-308 are lost
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        relative = np.where(lengths == 0, np.inf, l2 / lengths)
        product = (squares[..., :, None] + squares[..., None, :] - apart) / 2
        cosine = np.clip(product / (lengths * lengths.swapaxes(-1, -2)), -1, 1)
    return l2, np.where(l2 == 0, 0, relative), np.where(l2 == 0, 1, cosine), largest


class LayerDistances(NamedTuple):
    """How far networks are apart in one layer."""

    layer: str
    pairs: list[tuple[int, int]]  # of the files a and b; each two are there in both orders
    relative_l2: Values  # of each pair; infinite where only a's layer is all zero
    least: float
    median: float
    most: float
    furthest: tuple[int, int]  # the first pair with the most


def layers_by_distance(table: Similarity) -> list[LayerDistances]:
    """The layers by falling median of their distances over all pairs of different networks."""
    found = []
    for layer, relative in zip(table.layers, table.layer_relative_l2, strict=True):
        shown = ~table.equal & ~np.isnan(relative)
        pairs = [(int(i), int(j)) for i, j in np.argwhere(shown)]
        if pairs:
            sizes = relative[shown]
            least, median, most = (float(of(sizes)) for of in (np.min, np.median, np.max))
            furthest = pairs[int(sizes.argmax())]
            found.append(LayerDistances(layer, pairs, sizes, least, median, most, furthest))
    return sorted(found, key=lambda row: -row.median)


class WeightStatistics(NamedTuple):
    """Numbers about some parameters."""

    parameters: int
    mean: float
    std: float  # of these parameters, divided by their number
    l1: float  # sum of magnitudes
    l2: float  # length
    largest: float  # magnitude


def weight_statistics(path: str | Path) -> dict[str, WeightStatistics]:
    """Get how many parameters a network has, their mean, standard deviation and norms.

    Parameters
    ----------
    path : str or Path
        A file as `compare_weights` takes it, of which one tensor is read at a time.

    Returns
    -------
    dict
        Of ``all`` together but what is one number, as Cellpose's diameters; then of each layer.
    """
    file, found = open_weights(path), {}
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaNs travel on
        moments = np.array([_moments(tensor) for tensor in file.values()]).reshape(-1, 6)
        for layer in ("all", *layer_groups(file)):
            members = [
                layer == layer_group(name) or (layer == "all" and tensor.n != 1)
                for name, tensor in file.items()
            ]
            n, means, apart, l1, l2, largest = moments[members].T
            total = max(1, n.sum())
            mean = (n * means).sum() / total
            std = np.sqrt((apart + n * (means - mean) ** 2).sum() / total)
            norms = (l1.sum(), np.linalg.norm(l2), largest.max(initial=0))
            found[layer] = WeightStatistics(int(n.sum()), *map(float, (mean, std, *norms)))
    return found


def _moments(tensor: Tensor) -> Values:
    """Number, mean, squared distances from it, both norms, the largest magnitude."""
    x = values(tensor.bits(0, tensor.n), tensor.dtype)
    mean, size = x.sum() / max(1, len(x)), np.abs(x)
    apart, norms = ((x - mean) ** 2).sum(), (size.sum(), np.linalg.norm(x))
    return np.array([len(x), mean, apart, *norms, size.max(initial=0)])


def distributions(
    paths: Mapping[str, str | Path], *, bins: int = 61
) -> dict[str, dict[str, tuple[NDArray[np.int64], Values]]]:
    """By label and layer, in natural order: counts of finite weights, (bins,), and edges, from
    minus to plus the largest magnitude of the layer in all networks."""
    files = {label: open_weights(path) for label, path in paths.items()}

    def finite(file: Mapping[str, Tensor], name: str) -> Iterator[Values]:
        for (bits,) in pieces([file[name]], _PIECE):
            piece = values(bits, file[name].dtype)
            yield piece[np.isfinite(piece)]

    largest: dict[str, float] = {}
    for file in files.values():
        for name in file:
            sizes = (float(np.abs(piece).max(initial=0)) for piece in finite(file, name))
            layer = layer_group(name)
            largest[layer] = max(largest.get(layer, 0.0), *sizes)
    found: dict[str, dict[str, tuple[NDArray[np.int64], Values]]] = {}
    for label, file in files.items():
        of_file = found.setdefault(label, {})
        for name in natural_order(file):
            layer = layer_group(name)
            limit = largest[layer] or 1.0
            nothing = np.zeros(bins, np.int64), np.linspace(-limit, limit, bins + 1)
            counts, _ = of_file.setdefault(layer, nothing)
            for piece in finite(file, name):
                # Intervals given by number and ends are found six times faster than by edges.
                counts += np.histogram(piece, bins, (-limit, limit))[0]
    return found


@dataclass(frozen=True, eq=False)
class DifferenceDistributions:
    """How N - 1 networks differ from the first, in L layers, over B intervals common to all."""

    paths: tuple[Path, ...]
    layers: tuple[str, ...]  # in natural order
    edges: Values  # shape (B + 1,): powers of two on both sides of zero
    counts: NDArray[np.int64]  # shape (N - 1, L, B); in the middle those of equal value alone
    n_undefined: NDArray[np.int64]  # shape (N - 1, L): NaN or infinite, in no interval

    @property
    def n_zero(self) -> NDArray[np.int64]:
        """Parameters of equal value, shape (N - 1, L)."""
        return self.counts[..., self.counts.shape[-1] // 2]


def difference_distributions(paths: Sequence[str | Path]) -> DifferenceDistributions:
    """Get histograms of the differences of networks from the first, by layer.

    Parameters
    ----------
    paths : sequence of str or Path
        Two or more files of one network. Each is read once, in pieces.
    """
    if len(paths) < 2:
        raise BadInput(f"{len(paths)} weights files were given, and differences need two or more")
    first, *others = files = [open_weights(path) for path in paths]
    for path, file in zip(paths, files, strict=True):
        if _layout(file) != _layout(first):
            raise BadInput(
                f"{path} holds other tensors than {paths[0]}, by name or shape; see "
                "compare_weights for which, and give files of one network"
            )
    layers = layer_groups(first)
    # By sign and exponent: as many intervals below zero as above it, and one for zero.
    n_sizes = 1024 - _LEAST
    counts = np.zeros((len(others), len(layers), 2 * n_sizes + 1), np.int64)
    n_undefined = np.zeros(counts.shape[:2], np.int64)
    for name in first:
        layer = layers.index(layer_group(name))
        dtypes = [file[name].dtype for file in files]
        for bits in pieces([file[name] for file in files], _PIECE):
            start = values(bits[0], dtypes[0])
            for p in range(len(others)):
                same = bits[0] == bits[p + 1] if dtypes[0] == dtypes[p + 1] else False
                apart = differences(start, values(bits[p + 1], dtypes[p + 1]), same)
                finite = apart[np.isfinite(apart)]
                n_undefined[p, layer] += len(apart) - len(finite)
                size = np.frexp(finite)[1] - _LEAST  # of 2**-1074 it is 1, of the greatest 2098
                places = n_sizes + np.sign(finite).astype(int) * size
                counts[p, layer] += np.bincount(places, minlength=counts.shape[-1])
    # From the least to the greatest difference there is, on both sides.
    total = counts.sum((0, 1))
    used = np.flatnonzero((total + total[::-1])[n_sizes + 1 :])
    low, high = (int(used[0]), int(used[-1]) + 1) if len(used) else (-_LEAST, -_LEAST)
    with np.errstate(over="ignore"):  # above the largest float64 there is only infinity
        steps = np.ldexp(1.0, np.arange(low, high + 1) + _LEAST)
    sizes = np.arange(low, high) + 1
    shown = counts[..., [*(n_sizes - sizes[::-1]), n_sizes, *(n_sizes + sizes)]]
    edges = np.concatenate([-steps[::-1], steps])
    return DifferenceDistributions(tuple(map(Path, paths)), layers, edges, shown, n_undefined)
