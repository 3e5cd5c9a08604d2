"""Arrays and numbers of NumPy that stand in a pickle itself."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from cellrepro.comparison.pickle_reading import Arguments, Callee, Refused, Unfinished
from cellrepro.comparison.stored_tensors import sizes_in
from cellrepro.comparison.weight_tensors import NUMPY_TYPES, Tensor

_CODES_OF_NUMPY: Mapping[str, str] = {
    name.lstrip("<"): code for code, name in NUMPY_TYPES.items() if code != "BF16"
} | {"u1": "U8", "b1": "BOOL"}
"""Types of NumPy's, as safetensors spells them."""
_PLAIN_TYPE = re.compile(r"[biuf][1248]|U\d{1,6}|S\d{1,6}")


@dataclass(eq=False)
class StoredArray(Unfinished):
    """An array of NumPy, whose numbers stand in the pickle itself."""

    content: Tensor | tuple[str, ...] | None = None
    """Numbers or texts; None until the pickle fills it."""

    def fill(self, state: object) -> None:
        """Take type, shape and bytes."""
        if type(state) is not tuple or len(state) != 5:
            raise Refused("an array of NumPy in it is of no known form")
        _, shape, dtype, fortran, content = state
        if not isinstance(dtype, _NumpyType) or not isinstance(content, bytes):
            raise Refused("an array of NumPy in it holds objects")
        sizes = sizes_in(shape)
        if math.prod(sizes) != len(content) // dtype.width:
            raise Refused("an array of NumPy in it has another size than it says")
        self.content = dtype.array(content, sizes, order="F" if fortran else "C")


@dataclass(eq=False)
class _NumpyType(Unfinished):
    """A type of NumPy's: numbers or text, without fields."""

    code: str
    order: str = "="

    def fill(self, state: object) -> None:
        """Take the order of bytes."""
        if type(state) is not tuple or len(state) < 5 or state[1] not in ("<", ">", "|", "="):
            raise Refused("a type of NumPy in it is of no known form")
        if any(part is not None for part in state[2:5]):
            raise Refused("a type of NumPy in it has fields")
        self.order = "=" if state[1] == "|" else cast("str", state[1])

    @property
    def width(self) -> int:
        """Bytes of one value."""
        return max(np.dtype(self.code).itemsize, 1)

    def number(self, content: bytes) -> object:
        """Read the first value in a row of bytes, as Python has it."""
        return np.frombuffer(content, np.dtype(self.order + self.code))[0].item()

    def array(
        self, content: bytes, shape: tuple[int, ...], *, order: Literal["C", "F"]
    ) -> Tensor | tuple[str, ...]:
        """All values in a row of bytes: numbers in the order of the axes, or texts."""
        stored = np.frombuffer(content, np.dtype(self.order + self.code)).reshape(
            shape, order=order
        )
        flat = np.ascontiguousarray(stored.astype(stored.dtype.newbyteorder("<"))).reshape(-1)
        if self.code not in _CODES_OF_NUMPY:
            return tuple(map(str, flat.tolist()))
        bits = flat.view(f"<u{flat.itemsize}")
        return Tensor(_CODES_OF_NUMPY[self.code], shape, lambda start, stop: bits[start:stop])


def not_called(_arguments: Arguments) -> object:
    """Refuse the call of a name that only stands for a type."""
    raise Refused("its pickle calls what only names a type")


NDARRAY = Callee(not_called)


def numpy_type(arguments: Arguments) -> _NumpyType:
    """Stand for ``numpy.dtype``."""
    code = arguments[0] if arguments else None
    if not isinstance(code, str) or not _PLAIN_TYPE.fullmatch(code):
        raise Refused(f"it holds values of NumPy's type {ascii(code)[:40]}")
    return _NumpyType(code)


def numpy_number(arguments: Arguments) -> object:
    """Stand for a single number, given its type and bytes."""
    dtype, content = arguments
    if not isinstance(dtype, _NumpyType) or not isinstance(content, bytes):
        raise Refused("a number of NumPy in it is of no known form")
    return dtype.number(content)


def numpy_array(arguments: Arguments) -> StoredArray:
    """Stand for an array that the pickle fills later."""
    if not arguments or arguments[0] is not NDARRAY:
        raise Refused("an array in it is of a class of its own")
    return StoredArray()
