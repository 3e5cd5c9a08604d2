"""Tensors over numbers that stand in a file: their types, sizes and strides.

Nothing reaches beyond the numbers that a file says it has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cellrepro.comparison.weight_tensors import CODES, NUMPY_TYPES, Bits, Tensor, became_shorter
from cellrepro.pickles import Refused, sizes_in

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
    "storage.UntypedStorage": "U8",
    "UntypedStorage": "U8",
}
"""PyTorch's classes of stored numbers, and the types in them as safetensors spells them."""
DTYPES: Mapping[str, str] = {
    **{f"torch.{dtype.name}": code for dtype, code in CODES.items()},
    "torch.bfloat16": "BF16",
    "torch.complex64": "C64",
    "torch.complex128": "C128",
    "torch.float8_e4m3fn": "F8_E4M3",
    "torch.float8_e5m2": "F8_E5M2",
}
"""PyTorch's names of types, and the same as safetensors spells them."""
_WIDTHS = {"C64": 8, "C128": 16, "F8_E4M3": 1, "F8_E5M2": 1} | {
    code: np.dtype(name).itemsize for code, name in NUMPY_TYPES.items()
}
"""Bytes a number; the first four may stand in a file and cannot be compared."""


@dataclass
class Numbers:
    """Numbers in a file that one or several tensors show."""

    dtype: str
    n_bytes: int
    start: int = -1
    """Their first byte in the file; known once the file was read to its end."""

    @property
    def width(self) -> int:
        """Bytes of one of them."""
        return _WIDTHS[self.dtype]


@dataclass(frozen=True)
class View:
    """How a tensor shows numbers of a file."""

    path: Path
    numbers: Numbers
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def tensor(self) -> Tensor:
        """The tensor, of which nothing is read yet."""
        return Tensor(self.dtype, self.shape, self.read)

    @property
    def n_bytes(self) -> int:
        """Bytes of the numbers that it shows, each as often as it shows it."""
        return math.prod(self.shape) * _WIDTHS[self.dtype]

    @property
    def reaches_beyond(self) -> bool:
        """Whether it shows what does not belong to its numbers."""
        end = (self.offset + self._n_spanned) * _WIDTHS[self.dtype]
        return 0 not in self.shape and end > self.numbers.n_bytes

    def read(self, start: int, stop: int) -> Bits:
        """Give the bits of the parameters from start to stop, in the order of the axes."""
        width = _WIDTHS[self.dtype]
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
        steps = zip(self.shape, self.strides, strides_in_order(self.shape), strict=True)
        return all(step == expected for size, step, expected in steps if size > 1)


def strides_in_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Give the strides of numbers that lie in the order of the axes."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def stored_numbers(identity: object, *, has_view: bool) -> tuple[str, Numbers]:
    """Read what a pickle says of stored numbers."""
    n_fields = 6 if has_view else 5
    if type(identity) is not tuple or len(identity) != n_fields or identity[0] != "storage":
        raise Refused("its pickle refers to something else than numbers")
    _, dtype, key, device, n, *view = identity
    if not isinstance(dtype, str) or dtype not in _WIDTHS or not isinstance(key, str):
        raise Refused("numbers in it are of an unknown type")
    if device == "meta":
        raise Refused("a tensor in it has a shape and no numbers (device meta)")
    if any(part is not None for part in view):
        raise Refused("numbers in it are a part of others, as PyTorch wrote them before 0.4")
    (n_numbers,) = sizes_in([n])
    return key, Numbers(dtype, n_numbers * _WIDTHS[dtype])


def stored_tensor(
    path: Path,
    numbers: object,
    offset: object,
    shape: object,
    strides: object,
    *,
    dtype: str | None = None,
) -> View:
    """Check the view of a tensor over some numbers; without a dtype it shows them in their own."""
    if not isinstance(numbers, Numbers):
        raise Refused("a tensor in it has no numbers")
    (first,) = sizes_in([offset])
    sizes = sizes_in(shape)
    steps = sizes_in(strides)
    if len(sizes) != len(steps):
        raise Refused("a tensor in it has another number of strides than of axes")
    view = View(path, numbers, dtype or numbers.dtype, first, sizes, steps)
    if view.reaches_beyond:
        raise Refused(
            f"a tensor of the shape {sizes} in it reaches beyond its {numbers.n_bytes} bytes"
        )
    return view
