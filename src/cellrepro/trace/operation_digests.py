"""Digests of what operations are given and compute, each made anew from the memory as it is.

None is remembered: memory may be that of a NumPy array, of another process or of a file, which is
written into without an operation of PyTorch. What nobody has written is known, and not digested.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import xxhash
from torch.multiprocessing.reductions import StorageWeakRef

from cellrepro.digests.same_bits import in_one_stretch
from cellrepro.digests.tensor_digests import memory_digest, tensor_digest
from cellrepro.torch_internals import hidden_from_modes
from cellrepro.trace.replay_plan import is_plain

_MOST_KINDS = 4096

# The repr of these types is their value; that of others may hold an address.
_WITH_REPR_AS_VALUE = (
    int,
    float,
    complex,
    str,
    type(None),
    torch.dtype,
    torch.layout,
    torch.memory_format,
)
_ORDINARY = (torch.Tensor, torch.nn.Parameter)  # and no class that stands for several tensors


class Digested(NamedTuple):
    """Several values together. A tuple is quick to make, twice for each operation."""

    digest: str
    """Digest of all but devices, in order. Its length tells its kind, as for one tensor: 48 hex
    digits where something lies on another device than the processor, else 32."""
    shapes: str
    """Shapes of the tensors among them: ``2x3, 4``."""
    dtypes: str
    """Types of the tensors among them: ``float32, int64``."""


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """A storage of which ``n_bytes`` have not been written yet."""

    alive: StorageWeakRef
    n_bytes: int


class OperationDigests:
    """Digests of the values of one step."""

    def __init__(self, *, across_devices: bool = False) -> None:
        self._across_devices = across_devices
        self._unwritten: dict[int, _Unwritten] = {}  # by the number of the storage

    def mark_written(self, values: Iterable[object]) -> None:
        """Remember that an operation wrote into memory."""
        for value in filter(is_plain, values):
            number = value.untyped_storage()._cdata
            unwritten = self._unwritten.pop(number, None)
            if unwritten is not None and unwritten.n_bytes > value.nbytes:
                n_left = unwritten.n_bytes - value.nbytes
                self._unwritten[number] = _Unwritten(unwritten.alive, n_left)

    def mark_unwritten(self, values: Iterable[object], n_written: int) -> None:
        """Remember memory that nobody has written into: its content is not digested."""
        for value in filter(is_plain, values):
            storage = value.untyped_storage()
            before = self._unwritten.get(storage._cdata)
            n_bytes = storage.nbytes() - n_written
            if before is not None:
                n_bytes += before.n_bytes
            if n_bytes > 0:
                self._unwritten[storage._cdata] = _Unwritten(StorageWeakRef(storage), n_bytes)

    def of(self, values: list[object], *, computed: bool = False) -> Digested:
        """Digest several values, in order."""
        parts: list[bytes] = []
        shapes: list[str] = []
        dtypes: list[str] = []
        all_of_processor = True
        for value in values:
            if not isinstance(value, torch.Tensor):
                if not isinstance(value, torch.device):  # where it runs is no input
                    has_repr = isinstance(value, _WITH_REPR_AS_VALUE)
                    text = repr(value) if has_repr else type(value).__name__
                    parts.append(text.encode())
                continue
            kind = _kind_of(value)
            shapes.append(kind.shape)
            dtypes.append(kind.dtype)
            is_dense = kind.dense and not self._across_devices
            if not self._across_devices:
                parts.append(kind.header)
                all_of_processor = all_of_processor and value.is_cpu
            if self._unwritten and not computed and self._is_unwritten(value):
                parts.append(b"unwritten")
            elif not value.is_meta:
                parts.append(self._digest(value, is_dense))
        row = b";".join(parts)
        if all_of_processor:
            digest = xxhash.xxh3_128_hexdigest(row)
        else:
            digest = "".join(xxhash.xxh3_64_hexdigest(row, seed) for seed in (1, 2, 3))
        return Digested(digest, ", ".join(shapes), ", ".join(dtypes))

    def _is_unwritten(self, tensor: torch.Tensor) -> bool:
        return is_plain(tensor) and tensor.untyped_storage()._cdata in self._unwritten

    def _digest(self, tensor: torch.Tensor, dense: bool) -> bytes:
        """Digest of the memory of a tensor, or of its values where there are gaps in it."""
        if dense:
            return memory_digest(tensor.data_ptr(), tensor.nbytes)
        if is_plain(tensor) and self._across_devices:
            with torch.no_grad(), hidden_from_modes():
                tensor = tensor.cpu()
        return tensor_digest(tensor).encode()


@dataclass(frozen=True, slots=True)
class _Kind:
    """Tensors of one dtype, shape and layout."""

    header: bytes
    """The part of a digest that is not their content."""
    shape: str
    """Their shape as text, ``2x3``."""
    dtype: str
    """Their type as text, ``float32``."""
    dense: bool
    """Whether their elements fill one stretch of the processor's memory."""


_KINDS: dict[tuple[Hashable, ...], _Kind] = {}


def _kind_of(tensor: torch.Tensor) -> _Kind:
    """The kind of a tensor, made once for each dtype, shape and layout."""
    size: tuple[int, ...] = () if tensor.is_nested else tensor.shape
    strides = tensor.stride() if _is_plain_on_the_processor(tensor) else None
    key = (tensor.dtype, size, strides)
    kind = _KINDS.get(key)
    if kind is None:
        if len(_KINDS) >= _MOST_KINDS:
            _KINDS.clear()
        dense = in_one_stretch(tensor)
        name = str(tensor.dtype).removeprefix("torch.")
        header = f"{name}{tuple(size)}{strides if dense else None}".encode()
        kind = _KINDS[key] = _Kind(header, "x".join(map(str, size)) or "1", name, dense)
    return kind


def _is_plain_on_the_processor(tensor: torch.Tensor) -> bool:
    """Whether the values of a tensor lie in the processor's memory, in places and with signs."""
    return (
        not tensor.is_nested
        and type(tensor) in _ORDINARY
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.is_neg()
        and tensor.data_ptr() != 0
    )
