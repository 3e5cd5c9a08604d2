"""What stands for the names in a pickle of ``torch.save``: of tensors, numbers and containers.

Each is a recipe of this file. No function of PyTorch, NumPy or Python is called by a pickle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath

from cellrepro.comparison.pickle_reading import Arguments, Callee, Refused, Unfinished, plain_key
from cellrepro.comparison.pickled_arrays import (
    NDARRAY,
    not_called,
    numpy_array,
    numpy_number,
    numpy_type,
)
from cellrepro.comparison.stored_tensors import (
    DTYPES,
    STORAGE_TYPES,
    Numbers,
    StorageType,
    TypeName,
    View,
    sizes_in,
    width_of,
)
from cellrepro.comparison.weight_tensors import Tensor


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
        if not isinstance(dtype, TypeName) or dtype.name not in DTYPES:
            raise Refused(f"a tensor in it is of the type {ascii(dtype)[:60]}")
        return self._tensor_over(numbers, offset, shape, strides, dtype=DTYPES[dtype.name])

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
        (first,) = sizes_in([offset])
        sizes = sizes_in(shape)
        steps = sizes_in(strides)
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
        view = View(self._path, numbers, code, first, sizes, steps)
        return Tensor(code, sizes, view.read)


def _first(arguments: Arguments) -> object:
    """The tensor that a parameter is."""
    if not arguments or not isinstance(arguments[0], Tensor):
        raise Refused("a parameter in it is no tensor")
    return arguments[0]


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


def _plain_names() -> Mapping[str, object]:
    """List the recipes that stand for names which do not depend on a file."""
    names: dict[str, object] = {
        "collections.OrderedDict": Callee(_dictionary),
        "collections.Counter": Callee(_dictionary),
        "collections.defaultdict": Callee(_empty_dictionary),
        "torch.Size": Callee(_sequence),
        "torch.device": Callee(_device),
        "torch.Tensor": Callee(not_called),
        "argparse.Namespace": Callee(lambda _: Namespace()),
        "types.SimpleNamespace": Callee(lambda _: Namespace()),
        "_codecs.encode": Callee(_bytes),
        "numpy.dtype": Callee(numpy_type),
        "numpy.ndarray": NDARRAY,
        **{f"torch.{name}": StorageType(code) for name, code in STORAGE_TYPES.items()},
        "torch.storage.UntypedStorage": StorageType(None),
        "torch.UntypedStorage": StorageType(None),
        **{f"torch.{name}": TypeName(name) for name in DTYPES},
    }
    for module in ("builtins", "__builtin__"):
        names |= {
            f"{module}.set": Callee(_set),
            f"{module}.frozenset": Callee(_set),
            f"{module}.bytes": Callee(_bytes),
            f"{module}.bytearray": Callee(_bytes),
            f"{module}.complex": Callee(_complex),
            f"{module}.list": Callee(_sequence),
            f"{module}.dict": Callee(_dictionary),
        }
    for core in ("numpy._core", "numpy.core"):
        names[f"{core}.multiarray.scalar"] = Callee(numpy_number)
        names[f"{core}.multiarray._reconstruct"] = Callee(numpy_array)
    for kind in (PurePosixPath, PureWindowsPath):
        for name in (kind.__name__, kind.__name__.removeprefix("Pure")):
            for module in ("pathlib", "pathlib._local"):
                names[f"{module}.{name}"] = Callee(partial(_path, kind))
    return names


_PLAIN_NAMES = _plain_names()
