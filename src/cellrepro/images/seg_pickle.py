"""The pickle of a ``_seg.npy``, read in a process of its own, into arrays and settings.

``python seg_pickle.py FILE MEMORY SECONDS ANSWER`` writes an ``.npz`` without pickles to standard
output, or ends with a reason (`cellrepro.images.within_limits`). A pickle can call only the names
below, each of which is a stand-in of this file: not even NumPy's unpickling runs, as it believes
whatever layout of memory the file says.
"""

import json
import os
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, BinaryIO

import numpy as np

from cellrepro.images.within_limits import Refused, answer_with

_PLAIN_TYPE = re.compile(r"[biuf][1248]|U\d+|O8?")
_FORMAT = np.lib.format
_HEADERS = {(1, 0): _FORMAT.read_array_header_1_0, (2, 0): _FORMAT.read_array_header_2_0}
N_COLORS = "n_colors"
"""The GUI writes a colour for each cell; only how many there are is handed on."""
_DEEPEST = 100
_NO_SETTINGS = {"masks", "flows", "outlines", "colors", "img", "img_restore"}


class _Type:
    """Stand-in for ``numpy.dtype``: numbers, text and objects, without fields."""

    def __init__(self, code: str, align: object = False, copy: object = False) -> None:
        if not isinstance(code, str) or not _PLAIN_TYPE.fullmatch(code):
            raise Refused(f"an array of type {code!r:.40}; expected numbers, text or objects")
        self.code = code
        self.order = "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, order, *layout = state[:5]
        if order not in ("<", ">", "|", "=") or any(part is not None for part in layout):
            raise Refused("an array with fields; expected plain numbers")
        self.order = "=" if order == "|" else order

    def values(self, content: Any) -> np.ndarray:
        """Read bytes as numbers, and convert them to native byte order."""
        if self.code[0] == "O":
            raise Refused("objects where numbers are expected")
        stored = np.frombuffer(content, np.dtype(self.order + self.code))
        return stored.astype(stored.dtype.newbyteorder("="), copy=False)


class _Array:
    """Stand-in for ``numpy.ndarray``, which a pickle makes empty and then fills."""

    def __init__(self) -> None:
        self.content: Any = self  # until it is filled: numbers, or a list of objects

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, fortran, content = state
        if type(content) is list:  # objects; without an axis there is one
            self.content = content if shape else content[0]
        else:
            self.content = dtype.values(content).reshape(shape, order="F" if fortran else "C")


class _Name:
    """A name that a pickle may use: it can be called, and has no other attribute."""

    __slots__ = ("_call",)

    def __init__(self, call: Any) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __setstate__(self, state: object) -> None:
        raise Refused("a pickle that changes a function")


def _not_called(*_arguments: Any) -> Any:
    raise Refused("an array that is made of given memory")


_NDARRAY = _Name(_not_called)


def _reconstruct(kind: object, _shape: object, _code: object) -> _Array:
    if kind is not _NDARRAY:
        raise Refused("a pickle that rebuilds something else than an array")
    return _Array()


def _encode(text: str, encoding: str = "latin1") -> bytes:
    if encoding not in ("latin1", "latin-1"):  # as protocol 2 writes bytes
        raise Refused(f"text in the encoding {encoding!r:.40}")
    return text.encode("latin1")


def _known_names() -> dict[tuple[str, str], _Name]:
    no_bytes = _Name(lambda: b"")
    scalar = _Name(lambda dtype, content: dtype.values(content)[0].item())
    known = {
        ("numpy", "dtype"): _Name(_Type),
        ("numpy", "ndarray"): _NDARRAY,
        ("_codecs", "encode"): _Name(_encode),
        ("builtins", "bytes"): no_bytes,  # the empty ones, before protocol 3
        ("__builtin__", "bytes"): no_bytes,
    }
    for core in ("numpy._core", "numpy.core"):
        known[f"{core}.multiarray", "_reconstruct"] = _Name(_reconstruct)
        known[f"{core}.multiarray", "scalar"] = scalar
    for kind in (PurePosixPath, PureWindowsPath):  # the name of the image may be one
        path = _Name(lambda *parts, kind=kind: str(kind(*parts)))
        for name in (kind.__name__, kind.__name__.removeprefix("Pure")):
            known["pathlib", name] = known["pathlib._local", name] = path
    return known


class _Unpickler(pickle.Unpickler):
    _known = _known_names()

    def find_class(self, module: str, name: str) -> _Name:
        if (module, name) not in self._known:
            raise Refused(
                f"it names {f'{module}.{name}'!r:.120}, which is neither a NumPy array nor a plain "
                "container"
            )
        return self._known[module, name]


def _resolved(value: Any, left: Iterator[int], depth: int = 0) -> Any:
    """Replace stand-ins by arrays in plain containers; each value takes one from ``left``."""
    if not next(left, 0):  # a list can hold another one twice, and so on
        raise Refused("more values than its size allows")
    if depth > _DEEPEST:
        raise Refused(f"values in values, more than {_DEEPEST} deep")
    if isinstance(value, _Array):
        if value.content is value:
            raise Refused("an array that is never filled")
        return _resolved(value.content, left, depth + 1)
    if value is None or isinstance(value, bool | int | float | str | np.ndarray):
        return value
    if isinstance(value, dict):
        return {str(name): _resolved(item, left, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_resolved(item, left, depth + 1) for item in value]
    raise Refused(f"a value of type {type(value).__name__.lstrip('_')}")


def _plain(value: Any) -> Any:
    """Convert a value for JSON; NaN, infinity and arrays of several axes become null.

    Lone surrogates, which no file and no terminal takes, are escaped.
    """
    if isinstance(value, dict):
        return {_plain(name): _plain(item) for name, item in value.items()}
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, np.ndarray):
        return _plain(value.tolist()) if value.ndim < 2 else None
    if isinstance(value, list):
        return [_plain(item) for item in value]
    is_number = isinstance(value, int | float)
    return value if not is_number or abs(value) <= sys.float_info.max else None


def take_apart(stream: BinaryIO) -> dict[str, np.ndarray]:
    """Read ``masks``, ``flows_0`` and so on, and ``settings`` as JSON in bytes."""
    header = _HEADERS.get(_FORMAT.read_magic(stream))
    if header is None or header(stream)[2] != np.dtype(object):
        raise Refused("no dictionary in the format of numpy.save")
    n_bytes = os.fstat(stream.fileno()).st_size
    content = _resolved(_Unpickler(stream).load(), iter(range(n_bytes, 0, -1)))
    if not isinstance(content, dict) or not isinstance(content.get("masks"), np.ndarray):
        raise Refused("no dictionary with an array `masks`")
    settings = _plain({name: item for name, item in content.items() if name not in _NO_SETTINGS})
    colors = content.get("colors")
    if isinstance(colors, np.ndarray) and colors.ndim:
        settings[N_COLORS] = len(colors)
    flows = content.get("flows")
    arrays = {
        f"flows_{i}": flow if isinstance(flow, np.ndarray) else np.zeros(0)
        for i, flow in enumerate(flows if isinstance(flows, list) else [])
    }
    if sum(array.nbytes for array in arrays.values()) > 4 * n_bytes:  # one array can stand twice
        raise Refused("more arrays than its size allows")
    written = np.frombuffer(json.dumps(settings, allow_nan=False).encode(), np.uint8)
    return {"masks": content["masks"], "settings": written, **arrays}


def main() -> dict[str, np.ndarray]:
    """Read the file that the command line names."""
    with Path(sys.argv[1]).open("rb") as stream:
        return take_apart(stream)


if __name__ == "__main__":
    answer_with(main)
