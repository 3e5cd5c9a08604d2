"""Progress with an estimate: in a terminal, in a notebook, and in a log."""

from __future__ import annotations

import functools
import os
import sys
import time
from html import escape

from cellrepro.fitted_lines import fitted
from cellrepro.loss_lines import loss_picture
from cellrepro.progress_count import REFRESH_SECONDS, Progress
from cellrepro.progress_log import Lines
from samebits.shown_text import visible

LINES_VARIABLE = "CELLREPRO_PROGRESS"
"""Set to ``lines`` to have plain lines instead of a moving bar, for a log."""


class TerminalBar(Progress):
    """tqdm's bar on standard error, as Cellpose's users know it."""

    def __init__(self, total: int, label: str):
        from tqdm import tqdm

        super().__init__(total, label)
        self._bar = tqdm(total=self.total, desc=label, file=sys.stderr, dynamic_ncols=True)

    def show(self, *, end: bool = False) -> None:
        """Redraw the bar."""
        self._bar.set_postfix_str(self.last, refresh=False)
        n_new = self.n_earlier - self._bar.initial
        for count in ("initial", "n", "last_print_n"):  # which tqdm leaves out of its estimate
            setattr(self._bar, count, getattr(self._bar, count) + n_new)
        self._bar.update(self.done - self._bar.n)
        self._bar.refresh()
        if end:
            self._bar.close()

    def say(self, line: str) -> None:
        """Print one line above the bar."""
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
        page = f"{bar} {escape(text)}{loss_picture(self.losses)}"
        return {"text/plain": text, "text/html": page}

    def show(self, *, end: bool = False) -> None:
        """Redraw the output, twice a second at most."""
        seconds = time.monotonic()
        if end and self.done >= self.total and self._last_loss is None:
            self.text = ""  # what was going on
        if end or seconds - self._drawn_at >= REFRESH_SECONDS:
            self._drawn_at = seconds
            self._handle.update(self._bundle(), raw=True)

    def say(self, line: str) -> None:
        """Print one line to the output of errors."""
        print(line, file=sys.stderr, flush=True)


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
    print(fitted(f"note: {visible(sentence)}", sys.stderr), file=sys.stderr, flush=True)


@functools.cache
def note_once(sentence: str) -> None:
    """Tell the user something once a process, however often it is found."""
    print_note(sentence)


def print_line(line: str) -> None:
    """Print a line on standard error at once."""
    print(line, file=sys.stderr, flush=True)
