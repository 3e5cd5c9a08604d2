"""Two networks side by side, parameter by parameter, from safetensors files or Cellpose's own.

Equality is decided by bits: NaN payloads and the sign of zero count. Distances are computed in
float64 from one piece of a tensor at a time, so that memory does not grow with the files.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from natsort import natsorted
from numpy.typing import NDArray

from cellrepro.errors import BadInput
from cellrepro.same.verdicts import Verdict

_PIECE = 2**15  # parameters of each file in memory at a time, with some ten float64 values each
# Type codes of the safetensors format (little-endian) as NumPy reads them. NumPy has no bfloat16:
# its 16 bits are the upper half of a float32, see `values`.
_NUMPY_TYPES = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"},
    **{"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"},
    **{"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "u1"},
}
_FLOATS = {"F64": (64, 52), "F32": (32, 23), "F16": (16, 10), "BF16": (16, 7)}  # bits, mantissa
_PARAMETER_KINDS = {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}
_KEYS_OF_NETWORKS = ("model_state_dict", "state_dict", "model", "net", "network", "weights")
"""Usual keys of a network in a checkpoint, the surest first."""
_NO_NETWORKS = ("optim", "sched", "scaler")  # in keys of what holds tensors of another kind
_WRAPPERS = ("module.", "_orig_mod.")  # of DataParallel and of torch.compile, before every name
ZIP, PICKLE = b"PK\x03\x04", b"\x80\x02\x8a\nl\xfc\x9cF"
"""How files begin that PyTorch saves, since version 1.6 and before; no length of a header."""

Bits = NDArray[np.unsignedinteger]
"""Parameters as unsigned integers of their width, flat."""
Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Distance:
    """How far the second of two vectors of parameters, b, is from the first, a."""

    n_differing: int  # parameters with other bits, in another shape or dtype, or in one file only
    l2: float  # length of b - a; NaN if a name or a shape differs; 0 between equal bits
    relative_l2: float  # over the length of a; infinite if only a is all zero
    cosine: float  # of the angle; 1 if l2 is 0, NaN if exactly one is all zero
    max_abs: float  # largest difference of one parameter, NaN counting as the largest
    max_abs_name: str | None  # the first tensor that has it
    max_ulp: int | None
    """Most steps from float to next float between a and b; None without floats, for other shapes
    or dtypes, and where one of the two is NaN and the bits differ."""
    median_ulp: int | None
    """Rounded down to 0, 1, 2, 4, 8 ..."""


@dataclass(frozen=True, kw_only=True)
class TensorComparison(Distance):
    """One tensor that both hold under the same name."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # as safetensors spells it: F32, BF16
    shape_b: tuple[int, ...]
    dtype_b: str
    n: int  # parameters, of the larger one where the shapes differ


@dataclass(frozen=True, kw_only=True)
class WeightsComparison(Distance):
    """How two files of weights differ: over all parameters, and tensor by tensor."""

    equal: bool  # in names, shapes, dtypes and all bits
    n_tensors: int  # in either file; a name that both hold counts once
    n_parameters: int
    n_not_finite: int  # NaN or infinite on either side; of names that both have
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    under: tuple[str, str]  # the keys of checkpoints in which the networks were; empty elsewhere
    per_tensor: tuple[TensorComparison, ...]  # blocks.2 before blocks.10

    @property
    def verdict(self) -> Verdict:
        """``identical``, ``different``, or ``vacuous`` where equality proves nothing: neither file
        holds a parameter, or at least half of them are NaN or infinite."""
        if not self.equal:
            return Verdict.DIFFERENT
        return Verdict.VACUOUS if 2 * self.n_not_finite >= self.n_parameters else Verdict.IDENTICAL


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
    """
    a, b = (
        {n: tensor for n, tensor in open_weights(path).items() if n.startswith(prefix)}
        for path in (path_a, path_b)
    )
    parts = {name: _parts(name, a[name], b[name]) for name in natural_order(a.keys() & b.keys())}
    rows = tuple(
        TensorComparison(
            **_distance(found),
            name=name,
            shape=a[name].shape,
            dtype=a[name].dtype,
            shape_b=b[name].shape,
            dtype_b=b[name].dtype,
            n=max(a[name].n, b[name].n),
        )
        for name, found in parts.items()
    )
    alone = [tensor for name, tensor in (a | b).items() if (name in a) != (name in b)]
    whole = _distance([*itertools.chain(*parts.values()), *(_undefined(t.n) for t in alone)])
    alike = not alone and all((r.shape, r.dtype) == (r.shape_b, r.dtype_b) for r in rows)
    return WeightsComparison(
        **whole,
        equal=alike and whole["n_differing"] == 0,
        n_tensors=len(rows) + len(alone),
        n_parameters=sum(row.n for row in rows) + sum(tensor.n for tensor in alone),
        n_not_finite=sum(part.n_not_finite for part in itertools.chain(*parts.values())),
        only_a=natural_order(a.keys() - b.keys()),
        only_b=natural_order(b.keys() - a.keys()),
        under=(_key_of(a), _key_of(b)),
        per_tensor=rows,
    )


def _key_of(network: Mapping[str, Tensor]) -> str:
    return next((tensor.under for tensor in network.values()), "")


def differences(a: Values, b: Values, same_bits: Any) -> Values:
    """b - a, and 0 where bits or values are equal, also between two NaNs or two infinities."""
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaNs travel on
        difference = b - a
        difference[same_bits | (a == b)] = 0
    return difference


class _Part(NamedTuple):
    """What the distance of a piece of a tensor is made of."""

    name: str | None  # of its tensor, if it has a distance
    n_differing: int
    sums: tuple[float, ...]  # of (b - a)**2, a * b, a**2, b**2
    max_abs: float
    n_not_finite: int = 0  # NaN or infinite on either side
    max_ulp: int | None = None  # -1 without floats, None if not known
    n_by_ulp: NDArray[np.int64] | int = 0  # parameters by the binary digits of their distance


def _undefined(n: int) -> _Part:
    return _Part(None, n, (math.nan,) * 4, math.nan)


def _parts(name: str, a: Tensor, b: Tensor) -> list[_Part]:
    if a.shape != b.shape:
        return [_undefined(max(a.n, b.n))]
    return [_part(name, bits, (a.dtype, b.dtype)) for bits in pieces([a, b], _PIECE)]


def _part(name: str, bits: Sequence[Bits], dtypes: tuple[str, str]) -> _Part:
    a, b = map(values, bits, dtypes)
    alike = dtypes[0] == dtypes[1]
    same_bits = bits[0] == bits[1] if alike else np.zeros(len(a), bool)
    difference = differences(a, b, same_bits)
    # Sums, not dot products: BLAS adds in an order that depends on its number of threads.
    with np.errstate(over="ignore", invalid="ignore"):
        products = (difference * difference, a * b, a * a, b * b)
        sums = tuple(float(product.sum()) for product in products)
    ulps = _ulps(bits[0], bits[1], dtypes[0]) if alike else (None, 0)
    n_differing = len(a) - int(np.count_nonzero(same_bits))
    largest = float(np.abs(difference).max(initial=0))
    finite = np.isfinite(a) & np.isfinite(b)
    n_not_finite = len(a) - int(np.count_nonzero(finite))
    return _Part(name, n_differing, sums, largest, n_not_finite, *ulps)


def _ulps(a: Bits, b: Bits, dtype: str) -> tuple[int | None, NDArray[np.int64] | int]:
    if dtype not in _FLOATS or not len(a):
        return -1, 0
    # Floats of one dtype in order of size are consecutive integers once the sign is taken off
    # their bits. Infinity is one step beyond the largest number, and -0 and 0 are the same.
    n_bits, n_mantissa = _FLOATS[dtype]
    where = np.flatnonzero(a != b)
    x, y = a[where].astype(np.uint64), b[where].astype(np.uint64)
    sign = np.uint64(1 << (n_bits - 1))
    infinity = np.uint64((1 << (n_bits - 1)) - (1 << n_mantissa))
    size_x, size_y = x & ~sign, y & ~sign
    if max(size_x.max(initial=0), size_y.max(initial=0)) > infinity:
        return None, 0
    within = np.maximum(size_x, size_y) - np.minimum(size_x, size_y)
    apart = np.where((x ^ y) & sign, size_x + size_y, within)
    n_by_ulp = np.bincount(np.frexp(apart.astype(np.float64))[1], minlength=66)
    n_by_ulp[0] += len(a) - len(where)
    return int(apart.max(initial=0)), n_by_ulp


def _distance(parts: Sequence[_Part]) -> dict[str, Any]:
    """The fields of `Distance`, of several pieces as one vector."""
    sums = np.array([part.sums for part in parts]).reshape(-1, 4).sum(0)
    squares, product, squares_a, squares_b = sums.tolist()
    largest = [0.0, *(part.max_abs for part in parts)]
    at = int(np.argmax(largest))  # the first NaN, if there is one
    # Squares of float64 numbers below 1e-162 are lost, and a distance of 0 means equal values.
    l2 = float(np.maximum(math.sqrt(squares), largest[at]))
    lengths = math.sqrt(squares_a), math.sqrt(squares_b)
    relative_l2, cosine = 0.0, 1.0
    if l2 != 0:
        relative_l2 = l2 / lengths[0] if lengths[0] else math.inf
        # Rounding can exceed 1.
        cosine = float(np.clip(product / math.prod(lengths), -1, 1)) if all(lengths) else math.nan
    ulps = [-1 if part.max_ulp is None else part.max_ulp for part in parts]
    known = all(part.max_ulp is not None for part in parts) and max(ulps, default=-1) >= 0
    n_up_to = np.cumsum(sum(part.n_by_ulp for part in parts))
    middle = int(np.searchsorted(n_up_to, (int(n_up_to[-1]) + 1) // 2))
    return {
        "n_differing": sum(part.n_differing for part in parts),
        "l2": l2,
        "relative_l2": relative_l2,
        "cosine": cosine,
        "max_abs": largest[at],
        "max_abs_name": parts[at - 1].name if at else None,
        "max_ulp": max(ulps) if known else None,
        "median_ulp": (1 << middle) >> 1 if known else None,
    }


# -- reading in pieces -----------------------------------------------------------------------


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file, of which nothing was read yet."""

    dtype: str  # as safetensors spells it
    shape: tuple[int, ...]
    bits: Callable[[int, int], Bits]  # parameters start to stop, flat; fewer at the end
    stored_as: str = ""  # the name in the file, where `open_weights` gives another
    under: str = ""  # the key of a checkpoint that holds the network beside other things

    @property
    def n(self) -> int:
        """Number of parameters."""
        return math.prod(self.shape)


def pieces(tensors: Sequence[Tensor], n_values: int) -> Iterator[list[Bits]]:
    """The content of tensors of one shape, piece by piece; one empty piece of empty ones."""
    for start in range(0, max(tensors[0].n, 1), n_values):
        yield [tensor.bits(start, start + n_values) for tensor in tensors]


def values(bits: Bits, dtype: str) -> Values:
    """What the bits stand for; 64-bit integers are rounded beyond 2**53."""
    if dtype == "BF16":
        bits, dtype = bits.astype("<u4") << np.uint32(16), "F32"
    with np.errstate(invalid="ignore"):  # raised by casting a signalling NaN
        return bits.view(_NUMPY_TYPES[dtype]).astype(np.float64)


def open_weights(path: str | Path) -> dict[str, Tensor]:
    """Read the header of a safetensors file, or map what PyTorch saved, known by how it begins."""
    path = Path(path)
    try:
        with path.open("rb") as stream:
            beginning = stream.read(len(PICKLE))
        if beginning.startswith((ZIP, PICKLE)):
            tensors = _of_torch(path, mapped=beginning.startswith(ZIP))
        else:
            tensors = _of_safetensors(path)
    except Exception as error:  # of a file that is something else PyTorch raises anything
        problem = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise BadInput(
            f"{path} is no weights file that can be read ({problem}); expected .safetensors, or a "
            "network's state_dict as torch.save and Cellpose write it; if it was copied or "
            "downloaded, do that again"
        ) from error
    for name, tensor in tensors.items():
        if tensor.dtype not in _NUMPY_TYPES:
            raise BadInput(
                f"{path} holds {name} as {tensor.dtype}, and {', '.join(_NUMPY_TYPES)} can be "
                "compared; store it as one of these"
            )
    return tensors


def _of_torch(path: Path, *, mapped: bool) -> dict[str, Tensor]:
    import torch

    with torch.serialization.safe_globals(_plain_numbers_of_numpy()):
        held = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    under, held = _network_in(held)

    def bits(tensor: Any, start: int, stop: int) -> Bits:
        width = tensor.element_size()
        plain = tensor.reshape(-1).view(getattr(torch, f"int{8 * width}"))
        return plain[start:stop].numpy().view(f"<u{width}")

    tensors = {}
    for name, tensor in held.items():
        code = str(tensor.dtype).removeprefix("torch.")
        for word, letters in (("bfloat", "BF"), ("float", "F"), ("uint", "U"), ("int", "I")):
            code = code.replace(word, letters)
        if tensor.layout != torch.strided:
            code = f"{tensor.layout} tensor"
        # As Cellpose's own loading means to (4.2.1.1), for networks that several GPUs trained.
        plain_name = str(name)
        for wrapper in _WRAPPERS:
            plain_name = plain_name.removeprefix(wrapper)
        read = partial(bits, tensor.detach())
        tensors[plain_name] = Tensor(code.upper(), tuple(tensor.shape), read, str(name), under)
    return tensors


def _network_in(held: Any) -> tuple[str, Mapping[str, Any]]:
    """A network's tensors in what a file holds: all of it, or what is under a key of a checkpoint.

    Parameters
    ----------
    held : object
        What `torch.load` gave.

    Returns
    -------
    tuple of str and mapping
        The key, with dots where it lies deeper, empty where the whole file is a network; and the
        tensors by name.

    Raises
    ------
    TypeError
        If there is none, or several and no name tells which is meant.
    """
    if _is_network(held):
        return "", held
    found = _networks_below(held)
    if not found:
        raise TypeError("it holds no state_dict: names with tensors, by itself or under a key")
    known = [key for name in _KEYS_OF_NETWORKS for key in found if key.split(".")[-1] == name]
    if len(found) > 1 and not known:
        keys = ", ".join(found)
        raise TypeError(f"it holds several networks, under {keys}: save the one to use by itself")
    key = known[0] if known else next(iter(found))
    return key, found[key]


def _is_network(held: Any) -> bool:
    """Whether these are names with tensors, of which some hold real numbers."""
    import torch

    if not isinstance(held, Mapping) or not held:
        return False
    tensors = [tensor for tensor in held.values() if isinstance(tensor, torch.Tensor)]
    if len(tensors) < len(held) or not all(isinstance(name, str) for name in held):
        return False
    return any(tensor.dtype.is_floating_point for tensor in tensors)


def _networks_below(held: Any, prefix: str = "", depth: int = 2) -> dict[str, Mapping[str, Any]]:
    """Networks in a checkpoint by their keys, but for what belongs to an optimizer."""
    if not isinstance(held, Mapping) or not depth:
        return {}
    found: dict[str, Mapping[str, Any]] = {}
    for name, part in held.items():
        if any(word in str(name).lower() for word in _NO_NETWORKS):
            continue
        if _is_network(part):
            found[f"{prefix}{name}"] = part
        else:
            found |= _networks_below(part, f"{prefix}{name}.", depth - 1)
    return found


def _plain_numbers_of_numpy() -> list[Any]:
    """What stands for a number of NumPy in a pickle, as a loss in a checkpoint often is."""
    from numpy._core.multiarray import scalar

    numbers = (np.float64, np.float32, np.int64, np.int32)
    return [scalar, np.dtype, *(type(np.dtype(number)) for number in numbers)]


def _of_safetensors(path: Path) -> dict[str, Tensor]:
    """The library's own NumPy reader has no bfloat16 and hands out whole tensors only."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy"):
        pass  # the library checks the header, every range in it and the file's length
    with path.open("rb") as stream:
        n_header = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(n_header))
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        dtype, shape = entry["dtype"], tuple(entry["shape"])
        offset = 8 + n_header + entry["data_offsets"][0]
        tensors[name] = Tensor(dtype, shape, partial(_read, path, dtype, math.prod(shape), offset))
    return tensors


def _read(path: Path, dtype: str, n: int, offset: int, start: int, stop: int) -> Bits:
    width = np.dtype(_NUMPY_TYPES[dtype]).itemsize
    n = min(stop, n) - start
    found = np.fromfile(path, f"<u{width}", count=n, offset=offset + start * width)
    if len(found) < n:
        raise BadInput(f"{path} became shorter while it was read; let its writer finish")
    return found


def natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Sorted with numbers as numbers: blocks.2 before blocks.10."""
    return tuple(natsorted(sorted(names)))


def layer_group(name: str) -> str:
    """The first two components of a tensor's name, three with ``blocks``, without its kind."""
    parts = name.split(".")
    if len(parts) > 1 and parts[-1] in _PARAMETER_KINDS:
        parts = parts[:-1]
    return ".".join(parts[:3] if parts[1:2] == ["blocks"] else parts[:2])


def layer_groups(names: Iterable[str]) -> tuple[str, ...]:
    """The groups of some tensors, each once, in natural order of the tensors."""
    return tuple(dict.fromkeys(layer_group(name) for name in natural_order(names)))
