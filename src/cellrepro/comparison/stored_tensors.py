"""Tensors over numbers that stand in a file: their types, sizes and strides.

Nothing reaches beyond the numbers that a file says it has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cellrepro.comparison.pickle_reading import Refused
from cellrepro.comparison.weight_tensors import NUMPY_TYPES, Bits, became_shorter

STORAGE_TYPES: Mapping[str, str] = {
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
    "ComplexFloatStorage": "C64",
    "ComplexDoubleStorage": "C128",
}
"""PyTorch's classes of stored numbers, and the types in them as safetensors spells them."""
DTYPES: Mapping[str, str] = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
    "complex128": "C128",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
_WIDTHS = {"C64": 8, "C128": 16, "F8_E4M3": 1, "F8_E5M2": 1}
"""Bytes a number, of the types that may stand in a file and cannot be compared."""
_MOST_AXES = 64
_LARGEST = 2**62


def width_of(dtype: str) -> int:
    """Bytes of a number of a type, as safetensors spells it."""
    return _WIDTHS.get(dtype) or np.dtype(NUMPY_TYPES[dtype]).itemsize


@dataclass(frozen=True)
class StorageType:
    """A class of stored numbers; of the untyped one each tensor says how it reads the bytes."""

    dtype: str | None


@dataclass
class Numbers:
    """Numbers in a file that one or several tensors show."""

    dtype: str | None
    """None for bytes, which each tensor reads as it says."""
    n_bytes: int
    start: int = -1
    """Their first byte in the file; known once the file was read to its end."""


@dataclass(frozen=True)
class TypeName:
    """PyTorch's name of a type of numbers."""

    name: str

    def __str__(self) -> str:
        return f"torch.{self.name}"


@dataclass(frozen=True)
class View:
    """How a tensor shows numbers of a file."""

    path: Path
    numbers: Numbers
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def read(self, start: int, stop: int) -> Bits:
        """Give the bits of the parameters from start to stop, in the order of the axes."""
        width = width_of(self.dtype)
        n_asked = max(min(stop, math.prod(self.shape)) - start, 0)
        first = self.numbers.start + self.offset * width
        if self._is_in_order or not n_asked:
            bits = np.fromfile(self.path, f"<u{width}", count=n_asked, offset=first + start * width)
        else:
            bits = self._strided(first, width).flat[start : start + n_asked]
        if len(bits) < n_asked:
            raise became_shorter(self.path)
        return bits

    def _strided(self, first: int, width: int) -> Bits:
        """A strided view of the file: transposed, or with gaps."""
        n = self._n_spanned
        if self.path.stat().st_size < first + n * width:
            raise became_shorter(self.path)
        elements = np.memmap(self.path, f"<u{width}", "r", first, (n,))
        strides = [stride * width for stride in self.strides]
        return np.lib.stride_tricks.as_strided(elements, self.shape, strides, writeable=False)

    @property
    def _n_spanned(self) -> int:
        """Numbers from its first to its last, those between them that it does not show included."""
        steps = zip(self.shape, self.strides, strict=True)
        return 1 + sum((size - 1) * step for size, step in steps)

    @property
    def _is_in_order(self) -> bool:
        expected = [math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]
        steps = zip(self.shape, self.strides, expected, strict=True)
        return all(stride == wanted for length, stride, wanted in steps if length > 1)


def sizes_in(value: object) -> tuple[int, ...]:
    """Whole numbers from 0, as shapes and strides have them."""
    if not isinstance(value, tuple | list) or len(value) > _MOST_AXES:
        raise Refused("a tensor in it has no shape")
    for size in value:
        if type(size) is not int or not 0 <= size < _LARGEST:
            raise Refused(f"a tensor in it has the size {ascii(size)[:40]} along an axis")
    return tuple(value)


def stored_numbers(identity: object, *, has_view: bool) -> tuple[str, Numbers]:
    """Read what a pickle says of stored numbers."""
    n_fields = 6 if has_view else 5
    if type(identity) is not tuple or len(identity) != n_fields or identity[0] != "storage":
        raise Refused("its pickle refers to something else than numbers")
    _, storage, key, device, n, *view = identity
    if not isinstance(storage, StorageType) or not isinstance(key, str):
        raise Refused("numbers in it are of an unknown type")
    if device == "meta":
        raise Refused("a tensor in it has a shape and no numbers (device meta)")
    if any(part is not None for part in view):
        raise Refused("numbers in it are a part of others, as PyTorch wrote them before 0.4")
    (n_numbers,) = sizes_in([n])
    return key, Numbers(storage.dtype, n_numbers * width_of(storage.dtype or "U8"))
