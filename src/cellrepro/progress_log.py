"""Progress in a log: lines now and then, and a file that another process follows."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from cellrepro.loss_lines import thinned
from cellrepro.progress_count import REFRESH_SECONDS, Progress

FILE_VARIABLE = "CELLREPRO_PROGRESS_FILE"
"""Names a file to keep up to date with how far the work is, as JSON, for another process."""

_N_LINES = 5
"""Lines in a log over the whole way."""
_MOST_SILENT_SECONDS = 300


class Lines(Progress):
    """A line of text at the start, at each fifth of the way, and at least each five minutes.

    The file that another process may ask for is up to date after half a second, and at the end.
    """

    def __init__(self, total: int, label: str, *, stream: TextIO | None = None):
        super().__init__(total, label)
        self._stream = stream or sys.stderr
        self._n_fifths_shown = 0
        self._said_at = self._started
        self._written = ""  # to the file
        self._written_at = -math.inf
        self._one_writer = threading.Lock()
        self._ended = threading.Event()

    def __enter__(self) -> Progress:
        self._say_how_far()
        self._write()
        threading.Thread(target=self._keep_up, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        super().__exit__(*exception)
        self._write()

    def show(self, *, end: bool = False) -> None:
        """Print a line and write the file, as far as they are due."""
        if time.monotonic() - self._written_at >= REFRESH_SECONDS:
            self._write()
        n_fifths = self.done * _N_LINES // self.total
        if n_fifths > self._n_fifths_shown:
            self._n_fifths_shown = n_fifths
            self._say_how_far()
        elif time.monotonic() - self._said_at >= _MOST_SILENT_SECONDS:
            self._say_how_far()

    def say(self, line: str) -> None:
        """Print one line."""
        print(line, file=self._stream, flush=True)

    def _say_how_far(self) -> None:
        self._said_at = time.monotonic()
        self.say(self.summary())

    def _keep_up(self) -> None:
        """Say and write what is due while one step takes long."""
        while not self._ended.wait(REFRESH_SECONDS):
            self.show()

    def _how_far(self) -> dict[str, object]:
        return {
            "done": self.done,
            "total": self.total,
            "text": self.text,
            "losses": thinned(self.losses),
        }

    def _write(self) -> None:
        """Write the file that `FILE_VARIABLE` names, where something is new."""
        path = os.environ.get(FILE_VARIABLE)
        # A full disk is for others to report.
        with self._one_writer, suppress(OSError):
            # Within the lock: a thread that waited for it writes how far the work is by now.
            text = json.dumps(self._how_far())
            if path is None or text == self._written:
                return
            self._written = text
            self._written_at = time.monotonic()
            scratch = Path(f"{path}.{os.getpid()}.part")
            scratch.write_text(text, encoding="utf-8")
            scratch.replace(path)


@contextmanager
def followed(path: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Follow the file that `FILE_VARIABLE` names to another process, for one block.

    Its text is told whenever it has changed, also in the last moment of the block.
    """
    is_over = threading.Event()

    def follow() -> None:
        told = ""
        is_last = False
        while not is_last:
            is_last = is_over.wait(REFRESH_SECONDS)
            with suppress(OSError):  # not there yet
                text = path.read_text(encoding="utf-8")
                if text != told:
                    tell(text)
                    told = text

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
