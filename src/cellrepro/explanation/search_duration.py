"""An estimate of how long two searches take, said after the first segmentation and then again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from cellrepro.explanation.conditions import Condition
from cellrepro.spec.segmentation_settings import AFTER_NETWORK
from cellrepro.words import minutes
from samebits.words import with_verb

if TYPE_CHECKING:
    from cellrepro.process.child import EventKind

SideLetter = Literal["a", "b"]

_NOTE_SECONDS = 5.0  # between two notes


class SearchDuration:
    """Counts the settings that two searches have tried, and says how long they still take."""

    def __init__(
        self,
        *,
        most_minutes: float,
        shorter: str,
        tell: Callable[[EventKind, str], None],
    ) -> None:
        self._first_rounds: dict[SideLetter, Sequence[Condition]] = {}
        self._most_minutes = most_minutes
        self._shorter = shorter
        self._tell = tell
        self._said_at = time.monotonic()
        self._seconds_of_first: float | None = None
        self._seconds_tried = 0.0
        self._n_tried = 0
        self._side: SideLetter = "a"
        self._began_at = time.monotonic()

    def expect(self, side: SideLetter, first_round: Sequence[Condition]) -> None:
        """Count the changes that the search for a side tries first, one by one."""
        self._first_rounds[side] = first_round

    def begin(self, side: SideLetter) -> None:
        """Start the clock of the search for a side."""
        self._side = side
        self._began_at = time.monotonic()
        self._n_tried = 0
        self._seconds_tried = 0.0

    def add(self, seconds: float) -> None:
        """Count one more setting that was tried."""
        self._n_tried += 1
        self._seconds_tried += seconds
        if self._seconds_of_first is None:
            self._seconds_of_first = seconds
            self._tell("note", self.sentence(seconds))
        elif time.monotonic() - self._said_at > _NOTE_SECONDS:
            self._said_at = time.monotonic()
            self._tell("now", self._progress_text())

    def sentence(self, seconds: float) -> str:
        """Say how long both searches may take."""
        one = f"how long: one segmentation takes {seconds:.1f} s here"
        changes = [change for round_ in self._first_rounds.values() for change in round_]
        if not changes:
            return (
                f"{one}; all settings are recorded, so that each result is made again once, and "
                f"with each change between the two: a few segmentations. {self._shorter}"
            )
        n_with_network = sum(not AFTER_NETWORK.issuperset(change) for change in changes)
        needed = minutes(seconds * len(changes))
        allowed = minutes(60 * self._most_minutes)
        return (
            f"{one}; of what nobody recorded, {with_verb(len(changes), 'value', 'is', 'are')} "
            f"tried first, {n_with_network} of them through the network: up to {needed}. Only if "
            f"none of them explains all, the best are combined, for {allowed} at most (--minutes). "
            f"{self._shorter}"
        )

    def _progress_text(self) -> str:
        """Say how many settings of a side were tried, and what time its search still has."""
        n_first = 1 + len(self._first_rounds[self._side])
        seconds_allowed = 30 * self._most_minutes - (time.monotonic() - self._began_at)
        if self._n_tried > n_first:
            tried = f"{self._n_tried} settings tried, combining the best"
            seconds_left = seconds_allowed
        else:
            tried = f"{self._n_tried} of {n_first} settings tried"
            seconds_needed = self._seconds_tried / self._n_tried * (n_first - self._n_tried)
            seconds_left = min(seconds_allowed, seconds_needed)
        return f"{self._side.upper()}: {tried}, up to {minutes(max(0.0, seconds_left))} left"
