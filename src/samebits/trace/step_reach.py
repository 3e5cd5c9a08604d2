"""The objects that a training step reaches: those that its code names, and those that these hold.

They are found without running the step, breadth first through functions, closures, partial
functions, methods, containers and attributes. A step may reach more, such as a network in a table
of a library's; that is found while it runs, among the objects that were alive before it: see
`samebits.trace.step_state`.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sysconfig
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any, NamedTuple

import numpy as np
import torch

_MOST_OBJECTS = 20_000
"""How many objects are looked at, the nearest ones."""
_MOST_ITEMS = 2_000
"""How many items of a container are looked at."""
_LEAVES = (str, bytes, bytearray, int, float, complex, range, np.ndarray, np.generic, ModuleType)
"""Types of objects that hold nothing which is trained or seeded; of a module, what code names in it
is looked at by itself."""
_OPAQUE = (
    torch.optim.Optimizer,
    torch.optim.lr_scheduler.LRScheduler,
    torch.amp.GradScaler,
)
"""Types of objects that are kept as a whole by their state dict: loading one replaces what they
hold."""
_STANDARD = sysconfig.get_paths()["stdlib"]
_LIBRARIES = tuple(str(Path(file).parent) for file in (torch.__file__, np.__file__))
"""Folders of code whose globals are not the step's own."""


class Reached(NamedTuple):
    """An object that a step reaches, and how it is called there."""

    name: str
    """Name of its variable, attribute or key."""
    holder: str
    """The name of the object that holds it; empty if the step itself names it."""
    value: Any
    depth: int
    """How many objects are on the way from the step to it."""

    def __str__(self) -> str:
        return f"`{self.name}` of `{self.holder}`" if self.holder else f"`{self.name}`"


def reached_by(step: Callable[[], Any]) -> Iterator[Reached]:
    """Every object that a step reaches, the nearest first, each once."""
    seen = {id(step)}
    waiting = deque([Reached("", "", step, 0)])
    for _ in range(_MOST_OBJECTS):
        if not waiting:
            return
        one = waiting.popleft()
        yield one
        for name, value in _held_by(one.value):
            if value is None or id(value) in seen or isinstance(value, _LEAVES):
                continue
            seen.add(id(value))
            if name:
                waiting.append(Reached(name, one.name, value, one.depth + 1))
            else:  # such as a method's function
                waiting.append(Reached(one.name, one.holder, value, one.depth))


def _held_by(value: Any) -> Iterator[tuple[str, Any]]:
    """The objects that an object names or holds, by name; the name is empty where there is none."""
    if isinstance(value, _OPAQUE):
        return
    if isinstance(value, FunctionType):
        yield from _named_in(value)
    elif isinstance(value, MethodType):
        yield "", value.__self__
        yield "", value.__func__
    elif isinstance(value, BuiltinMethodType | MethodWrapperType):  # of a generator, `__next__`
        yield "", value.__self__
    elif isinstance(value, functools.partial):
        for part in (value.func, *value.args):
            yield "", part
        yield from value.keywords.items()
    elif isinstance(value, dict):
        yield from ((str(key), item) for key, item in islice(list(value.items()), _MOST_ITEMS))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from (("", item) for item in islice(value, _MOST_ITEMS))
    elif isinstance(value, type):
        if not _is_of_a_library(value):
            yield from _attributes(value)
    elif isinstance(value, staticmethod | classmethod):
        yield "", value.__func__
    elif isinstance(value, property):
        yield "", value.fget
    elif inspect.isgenerator(value) and value.gi_frame is not None:
        yield from value.gi_frame.f_locals.items()
    else:
        yield from _held_by_instance(value)


def _held_by_instance(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an object, those in slots too, and the methods of its class."""
    yield from _attributes(value)
    for kind in type(value).__mro__:
        if _is_of_a_library(kind):
            continue
        yield from (("", one) for one in vars(kind).values() if _is_code(one))
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if (member := vars(kind).get(name)) is not None:
                yield from _slot(member, name, value)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """The ``__dict__`` of an object, read past its class, which may do anything then."""
    try:
        held = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return
    yield from list(held.items())


def _slot(member: Any, name: str, value: Any) -> Iterator[tuple[str, Any]]:
    try:
        yield name, member.__get__(value)
    except AttributeError:  # nothing was put there yet
        return


def _is_code(value: Any) -> bool:
    return isinstance(value, FunctionType | staticmethod | classmethod | property)


def _is_of_a_library(kind: type) -> bool:
    """Whether a class is none of the user's: its methods name nothing of a step."""
    return kind.__module__.partition(".")[0] in ("builtins", "torch", "numpy", "typing", "abc")


def _named_in(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The objects of a function's closure, its defaults, and the globals that its code names."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # nothing was assigned yet
            continue
    yield from (("", value) for value in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()
    yield from vars(function).items()  # such as the function that it wraps
    if _is_library_code(function.__code__.co_filename):
        return
    names = set(_names(function.__code__))
    for name in sorted(_global_names(function)):
        value = function.__globals__[name]
        if isinstance(value, ModuleType):
            held = vars(value)
            yield from ((inner, held[inner]) for inner in sorted(names & held.keys()))
        else:
            yield name, value


def _global_names(function: FunctionType) -> set[str]:
    """The names by which a function's code calls objects of its module, and no attributes."""
    named = {
        instruction.argval
        for code in _codes(function.__code__)
        for instruction in dis.get_instructions(code)
        if "GLOBAL" in instruction.opname or instruction.opname == "LOAD_NAME"
    }
    return named & function.__globals__.keys()


def _names(code: CodeType) -> Iterator[str]:
    """The names of objects of the module, and of attributes, in a function's code."""
    return (name for one in _codes(code) for name in one.co_names)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@functools.cache
def _is_library_code(file: str) -> bool:
    if file.startswith(_LIBRARIES) or file.startswith("<frozen"):
        return True
    return file.startswith(_STANDARD) and "-packages" not in file


class Binding(NamedTuple):
    """A variable, item or attribute that a step may bind to another object."""

    name: str
    read: Callable[[], Any]
    """Gives the object that is bound now, or None."""
    write: Callable[[Any], None]


def bindings_of(one: Reached) -> Iterator[Binding]:
    """The items of a plain list or dict, the attributes of a user's object, a function's variables.

    Variables are those outside of the function that its code names.
    """
    value = one.value
    if type(value) is dict:
        yield from (_item(value, key, f"{one.name} {key}") for key in list(value))
    elif type(value) is list:
        yield from (_item(value, index, f"{one.name} {index}") for index in range(len(value)))
    elif isinstance(value, FunctionType):
        if _is_library_code(value.__code__.co_filename):
            return
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield _variable(cell, name)
        names = sorted(_global_names(value))
        yield from (_item(value.__globals__, name, name) for name in names)
    elif not isinstance(value, type) and not _is_of_a_library(type(value)):
        held = dict(_attributes(value))
        yield from (_item(vars(value), name, f"{one.name} {name}") for name in held)


def _variable(cell: CellType, name: str) -> Binding:
    def read() -> Any:
        try:
            return cell.cell_contents
        except ValueError:  # nothing was assigned yet
            return None

    return Binding(name, read, functools.partial(setattr, cell, "cell_contents"))


def _item(container: Any, key: Any, name: str) -> Binding:
    def read() -> Any:
        try:
            return container[key]
        except LookupError:  # the step removed it
            return None

    return Binding(name, read, functools.partial(container.__setitem__, key))
