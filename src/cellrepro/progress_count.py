"""The count of a progress: how far, how long still; the base of all that show it."""

from __future__ import annotations

import time

from cellrepro.loss_lines import finite
from cellrepro.words import minutes

REFRESH_SECONDS = 0.5
"""Least time between two redraws."""


class Progress:
    """Counts steps and shows nothing; the base of those that do."""

    def __init__(self, total: int, label: str):
        self.total = max(total, 1)
        self.label = label
        self.done = 0
        self.n_earlier = 0
        self.text = ""
        self.losses: list[float | None] = []
        self._last_loss: float | None = None
        self.even = True
        self._started = time.monotonic()

    def __enter__(self) -> Progress:
        self.show()
        return self

    def __exit__(self, *exception: object) -> None:
        self.show(end=True)

    def advance(self, text: str = "", loss: float | None = None) -> None:
        """One step is done; ``text`` says something about it, an epoch had a ``loss``."""
        self.done += 1
        if loss is not None:
            self.losses.append(finite(loss))
        self.note(text, loss)

    def advance_earlier(self, text: str = "", loss: float | None = None) -> None:
        """One step was done before this began, so that it says nothing of the time that is left."""
        self.n_earlier += 1
        self.advance(text, loss)

    def note(self, text: str, loss: float | None = None) -> None:
        """Say what is going on without counting a step."""
        self.text = text
        self._last_loss = loss
        self.show()

    @property
    def last(self) -> str:
        """The last text, with the loss that came with it."""
        return self.text if self._last_loss is None else f"{self.text}, loss {self._last_loss:.3f}"

    def say(self, line: str) -> None:
        """Print one line that stays."""

    def show(self, *, end: bool = False) -> None:
        """Redraw."""

    def summary(self) -> str:
        """One line: how far, how long still if the rest goes like this part, and the last text."""
        seconds = time.monotonic() - self._started
        n_made = self.done - self.n_earlier
        left = ""
        if n_made and self.even and self.done < self.total:
            left = f", about {minutes(seconds / n_made * (self.total - self.done))} left"
        before = f" ({self.n_earlier} of them before)" if self.n_earlier else ""
        head = f"{self.label}: {self.done}/{self.total}{before} in {minutes(seconds)}{left}"
        return f"{head} · {self.last}" if self.last else head
