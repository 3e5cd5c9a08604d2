"""Progress as a bar that is redrawn, in a terminal or in a notebook."""

from __future__ import annotations

import sys
import time
from html import escape

from cellrepro.progress_count import REFRESH_SECONDS, Progress


class TerminalBar(Progress):
    """tqdm's bar on standard error, as Cellpose's users know it."""

    def __init__(self, total: int, label: str):
        from tqdm import tqdm

        super().__init__(total, label)
        self._bar = tqdm(total=self.total, desc=label, file=sys.stderr, dynamic_ncols=True)

    def show(self, *, end: bool = False) -> None:
        """Redraw the bar."""
        self._bar.set_postfix_str(self.text, refresh=False)
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
        return {"text/plain": text, "text/html": f"{bar} {escape(text)}"}

    def show(self, *, end: bool = False) -> None:
        """Redraw the output, twice a second at most."""
        seconds = time.monotonic()
        if end or seconds - self._drawn_at >= REFRESH_SECONDS:
            self._drawn_at = seconds
            self._handle.update(self._bundle(), raw=True)

    def say(self, line: str) -> None:
        """Print one line to the output of errors."""
        print(line, file=sys.stderr, flush=True)
