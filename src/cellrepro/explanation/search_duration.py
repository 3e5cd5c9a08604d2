"""An estimate of how long two searches take, said after the first segmentation and then again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from cellrepro.words import minutes
from samebits.words import amount, joined

if TYPE_CHECKING:
    from cellrepro.explanation.search import Search
    from cellrepro.process.child import EventKind

SideLetter = Literal["a", "b"]

_NOTE_SECONDS = 5.0  # between two notes


class SearchDuration:
    """Says how many values two searches have tried, and how long they still take."""

    def __init__(
        self,
        *,
        most_minutes: float,
        shorter: str,
        tell: Callable[[EventKind, str], None],
    ) -> None:
        self._searches: dict[SideLetter, Search] = {}
        self._most_minutes = most_minutes
        self._shorter = shorter
        self._tell = tell
        self._said_at = time.monotonic()
        self._seconds_of_first: float | None = None
        self._side: SideLetter = "a"
        self._began_at = time.monotonic()

    def expect(self, side: SideLetter, search: Search) -> None:
        """Count the values that the search for a side tries one by one."""
        self._searches[side] = search

    def begin(self, side: SideLetter) -> None:
        """Start the clock of the search for a side."""
        self._side = side
        self._began_at = time.monotonic()

    def add(self, seconds: float) -> None:
        """Take note of one more segmentation."""
        if self._seconds_of_first is None:
            self._seconds_of_first = seconds
            self._tell("note", self.sentence(seconds))
        elif time.monotonic() - self._said_at > _NOTE_SECONDS:
            self._said_at = time.monotonic()
            self._tell("now", self._progress_text())

    def sentence(self, seconds: float) -> str:
        """Say how long both searches may take."""
        of_sides = {side: search.first_round() for side, search in self._searches.items()}
        changes = [change for first_round in of_sides.values() for change in first_round]
        if not changes:
            return (
                f"how long: a few segmentations of {seconds:.1f} s, as all settings are recorded: "
                "each result is made again once, and with each change between the two. "
                f"{self._shorter}"
            )
        needed = seconds * len(changes)
        values = [
            f"{amount(len(first_round), 'value')} for {side.upper()}"
            for side, first_round in of_sides.items()
            if first_round
        ]
        return (
            f"how long: {minutes(needed)} or less ({seconds:.1f} s a segmentation) to try "
            f"{joined(values)} of settings that no file records; longer only where none of them "
            f"explains all. {self._end_text(needed)}. {self._shorter}"
        )

    def _end_text(self, seconds_needed: float) -> str:
        """Say when the search ends at the latest, and whether that may be too soon."""
        allowed = 60 * self._most_minutes
        end = f"All this ends after {minutes(allowed)} (--minutes)"
        return f"{end}, perhaps before all is tried" if seconds_needed > allowed else end

    def _progress_text(self) -> str:
        """Say how many values of a side were tried, and what time its search still has."""
        search = self._searches.get(self._side)
        n_values = 0 if search is None else len(search.first_round())
        if search is None or not n_values:
            return f"{self._side.upper()}: segmented as recorded"
        n_tried = n_values - search.n_values_left
        seconds_left = min(search.seconds_left, 60 * self._most_minutes)
        if search.n_values_left and n_tried:
            seconds_of_one = (time.monotonic() - self._began_at) / n_tried
            seconds_left = min(seconds_left, seconds_of_one * search.n_values_left)
        tried = f"{n_tried} of {amount(n_values, 'value')} tried"
        if not search.n_values_left:
            tried += ", now values near the best and combinations"
        return f"{self._side.upper()}: {tried}, up to {minutes(seconds_left)} left"
