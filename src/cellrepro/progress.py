"""Progress with an estimate: in a terminal, in a notebook, and in a log."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import TextIO

from cellrepro.shown_text import visible
from cellrepro.words import minutes

LINES_VARIABLE = "CELLREPRO_PROGRESS"
"""Set to ``lines`` to have plain lines instead of a moving bar, for a log."""

FILE_VARIABLE = "CELLREPRO_PROGRESS_FILE"
"""Names a file to keep up to date with how far the work is, as JSON, for another process."""

_REFRESH_SECONDS = 0.5
_N_LINES = 5
"""Lines in a log over the whole way."""
_MOST_SILENT_SECONDS = 300


def progress(total: int, label: str, *, quiet: bool = False, even: bool = True) -> Progress:
    """Make a bar for a notebook, a terminal or a log, whichever this process writes to."""
    bar = Progress(total, label) if quiet else _shown(total, label)
    bar.even = even
    return bar


def _shown(total: int, label: str) -> Progress:
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    if hasattr(shell, "kernel"):  # a notebook
        lines = os.environ.get(LINES_VARIABLE) == "lines"
        return Lines(total, label, stream=sys.stdout) if lines else NotebookBar(total, label)
    if sys.stderr.isatty():
        return TerminalBar(total, label)
    return Lines(total, label)


def print_note(sentence: str) -> None:
    """Tell the user something on standard error."""
    print(f"note: {visible(sentence)}", file=sys.stderr)


class Progress:
    """Counts steps and shows nothing; the base of those that do."""

    def __init__(self, total: int, label: str):
        self.total = max(total, 1)
        self.label = label
        self.done = 0
        self.n_earlier = 0
        self.text = ""
        self.even = True
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

    def advance_earlier(self, text: str = "") -> None:
        """One step was done before this began, so that it says nothing of the time that is left."""
        self.n_earlier += 1
        self.advance(text)

    def note(self, text: str) -> None:
        """Say what is going on without counting a step."""
        self.text = text
        self.show()

    def say(self, line: str) -> None:
        """Print one line that stays."""

    def show(self, *, end: bool = False) -> None:
        """Redraw."""

    def summary(self) -> str:
        """One line: how far, how long still if the rest goes like this part, and the last text."""
        seconds = time.monotonic() - self._started
        n_made = self.done - self.n_earlier
        left = ""
        if n_made and self.even:
            left = f", about {minutes(seconds / n_made * (self.total - self.done))} left"
        before = f" ({self.n_earlier} of them before)" if self.n_earlier else ""
        head = f"{self.label}: {self.done}/{self.total}{before} in {minutes(seconds)}{left}"
        return f"{head} · {self.text}" if self.text else head


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

    def show(self, *, end: bool = False) -> None:  # noqa: D102
        if time.monotonic() - self._written_at >= _REFRESH_SECONDS:
            self._write()
        n_fifths = self.done * _N_LINES // self.total
        if n_fifths > self._n_fifths_shown:
            self._n_fifths_shown = n_fifths
            self._say_how_far()
        elif time.monotonic() - self._said_at >= _MOST_SILENT_SECONDS:
            self._say_how_far()

    def say(self, line: str) -> None:  # noqa: D102
        print(line, file=self._stream, flush=True)

    def _say_how_far(self) -> None:
        self._said_at = time.monotonic()
        self.say(self.summary())

    def _keep_up(self) -> None:
        """Say and write what is due while one step takes long."""
        while not self._ended.wait(_REFRESH_SECONDS):
            self.show()

    def _write(self) -> None:
        """Write the file that `FILE_VARIABLE` names, where something is new."""
        path = os.environ.get(FILE_VARIABLE)
        text = json.dumps({"done": self.done, "total": self.total, "text": self.text})
        # A full disk is for others to report.
        with self._one_writer, suppress(OSError):
            if path is None or text == self._written:
                return
            self._written = text
            self._written_at = time.monotonic()
            scratch = Path(f"{path}.{os.getpid()}.part")
            scratch.write_text(text, encoding="utf-8")
            scratch.replace(path)


class TerminalBar(Progress):
    """tqdm's bar on standard error, as Cellpose's users know it."""

    def __init__(self, total: int, label: str):
        from tqdm import tqdm

        super().__init__(total, label)
        self._bar = tqdm(total=self.total, desc=label, file=sys.stderr, dynamic_ncols=True)

    def show(self, *, end: bool = False) -> None:  # noqa: D102
        self._bar.set_postfix_str(self.text, refresh=False)
        n_new = self.n_earlier - self._bar.initial
        for count in ("initial", "n", "last_print_n"):  # which tqdm leaves out of its estimate
            setattr(self._bar, count, getattr(self._bar, count) + n_new)
        self._bar.update(self.done - self._bar.n)
        self._bar.refresh()
        if end:
            self._bar.close()

    def say(self, line: str) -> None:  # noqa: D102
        self._bar.write(line, file=sys.stderr)


class NotebookBar(Progress):
    """One output that is redrawn in place, so a saved notebook keeps only its end."""

    def __init__(self, total: int, label: str):
        from IPython.display import display

        super().__init__(total, label)
        self._drawn_at = 0.0
        self._handle = display(self._bundle(), raw=True, display_id=True)

    def _bundle(self) -> dict[str, str]:
        text = self.summary()
        bar = f'<progress value="{self.done}" max="{self.total}" style="width:16em"></progress>'
        return {"text/plain": text, "text/html": f"{bar} {escape(text)}"}

    def show(self, *, end: bool = False) -> None:  # noqa: D102
        seconds = time.monotonic()
        if end or seconds - self._drawn_at >= _REFRESH_SECONDS:
            self._drawn_at = seconds
            self._handle.update(self._bundle(), raw=True)

    def say(self, line: str) -> None:  # noqa: D102
        print(line, file=sys.stderr, flush=True)


def pass_on(send: Callable[[str], None]) -> None:
    """Watch the file of `FILE_VARIABLE`, and send its text whenever that has changed."""
    if FILE_VARIABLE not in os.environ:
        return
    path = Path(os.environ[FILE_VARIABLE])

    def watch() -> None:
        sent = ""
        while True:
            time.sleep(_REFRESH_SECONDS)
            with suppress(OSError):  # not there yet
                text = path.read_text(encoding="utf-8")
                if text != sent:
                    send(text)
                    sent = text

    threading.Thread(target=watch, daemon=True).start()
