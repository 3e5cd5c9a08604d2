"""What stands for the names in a pickle of ``torch.save``: of tensors, numbers and containers.

Each is a recipe of this file. No function of PyTorch, NumPy or Python is called by a pickle.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Literal, cast

import numpy as np

from cellrepro.comparison.pickle_reading import Arguments, Callee, Refused, Unfinished, plain_key
from cellrepro.comparison.weight_tensors import NUMPY_TYPES, Bits, Tensor
from cellrepro.errors import BadInput

_STORAGES: Mapping[str, str] = {
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
_DTYPES: Mapping[str, str] = {
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
_CODES_OF_NUMPY: Mapping[str, str] = {
    name.lstrip("<"): code for code, name in NUMPY_TYPES.items() if code != "BF16"
} | {"u1": "U8", "b1": "BOOL"}
"""Types of NumPy's, as safetensors spells them."""
_PLAIN_TYPE = re.compile(r"[biuf][1248]|U\d{1,6}|S\d{1,6}")


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
        sizes = _sizes(shape)
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
        """The first value in a row of bytes, as Python has it."""
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


@dataclass(eq=False)
class Namespace(Unfinished):
    """An object with plain attributes, as ``argparse`` gives it."""

    attributes: dict[object, object] = field(default_factory=dict)

    def fill(self, state: object) -> None:
        """Take its attributes."""
        if type(state) is not dict:
            raise Refused("the attributes of an object in it are no dictionary")
        self.attributes.update(state)


# -- tensors ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _View:
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
            raise BadInput(f"{self.path} became shorter while it was read; let its writer finish")
        return bits

    def _strided(self, first: int, width: int) -> Bits:
        """A strided view of the file: transposed, or with gaps."""
        n = self._n_spanned
        if self.path.stat().st_size < first + n * width:
            raise BadInput(f"{self.path} became shorter while it was read; let its writer finish")
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


def _sizes(value: object) -> tuple[int, ...]:
    """Whole numbers from 0, as shapes and strides have them."""
    if not isinstance(value, tuple | list) or len(value) > _MOST_AXES:
        raise Refused("a tensor in it has no shape")
    for size in value:
        if type(size) is not int or not 0 <= size < _LARGEST:
            raise Refused(f"a tensor in it has the size {ascii(size)[:40]} along an axis")
    return tuple(value)


class TorchNames:
    """The names that may stand in a file of ``torch.save``, and how its tensors are read."""

    def __init__(self, path: Path, *, most_bytes: int) -> None:
        self._path = path
        self._n_left = most_bytes
        rebuilt: dict[str, Callable[[Arguments], object]] = {
            "_rebuild_tensor": self._tensor,
            "_rebuild_tensor_v2": self._tensor,
            "_rebuild_tensor_v3": self._typed_tensor,
            "_rebuild_parameter": _first,
            "_rebuild_parameter_with_state": _first,
        }
        self.by_name: Mapping[str, object] = {
            **_PLAIN_NAMES,
            **{f"torch._utils.{name}": Callee(call) for name, call in rebuilt.items()},
            "torch._tensor._rebuild_from_type_v2": Callee(self._tensor_of_a_class),
            "torch.nn.parameter.Parameter": Callee(_first),
        }

    def _tensor(self, arguments: Arguments) -> Tensor:
        numbers, offset, shape, strides, *_ = arguments
        return self._tensor_over(numbers, offset, shape, strides, dtype=None)

    def _typed_tensor(self, arguments: Arguments) -> Tensor:
        """A tensor over untyped bytes, with its type as its own argument."""
        numbers, offset, shape, strides, _, _, dtype, *_ = arguments
        if not isinstance(dtype, TypeName) or dtype.name not in _DTYPES:
            raise Refused(f"a tensor in it is of the type {ascii(dtype)[:60]}")
        return self._tensor_over(numbers, offset, shape, strides, dtype=_DTYPES[dtype.name])

    def _tensor_of_a_class(self, arguments: Arguments) -> object:
        """A tensor with attributes, of which only the tensor is taken."""
        rebuild, _, of_rebuild, *_ = arguments
        if not isinstance(rebuild, Callee) or type(of_rebuild) is not tuple:
            raise Refused("a tensor in it is of an unknown class")
        return rebuild.call(of_rebuild)

    def _tensor_over(
        self, numbers: object, offset: object, shape: object, strides: object, *, dtype: str | None
    ) -> Tensor:
        """A tensor over some numbers, none of which lies outside of them."""
        if not isinstance(numbers, Numbers):
            raise Refused("a tensor in it has no numbers")
        code = dtype or numbers.dtype or "U8"
        (first,) = _sizes([offset])
        sizes = _sizes(shape)
        steps = _sizes(strides)
        if len(sizes) != len(steps):
            raise Refused("a tensor in it has another number of strides than of axes")
        n = math.prod(sizes)
        last = first + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
        width = width_of(code)
        if n and (last + 1) * width > numbers.n_bytes:
            raise Refused(
                f"a tensor of the shape {sizes} in it reaches beyond its {numbers.n_bytes} bytes"
            )
        self._n_left -= n * width
        if self._n_left < 0:
            raise Refused("its tensors show the same numbers again and again")
        view = _View(self._path, numbers, code, first, sizes, steps)
        return Tensor(code, sizes, view.read)


def _first(arguments: Arguments) -> object:
    """The tensor that a parameter is."""
    if not arguments or not isinstance(arguments[0], Tensor):
        raise Refused("a parameter in it is no tensor")
    return arguments[0]


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
    (n_numbers,) = _sizes([n])
    return key, Numbers(storage.dtype, n_numbers * width_of(storage.dtype or "U8"))


# -- containers and plain values --------------------------------------------------------------


def _dictionary(arguments: Arguments) -> dict[object, object]:
    """A dictionary from nothing, from another one, or from pairs."""
    if not arguments:
        return {}
    source = arguments[0]
    if type(source) is dict:
        return dict(source)
    if not isinstance(source, list | tuple):
        raise Refused("a dictionary in it is made of something else than pairs")
    result: dict[object, object] = {}
    for pair in source:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise Refused("a dictionary in it is made of something else than pairs")
        result[plain_key(pair[0])] = pair[1]
    return result


def _empty_dictionary(_arguments: Arguments) -> dict[object, object]:
    """A ``defaultdict``, without what it makes of a missing name."""
    return {}


def _sequence(arguments: Arguments) -> Sequence[object]:
    source = arguments[0] if arguments else ()
    if not isinstance(source, list | tuple):
        raise Refused("a sequence in it is made of something else")
    return tuple(source)


def _set(arguments: Arguments) -> set[object]:
    return {plain_key(value) for value in _sequence(arguments)}


def _bytes(arguments: Arguments) -> bytes:
    """Bytes, which protocol 2 writes as text: each letter is one."""
    if not arguments:
        return b""
    text, *encoding = arguments
    if isinstance(text, bytes):
        return text
    if isinstance(text, str) and encoding in ([], ["latin1"], ["latin-1"]):
        return text.encode("latin1")
    raise Refused("bytes in it are written in an unknown way")


def _complex(arguments: Arguments) -> complex:
    real, imaginary = arguments
    if not isinstance(real, float | int) or not isinstance(imaginary, float | int):
        raise Refused("a complex number in it is none")
    return complex(real, imaginary)


def _device(arguments: Arguments) -> str:
    return ":".join(str(part) for part in arguments if isinstance(part, str | int))


def _path(kind: type[PurePosixPath | PureWindowsPath], arguments: Arguments) -> str:
    return str(kind(*(part for part in arguments if isinstance(part, str))))


def _numpy_type(arguments: Arguments) -> _NumpyType:
    code = arguments[0] if arguments else None
    if not isinstance(code, str) or not _PLAIN_TYPE.fullmatch(code):
        raise Refused(f"it holds values of NumPy's type {ascii(code)[:40]}")
    return _NumpyType(code)


def _numpy_number(arguments: Arguments) -> object:
    dtype, content = arguments
    if not isinstance(dtype, _NumpyType) or not isinstance(content, bytes):
        raise Refused("a number of NumPy in it is of no known form")
    return dtype.number(content)


def _numpy_array(arguments: Arguments) -> StoredArray:
    if not arguments or arguments[0] is not _NDARRAY:
        raise Refused("an array in it is of a class of its own")
    return StoredArray()


def _not_called(_arguments: Arguments) -> object:
    raise Refused("its pickle calls what only names a type")


_NDARRAY = Callee(_not_called)
_PLAIN_NAMES: dict[str, object] = {
    "collections.OrderedDict": Callee(_dictionary),
    "collections.Counter": Callee(_dictionary),
    "collections.defaultdict": Callee(_empty_dictionary),
    "torch.Size": Callee(_sequence),
    "torch.device": Callee(_device),
    "torch.Tensor": Callee(_not_called),
    "argparse.Namespace": Callee(lambda _: Namespace()),
    "types.SimpleNamespace": Callee(lambda _: Namespace()),
    "_codecs.encode": Callee(_bytes),
    "numpy.dtype": Callee(_numpy_type),
    "numpy.ndarray": _NDARRAY,
    **{f"torch.{name}": StorageType(code) for name, code in _STORAGES.items()},
    "torch.storage.UntypedStorage": StorageType(None),
    "torch.UntypedStorage": StorageType(None),
    **{f"torch.{name}": TypeName(name) for name in _DTYPES},
}
for _module in ("builtins", "__builtin__"):
    _PLAIN_NAMES |= {
        f"{_module}.set": Callee(_set),
        f"{_module}.frozenset": Callee(_set),
        f"{_module}.bytes": Callee(_bytes),
        f"{_module}.bytearray": Callee(_bytes),
        f"{_module}.complex": Callee(_complex),
        f"{_module}.list": Callee(_sequence),
        f"{_module}.dict": Callee(_dictionary),
    }
for _core in ("numpy._core", "numpy.core"):
    _PLAIN_NAMES[f"{_core}.multiarray.scalar"] = Callee(_numpy_number)
    _PLAIN_NAMES[f"{_core}.multiarray._reconstruct"] = Callee(_numpy_array)
for _kind in (PurePosixPath, PureWindowsPath):
    for _name in (_kind.__name__, _kind.__name__.removeprefix("Pure")):
        for _module in ("pathlib", "pathlib._local"):
            _PLAIN_NAMES[f"{_module}.{_name}"] = Callee(partial(_path, _kind))
