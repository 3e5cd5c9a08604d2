"""What is otherwise in the whole process while a block lasts, in whichever thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import NamedTuple, NoReturn


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
