"""Two networks side by side, parameter by parameter, from safetensors files or Cellpose's own.

Equality is decided by bits: NaN payloads and the sign of zero count. Distances are computed in
float64 from one piece of a tensor at a time, so that memory does not grow with the files.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cellrepro.comparison.name_prefixes import prefixes_of_wrappers, without_prefix
from cellrepro.comparison.rounded_copies import Copy, copy_of, type_name
from cellrepro.comparison.verdicts import Verdict
from cellrepro.comparison.weight_reading import open_weights
from cellrepro.comparison.weight_tensors import (
    Bits,
    Network,
    Tensor,
    differences,
    natural_order,
    pieces,
    values,
)
from cellrepro.results import Result, Row, derived
from cellrepro.words import amount

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cellrepro.comparison.weight_files import FileComparison

_PIECE = 2**15  # parameters of each file in memory at a time, with some ten float64 values each


@dataclass(frozen=True, kw_only=True)
class Distance:
    """How far the second of two vectors of parameters, b, is from the first, a."""

    n_differing: int
    """Parameters with different bits, in a different shape or dtype, or in one file only."""
    l2: float
    """Length of b - a; NaN if a name or a shape differs; 0 between equal bits."""
    relative_l2: float
    """`l2` over the length of a; infinite if only a is all zero."""
    cosine: float
    """Of the angle between a and b; 1 if l2 is 0, NaN if exactly one is all zero."""
    max_abs: float
    """Largest difference of one parameter, NaN counting as the largest."""
    max_abs_name: str | None
    """The first tensor that has it."""
    max_ulp: int | None
    """Most steps from float to next float between a and b; None without floats, for other shapes or
    dtypes, and where one of the two is NaN and the bits differ."""
    median_ulp: int | None
    """Median of these steps, rounded down to 0, 1, 2, 4, 8 and so on."""


@dataclass(frozen=True, kw_only=True)
class TensorComparison(Distance):
    """One tensor that both hold under the same name."""

    name: str
    """Of the tensor."""
    shape: tuple[int, ...]
    """In a."""
    dtype: str
    """In a, as safetensors spells it: F32, BF16."""
    shape_b: tuple[int, ...]
    """In b."""
    dtype_b: str
    """In b."""
    n: int
    """Parameters; of the larger one where the shapes differ."""


@dataclass(frozen=True, kw_only=True, repr=False)
class WeightsComparison(Result, Distance):
    """How two files of weights differ: over all parameters, and tensor by tensor."""

    equal: bool
    """Whether names, shapes, dtypes and all bits are equal."""
    n_tensors: int
    """Tensors of either file; a name that both hold counts once."""
    n_parameters: int
    """Parameters of either file, likewise."""
    n_not_finite: int
    """Parameters that are NaN or infinite on either side, of names that both have."""
    only_a: tuple[str, ...]
    """Tensors that only a has, in natural order."""
    only_b: tuple[str, ...]
    """Tensors that only b has, likewise."""
    under: tuple[str, str]
    """The keys of checkpoints in which the networks were; empty elsewhere."""
    prefixes: tuple[str, str]
    """With which the names of a and of b begin, and which were left out to compare them."""
    copy: Copy | None
    """Where types differ: ``same numbers``, ``B is A rounded`` or ``A is B rounded``; None where
    numbers differ beyond that."""
    tensors: tuple[TensorComparison, ...] = field(repr=False)
    """Of names that both have, in natural order: blocks.2 before blocks.10."""
    files: FileComparison | None = None
    """Of two files: how they differ as bytes."""

    @derived
    def per_tensor(self) -> tuple[TensorComparison, ...]:
        """The tensors that differ, of names that both have, in natural order: blocks.2 before
        blocks.10."""
        return tuple(tensor for tensor in self.tensors if tensor.n_differing)

    @property
    def verdict(self) -> Verdict:
        """``identical``, ``different``, or ``vacuous`` where equality proves nothing: neither file
        holds a parameter, or at least half of them are NaN or infinite."""
        if not self.equal:
            return Verdict.DIFFERENT
        return Verdict.VACUOUS if 2 * self.n_not_finite >= self.n_parameters else Verdict.IDENTICAL

    def sentence(self) -> str:
        """How many parameters differ, and how far the two networks are apart."""
        of_wrappers = "".join(
            f"; the names of {side} are taken without {prefix!r}"
            for side, prefix in zip("AB", self.prefixes, strict=True)
            if prefix
        )
        return f"{self._distance_in_words()}{of_wrappers}"

    def _distance_in_words(self) -> str:
        if self.equal:
            return f"{amount(self.n_parameters, 'parameter')}, all equal"
        if self.copy is not None:
            return self._copy_in_words(self.copy)
        distance = (
            f"L2 {self.l2:.3g} (relative {self.relative_l2:.3g}), cosine {self.cosine:.6f}, "
            f"largest {self.max_abs:.3g} in {self.max_abs_name or 'none'}"
        )
        if math.isnan(self.l2):
            distance = "no distance over all of them"
        types = ""
        if self._types_of_both():
            types = f"; types differ: {self._types_of_both()}"
        return f"{self.n_differing} of {self.n_parameters} parameters differ, {distance}{types}"

    def _copy_in_words(self, copy: Copy) -> str:
        if copy == "same numbers":
            return f"the same numbers in two types ({self._types_of_both()}), no other bit differs"
        other = "A" if copy.startswith("B") else "B"
        return (
            f"{copy} ({self._types_of_both()}): after rounding all of {other}'s "
            f"{amount(self.n_parameters, 'parameter')} are equal"
        )

    def _types_of_both(self) -> str:
        """The types of the tensors that have two: "float32 in A, float16 in B"."""
        pairs = {(row.dtype, row.dtype_b) for row in self.tensors if row.dtype != row.dtype_b}
        return "; ".join(f"{type_name(a)} in A, {type_name(b)} in B" for a, b in sorted(pairs))

    def rows(self) -> Sequence[Row]:
        """A row for every tensor that differs, the farthest apart first."""
        differing = sorted(
            self.per_tensor, key=lambda tensor: (not math.isnan(tensor.l2), -tensor.relative_l2)
        )
        return [
            {
                "tensor": tensor.name,
                "parameters": tensor.n,
                "differing": tensor.n_differing,
                "relative L2": f"{tensor.relative_l2:.3g}",
                "largest": f"{tensor.max_abs:.3g}",
                "most steps between floats": "–" if tensor.max_ulp is None else tensor.max_ulp,
            }
            for tensor in differing
        ]


def compare_weights(
    path_a: str | Path, path_b: str | Path, *, prefix: str = ""
) -> WeightsComparison:
    """Get whether two networks are equal to the last bit, and where and how far they are not.

    Parameters
    ----------
    path_a, path_b : str or Path
        Safetensors files, or networks as Cellpose and PyTorch save them, also within a checkpoint,
        ``{"model_state_dict": …, "epoch": …}``. They are read in pieces.
    prefix : str
        With which the names begin of the tensors that count.

    Returns
    -------
    WeightsComparison
        Also where names, shapes or dtypes differ; that is a finding, not an error. Equal shapes
        with different dtypes (float32 and bfloat16) have a distance, and all bits count as other.

    Raises
    ------
    BadInput
        If one is no weights file, is damaged, or holds several networks: see `open_weights`.
    """
    a = _named_with(prefix, open_weights(path_a))
    b = _named_with(prefix, open_weights(path_b))
    return compare_networks(a, b)


def compare_networks(a: Network, b: Network, *, are_wrapped: bool = True) -> WeightsComparison:
    """Get the same of tensors that are open already."""
    prefixes = prefixes_of_wrappers(a, b) if are_wrapped else ("", "")
    a, b = (
        {without_prefix(name, prefix): tensor for name, tensor in network.items()}
        for network, prefix in zip((a, b), prefixes, strict=True)
    )
    sums = {name: _sums_of_tensor(name, a[name], b[name]) for name in _in_both(a, b)}
    tensors = tuple(_compared(name, a[name], b[name], sums[name]) for name in sums)
    unpaired = [tensor for name, tensor in {**a, **b}.items() if (name in a) != (name in b)]
    all_sums = list(itertools.chain(*sums.values()))
    whole = _distance([*all_sums, *(_sums_without_distance(tensor.n) for tensor in unpaired)])
    of_two_types = [name for name in sums if a[name].dtype != b[name].dtype]
    n_of_others = sum(row.n_differing for row in tensors if row.name not in of_two_types)
    copy = None
    if of_two_types and not unpaired and not n_of_others:
        copy = copy_of((a[name], b[name]) for name in of_two_types)
    alike = all((row.shape, row.dtype) == (row.shape_b, row.dtype_b) for row in tensors)
    return WeightsComparison(
        **asdict(whole),
        equal=alike and not unpaired and whole.n_differing == 0,
        n_tensors=len(tensors) + len(unpaired),
        n_parameters=sum(row.n for row in tensors) + sum(tensor.n for tensor in unpaired),
        n_not_finite=sum(piece.n_not_finite for piece in all_sums),
        only_a=natural_order(a.keys() - b.keys()),
        only_b=natural_order(b.keys() - a.keys()),
        under=(_key_in_checkpoint(a), _key_in_checkpoint(b)),
        prefixes=prefixes,
        copy=copy,
        tensors=tensors,
    )


def _named_with(prefix: str, network: Network) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in network.items() if name.startswith(prefix)}


def _in_both(a: Network, b: Network) -> tuple[str, ...]:
    return natural_order(a.keys() & b.keys())


def _key_in_checkpoint(network: Network) -> str:
    return next((tensor.under for tensor in network.values()), "")


def _compared(name: str, a: Tensor, b: Tensor, sums: Sequence[_Sums]) -> TensorComparison:
    return TensorComparison(
        **asdict(_distance(sums)),
        name=name,
        shape=a.shape,
        dtype=a.dtype,
        shape_b=b.shape,
        dtype_b=b.dtype,
        n=max(a.n, b.n),
    )


# -- what a distance is made of, piece by piece ----------------------------------------------

_N_ULP_DIGITS = 66  # binary digits of the largest distance of two float64 numbers, and one more


class _FloatLayout(NamedTuple):
    """How the bits of a float are divided."""

    n_bits: int
    n_mantissa: int


_FLOATS = {
    "F64": _FloatLayout(64, 52),
    "F32": _FloatLayout(32, 23),
    "F16": _FloatLayout(16, 10),
    "BF16": _FloatLayout(16, 7),
}


class _Ulps(NamedTuple):
    """Steps from float to next float between the parameters of a piece."""

    known: bool
    """Whether a and b are of one shape and dtype, and no NaN stands beside another value."""
    largest: int
    """Most steps; -1 without any float."""
    n_by_digits: NDArray[np.int64]
    """Parameters by the number of binary digits of their distance."""


_NO_FLOATS = _Ulps(known=True, largest=-1, n_by_digits=np.zeros(_N_ULP_DIGITS, np.int64))
_NOT_KNOWN = _NO_FLOATS._replace(known=False)


class _Products(NamedTuple):
    """Sums over the parameters of a piece, of products of two of a, b and b - a."""

    squared_difference: float
    a_times_b: float
    a_squared: float
    b_squared: float


class _Sums(NamedTuple):
    """What the distance of a piece of a tensor is made of."""

    tensor: str | None
    """Name of the tensor, if it has a distance."""
    n_differing: int
    """Parameters that differ."""
    products: _Products
    """Sums of products."""
    max_abs: float
    """Largest difference of one parameter."""
    n_not_finite: int
    """Parameters that are NaN or infinite on either side."""
    ulps: _Ulps
    """Steps between floats."""


def _sums_without_distance(n: int) -> _Sums:
    """Of n parameters that have no counterpart."""
    return _Sums(
        tensor=None,
        n_differing=n,
        products=_Products(math.nan, math.nan, math.nan, math.nan),
        max_abs=math.nan,
        n_not_finite=0,
        ulps=_NOT_KNOWN,
    )


def _sums_of_tensor(name: str, a: Tensor, b: Tensor) -> list[_Sums]:
    """Of every piece of one tensor, whose shapes may differ."""
    if a.shape != b.shape:
        return [_sums_without_distance(max(a.n, b.n))]
    return [
        _sums_of_piece(name, bits_a, bits_b, (a.dtype, b.dtype))
        for bits_a, bits_b in pieces([a, b], _PIECE)
    ]


def _sums_of_piece(name: str, bits_a: Bits, bits_b: Bits, dtypes: tuple[str, str]) -> _Sums:
    one_dtype = dtypes[0] == dtypes[1]
    a = values(bits_a, dtypes[0])
    b = values(bits_b, dtypes[1])
    same_bits = bits_a == bits_b if one_dtype else np.zeros(len(a), bool)
    difference = differences(a, b, same_bits)
    finite = np.isfinite(a) & np.isfinite(b)
    # Sums, not dot products: BLAS adds in an order that depends on its number of threads.
    with np.errstate(over="ignore", invalid="ignore"):
        products = _Products(
            squared_difference=float((difference * difference).sum()),
            a_times_b=float((a * b).sum()),
            a_squared=float((a * a).sum()),
            b_squared=float((b * b).sum()),
        )
    return _Sums(
        tensor=name,
        n_differing=len(a) - int(np.count_nonzero(same_bits)),
        products=products,
        max_abs=float(np.abs(difference).max(initial=0)),
        n_not_finite=len(a) - int(np.count_nonzero(finite)),
        ulps=_ulps(bits_a, bits_b, dtypes[0]) if one_dtype else _NOT_KNOWN,
    )


def _ulps(a: Bits, b: Bits, dtype: str) -> _Ulps:
    """Of the bits of two pieces of one dtype.

    Floats of one dtype in order of size are consecutive integers once the sign is taken off their
    bits. Infinity is one step beyond the largest number, and -0 and 0 are the same.
    """
    if dtype not in _FLOATS or not len(a):
        return _NO_FLOATS
    layout = _FLOATS[dtype]
    sign = np.uint64(1 << (layout.n_bits - 1))
    infinity = np.uint64((1 << (layout.n_bits - 1)) - (1 << layout.n_mantissa))
    differing = np.flatnonzero(a != b)
    bits_a = a[differing].astype(np.uint64)
    bits_b = b[differing].astype(np.uint64)
    size_a = bits_a & ~sign
    size_b = bits_b & ~sign
    if max(size_a.max(initial=0), size_b.max(initial=0)) > infinity:
        return _NOT_KNOWN
    on_one_side_of_zero = np.maximum(size_a, size_b) - np.minimum(size_a, size_b)
    steps = np.where((bits_a ^ bits_b) & sign, size_a + size_b, on_one_side_of_zero)
    n_digits = np.frexp(steps.astype(np.float64))[1]
    n_by_digits = np.bincount(n_digits, minlength=_N_ULP_DIGITS)
    n_by_digits[0] += len(a) - len(differing)
    return _Ulps(known=True, largest=int(steps.max(initial=0)), n_by_digits=n_by_digits)


def _distance(sums: Sequence[_Sums]) -> Distance:
    """Of several pieces as one vector."""
    total = np.array([piece.products for piece in sums]).reshape(-1, 4).sum(0)
    products = _Products(*total.tolist())
    sizes = [0.0, *(piece.max_abs for piece in sums)]
    at = int(np.argmax(sizes))  # the first NaN, if there is one
    # Squares of float64 numbers below 1e-162 are lost, and a distance of 0 means equal values.
    l2 = float(np.maximum(math.sqrt(products.squared_difference), sizes[at]))
    max_ulp, median_ulp = _largest_and_median([piece.ulps for piece in sums])
    return Distance(
        n_differing=sum(piece.n_differing for piece in sums),
        l2=l2,
        relative_l2=_relative(l2, products),
        cosine=_cosine(l2, products),
        max_abs=sizes[at],
        max_abs_name=sums[at - 1].tensor if at else None,
        max_ulp=max_ulp,
        median_ulp=median_ulp,
    )


def _relative(l2: float, products: _Products) -> float:
    if l2 == 0:
        return 0.0
    length_a = math.sqrt(products.a_squared)
    return l2 / length_a if length_a else math.inf


def _cosine(l2: float, products: _Products) -> float:
    if l2 == 0:
        return 1.0
    length_a = math.sqrt(products.a_squared)
    length_b = math.sqrt(products.b_squared)
    if not (length_a and length_b):
        return math.nan
    return float(np.clip(products.a_times_b / (length_a * length_b), -1, 1))  # rounding exceeds 1


def _largest_and_median(ulps: Sequence[_Ulps]) -> tuple[int | None, int | None]:
    """Over all pieces; None where one is not known, or without floats."""
    largest = max((piece.largest for piece in ulps), default=-1)
    if largest < 0 or not all(piece.known for piece in ulps):
        return None, None
    n_up_to = np.cumsum(np.sum([piece.n_by_digits for piece in ulps], axis=0))
    median_digits = int(np.searchsorted(n_up_to, (int(n_up_to[-1]) + 1) // 2))
    return largest, (1 << median_digits) >> 1
