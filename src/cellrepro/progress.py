"""Progress with an estimate: in a terminal, in a notebook, and in a log."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any

LINES_VARIABLE = "CELLREPRO_PROGRESS"
"""Set to ``lines`` to have plain lines instead of a moving bar, for a log."""

FILE_VARIABLE = "CELLREPRO_PROGRESS_FILE"
"""Names a file to keep up to date with how far the work is, as JSON, for another process."""

_REFRESH_SECONDS = 0.5
_LINES = 5


def progress(total: int, label: str, *, quiet: bool = False) -> Progress:
    """A bar of ``total`` steps that suits where this process writes to; ``quiet`` shows nothing."""
    if quiet:
        return Progress(total, label)
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    if hasattr(shell, "kernel"):  # a notebook
        lines = os.environ.get(LINES_VARIABLE) == "lines"
        return Lines(total, label, stream=sys.stdout) if lines else NotebookBar(total, label)
    if sys.stderr.isatty():
        return TerminalBar(total, label)
    return Lines(total, label)


class Progress:
    """Counts steps and shows nothing; the base of those that do."""

    def __init__(self, total: int, label: str):
        self.total, self.label = max(total, 1), label
        self.done, self.text = 0, ""
        self._started = time.monotonic()

    def __enter__(self) -> Progress:
        self.show()
        return self

    def __exit__(self, *exception: object) -> None:
        self.show(end=True)

    def advance(self, text: str = "") -> None:
        """One step is done; ``text`` says something about it."""
        self.done += 1
        self.note(text)

    def heard(self, event: Mapping[str, str]) -> None:
        """A child process says that one part more is done."""
        self.advance(event["name"])

    def note(self, text: str) -> None:
        """Say what is going on without counting a step."""
        self.text = text
        self.show()

    def say(self, line: str) -> None:
        """Print one line that stays."""

    def show(self, *, end: bool = False) -> None:
        """Bring what is shown up to date."""

    def summary(self) -> str:
        """One line: how far, how long still if the rest goes like this part, and the last text."""
        seconds, left = time.monotonic() - self._started, ""
        if self.done:
            left = f", about {minutes(seconds / self.done * (self.total - self.done))} left"
        head = f"{self.label}: {self.done}/{self.total} in {minutes(seconds)}{left}"
        return f"{head} · {self.text}" if self.text else head


class Lines(Progress):
    """A line of text at the start and each fifth of the way."""

    def __init__(self, total: int, label: str, *, stream: Any = None):
        super().__init__(total, label)
        self._stream, self._shown, self._told = stream or sys.stderr, 0, 0.0

    def show(self, *, end: bool = False) -> None:  # noqa: D102
        self._tell()
        part = self.done * _LINES // self.total
        if part > self._shown:
            self._shown = part
            self.say(self.summary())

    def _tell(self) -> None:
        if FILE_VARIABLE not in os.environ or time.monotonic() - self._told < _REFRESH_SECONDS:
            return
        self._told, path = time.monotonic(), os.environ[FILE_VARIABLE]
        scratch = Path(f"{path}.part")
        told = {"done": self.done, "total": self.total, "text": self.text}
        with suppress(OSError):  # a full disk is for others to report
            scratch.write_text(json.dumps(told), encoding="utf-8")
            scratch.replace(path)

    def say(self, line: str) -> None:  # noqa: D102
        print(line, file=self._stream, flush=True)


class TerminalBar(Progress):
    """tqdm's bar on standard error, as Cellpose's users know it."""

    def __init__(self, total: int, label: str):
        from tqdm import tqdm

        super().__init__(total, label)
        self._bar = tqdm(total=self.total, desc=label, file=sys.stderr, dynamic_ncols=True)

    def show(self, *, end: bool = False) -> None:  # noqa: D102
        self._bar.set_postfix_str(self.text, refresh=False)
        self._bar.update(self.done - self._bar.n)
        self._bar.refresh()
        if end:
            self._bar.close()

    def say(self, line: str) -> None:  # noqa: D102
        self._bar.write(line, file=sys.stderr)


class NotebookBar(Lines):
    """One output that is redrawn in place, so a saved notebook keeps only its end."""

    def __init__(self, total: int, label: str):
        from IPython.display import display

        super().__init__(total, label)
        self._last = 0.0
        self._handle = display(self._bundle(), raw=True, display_id=True)

    def _bundle(self) -> dict[str, str]:
        text = self.summary()
        bar = f'<progress value="{self.done}" max="{self.total}" style="width:16em"></progress>'
        return {"text/plain": text, "text/html": f"{bar} {escape(text)}"}

    def show(self, *, end: bool = False) -> None:  # noqa: D102
        now = time.monotonic()
        if end or now - self._last >= _REFRESH_SECONDS:
            self._last = now
            self._handle.update(self._bundle(), raw=True)


def minutes(seconds: float) -> str:
    """A time to read: ``34 s``, ``2:05 min``, ``3:20 h``."""
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
    return f"{whole // 60}:{whole % 60:02d} min" if whole >= 60 else f"{seconds:.0f} s"


def pass_on(tell: Callable[[str], None]) -> None:
    """Tell what the file of `FILE_VARIABLE` says whenever it has changed, while this process lives;
    nothing where none is named."""
    if FILE_VARIABLE not in os.environ:
        return

    def look(last: str = "") -> None:
        while True:
            time.sleep(_REFRESH_SECONDS)
            with suppress(OSError):  # not there yet
                text = Path(os.environ[FILE_VARIABLE]).read_text(encoding="utf-8")
                if text != last:
                    tell(last := text)

    threading.Thread(target=look, daemon=True).start()
