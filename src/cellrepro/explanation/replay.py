"""Two results made again, in a child process: how each was made, and which changes part them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from cellrepro.explanation.causes import CauseSearch, RecordedResult, Replayed
from cellrepro.explanation.conditions import IMAGE_CROP, VERSION, Condition, without
from cellrepro.explanation.fit import Fit, Reproduced
from cellrepro.explanation.search import DECIDING, Search
from cellrepro.explanation.search_duration import SearchDuration
from cellrepro.explanation.trials import Trials, Usual
from cellrepro.model.cellpose_generation import known_version
from cellrepro.model.weight_sources import ModelSource
from cellrepro.model.window import Window
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.process.interrupts import EndRequest
from samebits.words import joined


@dataclass(frozen=True)
class ReplayedImage:
    """The image of two results, and with what it is segmented again."""

    pixels: np.ndarray
    """(Y, X) or (Y, X, C)."""
    sources: Mapping[str, ModelSource]
    """Networks by label, the usual one first."""
    window: Window | None = None
    """The part of it that alone is replayed."""

    @property
    def usual_network(self) -> str:
        """The label of the network that a condition means if it names none."""
        return next(iter(self.sources))

    def trials(
        self,
        child: Child,
        device: Any,
        *,
        version: str | None = None,
        elsewhere: Callable[[Condition], np.ndarray] | None = None,
        tell: Callable[[float], None] | None = None,
    ) -> Trials:
        """Make what segments it under any condition; ``version`` is that of Cellpose here."""

        def built(model: str, precision: str) -> Any:
            from cellrepro.model.network import build

            return build(self.sources[model], seed=child.setup.seed, device=device, dtype=precision)

        return Trials(
            self.pixels,
            built,
            Usual(self.usual_network, child.setup.profile.dtype, version),
            window=self.window,
            elsewhere=elsewhere,
            tell=tell,
        )


def replay(
    child: Child,
    *,
    image: ReplayedImage,
    sides: Sequence[RecordedResult],
    search_minutes: float,
    end_request: EndRequest,
    shorter: str = "",
) -> Replayed:
    """Runs in a child process: find the conditions of both results, and the changes between."""
    recorded_a, recorded_b = sides
    duration = SearchDuration(most_minutes=search_minutes, shorter=shorter, tell=child.tell)
    with child.prepared() as device:
        from samebits.generator_states import generators_kept

        trials = image.trials(
            child,
            device,
            version=known_version(),
            elsewhere=partial(_with_another_version, child=child, image=image),
            tell=duration.add,
        )
        search_of = partial(_search, trials=trials, end_request=end_request)
        searches = _BothSearches(
            child, duration, search_of(recorded_a), search_of(recorded_b), search_minutes
        )
        others = {"A": recorded_a.other_network, "B": recorded_b.other_network}
        with generators_kept():
            a, b = searches.fits(image.usual_network, others)
            replayed = CauseSearch(trials, a, b, recorded_a, recorded_b).replayed()
            child.tell("done", "causes")
            return replace(replayed, cut_short=end_request.is_made)


def _search(result: RecordedResult, *, trials: Trials, end_request: EndRequest) -> Search:
    return Search(
        trials,
        result.masks,
        known=result.condition,
        is_ended=lambda: end_request.is_made,
        is_network_certain=result.is_network_certain,
    )


@dataclass(frozen=True)
class _BothSearches:
    """The searches for the conditions of two results, one after the other."""

    child: Child
    duration: SearchDuration
    a: Search
    b: Search
    minutes: float
    """For both: half of them for the first, and for the second what that left."""

    def fits(self, network: str, others: Mapping[str, str]) -> tuple[Fit, Fit]:
        """Search for both, and where one alone is not made, against what is recorded of it.

        ``others`` are the networks that sides record, where ``network`` is a different one.
        """
        if self.a.shows_what(self.b):
            return self._fits_of_same_cells()
        self.duration.expect("a", self.a)
        self.duration.expect("b", self.b)
        end = time.monotonic() + 60 * self.minutes
        a, b = self._fits_as_recorded(network, others, end=end)
        if b.found == Reproduced.MADE and a.is_unmade:
            self.duration.begin("a")
            against_record = self.a.fit_against_record(near=_near(b), stop_at=end)
            a = against_record or self.a.without_doubt_if_stopped(a)
        elif a.found == Reproduced.MADE and b.is_unmade:
            self.duration.begin("b")
            against_record = self.b.fit_against_record(near=_near(a), stop_at=end)
            b = against_record or self.b.without_doubt_if_stopped(b)
        return a, b

    def _fits_of_same_cells(self) -> tuple[Fit, Fit]:
        """Try both records: where one makes the cells, and the other does not, that is untrue."""
        a = self.a.start_alone(near={})
        self.child.tell("done", "A")
        b = self.b.start_alone(near={})
        self.child.tell("done", "B")
        is_a_made = a.found == Reproduced.MADE
        is_b_made = b.found == Reproduced.MADE
        if is_a_made and not is_b_made:
            b = self.b.fit_like(_near(a))
        elif is_b_made and not is_a_made:
            a = self.a.fit_like(_near(b))
        return a, b

    def _fits_as_recorded(
        self, network: str, others: Mapping[str, str], *, end: float
    ) -> tuple[Fit, Fit]:
        """Search for both, first for B where that was probably made with another network."""
        doubts = {"A": self.a.doubts_network(), "B": self.b.doubts_network()}
        for letter in (letter for letter, is_doubted in doubts.items() if is_doubted):
            self.child.tell("note", _network_note(letter, network, others[letter]))
        half = end - 30 * self.minutes
        if doubts["B"] and not self.a.is_settled:
            self.duration.begin("b")
            b = self.b.fit(near={}, stop_at=half)
            self.child.tell("done", "B")
            self.duration.begin("a")
            a = _fit_beside(self.a, b, stop_at=end)
            self.child.tell("done", "A")
            return a, b
        a = self.a.fit(near={}, stop_at=half)
        self.child.tell("done", "A")
        self.duration.begin("b")
        b = _fit_beside(self.b, a, stop_at=end)
        self.child.tell("done", "B")
        return a, b


def _near(other: Fit) -> Condition:
    """What makes the other result, as far as it may make this one, too."""
    return without(other.believed, IMAGE_CROP)


def _fit_beside(search: Search, other: Fit, *, stop_at: float) -> Fit:
    """Search near the condition of the other result, unless that has another network."""
    near = _near(other)
    if other.network_doubt and not search.is_settled:
        return search.start_alone(near=near)
    is_made = other.found == Reproduced.MADE
    return search.fit(near=near, stop_at=stop_at, is_other_made=is_made)


def _network_note(letter: str, network: str, other: str) -> str:
    if other:
        return (
            f"{letter} records another network than {network}, with which it is segmented: {other}"
        )
    return (
        f"{letter} records {joined(DECIDING)}, and with them and {network} less than half of its "
        "cells are made again: a different network, an image that was read otherwise, or other "
        "settings than it records. What nobody recorded is still tried one by one; then, if the "
        "network makes the other result, other values than the recorded ones"
    )


# -- with a different version of Cellpose ----------------------------------------------------


def masks_under(child: Child, *, image: ReplayedImage, condition: Condition) -> np.ndarray:
    """Runs in a child process with a different version of Cellpose: segment under a condition."""
    with child.prepared() as device:
        return image.trials(child, device).masks(condition)


def _with_another_version(
    condition: Condition, *, child: Child, image: ReplayedImage
) -> np.ndarray:
    """Segment under a condition, in a process that has its version of Cellpose."""
    version = condition[VERSION]
    task = partial(masks_under, image=image, condition=without(condition, VERSION))
    setup = replace(child.setup, cellpose=version)
    return in_child(task, setup, label=f"replay with Cellpose {version}")
