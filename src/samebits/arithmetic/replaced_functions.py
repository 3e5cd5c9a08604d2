"""Functions of PyTorch and of Python that are others while a block lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Replacement(NamedTuple):
    """What stands in the place of one attribute of a module or a class."""

    home: object
    name: str
    replacing: Callable[[Any], object]
    """Makes what stands there of what stood there."""


class ReplacedFunctions:
    """Replaces attributes once, however many blocks, in whichever threads, last at a time; the
    last of them to end gives the originals back."""

    def __init__(self, replacements: Callable[[], Iterable[Replacement]]) -> None:
        self._replacements = replacements
        self._lock = threading.Lock()
        self._n_blocks = 0
        self._originals: list[tuple[object, str, object]] = []

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Let them stand there for one block."""
        with self._lock:
            self._n_blocks += 1
            if self._n_blocks == 1:
                self._replace()
        try:
            yield
        finally:
            with self._lock:
                self._n_blocks -= 1
                if self._n_blocks == 0:
                    self._give_back()

    def _replace(self) -> None:
        for home, name, replacing in self._replacements():
            self._originals.append((home, name, vars(home).get(name)))
            setattr(home, name, replacing(getattr(home, name)))

    def _give_back(self) -> None:
        for home, name, original in reversed(self._originals):
            if original is None:  # it was inherited
                delattr(home, name)
            else:
                setattr(home, name, original)
        self._originals.clear()
