"""A pickle taken apart, step by step: plain values, and stand-ins for what it names.

Nothing that a pickle names is looked up or called: who reads it says which names may stand in it,
and what is made of each. The instructions are those that ``torch.save`` writes (protocol 2, and
what protocols 3 and 4 add for text and bytes); memory and time are bounded.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MOST_BYTES = 2**26
"""Of a pickle: 64 MiB, which is thousands of tensors or millions of numbers."""
_MOST_STEPS = 2**22
_MOST_COPIED = 2**26  # of bytes and values that calls make of others
_LONGEST_NAME = 200
_LARGEST_KEY = 2**60  # beyond it different numbers can be made to collide in a dictionary

Arguments = Sequence[object]


class Refused(pickle.UnpicklingError):
    """The content of a pickle is nothing that is read here."""


class HoldsCode(Refused):
    """A pickle names a class or function that makes no tensor and no plain value."""


@dataclass(frozen=True)
class Callee:
    """A recipe that stands for a function or class which a pickle calls."""

    call: Callable[[Arguments], object]
    """Gives the value of a call, of its arguments."""


class Unfinished:
    """A value that a pickle makes first and fills afterwards."""

    def fill(self, state: object) -> None:
        """Take what the pickle gives it."""
        raise NotImplementedError


class PickleReader:
    """Reads one pickle."""

    def __init__(
        self,
        content: memoryview,
        *,
        names: Mapping[str, object],
        stored_outside: Callable[[object], object],
        start: int = 0,
    ) -> None:
        self.position = start
        self._content = content
        self._stop = min(len(content), start + MOST_BYTES)
        self._names = names
        self._stored_outside = stored_outside
        self._stack: list[object] = []
        self._below: list[list[object]] = []  # what stands before each open mark
        self._memo: dict[int, object] = {}
        self._n_copied = 0

    def load(self) -> object:
        """Give the value of the pickle."""
        steps = _STEPS
        try:
            for _ in range(_MOST_STEPS):
                code = self._taken(1)[0]
                if code == _STOP:
                    return self._pop()
                step = steps.get(code)
                if step is None:
                    raise Refused(
                        f"the instruction {code:#04x} stands at byte {self.position - 1} of its "
                        "pickle, which torch.save does not write"
                    )
                step(self)
        except Refused:
            raise
        except (ValueError, TypeError, LookupError, ArithmeticError, struct.error) as error:
            raise Refused(
                f"its pickle is damaged before byte {self.position}: {ascii(str(error))[:120]}"
            ) from error
        raise Refused(f"its pickle has more than {_MOST_STEPS} instructions")

    # -- bytes and the stack -----------------------------------------------------------------

    def _taken(self, n: int) -> memoryview:
        """The next n bytes."""
        start = self.position
        self.position += n
        if self.position > self._stop:
            whole = "ends too soon" if self._stop == len(self._content) else "is larger than 64 MiB"
            raise Refused(f"its pickle {whole}")
        return self._content[start : self.position]

    def _number(self, n_bytes: int) -> int:
        return int.from_bytes(self._taken(n_bytes), "little")

    def _line(self) -> str:
        """The text up to the end of a line, as names are written."""
        beginning = bytes(self._content[self.position : self.position + _LONGEST_NAME])
        line, end, _ = beginning.partition(b"\n")
        if not end:
            raise Refused(f"a name in its pickle is longer than {_LONGEST_NAME} letters")
        self._taken(len(line) + 1)
        return line.decode("utf-8")

    def _pop(self) -> object:
        if not self._stack:
            raise Refused("its pickle takes more values than it has")
        return self._stack.pop()

    def _top(self) -> object:
        if not self._stack:
            raise Refused("its pickle takes more values than it has")
        return self._stack[-1]

    def _popped_to_mark(self) -> list[object]:
        if not self._below:
            raise Refused("its pickle closes what it did not open")
        values = self._stack
        self._stack = self._below.pop()
        return values

    # -- instructions ------------------------------------------------------------------------

    def _ignore(self, n_bytes: int) -> None:
        self._taken(n_bytes)

    def _mark(self) -> None:
        self._below.append(self._stack)
        self._stack = []

    def _push(self, value: object) -> None:
        self._stack.append(value)

    def _push_text(self, n: int) -> None:
        self._push(str(self._taken(n), "utf-8", "surrogatepass"))

    def _push_bytes(self, n: int) -> None:
        self._push(bytes(self._taken(n)))

    def _push_signed(self, n: int) -> None:
        self._push(int.from_bytes(self._taken(n), "little", signed=True))

    def _push_float(self) -> None:
        self._push(struct.unpack(">d", self._taken(8))[0])

    def _push_tuple(self, n: int) -> None:
        if n > len(self._stack):
            raise Refused("its pickle takes more values than it has")
        values = self._stack[len(self._stack) - n :]
        del self._stack[len(self._stack) - n :]
        self._push(tuple(values))

    def _push_marked_tuple(self) -> None:
        self._push(tuple(self._popped_to_mark()))

    def _push_remembered(self, key: int) -> None:
        if key not in self._memo:
            raise Refused("its pickle refers to a value that it did not keep")
        self._push(self._memo[key])

    def _remember(self, key: int) -> None:
        self._memo[key] = self._top()

    def _append(self, values: list[object]) -> None:
        target = self._top()
        if type(target) is list:
            target.extend(values)
        elif type(target) is set:
            target.update(plain_key(value) for value in values)
        else:
            raise Refused("its pickle adds values to what is no list")

    def _append_one(self) -> None:
        value = self._pop()
        self._append([value])

    def _set_items(self, values: list[object]) -> None:
        target = self._top()
        if type(target) is not dict:
            raise Refused("its pickle adds names to what is no dictionary")
        for name, value in zip(values[::2], values[1::2], strict=True):
            target[plain_key(name)] = value

    def _set_item(self) -> None:
        value = self._pop()
        name = self._pop()
        self._set_items([name, value])

    def _name(self, module: object, name: object) -> None:
        full_name = f"{module}.{name}"
        if full_name not in self._names:
            raise HoldsCode(
                f"it holds {ascii(full_name)[1:-1][:120]}, which is no tensor and no plain value; "
                "nothing of it was executed"
            )
        self._push(self._names[full_name])

    def _written_name(self) -> None:
        module = self._line()
        self._name(module, self._line())

    def _name_on_stack(self) -> None:
        name = self._pop()
        self._name(self._pop(), name)

    def _call(self) -> None:
        arguments = self._pop()
        callee = self._pop()
        if not isinstance(callee, Callee) or type(arguments) is not tuple:
            raise Refused("its pickle calls what is no function")
        self._n_copied += sum(
            len(value)
            for value in arguments
            if isinstance(value, list | tuple | dict | set | str | bytes)
        )
        if self._n_copied > _MOST_COPIED:
            raise Refused("its pickle copies one value again and again")
        self._push(callee.call(arguments))

    def _build(self) -> None:
        state = self._pop()
        target = self._top()
        if isinstance(target, Unfinished):
            target.fill(state)
        elif type(target) is not dict:  # an OrderedDict's state is what a network says of itself
            raise Refused("its pickle changes what is finished")

    def _refer(self) -> None:
        self._push(self._stored_outside(self._pop()))


def plain_key(key: object) -> object:
    """Give the key of a dictionary as it is kept; anything but numbers and texts is refused."""
    if isinstance(key, int) and abs(key) >= _LARGEST_KEY:
        raise Refused("a dictionary in its pickle has a huge number as a key")
    if key is None or isinstance(key, int | float | str | bytes):
        return key
    if type(key) is tuple and len(key) <= 8 and not any(type(part) is tuple for part in key):
        parts = [plain_key(part) for part in key]
        if all(len(part) <= _LONGEST_NAME for part in parts if isinstance(part, str | bytes)):
            return repr(tuple(parts))
    raise Refused("a dictionary in its pickle has a key that is neither number nor text")


_STOP = pickle.STOP[0]
_STEPS: Mapping[int, Callable[[PickleReader], None]] = {
    code[0]: step
    for code, step in {
        pickle.PROTO: lambda reader: reader._ignore(1),
        pickle.FRAME: lambda reader: reader._ignore(8),
        pickle.MARK: PickleReader._mark,
        pickle.NONE: lambda reader: reader._push(None),
        pickle.NEWTRUE: lambda reader: reader._push(True),
        pickle.NEWFALSE: lambda reader: reader._push(False),
        pickle.BININT: lambda reader: reader._push_signed(4),
        pickle.BININT1: lambda reader: reader._push(reader._number(1)),
        pickle.BININT2: lambda reader: reader._push(reader._number(2)),
        pickle.LONG1: lambda reader: reader._push_signed(reader._number(1)),
        pickle.BINFLOAT: PickleReader._push_float,
        pickle.BINUNICODE: lambda reader: reader._push_text(reader._number(4)),
        pickle.SHORT_BINUNICODE: lambda reader: reader._push_text(reader._number(1)),
        pickle.BINUNICODE8: lambda reader: reader._push_text(reader._number(8)),
        pickle.SHORT_BINBYTES: lambda reader: reader._push_bytes(reader._number(1)),
        pickle.BINBYTES: lambda reader: reader._push_bytes(reader._number(4)),
        pickle.BINBYTES8: lambda reader: reader._push_bytes(reader._number(8)),
        # What Python 2 wrote for text: PyTorch reads it so, too.
        pickle.SHORT_BINSTRING: lambda reader: reader._push_text(reader._number(1)),
        pickle.BINSTRING: lambda reader: reader._push_text(reader._number(4)),
        pickle.EMPTY_TUPLE: lambda reader: reader._push(()),
        pickle.TUPLE1: lambda reader: reader._push_tuple(1),
        pickle.TUPLE2: lambda reader: reader._push_tuple(2),
        pickle.TUPLE3: lambda reader: reader._push_tuple(3),
        pickle.TUPLE: PickleReader._push_marked_tuple,
        pickle.EMPTY_LIST: lambda reader: reader._push([]),
        pickle.APPEND: PickleReader._append_one,
        pickle.APPENDS: lambda reader: reader._append(reader._popped_to_mark()),
        pickle.EMPTY_DICT: lambda reader: reader._push({}),
        pickle.SETITEM: PickleReader._set_item,
        pickle.SETITEMS: lambda reader: reader._set_items(reader._popped_to_mark()),
        pickle.EMPTY_SET: lambda reader: reader._push(set()),
        pickle.ADDITEMS: lambda reader: reader._append(reader._popped_to_mark()),
        pickle.GLOBAL: PickleReader._written_name,
        pickle.STACK_GLOBAL: PickleReader._name_on_stack,
        pickle.REDUCE: PickleReader._call,
        pickle.NEWOBJ: PickleReader._call,
        pickle.BUILD: PickleReader._build,
        pickle.BINPERSID: PickleReader._refer,
        pickle.BINGET: lambda reader: reader._push_remembered(reader._number(1)),
        pickle.LONG_BINGET: lambda reader: reader._push_remembered(reader._number(4)),
        pickle.BINPUT: lambda reader: reader._remember(reader._number(1)),
        pickle.LONG_BINPUT: lambda reader: reader._remember(reader._number(4)),
        pickle.MEMOIZE: lambda reader: reader._remember(len(reader._memo)),
    }.items()
}
