"""Files that ``torch.save`` wrote, read without PyTorch; no code in them runs.

Since version 1.6 such a file is a zip archive: a pickle with names, types and shapes, and a part
for the numbers of each tensor. Before, it was four pickles and then the numbers. Numbers are read
when they are asked for.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from cellrepro.comparison.stored_tensors import (
    DTYPES,
    STORAGE_TYPES,
    Numbers,
    View,
    stored_numbers,
    stored_tensor,
)
from cellrepro.comparison.weight_tensors import Tensor
from cellrepro.pickles import (
    MOST_BYTES,
    PLAIN_NAMES,
    PickleReader,
    Refused,
    Unfinished,
    dictionary,
    not_called,
    plain_bytes,
    plain_set,
    quoted,
    sequence,
)
from cellrepro.torch_files import Part, format_of, read_archive

_CONTENT = "/data.pkl"
_LITTLE = b"little"
_OLD_PROTOCOL = 1001
_OVERLAP = 8
_SMALL = 2**26
"""Tensors may show more bytes than the file has, as two names of one: up to eight times as many, or
64 MiB."""


def content_of(path: Path) -> object:
    """Give what ``torch.save`` was given, with a `Tensor` for each tensor."""
    tensors = _Tensors(path, max(_OVERLAP * path.stat().st_size, _SMALL))
    names = {**_PLAIN_NAMES, **tensors.names}
    return _of_archive(path, names) if format_of(path) == "archive" else _of_pickles(path, names)


# -- since version 1.6 -----------------------------------------------------------------------


def _of_archive(path: Path, names: Mapping[str, object]) -> object:
    parts = read_archive(path).parts
    of_content = [name for name in parts if name.endswith(_CONTENT)]
    if len(of_content) != 1:
        raise Refused("a zip archive that torch.save did not write")
    folder = of_content[0].removesuffix(_CONTENT)
    order = parts.get(f"{folder}/byteorder")
    if order is not None and _read(path, order, most=len(_LITTLE)) != _LITTLE:
        raise Refused("its numbers begin with the highest byte")

    def stored_outside(identity: object) -> Numbers:
        key, numbers = stored_numbers(identity, has_view=False)
        part = parts.get(f"{folder}/data/{key}")
        if part is None:
            raise Refused(f"the numbers {quoted(key)} are missing in it")
        if part.size != numbers.n_bytes:
            raise Refused(
                f"the numbers {quoted(key)} take {numbers.n_bytes} bytes, and {part.size} are there"
            )
        numbers.start = part.start
        return numbers

    pickle = io.BytesIO(_read(path, parts[of_content[0]], most=MOST_BYTES))
    return PickleReader(pickle, names=names, stored_outside=stored_outside).load()


def _read(path: Path, part: Part, *, most: int) -> bytes:
    """The bytes of a part; refused where they are too many, or damaged."""
    if part.size > most:
        raise Refused(f"a part of it has {part.size} bytes, where at most {most} are expected")
    with path.open("rb") as stream:
        stream.seek(part.start)
        content = stream.read(part.size)
    if zlib.crc32(content) != part.crc:
        raise Refused("its list of tensors is damaged: the checksum is another one")
    return content


# -- before version 1.6 ----------------------------------------------------------------------


def _of_pickles(path: Path, names: Mapping[str, object]) -> object:
    known: dict[str, Numbers] = {}

    def stored_outside(identity: object) -> Numbers:
        key, numbers = stored_numbers(identity, has_view=True)
        first = known.setdefault(key, numbers)
        if (first.dtype, first.n_bytes) != (numbers.dtype, numbers.n_bytes):
            raise Refused("numbers in it have two types or sizes")
        return first

    with path.open("rb") as stream:
        _magic, protocol, machine, saved, keys = (
            PickleReader(stream, names=names, stored_outside=stored_outside).load()
            for _ in range(5)
        )
        if protocol != _OLD_PROTOCOL or not isinstance(machine, Mapping):
            raise Refused("it is of an unknown version of torch.save")
        if machine.get("little_endian") is not True:
            raise Refused("its numbers begin with the highest byte")
        if not isinstance(keys, list) or sorted(known) != keys:
            raise Refused("it does not hold the numbers that its tensors show")
        for key in keys:
            _locate(stream, known[key], key)
    return saved


def _locate(stream: BinaryIO, numbers: Numbers, key: str) -> None:
    """Find the first byte of the numbers that follow: how many there are, and then they."""
    n = int.from_bytes(stream.read(8), "little")
    numbers.start = stream.tell()
    if n * numbers.width != numbers.n_bytes:
        raise Refused(f"the numbers {quoted(key)} are not as many as its tensors show")
    size = stream.seek(0, io.SEEK_END)
    if stream.seek(numbers.start + numbers.n_bytes) > size:
        raise Refused("it ends too soon")


# -- tensors ---------------------------------------------------------------------------------


class _Tensors:
    """Recipes for the tensors of a file, which together show a limited number of bytes."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path = path
        self._n_left = most_bytes
        self._rebuilding: Mapping[str, object] = {
            "_rebuild_tensor": self._tensor,
            "_rebuild_tensor_v2": self._tensor,
            "_rebuild_tensor_v3": self._typed_tensor,
            "_rebuild_parameter": _parameter,
            "_rebuild_parameter_with_state": _parameter,
        }

    @property
    def names(self) -> Mapping[str, object]:
        """The recipes by the names for which they stand."""
        return {
            **{f"torch._utils.{name}": recipe for name, recipe in self._rebuilding.items()},
            "torch._tensor._rebuild_from_type_v2": self._tensor_of_a_class,
            "torch.nn.parameter.Parameter": _parameter,
            "torch.Tensor": not_called,
        }

    def _tensor(
        self, numbers: object, offset: object, shape: object, strides: object, *_: object
    ) -> Tensor:
        return self._counted(stored_tensor(self._path, numbers, offset, shape, strides))

    def _typed_tensor(
        self,
        numbers: object,
        offset: object,
        shape: object,
        strides: object,
        _requires_grad: object,
        _hooks: object,
        dtype: object,
        *_: object,
    ) -> Tensor:
        """A tensor over untyped bytes, with its type as its own argument."""
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise Refused(f"a tensor in it is of the type {quoted(dtype)}")
        view = stored_tensor(self._path, numbers, offset, shape, strides, dtype=DTYPES[dtype])
        return self._counted(view)

    def _tensor_of_a_class(
        self, rebuild: object, _kind: object, arguments: object, *_: object
    ) -> object:
        """A tensor with attributes, of which only the tensor is taken."""
        is_known = callable(rebuild) and rebuild in self._rebuilding.values()
        if not is_known or not isinstance(arguments, tuple):
            raise Refused("a tensor in it is of an unknown class")
        return rebuild(*arguments)  # type: ignore[operator]

    def _counted(self, view: View) -> Tensor:
        self._n_left -= view.n_bytes
        if self._n_left < 0:
            raise Refused("its tensors show the same numbers again and again")
        return view.tensor


def _parameter(tensor: object, *_: object) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise Refused("a parameter in it is no tensor")
    return tensor


# -- containers and plain values --------------------------------------------------------------


@dataclass(eq=False)
class Namespace(Unfinished):
    """An object with plain attributes, as ``argparse`` gives it."""

    attributes: dict[object, object] = field(default_factory=dict)

    def fill(self, state: object) -> None:
        """Take its attributes."""
        if not isinstance(state, dict):
            raise Refused("the attributes of an object in it are no dictionary")
        self.attributes.update(state)


def _complex(real: object, imaginary: object) -> complex:
    if not isinstance(real, float | int) or not isinstance(imaginary, float | int):
        raise Refused("a complex number in it is none")
    return complex(real, imaginary)


def _device(*parts: object) -> str:
    return ":".join(str(part) for part in parts if isinstance(part, str | int))


def _plain_names() -> Mapping[str, object]:
    names: dict[str, object] = {
        **PLAIN_NAMES,
        **{f"torch.{name}": dtype for name, dtype in STORAGE_TYPES.items()},
        **{name: name for name in DTYPES},
        "torch.Size": sequence,
        "torch.device": _device,
        "argparse.Namespace": lambda *_: Namespace(),
        "types.SimpleNamespace": lambda *_: Namespace(),
        "collections.OrderedDict": dictionary,
        "collections.Counter": dictionary,
        "collections.defaultdict": lambda *_: dictionary(),  # without what it makes of a new name
    }
    for module in ("builtins", "__builtin__"):
        names |= {
            f"{module}.set": plain_set,
            f"{module}.frozenset": plain_set,
            f"{module}.bytearray": plain_bytes,
            f"{module}.complex": _complex,
            f"{module}.list": sequence,
            f"{module}.dict": dictionary,
        }
    return names


_PLAIN_NAMES = _plain_names()
