"""Networks that ``torch.save`` wrote, read where PyTorch is not installed.

Such a file is a zip archive: a pickle with names, types and shapes, and a part for the numbers of
each tensor. No code of a pickle is executed: what is no part of a network is refused.
"""

from __future__ import annotations

import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np

from cellrepro.same.weight_tensors import NUMPY_TYPES, Bits

_CONTENT = "/data.pkl"
_LITTLE = b"little"
_DTYPES: Mapping[str, str] = {
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
}
"""PyTorch's classes of stored numbers, and the types in them as safetensors spells them."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of an archive, whose numbers were not read yet.

    Attributes
    ----------
    archive : Path
        The file.
    part : str
        Name of the part with its numbers.
    dtype : str
        One of `NUMPY_TYPES`.
    offset : int
        Its first parameter in that part.
    shape : tuple of int
    """

    archive: Path
    part: str
    dtype: str
    offset: int
    shape: tuple[int, ...]

    @property
    def has_real_numbers(self) -> bool:
        """Whether its parameters are no integers."""
        return self.dtype.startswith(("F", "BF"))

    def read(self, start: int, stop: int) -> Bits:
        """Give the bits of the parameters from start to stop, fewer where it ends before."""
        width = np.dtype(NUMPY_TYPES[self.dtype]).itemsize
        n_asked = min(stop, math.prod(self.shape)) - start
        with zipfile.ZipFile(self.archive) as archive, archive.open(self.part) as stream:
            stream.seek((self.offset + start) * width)
            content = stream.read(n_asked * width)
        return np.frombuffer(content, f"<u{width}")


def content_of(path: Path) -> object:
    """Give what ``torch.save`` was given, with a `StoredTensor` for each tensor.

    Parameters
    ----------
    path : Path
        A file as PyTorch writes it since version 1.6.

    Returns
    -------
    object
        Of a network, a mapping of str to StoredTensor.

    Raises
    ------
    pickle.UnpicklingError
        If it holds something else than tensors, numbers and text, in mappings and lists.
    """
    with zipfile.ZipFile(path) as archive:
        name = next((name for name in archive.namelist() if name.endswith(_CONTENT)), None)
        if name is None:
            raise pickle.UnpicklingError("a zip archive that torch.save did not write")
        folder = name.removesuffix(_CONTENT)
        order = f"{folder}/byteorder"
        if order in archive.namelist() and archive.read(order) != _LITTLE:
            raise pickle.UnpicklingError("its numbers begin with the highest byte")
        with archive.open(name) as stream:
            return _Reader(stream, path, folder).load()


class _Reader(pickle.Unpickler):
    """Reads what PyTorch puts into a pickle for tensors, and refuses everything else."""

    def __init__(self, stream: IO[bytes], path: Path, folder: str) -> None:
        super().__init__(stream)
        self._path = path
        self._folder = folder

    def find_class(self, module: str, name: str) -> object:
        """Give what stands for a name of PyTorch; nothing else is looked up."""
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        known: Mapping[str, object] = {
            "collections.OrderedDict": OrderedDict,
            "torch.Size": tuple,
            "torch._utils._rebuild_tensor_v2": _tensor,
            "torch._utils._rebuild_parameter": _parameter,
        }
        full_name = f"{module}.{name}"
        if full_name not in known:
            raise pickle.UnpicklingError(
                f"it holds {full_name}, which only PyTorch reads, and PyTorch is not installed here"
            )
        return known[full_name]

    def persistent_load(self, identity: object) -> StoredTensor:
        """Give the numbers that tensors share, as one flat tensor."""
        _, dtype, key, _, n_parameters = cast("tuple[str, str, str, str, int]", identity)
        return StoredTensor(self._path, f"{self._folder}/data/{key}", dtype, 0, (n_parameters,))


def _tensor(
    numbers: StoredTensor,
    offset: int,
    shape: Sequence[int],
    strides: Sequence[int],
    *_: object,
) -> StoredTensor:
    """A tensor over the numbers of a part, as PyTorch's function of that name builds it."""
    expected = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    steps = zip(shape, strides, expected, strict=True)
    if any(stride != wanted for length, stride, wanted in steps if length > 1):
        raise pickle.UnpicklingError(
            "a tensor lies in it transposed, which only PyTorch reads, and PyTorch is not "
            "installed here"
        )
    return StoredTensor(numbers.archive, numbers.part, numbers.dtype, offset, tuple(shape))


def _parameter(tensor: StoredTensor, *_: object) -> StoredTensor:
    return tensor
