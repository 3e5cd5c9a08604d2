"""What is otherwise in the whole process while a block lasts, in whichever thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import Generic, NamedTuple, NoReturn, TypeVar


class Replacement(NamedTuple):
    """What stands in the place of one attribute of a module or a class."""

    home: object
    name: str
    replacing: Callable[[NoReturn], object]
    """Makes what stands there of what stood there."""


@contextmanager
def replaced(replacements: Iterable[Replacement]) -> Iterator[None]:
    """Replace attributes for one block."""
    with ExitStack() as way_back:
        for home, name, replacing in replacements:
            own = vars(home).get(name)
            if own is None:  # it is inherited
                way_back.callback(delattr, home, name)
            else:
                way_back.callback(setattr, home, name, own)
            setattr(home, name, replacing(getattr(home, name)))
        yield


class SharedByBlocks:
    """Is entered with the first of the blocks that last at a time, in whichever threads, and left
    with the last of them."""

    def __init__(self, make: Callable[[], AbstractContextManager[object]]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._n_blocks = 0
        self._way_back = ExitStack()

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Hold it for one block."""
        with self._lock:
            if self._n_blocks == 0:
                self._way_back.enter_context(self._make())
            self._n_blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_blocks -= 1
                if self._n_blocks == 0:
                    self._way_back.close()


class SharedInThread(threading.local, SharedByBlocks):
    """The same of what belongs to one thread, in which blocks of several tasks may last."""


State = TypeVar("State")


class _Open(Generic[State]):
    """A block that has not ended."""

    def __init__(self, before: State) -> None:
        self.before = before


_around: ContextVar[tuple[_Open, ...]] = ContextVar("_around", default=())
"""The blocks that the present code was called in, by this thread or the task that awaits it."""


class GivenBack(Generic[State]):
    """Gives back what blocks change in the whole process, in whichever order they end.

    The one that began last gives back what was before it. One that ends sooner leaves all as it is,
    and hands what was before it to the next one.
    """

    def __init__(self, read: Callable[[], State], write: Callable[[State], None]) -> None:
        self._read = read
        self._write = write
        self._open: list[_Open[State]] = []
        self.lock = threading.RLock()
        """To be held while a block that has begun changes something."""

    @contextmanager
    def after_block(self) -> Iterator[State]:
        """Give back what is now; it is yielded."""
        with self.lock:
            block = _Open(self._read())
            self._open.append(block)
        _around.set((*_around.get(), block))
        try:
            yield block.before
        finally:
            _around.set(tuple(each for each in _around.get() if each is not block))
            with self.lock:
                place = self._open.index(block)
                del self._open[place]
                if place == len(self._open):
                    self._write(block.before)
                else:
                    self._open[place].before = block.before

    def has_others(self) -> bool:
        """Whether a block lasts that this one does not lie in: of another thread or task."""
        return not set(self._open) <= set(_around.get())
