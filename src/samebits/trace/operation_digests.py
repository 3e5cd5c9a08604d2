"""Digests of what operations are given and compute, each made anew from the memory as it is.

No digest is cached: memory may be that of a NumPy array, of another process or of a file, which is
written into without an operation of PyTorch. What nobody has written holds random bits, and stands
in a digest as ``unwritten``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from samebits.bit_equality import PLAIN_TYPES, in_one_stretch
from samebits.tensor_digests import memory_digest, row_digest, tensor_digest
from samebits.torch_internals import hidden_from_modes
from samebits.trace.replay_plan import is_plain

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
"""Types whose repr is their value; that of other objects may hold an address."""


class Digested(NamedTuple):
    """The digest of several values together; a tuple, as two are made for each operation."""

    digest: str
    """Digest of all but devices, in order: 48 hex digits where something lies on another device
    than the processor, else 32, as of one tensor."""
    shapes: str
    """Shapes of the tensors among them: ``2x3, 4``."""
    dtypes: str
    """Types of the tensors among them: ``float32, int64``."""


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """A storage of which ``n_bytes`` have not been written yet."""

    storage: StorageWeakRef
    """While it is held, no other storage has its number."""
    n_bytes: int


class OperationDigests:
    """Digests of the values of one step.

    With ``across_devices`` they are those of copies on the processor, so that steps on different
    devices can be compared.
    """

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
                self._unwritten[number] = _Unwritten(unwritten.storage, n_left)

    def mark_unwritten(self, values: Iterable[object], n_bytes_before: int) -> None:
        """Remember memory that was handed out, but for the bytes that a storage had before."""
        for value in filter(is_plain, values):
            storage = value.untyped_storage()
            before = self._unwritten.get(storage._cdata)
            n_bytes = storage.nbytes() - n_bytes_before
            if before is not None:
                n_bytes += before.n_bytes
            if n_bytes > 0:
                self._unwritten[storage._cdata] = _Unwritten(StorageWeakRef(storage), n_bytes)

    def of(self, values: list[object], *, computed: bool = False) -> Digested:
        """Digest several values, in order; ``computed`` ones are known to be written."""
        parts: list[bytes] = []
        shapes: list[str] = []
        dtypes: list[str] = []
        of_processor = True
        for value in values:
            if isinstance(value, torch.Tensor):
                kind = _kind_of(value)
                shapes.append(kind.shape)
                dtypes.append(kind.dtype)
                parts += self._parts_of(value, kind, computed)
                of_processor = of_processor and (self._across_devices or value.is_cpu)
            elif not isinstance(value, torch.device):  # where it runs is no input
                has_value = isinstance(value, _WITH_REPR_AS_VALUE)
                text = repr(value) if has_value else type(value).__name__
                parts.append(text.encode())
        digest = row_digest(b";".join(parts), of_processor=of_processor)
        return Digested(digest, ", ".join(shapes), ", ".join(dtypes))

    def _parts_of(self, tensor: torch.Tensor, kind: _Kind, computed: bool) -> list[bytes]:
        """The kind of a tensor and the digest of its values."""
        parts = [] if self._across_devices else [kind.header]
        if self._unwritten and not computed and self._is_unwritten(tensor):
            parts.append(b"unwritten")
        elif not tensor.is_meta:
            parts.append(self._digest(tensor, kind))
        return parts

    def _is_unwritten(self, tensor: torch.Tensor) -> bool:
        return is_plain(tensor) and tensor.untyped_storage()._cdata in self._unwritten

    def _digest(self, tensor: torch.Tensor, kind: _Kind) -> bytes:
        """Digest of the memory of a tensor, or of its values where there are gaps in it."""
        if self._across_devices:
            if is_plain(tensor):
                with torch.no_grad(), hidden_from_modes():
                    tensor = tensor.cpu()
        elif kind.dense:
            return memory_digest(tensor.data_ptr(), tensor.nbytes)
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
_MOST_KINDS = 4096
"""How many kinds are cached: a step of a large network has hundreds."""


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
    """Whether strides tell where the values of a tensor lie in the processor's memory."""
    return (
        not tensor.is_nested
        and type(tensor) in PLAIN_TYPES
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.is_neg()
        and tensor.data_ptr() != 0
    )
