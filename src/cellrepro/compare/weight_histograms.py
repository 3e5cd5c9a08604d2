"""Histograms of weights and of their differences, by layer, from safetensors files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cellrepro.compare.weight_distances import differences
from cellrepro.compare.weight_files import (
    WeightsFile,
    in_step,
    known_names,
    layer_group,
    layer_groups,
    layout,
    natural_order,
    open_weights,
    slots_of_equal_content,
    values,
)
from cellrepro.errors import BadInput

_PIECE = 2**16  # parameters in memory at a time
_IN_STEP = 2**21  # the same over all files that are read together
# float64 in bits: sign, 11 of exponent (0 for zero and numbers below 2**-1022), 52 of mantissa.
_MANTISSA, _FIELDS, _BIAS = 52, 2**12, 1023
_NO_NUMBER = 2**11 - 1


def distribution(
    path: str | Path,
    *,
    bins: int = 101,
    names: Iterable[str] | None = None,
    limits: Mapping[str, float] | None = None,
) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Get a histogram of the weights of each layer group.

    Parameters
    ----------
    path : str or Path
        A safetensors file. It is read twice, in pieces; once with ``limits``.
    bins : int
        Per histogram, at least 1. An odd number gives 0 a bin in the middle.
    names : iterable of str, optional
        The tensors to count; all by default.
    limits : mapping of str to float, optional
        Magnitude at which the histogram of a group ends, instead of its own largest one, so
        that files can be compared over common intervals; see `magnitudes`. It must name every
        group, and weights beyond are in no bin.

    Returns
    -------
    dict of str to (counts, edges)
        Per `layer_group`, in natural order. ``counts``: ndarray of int64, shape (bins,);
        ``edges``: ndarray of float64, shape (bins + 1,), from minus to plus the largest magnitude
        of the group (-1 to 1 if that is 0). Infinities and NaNs are in no bin, so that ``counts``
        sums to the number of finite weights.

    Raises
    ------
    BadInput
        If the file cannot be read, as in `compare_weights`, does not hold one of the names,
        ``bins`` is below 1, or ``limits`` lacks a group.
    """
    if bins < 1:
        raise BadInput(f"{bins} bins were asked for, and a histogram has at least 1; try 101")
    file = open_weights(path)
    chosen = natural_order(file.tensors if names is None else known_names(file, names))
    largest = _magnitudes(file, chosen) if limits is None else limits
    groups = list(layer_groups(chosen))
    missing = [group for group in groups if group not in largest]
    if missing:
        raise BadInput(
            f"limits names {sorted(largest)}, but {path} also holds {', '.join(missing)}; give "
            "the largest of `magnitudes` over all files"
        )
    result = {
        group: (
            np.zeros(bins, np.int64),
            np.linspace(-largest[group] or -1.0, largest[group] or 1.0, bins + 1),
        )
        for group in groups
    }
    for name in chosen:
        counts, edges = result[layer_group(name)]
        for piece in _finite_values(file, name):
            # Intervals given by number and ends are found six times faster than by their edges.
            counts += np.histogram(piece, bins, (edges[0], edges[-1]))[0]
    return result


def magnitudes(path: str | Path) -> dict[str, float]:
    """Get the largest magnitude among the finite weights of each layer group.

    Parameters
    ----------
    path : str or Path
        A safetensors file. It is read once, in pieces.

    Returns
    -------
    dict of str to float
        Per `layer_group`, in natural order; 0 for a group without finite weights.

    Raises
    ------
    BadInput
        If the file cannot be read, as in `compare_weights`.
    """
    file = open_weights(path)
    return _magnitudes(file, natural_order(file.tensors))


def _magnitudes(file: WeightsFile, names: Iterable[str]) -> dict[str, float]:
    largest: dict[str, float] = {}
    for name in names:
        group = layer_group(name)
        for piece in _finite_values(file, name):
            magnitude = float(np.max(np.abs(piece), initial=0))
            largest[group] = max(largest.get(group, 0.0), magnitude)
    return largest


def _finite_values(file: WeightsFile, name: str) -> Iterable[NDArray[np.float64]]:
    for _, bits in file.pieces(name, _PIECE):
        piece = values(bits, file.tensors[name].dtype)
        yield piece[np.isfinite(piece)]


# Differences


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
        The L layer groups, in natural order.
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


def difference_distributions(
    paths: Sequence[str | Path],
    *,
    pairs: Iterable[tuple[int, int]] | None = None,
    digests: Sequence[str | None] | None = None,
) -> DifferenceDistributions:
    """Get a histogram of the differences between networks, by layer, over common intervals.

    Differences reach over many powers of ten, so the intervals are powers of two on both sides of
    zero. Their number comes from the exponent of the float64 difference, so that one reading is
    enough.

    Parameters
    ----------
    paths : sequence of str or Path
        Safetensors files of one network. Each is read once, in pieces.
    pairs : iterable of (int, int), optional
        Which to compare, by their numbers in ``paths``; the first with every other by default.
    digests : sequence of str or None, optional
        As in `similarity`.

    Returns
    -------
    DifferenceDistributions

    Raises
    ------
    BadInput
        If there are fewer than two files, a pair names another, names or shapes differ, or a file
        cannot be read, as in `compare_weights`.
    """
    if len(paths) < 2:
        raise BadInput(
            f"{len(paths)} weights files were given, and differences need two or more; give "
            "another path"
        )
    files = [open_weights(path) for path in paths]
    chosen = [(0, j) for j in range(1, len(files))] if pairs is None else list(pairs)
    for pair in chosen:
        if not all(0 <= i < len(files) for i in pair):
            raise BadInput(
                f"the pair {pair} was asked for, and there are files 0 to {len(files) - 1}"
            )
    for file in files[1:]:
        if layout(file) != layout(files[0]):
            raise BadInput(
                f"{file.path} holds other tensors than {files[0].path}, by name or shape; see "
                "compare_weights for which, and give files of one network"
            )
    slots = slots_of_equal_content(files, digests)
    by_slot = {slot: files[slots.index(slot)] for slot in sorted(set(slots))}
    layers = layer_groups(files[0].tensors)
    fields = np.zeros((len(chosen), len(layers), _FIELDS), np.int64)
    n_zero = np.zeros((len(chosen), len(layers)), np.int64)
    for name, bits in in_step(list(by_slot.values()), _IN_STEP):
        layer = layers.index(layer_group(name))
        dtypes = [file.tensors[name].dtype for file in by_slot.values()]
        numbers = [values(*both) for both in zip(bits, dtypes, strict=True)]
        for p, (i, j) in enumerate(chosen):
            a, b = slots[i], slots[j]
            same_bits = np.full(len(bits[a]), a == b)
            if dtypes[a] == dtypes[b]:
                same_bits = bits[a] == bits[b]
            apart = differences(numbers[a], numbers[b], same_bits)
            n_zero[p, layer] += len(apart) - np.count_nonzero(apart)
            found = (apart.view(np.int64) >> _MANTISSA) & (_FIELDS - 1)
            fields[p, layer] += np.bincount(found, minlength=_FIELDS)
    edges, counts, n_undefined = _without_empty_ends(fields, n_zero)
    return DifferenceDistributions(
        paths=tuple(file.path for file in files),
        pairs=tuple(chosen),
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
    # Exponent 0 is left with what is smaller than 2**-1022 and not 0.
    positive[..., 0] += negative[..., 0] - n_zero
    negative[..., 0] = 0
    both = (positive + negative)[..., :_NO_NUMBER].sum((0, 1))
    used = np.flatnonzero(both[1:]) + 1
    low, high = (int(used[0]), int(used[-1]) + 1) if len(used) else (_BIAS, _BIAS)
    with np.errstate(over="ignore"):  # above the largest float64 there is only infinity
        steps = np.ldexp(1.0, np.arange(low, high + 1) - _BIAS)
    middle = positive[..., 0] + n_zero
    counts = np.concatenate(
        [negative[..., low:high][..., ::-1], middle[..., None], positive[..., low:high]], axis=-1
    )
    return np.concatenate([-steps[::-1], steps]), counts, n_undefined
