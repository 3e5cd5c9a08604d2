"""A network's tensors as bits: read in pieces, understood as numbers, and grouped by layer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from natsort import natsorted
from numpy.typing import NDArray

from samebits.errors import BadInput

Bits = NDArray[np.unsignedinteger]
"""Parameters as unsigned integers of their width, flat."""
Values = NDArray[np.float64]

NUMPY_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "u1",
}
"""Types as safetensors spells them (little-endian), and as NumPy reads them. NumPy has no bfloat16:
its 16 bits are the upper half of a float32, see `values`."""
CODES = {np.dtype(bool): "BOOL"} | {
    np.dtype(name): code for code, name in NUMPY_TYPES.items() if code not in ("BF16", "BOOL")
}
"""The types that NumPy has itself, as safetensors spells them."""

_DEEPEST_PREFIX = 4  # parts of a prefix that a wrapper put before all names
_LEAST_SHARE = 0.5  # of the names of the smaller network that are in both without prefixes
_PARAMETER_KINDS = {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file, of which nothing was read yet."""

    dtype: str
    """Its type, a key of `NUMPY_TYPES`."""
    shape: tuple[int, ...]
    """Its shape, as stored."""
    read: Callable[[int, int], Bits]
    """Gives the bits of the parameters from start to stop; fewer where the tensor ends before."""
    stored_as: str = ""
    """The name in the file, where `open_weights` gives another."""
    under: str = ""
    """The key of a checkpoint that holds the network beside other things."""

    @property
    def n(self) -> int:
        """Number of parameters."""
        return math.prod(self.shape)

    @property
    def is_real(self) -> bool:
        """Whether its parameters are no integers."""
        return self.dtype.startswith(("F", "BF"))


def tensor_of(array: np.ndarray) -> Tensor:
    """Take an array of numbers as a tensor."""

    def read(start: int, stop: int) -> Bits:
        return array.reshape(-1)[start:stop].view(f"<u{array.itemsize}")

    return Tensor(CODES[array.dtype], array.shape, read)


Network = Mapping[str, Tensor]
"""The tensors of one file by name."""


def pieces(tensors: Sequence[Tensor], n_values: int) -> Iterator[list[Bits]]:
    """Read several tensors of one shape piece by piece; empty tensors give one empty piece."""
    for start in range(0, max(tensors[0].n, 1), n_values):
        yield [tensor.read(start, start + n_values) for tensor in tensors]


def values(bits: Bits, dtype: str) -> Values:
    """Give the numbers that bits stand for, as float64.

    >>> values(np.array([0x3F80], "<u2"), "BF16").tolist()
    [1.0]
    """
    with np.errstate(invalid="ignore"):  # raised by casting a signalling NaN
        if dtype == "BF16":
            as_float32 = bits.astype("<u4") << np.uint32(16)
            return as_float32.view("<f4").astype(np.float64)
        return bits.view(NUMPY_TYPES[dtype]).astype(np.float64)


def differences(a: Values, b: Values, same_bits: NDArray[np.bool_] | bool) -> Values:
    """b - a, and 0 where bits or values are equal, also between two NaNs or two infinities."""
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaNs travel on
        difference = b - a
        difference[same_bits | (a == b)] = 0
    return difference


def became_shorter(path: Path) -> BadInput:
    """The error for a file that lost bytes while it was read."""
    return BadInput(f"{path} became shorter while it was read; let its writer finish")


# -- names of tensors ------------------------------------------------------------------------


def natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Sort names with numbers as numbers: blocks.2 before blocks.10."""
    return tuple(natsorted(sorted(names)))


def layer_of(tensor_name: str) -> str:
    """The layer of a network that a tensor belongs to.

    The first two components of its name, three with ``blocks``, without its kind. (A ledger groups
    otherwise, see `cellrepro.model.watches.layer_group`; its names are stored.)

    >>> layer_of("encoder.blocks.3.attn.qkv.weight"), layer_of("encoder.neck.0.weight")
    ('encoder.blocks.3', 'encoder.neck')
    """
    components = tensor_name.split(".")
    if len(components) > 1 and components[-1] in _PARAMETER_KINDS:
        components = components[:-1]
    n_components = 3 if components[1:2] == ["blocks"] else 2
    return ".".join(components[:n_components])


def layers_of(tensor_names: Iterable[str]) -> tuple[str, ...]:
    """The layers of some tensors, each once, in natural order of the tensors."""
    return tuple(dict.fromkeys(layer_of(name) for name in natural_order(tensor_names)))


def prefixes_of_wrappers(a: Iterable[str], b: Iterable[str]) -> tuple[str, str]:
    """Find the prefixes without which the names of two networks agree best; empty for none.

    Lightning writes ``model.``, `DataParallel` ``module.``, ``torch.compile`` ``_orig_mod.``, and
    each of them may be wrapped in another.

    >>> prefixes_of_wrappers(["w", "b"], ["model.w", "model.b"])
    ('', 'model.')
    >>> prefixes_of_wrappers(["net.w", "net.b"], ["net.w", "net.c"])
    ('', '')
    """
    names_a = set(a)
    names_b = set(b)
    n_best = len(names_a & names_b)
    n_least = max(n_best + 1, _LEAST_SHARE * min(len(names_a), len(names_b)))
    best = ("", "")
    if not names_a or not names_b or n_best == min(len(names_a), len(names_b)):
        return best
    prefixes_b = _prefixes(names_b)
    for prefix_a in _prefixes(names_a):
        stripped_a = {name.removeprefix(prefix_a) for name in names_a}
        for prefix_b in prefixes_b:
            stripped_b = {name.removeprefix(prefix_b) for name in names_b}
            if len(stripped_a) < len(names_a) or len(stripped_b) < len(names_b):
                continue  # two tensors would have one name
            n_in_both = len(stripped_a & stripped_b)
            if n_in_both >= n_least and n_in_both > n_best:
                n_best = n_in_both
                best = (prefix_a, prefix_b)
    return best


def _prefixes(names: Iterable[str]) -> list[str]:
    """No prefix, and those with which at least half of the names begin; the shortest first."""
    names = list(names)
    counts: Counter[str] = Counter()
    for name in names:
        parts = name.split(".")[:-1][:_DEEPEST_PREFIX]
        counts.update(".".join(parts[: n + 1]) + "." for n in range(len(parts)))
    common = [prefix for prefix, n in counts.items() if 2 * n >= len(names)]
    return ["", *sorted(common, key=len)]
