"""The child processes of one piece of work, which are ended together."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Children:
    """The child processes of one piece of work, so that all of them can be ended together.

    Each grid has its own: to end one grid ends no process of another one.
    """

    def __init__(self) -> None:
        self.ended = False  # once true, a process that is started ends at once
        self._running: set[subprocess.Popen[Any]] = set()
        self._lock = threading.Lock()

    def end(self) -> None:
        """Kill all that run, and all that are started later."""
        with self._lock:
            self.ended = True
            for process in self._running:
                process.kill()

    @contextmanager
    def having(self, process: subprocess.Popen[Any]) -> Iterator[None]:
        """Register a process for one block."""
        with self._lock:
            self._running.add(process)
            if self.ended:
                process.kill()
        try:
            yield
        finally:
            with self._lock:
                self._running.remove(process)
