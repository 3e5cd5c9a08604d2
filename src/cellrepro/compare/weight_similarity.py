"""N networks, every one against every other, from one reading of their safetensors files.

Taken one by one, the pairs of 20 networks cost 190 passes over each parameter. Here squared
distances come from matrices of scalar products, ``|x - y|**2 = |x|**2 + |y|**2 - 2 x.y``, and that
cancels where x and y are close. So it is only believed where the result is not small beside the
terms. Pairs for which it is small are computed again after one of the networks was subtracted from
all, which is exact enough because close numbers differ exactly; pairs still too close are
computed with yet another network subtracted, and so on. Distances from the subtracted network
itself are plain sums of squares. That leaves a relative error of about 1e-14 in a squared
distance, whatever the networks, and 0 means equal values.

The largest difference of one parameter is looked for only where the range over all networks, or
their distance from the subtracted one, leaves room for more than was found before.

All is decided piece by piece, while a piece of every file is in memory.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cellrepro.compare.weight_distances import differences, sums_of
from cellrepro.compare.weight_files import (
    Bits,
    WeightsFile,
    in_step,
    layer_group,
    layer_groups,
    layout,
    numbers,
    open_weights,
    slots_of_equal_content,
    values,
)
from cellrepro.errors import BadInput

_PIECE_VALUES = 2**23  # parameters read at a time over all files: 32 MiB of float32, twice
_BLOCK_VALUES = 2**18  # of those in float64 at a time: 2 MiB
# Of one matrix product: so few that OpenBLAS (0.3.31) does not divide it among threads, which
# would change the order of its sums and takes many times as long where the processors are busy;
# and that both factors stay in the nearest cache.
_ROWS, _COLUMNS = 20, 512
_PAIRS_AT_ONCE = 2**13  # differences of single parameters in memory at a time: 64 KiB
# A squared distance below this share of the two squared lengths is computed with a network
# subtracted: first generously, since ranges tell more of what is left; then as rounding asks.
_FAR_APART = 0.4
_NOT_CANCELLED = 1 / 16
_ALIKE = 8  # lengths within this factor: the networks are about as far from the one subtracted
_TINY = 1e-280  # squares below lost digits, or all of them

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
        As in `WeightsComparison`, row as a and column as b: all but ``relative_l2``, which is
        relative to the row's network, are symmetric. NaN where the two are not the same network.
        ``max_abs`` is exact; the others differ from those of `compare_weights` by less than
        1e-12 of themselves, or of 1 for the cosine, and are 0 only if all values are equal.
    layers : tuple of str
        As from `layer_group`, of all files.
    layer_l2, layer_relative_l2, layer_cosine : ndarray of float64, shape (L, N, N)
        The same for each layer; NaN also where the networks do not have that layer.
    """

    paths: tuple[Path, ...]
    equal: NDArray[np.bool_]
    l2: Matrix
    relative_l2: Matrix
    cosine: Matrix
    max_abs: Matrix
    layers: tuple[str, ...]
    layer_l2: NDArray[np.float64]
    layer_relative_l2: NDArray[np.float64]
    layer_cosine: NDArray[np.float64]


@dataclass(frozen=True)
class LayerDistances:
    """How far networks are apart in one layer.

    Attributes
    ----------
    layer : str
        As from `layer_group`.
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


def similarity(
    paths: Sequence[str | Path], *, digests: Sequence[str | None] | None = None
) -> Similarity:
    """Get how far each of N networks is from each other one, in all and layer by layer.

    Parameters
    ----------
    paths : sequence of str or Path
        Safetensors files. Each is read once, a piece of every file at a time.
    digests : sequence of str or None, optional
        Of the files' content, in the same order, None where unknown. Files with equal digests are
        taken as equal and read once, as are links to one file; the digests are not checked.

    Returns
    -------
    Similarity

    Raises
    ------
    BadInput
        If there is no file, there are not as many digests as paths, or a file cannot be read, as
        in `compare_weights`.
    """
    if not paths:
        raise BadInput("no weights file was given to compare; give at least one path")
    files = [open_weights(path) for path in paths]
    slots = slots_of_equal_content(files, digests)
    distinct = [files[slots.index(slot)] for slot in range(max(slots) + 1)]
    table = _similarity_of_distinct(distinct)
    rows, columns = np.ix_(slots, slots)
    return Similarity(
        paths=tuple(file.path for file in files),
        equal=table.equal[rows, columns],
        l2=table.l2[rows, columns],
        relative_l2=table.relative_l2[rows, columns],
        cosine=table.cosine[rows, columns],
        max_abs=table.max_abs[rows, columns],
        layers=table.layers,
        layer_l2=table.layer_l2[:, rows, columns],
        layer_relative_l2=table.layer_relative_l2[:, rows, columns],
        layer_cosine=table.layer_cosine[:, rows, columns],
    )


def layers_by_distance(table: Similarity) -> tuple[LayerDistances, ...]:
    """Get the layers of N networks, those that part most first.

    Parameters
    ----------
    table : Similarity
        From `similarity`.

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


def _similarity_of_distinct(files: Sequence[WeightsFile]) -> Similarity:
    n = len(files)
    layers = layer_groups({name for file in files for name in file.tensors})
    undefined = np.full((n, n), np.nan)
    in_layers = np.full((len(layers), n, n), np.nan)
    result = Similarity(
        paths=tuple(file.path for file in files),
        equal=np.eye(n, dtype=bool),
        l2=undefined.copy(),
        relative_l2=undefined.copy(),
        cosine=undefined.copy(),
        max_abs=undefined.copy(),
        layers=layers,
        layer_l2=in_layers.copy(),
        layer_relative_l2=in_layers.copy(),
        layer_cosine=in_layers.copy(),
    )
    left = list(range(n))
    while left:
        members = [i for i in left if layout(files[i]) == layout(files[left[0]])]
        left = [i for i in left if i not in members]
        _fill_in_one_network(result, [files[i] for i in members], members)
    return result


def _fill_in_one_network(
    result: Similarity, files: Sequence[WeightsFile], members: Sequence[int]
) -> None:
    """Write the entries of the files that hold the same names and shapes into ``result``."""
    layers = layer_groups(files[0].tensors)
    totals = _Totals.zero(len(files), len(layers))
    if len(files) > 1:  # one alone is at distance 0 from itself, unread
        memory = _Memory()
        for name, bits in in_step(files, _PIECE_VALUES):
            dtypes = [file.tensors[name].dtype for file in files]
            totals.add(layers.index(layer_group(name)), bits, dtypes, memory)
    rows, columns = np.ix_(members, members)
    result.equal[rows, columns] = totals.equal
    result.max_abs[rows, columns] = totals.largest
    apart = totals.apart.sum(0)
    # Of differences whose squares float64 does not have, the largest is known.
    l2 = np.where(apart < _TINY, totals.largest, np.sqrt(apart))
    result.l2[rows, columns] = l2
    result.relative_l2[rows, columns], result.cosine[rows, columns] = _relative_and_cosine(
        totals.squares.sum(0), l2, totals.product.sum(0)
    )
    for i, layer in enumerate(layers):
        at = result.layers.index(layer), rows, columns
        l2 = np.sqrt(totals.apart[i])
        result.layer_l2[at] = l2
        result.layer_relative_l2[at], result.layer_cosine[at] = _relative_and_cosine(
            totals.squares[i], l2, totals.product[i]
        )


def _relative_and_cosine(
    squares: NDArray[np.float64], l2: Matrix, product: Matrix
) -> tuple[Matrix, Matrix]:
    """As `Sums` has them, of all pairs."""
    lengths = np.sqrt(squares)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        relative = np.where(lengths[:, None] == 0, np.inf, l2 / lengths[:, None])
        cosine = np.clip(product / (lengths[:, None] * lengths), -1, 1)
    return np.where(l2 == 0, 0, relative), np.where(l2 == 0, 1, cosine)


@dataclass(frozen=True, eq=False)
class _Totals:
    """Sums over the pieces seen so far, for M files of one network.

    Attributes
    ----------
    squares : ndarray of float64, shape (L, M)
        Squared length of each layer of each network.
    apart, product : ndarray of float64, shape (L, M, M)
        Squared distance and scalar product of each two.
    largest : ndarray of float64, shape (M, M)
        Largest difference of one parameter.
    equal : ndarray of bool, shape (M, M)
        Whether all dtypes and bits were equal.
    """

    squares: Matrix
    apart: Matrix
    product: Matrix
    largest: Matrix
    equal: NDArray[np.bool_]

    @classmethod
    def zero(cls, n_files: int, n_layers: int) -> "_Totals":
        return cls(
            np.zeros((n_layers, n_files)),
            np.zeros((n_layers, n_files, n_files)),
            np.zeros((n_layers, n_files, n_files)),
            np.zeros((n_files, n_files)),
            np.ones((n_files, n_files), bool),
        )

    def add(
        self, layer: int, bits: Sequence[Bits], dtypes: Sequence[str], memory: "_Memory"
    ) -> None:
        """Count a piece of a tensor of that layer in, given from every file."""
        leaders, kinds = _distinct(bits, dtypes)
        every_pair = np.ix_(kinds, kinds)
        np.logical_and(self.equal, kinds[:, None] == kinds, out=self.equal)
        # Those with equal bits here may differ elsewhere, and count with the least they have.
        known = np.full((len(leaders), len(leaders)), np.inf)
        np.minimum.at(known, every_pair, self.largest)
        near = self.apart.sum(0)[np.ix_(leaders, leaders)]
        rows = [(bits[i], dtypes[i]) for i in leaders]
        step = _COLUMNS * max(1, _BLOCK_VALUES // (_COLUMNS * len(rows)))
        close = False
        for start in range(0, len(bits[0]), step):
            part = [(b[start : start + step], dtype) for b, dtype in rows]
            with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaNs travel on
                block = _Block(part, known, near, memory, expected_close=close)
            close = block.close
            self.squares[layer] += block.squares[kinds]
            self.apart[layer] += block.apart[every_pair]
            self.product[layer] += block.product[every_pair]
            np.maximum(self.largest, block.largest[every_pair], out=self.largest)
            known = block.largest


def _distinct(bits: Sequence[Bits], dtypes: Sequence[str]) -> tuple[list[int], NDArray[np.int64]]:
    """The first file of each content, and for each file which of these it has."""
    leaders: list[int] = []
    kinds = np.zeros(len(bits), np.int64)
    by_start: dict[tuple[str, bytes], list[int]] = {}  # contents by their first parameters
    for i, (content, dtype) in enumerate(zip(bits, dtypes, strict=True)):
        alike = by_start.setdefault((dtype, content[:32].tobytes()), [])
        for kind in alike:
            if np.array_equal(content, bits[leaders[kind]]):
                kinds[i] = kind
                break
        else:
            kinds[i] = len(leaders)
            alike.append(len(leaders))
            leaders.append(i)
    return leaders, kinds


class _Memory:
    """Arrays to compute one block after the other in.

    They are kept because new memory costs more than what is computed in it: the system hands it
    out page by page, and takes it back after every block.
    """

    def __init__(self) -> None:
        self._flat: dict[str, NDArray[np.float64]] = {}

    def array(self, name: str, *shape: int) -> NDArray[np.float64]:
        """The one of that name, with anything in it."""
        n = math.prod(shape)
        if name not in self._flat or self._flat[name].size < n:
            self._flat[name] = np.empty(n)
        return self._flat[name][:n].reshape(shape)


class _Block:
    """All pairs of D networks over some parameters, of which no two have equal bits throughout.

    Attributes
    ----------
    squares : ndarray of float64, shape (D,)
        Squared lengths.
    apart, product : ndarray of float64, shape (D, D)
        Squared distances, scalar products.
    largest : ndarray of float64, shape (D, D)
        Largest difference of one parameter, or the one known if that is larger.
    close : bool
        Whether all networks were close to each other.
    """

    def __init__(
        self,
        rows: Sequence[tuple[Bits, str]],
        known: Matrix,
        near: Matrix,
        memory: _Memory,
        *,
        expected_close: bool,
    ):
        self._rows = rows
        self._memory = memory
        n = len(rows)
        self._x = _in_columns(rows, memory)
        self.apart = np.zeros((n, n))
        self.largest = known.copy()
        if expected_close:
            self.squares = np.einsum("kns,kns->n", self._x, self._x)
        else:
            self.product = _products(self._x)
            self.squares = np.diag(self.product).copy()
        finite = np.isfinite(self.squares)
        self._open = finite[:, None] & finite & ~np.eye(n, dtype=bool)
        sums = self.squares[:, None] + self.squares
        if not expected_close:
            apart = sums - 2 * self.product
            good = _not_cancelled(apart, sums, _FAR_APART)
            self._settle(self._x, np.arange(n), apart, good, self.squares)
        while self._open.any():
            self._from_differences(near)
        self.close = bool((self.apart < _FAR_APART * sums).all())
        if expected_close and self.close:
            self.product = (sums - self.apart) / 2  # which cannot cancel
        elif expected_close:
            self.product = _products(self._x)
        for i in np.flatnonzero(~finite):
            for j in range(n):
                self._one_pair(int(i), j)

    def _from_differences(self, near: Matrix) -> None:
        """Settle those pairs that are closer to each other than to the network subtracted."""
        # The one that most pairs are waiting for, and of those the one in the middle.
        waiting = self._open.sum(1)
        middle = np.where(waiting == waiting.max(), np.where(self._open, near, 0).sum(1), np.inf)
        one = int(np.argmin(middle))
        which = np.flatnonzero(self._open[one] | (np.arange(len(waiting)) == one))
        d = self._memory.array("differences", len(self._x), len(which), _COLUMNS)
        rows = self._x
        if len(which) < len(waiting):
            rows = np.take(self._x, which, axis=1, out=d, mode="clip")  # "raise" would copy twice
        np.subtract(rows, self._x[:, one : one + 1], out=d)
        products = _products(d)
        squares = np.diag(products).copy()
        # Squares below 1e-308 are 0 in float64, and only equal values have distance 0.
        for row in np.flatnonzero(squares == 0):
            if d[:, row].any():
                squares[row] = np.nextafter(0, 1)
        sums = squares[:, None] + squares
        apart = sums - 2 * products
        good = _not_cancelled(apart, sums, _NOT_CANCELLED)
        good[which == one] = good[:, which == one] = True  # plain sums of squares
        self._settle(d, which, apart, good, squares)

    def _settle(
        self,
        d: Matrix,
        which: NDArray[np.int64],
        apart: Matrix,
        good: NDArray[np.bool_],
        squares: NDArray[np.float64],
    ) -> None:
        """Take over the good ones among the squared distances of some networks.

        ``d`` has the networks ``which``, with the same one subtracted from all or none, and
        ``squares`` their squared lengths.
        """
        all_of = np.ix_(which, which)
        good = good & self._open[all_of]
        if not good.any():
            return
        self.apart[all_of] = np.where(good, apart, self.apart[all_of])
        self._open[all_of] &= ~good
        k, column = _which_may_exceed(d, np.where(good, self.largest[all_of], np.inf), squares)
        found = _largest_differences(self._x, which, k, column)
        self.largest[all_of] = np.where(
            good, np.maximum(self.largest[all_of], found), self.largest[all_of]
        )

    def _one_pair(self, i: int, j: int) -> None:
        """Settle a pair in which infinities or NaNs are, or numbers with an infinite square."""
        (bits_i, dtype_i), (bits_j, dtype_j) = self._rows[i], self._rows[j]
        same = np.full(len(bits_i), i == j)
        if dtype_i == dtype_j:
            same = bits_i == bits_j
        a, b = values(bits_i, dtype_i), values(bits_j, dtype_j)
        sums = sums_of(a, b, differences(a, b, same))
        self.apart[i, j] = self.apart[j, i] = sums.difference
        self.product[i, j] = self.product[j, i] = sums.product
        self.largest[i, j] = np.maximum(self.largest[i, j], sums.max_abs)  # also where it is NaN
        self.largest[j, i] = self.largest[i, j]


def _in_columns(rows: Sequence[tuple[Bits, str]], memory: _Memory) -> Matrix:
    """Values of N networks as (K, N, columns), with zeros behind the last parameter."""
    n = len(rows[0][0])
    x = memory.array("values", -(-n // _COLUMNS), len(rows), _COLUMNS)
    n_whole, rest = divmod(n, _COLUMNS)
    x[n_whole:, :, rest:] = 0
    with np.errstate(invalid="ignore"):  # raised by casting a signalling NaN
        for i, (bits, dtype) in enumerate(rows):
            content = numbers(bits, dtype)
            x[:n_whole, i] = content[: n_whole * _COLUMNS].reshape(n_whole, _COLUMNS)
            x[n_whole:, i, :rest] = content[n_whole * _COLUMNS :]
    return x


def _products(x: Matrix) -> Matrix:
    """Scalar products of the N rows of (K, N, columns), their squares on the diagonal."""
    n = x.shape[1]
    products = np.zeros((n, n))
    for i in range(0, n, _ROWS):
        for j in range(i, n, _ROWS):
            rows, columns = slice(i, i + _ROWS), slice(j, j + _ROWS)
            some = np.matmul(x[:, rows], x[:, columns].transpose(0, 2, 1))
            products[rows, columns] = some.sum(0)
    upper = np.triu(products, 1)  # each pair has one product, whatever BLAS made of it
    return upper + upper.T + np.diag(np.diag(products))


def _not_cancelled(apart: Matrix, sums: Matrix, enough: float) -> NDArray[np.bool_]:
    """Which squared distances are not small beside the sums of two squares they came from."""
    return ((apart >= enough * sums) & (sums > _TINY) & (sums < np.inf)) | (sums == 0)


def _which_may_exceed(
    d: Matrix, known: Matrix, squares: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where in (K, N, columns) two rows may differ by more than is known of them: k, column.

    ``known`` is infinite for pairs that do not matter. The bounds are lowered by far more than
    the rounding of d and of themselves.
    """
    known = (1 - 1e-12) * known
    lengths = np.sqrt(squares)
    if lengths.max() <= _ALIKE * lengths.min(where=lengths > 0, initial=np.inf):
        span = d.max(1) - d.min(1)  # of all rows, so no two are farther apart
        k, column = np.nonzero(span > np.fmin.reduce(known, axis=None))
        return k, column
    # If |d_i - d_j| > known, then |d_i| or |d_j| is above its part of it, and any parts will do;
    # parts in proportion to the rows' lengths are seldom exceeded.
    pairs = lengths[:, None] + lengths
    share = np.full(pairs.shape, 0.5)
    np.divide(lengths[:, None], pairs, out=share, where=(pairs > 0) & (pairs < np.inf))
    with np.errstate(invalid="ignore"):  # 0 * infinity; where NaN is known, nothing exceeds it
        limit = np.fmin.reduce(share * known, axis=1)
    size = np.maximum(d.max(2), -d.min(2))
    k, row = np.nonzero(size > limit)
    hit, column = np.nonzero(np.abs(d[k, row]) > limit[row, None])
    return np.divmod(np.unique(k[hit] * d.shape[2] + column), d.shape[2])


def _largest_differences(
    x: Matrix, which: NDArray[np.int64], k: NDArray[np.int64], column: NDArray[np.int64]
) -> Matrix:
    """Of every two of some rows of (K, N, columns), at these places."""
    n = len(which)
    found = np.zeros((n, n))
    step = max(1, _PAIRS_AT_ONCE // n**2)
    for start in range(0, len(k), step):
        at = slice(start, start + step)
        part = x[k[at, None], which, column[at, None]]
        apart = part[:, :, None] - part[:, None, :]
        np.maximum(found, np.abs(apart, out=apart).max(0), out=found)
    return found
