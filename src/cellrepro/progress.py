"""Progress with an estimate: in a terminal, in a notebook, and in a log."""

from __future__ import annotations

import os
import sys

from cellrepro.progress_bars import NotebookBar, TerminalBar
from cellrepro.progress_count import Progress
from cellrepro.progress_log import Lines
from cellrepro.shown_text import visible

LINES_VARIABLE = "CELLREPRO_PROGRESS"
"""Set to ``lines`` to have plain lines instead of a moving bar, for a log."""


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


def print_line(line: str) -> None:
    """Print a line on standard error at once."""
    print(line, file=sys.stderr, flush=True)
