"""Two networks side by side, parameter by parameter, from safetensors files or Cellpose's own.

Equality is decided by bits: NaN payloads and the sign of zero count. Where types differ, one may
still be the other, rounded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.comparison.rounded_copies import Copy, copy_of
from cellrepro.comparison.verdicts import Verdict
from cellrepro.comparison.weight_distance import (
    Distance,
    Sums,
    distance_of,
    sums_of_tensor,
    sums_without_distance,
)
from cellrepro.comparison.weight_reading import open_weights
from cellrepro.comparison.weight_tensors import (
    Network,
    Tensor,
    natural_order,
    prefixes_of_wrappers,
)
from samebits.results import Result, Row, derived
from samebits.words import amount, grouped, verb_of, with_verb

if TYPE_CHECKING:
    from cellrepro.comparison.weight_files import FileComparison


_KINDS = {"BF": "bfloat", "F": "float", "I": "int", "U": "uint"}


@dataclass(frozen=True, kw_only=True)
class TensorComparison(Distance):
    """One tensor that both hold under the same name."""

    name: str
    """Name of the tensor."""
    shape: tuple[int, ...]
    """Its shape in a."""
    dtype: str
    """Its type in a, as safetensors spells it: F32, BF16."""
    shape_b: tuple[int, ...]
    """Its shape in b."""
    dtype_b: str
    """Its type in b."""
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
    """The beginnings of the names in a and in b that were left out to compare them."""
    copy: Copy | None
    """Where types differ: ``same numbers``, ``B is A rounded`` or ``A is B rounded``; None where
    numbers differ beyond that."""
    tensors: tuple[TensorComparison, ...] = field(repr=False)
    """The tensors whose names both have, in natural order: blocks.2 before blocks.10."""
    files: FileComparison | None = None
    """How two files differ as bytes; None where networks were compared that are no files."""

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
            f"by {self.relative_l2:.3g} of their size; the largest difference is "
            f"{self.max_abs:.3g}, in {self.max_abs_name or 'none'}"
        )
        if math.isnan(self.l2):
            distance = "(no distance over all of them)"
        types = ""
        if self._types_of_both():
            types = f"; types differ: {self._types_of_both()}"
        differ = verb_of(self.n_differing, "differs", "differ")
        n_parameters = amount(self.n_parameters, "parameter")
        return f"{grouped(self.n_differing)} of {n_parameters} {differ} {distance}{types}"

    def _copy_in_words(self, copy: Copy) -> str:
        if copy == "same numbers":
            return f"the same numbers in two types ({self._types_of_both()}), no other bit differs"
        other = "A" if copy == "B is A rounded" else "B"
        return (
            f"{copy} ({self._types_of_both()}): after rounding all of {other}'s "
            f"{with_verb(self.n_parameters, 'parameter', 'is', 'are')} equal"
        )

    def _types_of_both(self) -> str:
        """The types of the tensors that have two: "float32 in A, float16 in B"."""
        pairs = {(row.dtype, row.dtype_b) for row in self.tensors if row.dtype != row.dtype_b}
        return "; ".join(f"{_type_name(a)} in A, {_type_name(b)} in B" for a, b in sorted(pairs))

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
    """Compare networks that are open already, as `compare_weights` does."""
    prefixes = prefixes_of_wrappers(a, b) if are_wrapped else ("", "")
    a, b = (
        {name.removeprefix(prefix): tensor for name, tensor in network.items()}
        for network, prefix in zip((a, b), prefixes, strict=True)
    )
    in_both = natural_order(a.keys() & b.keys())
    sums = {name: sums_of_tensor(name, a[name], b[name]) for name in in_both}
    tensors = tuple(_compared(name, a[name], b[name], sums[name]) for name in sums)
    unpaired = [tensor for name, tensor in {**a, **b}.items() if (name in a) != (name in b)]
    all_sums = list(itertools.chain(*sums.values()))
    whole = distance_of([*all_sums, *(sums_without_distance(tensor.n) for tensor in unpaired)])
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


def _key_in_checkpoint(network: Network) -> str:
    return next((tensor.under for tensor in network.values()), "")


def _compared(name: str, a: Tensor, b: Tensor, sums: Sequence[Sums]) -> TensorComparison:
    return TensorComparison(
        **asdict(distance_of(sums)),
        name=name,
        shape=a.shape,
        dtype=a.dtype,
        shape_b=b.shape,
        dtype_b=b.dtype,
        n=max(a.n, b.n),
    )


def _type_name(dtype: str) -> str:
    """A type of numbers as PyTorch calls it: ``float16``."""
    kind = dtype.rstrip("0123456789")
    return f"{_KINDS[kind]}{dtype.removeprefix(kind)}" if kind in _KINDS else dtype.lower()
