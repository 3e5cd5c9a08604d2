"""A pickle from elsewhere, read without executing anything of it.

Python's own unpickler reads it: the one that is written in Python (``pickle._Unpickler``, on which
joblib and dill build, too), with three changes. Only the instructions that ``numpy.save`` and
``torch.save`` write are carried out. A name stands for a recipe from a closed table, or is refused.
And nothing takes more memory or time than the bytes of the pickle justify.

These bounds hold in any process and on every system. The unpickler in C takes whatever memory a
pickle announces and hashes keys that collide, so it would need a process with limits for each
file, and neither Windows nor macOS limits the memory of one.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import PurePosixPath, PureWindowsPath
from typing import BinaryIO

import numpy as np

MOST_BYTES = 2**26
"""Of a pickle whose numbers stand elsewhere: 64 MiB, which is thousands of tensors."""
_MOST_STEPS = 2**22
_LONGEST_LINE = 200  # a name, or a number in letters
_LONGEST_PART = 200  # of a key that has several
_LARGEST_KEY = 2**60  # beyond it different numbers can be made to collide in a dictionary
_MOST_AXES = 64
_LARGEST_SIZE = 2**62


class Refused(pickle.UnpicklingError):
    """The content of a file is nothing that is read here."""


class UnknownName(Refused):
    """A pickle names a class or function that has no recipe."""

    def __init__(self, name: str) -> None:
        self.name = ascii(name[:120])[1:-1]
        super().__init__(
            f"it holds {self.name}, which is no tensor and no plain value; nothing of it was "
            "executed"
        )


class Unfinished:
    """A value that a pickle makes first and fills afterwards."""

    def fill(self, state: object) -> None:
        """Take what the pickle gives it."""
        raise NotImplementedError


class _Source:
    """The bytes of one pickle in a stream, in a limited number of steps."""

    def __init__(self, stream: BinaryIO, most_bytes: int) -> None:
        start = stream.tell()
        size = stream.seek(0, os.SEEK_END) - start
        stream.seek(start)
        self.n_left = min(size, most_bytes)
        self._stream = stream
        self._n_steps = 0
        too_large = f"is larger than {most_bytes // 2**20} MiB"
        self._end = too_large if size > most_bytes else "ends too soon"

    @property
    def position(self) -> int:
        return self._stream.tell()

    def read(self, n: int) -> bytes:
        if n == 1:  # as every instruction is
            self._n_steps += 1
            if self._n_steps > _MOST_STEPS:
                raise Refused(f"its pickle takes more than {_MOST_STEPS} steps")
        content = self._stream.read(n) if n <= self.n_left else b""
        self.n_left -= n
        if len(content) < n:
            raise Refused(f"its pickle {self._end}")
        return content

    def readline(self) -> bytes:
        return self.line(_LONGEST_LINE)

    def line(self, longest: int) -> bytes:
        content = self._stream.readline(min(longest, self.n_left))
        self.n_left -= len(content)
        if content.endswith(b"\n"):
            return content
        if len(content) == longest:
            raise Refused(f"a line in its pickle is longer than {longest} letters")
        raise Refused(f"its pickle {self._end}")


class PickleReader(pickle._Unpickler):
    """Reads one pickle of a stream: plain values, and what recipes make in the place of names."""

    stack: list[object]
    pop_mark: Callable[[], list[object]]

    def __init__(
        self,
        stream: BinaryIO,
        *,
        names: Mapping[str, object],
        stored_outside: Callable[[object], object] | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._source = _Source(stream, most_bytes)
        super().__init__(self._source, encoding="utf-8")
        self._names = names
        self._stored_outside = stored_outside
        self._n_to_copy = MOST_BYTES + 2 * self._source.n_left

    def load(self) -> object:
        """Give the value of the pickle; the stream then stands behind it."""
        try:
            return super().load()
        except Refused:
            raise
        except Exception as error:  # what a damaged pickle ends in can be nearly any
            raise Refused(
                f"its pickle is damaged before byte {self._source.position}: "
                f"{ascii(str(error))[1:-1][:120]}"
            ) from error

    def find_class(self, module: str, name: str) -> object:
        """Give the recipe for a name; nothing is imported."""
        full_name = f"{module}.{name}"
        if full_name not in self._names:
            raise UnknownName(full_name)
        return self._names[full_name]

    def persistent_load(self, identity: object) -> object:
        """Give what the pickle refers to outside of itself."""
        if self._stored_outside is None:
            raise Refused("its pickle refers to something outside of it")
        return self._stored_outside(identity)

    # -- instructions of which this reader has its own ------------------------------------------

    def _not_known(self, code: int) -> None:
        raise Refused(
            f"the instruction {code:#04x} stands at byte {self._source.position - 1} of its "
            "pickle, which neither numpy.save nor torch.save writes"
        )

    def _skip_frame(self) -> None:
        self._source.read(8)  # what is in it follows, whatever length is given

    def _text_line(self) -> None:
        line = self._source.line(self._source.n_left)
        self.stack.append(str(line[:-1], "raw-unicode-escape"))

    def _empty_dictionary(self) -> None:
        self.stack.append(_Dictionary())

    def _dictionary(self) -> None:
        items = self.pop_mark()
        self.stack.append(dictionary(zip(items[::2], items[1::2], strict=True)))

    def _empty_set(self) -> None:
        self.stack.append(_Set())

    def _frozenset(self) -> None:
        self.stack.append(plain_set(self.pop_mark()))

    def _call(self) -> None:
        arguments = self.stack.pop()
        recipe = self.stack.pop()
        if not callable(recipe) or type(arguments) is not tuple:
            raise Refused("its pickle calls what is no function")
        self._count_copied(arguments)
        self.stack.append(recipe(*arguments))

    def _build(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, Unfinished):
            self._count_copied(state if type(state) is tuple else (state,))
            target.fill(state)
        elif not isinstance(target, dict):  # of an OrderedDict: what a network says of itself
            raise Refused("its pickle changes what is finished")

    def _count_copied(self, values: Iterable[object]) -> None:
        """Count what a recipe may copy: one value can be given to it again and again."""
        for value in values:
            if isinstance(value, list | tuple | dict | set | str | bytes):
                self._n_to_copy -= len(value)
        if self._n_to_copy < 0:
            raise Refused("its pickle copies one value again and again")


_AS_IN_PYTHON = b"".join(
    (
        *(pickle.PROTO, pickle.MARK, pickle.STOP, pickle.GLOBAL, pickle.STACK_GLOBAL),
        *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.INT, pickle.BININT),
        *(pickle.BININT1, pickle.BININT2, pickle.LONG, pickle.LONG1, pickle.FLOAT),
        *(pickle.BINFLOAT, pickle.BINUNICODE, pickle.SHORT_BINUNICODE, pickle.BINUNICODE8),
        *(pickle.BINBYTES, pickle.SHORT_BINBYTES, pickle.BINBYTES8),
        *(pickle.BINSTRING, pickle.SHORT_BINSTRING),  # text of Python 2
        *(pickle.EMPTY_TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.TUPLE),
        *(pickle.EMPTY_LIST, pickle.LIST, pickle.APPEND, pickle.APPENDS),
        *(pickle.SETITEM, pickle.SETITEMS, pickle.ADDITEMS, pickle.BINPERSID),
        *(pickle.GET, pickle.BINGET, pickle.LONG_BINGET, pickle.PUT, pickle.BINPUT),
        *(pickle.LONG_BINPUT, pickle.MEMOIZE),
    )
)
_OWN: Mapping[int, Callable[[PickleReader], None]] = {
    pickle.FRAME[0]: PickleReader._skip_frame,
    pickle.UNICODE[0]: PickleReader._text_line,
    pickle.EMPTY_DICT[0]: PickleReader._empty_dictionary,
    pickle.DICT[0]: PickleReader._dictionary,
    pickle.EMPTY_SET[0]: PickleReader._empty_set,
    pickle.FROZENSET[0]: PickleReader._frozenset,
    pickle.REDUCE[0]: PickleReader._call,
    pickle.NEWOBJ[0]: PickleReader._call,
    pickle.BUILD[0]: PickleReader._build,
}
PickleReader.dispatch = {
    **{code: partial(PickleReader._not_known, code=code) for code in range(256)},
    **{code: pickle._Unpickler.dispatch[code] for code in _AS_IN_PYTHON},
    **_OWN,  # type: ignore[dict-item]
}


# -- plain values, dictionaries and sets --------------------------------------------------------


class _Dictionary(dict[object, object]):
    """A dictionary whose keys are plain values, however a pickle fills it."""

    __slots__ = ()

    def __setitem__(self, key: object, value: object) -> None:
        super().__setitem__(_plain_key(key), value)


class _Set(set[object]):
    """A set of plain values, however a pickle fills it."""

    __slots__ = ()

    def update(self, *several: Iterable[object]) -> None:
        for values in several:
            super().update(map(_plain_key, values))


def dictionary(source: object = ()) -> dict[object, object]:
    """Make a dictionary of pairs, or of another one."""
    if isinstance(source, dict):
        return _Dictionary(source)
    if not isinstance(source, list | tuple | zip):
        raise Refused("a dictionary in it is made of something else than pairs")
    made = _Dictionary()
    for name, value in source:
        made[name] = value
    return made


def plain_set(values: object = ()) -> set[object]:
    """Make a set of the values in a list."""
    made = _Set()
    made.update(sequence(values))
    return made


def sequence(values: object = ()) -> tuple[object, ...]:
    """Make a tuple of the values in a list."""
    if not isinstance(values, list | tuple):
        raise Refused("a sequence in it is made of something else")
    return tuple(values)


def is_plain(value: object) -> bool:
    """Whether a value has no parts, so that it can be shown, and compared, at once."""
    return value is None or isinstance(value, bool | int | float | complex | str | bytes)


def _plain_key(key: object) -> object:
    """Give the key of a dictionary as it is kept; anything but numbers and texts is refused."""
    if isinstance(key, int) and abs(key) >= _LARGEST_KEY:
        raise Refused("a dictionary in its pickle has a huge number as a key")
    if key is None or isinstance(key, int | float | str | bytes):
        return key
    if type(key) is tuple and len(key) <= 8 and not any(type(part) is tuple for part in key):
        parts = [_plain_key(part) for part in key]
        if all(len(part) <= _LONGEST_PART for part in parts if isinstance(part, str | bytes)):
            return repr(tuple(parts))
    raise Refused("a dictionary in its pickle has a key that is neither number nor text")


# -- arrays and numbers of NumPy -----------------------------------------------------------------


class _NumpyType(Unfinished):
    """Stands for ``numpy.dtype``: numbers, text and objects, without fields."""

    _PLAIN = re.compile(r"[biuf][1248]|[US]\d{1,6}|O8?")

    def __init__(self, code: object, *_options: object) -> None:
        if not isinstance(code, str) or not self._PLAIN.fullmatch(code):
            raise Refused(f"an array of type {quoted(code)}; expected numbers, text or objects")
        self._code = code
        self._order = "="

    def __str__(self) -> str:
        return self._code

    def fill(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or state[1] not in ("<", ">", "|", "="):
            raise Refused("a type of NumPy in it is of no known form")
        if any(part is not None for part in state[2:5]):
            raise Refused("an array with fields; expected plain numbers")
        self._order = "=" if state[1] == "|" else str(state[1])

    def number(self, content: object) -> object:
        """Read the first number or text in a row of bytes, as Python has it."""
        return np.frombuffer(self._checked(content), self._order + self._code)[0].item()

    def array(self, content: object, sizes: tuple[int, ...], *, is_fortran: bool) -> object:
        """Read an array, with the lowest byte of each number first."""
        stored = np.frombuffer(self._checked(content), self._order + self._code)
        ordered = stored.astype(stored.dtype.newbyteorder("<"), copy=False)
        return ordered.reshape(sizes, order="F" if is_fortran else "C")

    def _checked(self, content: object) -> bytes:
        if self._code.startswith("O") or not isinstance(content, bytes):
            raise Refused("objects where numbers are expected")
        return content


class PickledArray(Unfinished):
    """Stands for ``numpy.ndarray``, which a pickle makes empty and then fills."""

    def __init__(self) -> None:
        self._content: object = self  # until it is filled

    @property
    def content(self) -> object:
        """An array of numbers or texts, a list of objects, or one object without an axis."""
        if self._content is self:
            raise Refused("an array in it is never filled")
        return self._content

    def fill(self, state: object) -> None:
        """Take shape, type and content."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise Refused("an array in it is of no known form")
        _version, shape, dtype, is_fortran, content = state
        sizes = sizes_in(shape)
        if isinstance(content, list):
            self._content = content if sizes else content[0]
        elif isinstance(dtype, _NumpyType):
            self._content = dtype.array(content, sizes, is_fortran=bool(is_fortran))
        if isinstance(self._content, PickledArray):
            raise Refused("an array in it holds another one by itself")


def of_array(value: object) -> object:
    """Give what an array in a pickle holds; any other value is given back."""
    return value.content if isinstance(value, PickledArray) else value


def not_called(*_arguments: object) -> object:
    """Stand for a type, which can be named and not called."""
    raise Refused("its pickle makes an array of given memory, or calls what only names a type")


def _array(kind: object, *_shape_and_code: object) -> PickledArray:
    if kind is not not_called:
        raise Refused("its pickle rebuilds something else than an array")
    return PickledArray()


def _number(dtype: object, content: object) -> object:
    if not isinstance(dtype, _NumpyType):
        raise Refused("a number of NumPy in it is of no known form")
    return dtype.number(content)


def sizes_in(shape: object) -> tuple[int, ...]:
    """Check the sizes, strides or offsets of an array: whole numbers from 0."""
    if not isinstance(shape, tuple | list) or len(shape) > _MOST_AXES:
        raise Refused("an array or tensor in it has no shape")
    for size in shape:
        if type(size) is not int or not 0 <= size < _LARGEST_SIZE:
            raise Refused(f"an array or tensor in it has the size {quoted(size)} along an axis")
    return tuple(shape)


def quoted(value: object) -> str:
    """Show a value of a pickle in a message: one of several parts could be written without end."""
    if isinstance(value, str | bytes):
        return ascii(value[:40])
    return ascii(value)[:40] if is_plain(value) else f"a {type(value).__name__}"


def plain_bytes(text: object = b"", encoding: object = "latin1") -> bytes:
    """Make bytes of a text with a letter for each, as protocols before 3 write them."""
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise Refused(f"bytes in it are written in the encoding {quoted(encoding)}")
    return text.encode("latin1")


def _path(kind: type[PurePosixPath | PureWindowsPath], *parts: str) -> str:
    return str(kind(*parts))


def _plain_names() -> Mapping[str, object]:
    names: dict[str, object] = {
        "numpy.dtype": _NumpyType,
        "numpy.ndarray": not_called,
        "_codecs.encode": plain_bytes,
        "builtins.bytes": plain_bytes,
        "__builtin__.bytes": plain_bytes,
    }
    for core in ("numpy._core", "numpy.core"):
        names[f"{core}.multiarray._reconstruct"] = _array
        names[f"{core}.multiarray.scalar"] = _number
    for kind in (PurePosixPath, PureWindowsPath):
        for name in (kind.__name__, kind.__name__.removeprefix("Pure")):
            for module in ("pathlib", "pathlib._local"):
                names[f"{module}.{name}"] = partial(_path, kind)
    return names


PLAIN_NAMES = _plain_names()
"""Recipes for arrays and numbers of NumPy, bytes and paths."""
