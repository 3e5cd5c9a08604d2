"""The call of a replay: what its process is given, and how its events are shown to the user."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial

from cellrepro.explanation.causes import RecordedResult, Replayed
from cellrepro.explanation.conditions import IMAGE_CROP
from cellrepro.explanation.recorded_network import OtherNetwork
from cellrepro.explanation.recorded_settings import MODEL_DIGEST, NOT_RECORDED
from cellrepro.explanation.replay import ReplayedImage, replay
from cellrepro.explanation.side_pair import SidePair
from cellrepro.explanation.sides import Side
from cellrepro.explanation.window_choice import AUTO, chosen_window, tiles_needed
from cellrepro.model.weight_sources import ModelSource
from cellrepro.model.window import Window
from cellrepro.process.calling import in_child
from cellrepro.process.child import Event
from cellrepro.process.interrupts import end_on_request
from cellrepro.process.process_ends import RunError
from cellrepro.process.setup import Setup
from cellrepro.profiles.profiles import Profile
from cellrepro.progress import progress
from cellrepro.progress_count import Progress
from cellrepro.store import hardware
from samebits.errors import BadInput

_WHAT_FOLLOWS_INTERRUPT = (
    "the search ends with what it has found: after the segmentation that is being computed, and a "
    "few more by which causes are named. Ctrl-C again ends it at once, with what the files record"
)
_SAY_SECONDS = 30.0  # between two lines that say how far a search is


def replay_window(crop: str | Sequence[int], sides: SidePair) -> Window:
    """Choose the window of the image that alone is replayed."""
    for side in (sides.a, sides.b):
        if IMAGE_CROP in side.known:
            raise BadInput(
                f"{side.name} shows a part of the image, where its cells are replayed; crop is for "
                "two results of the whole image: leave it out"
            )
    return chosen_window(crop, sides.a.masks, sides.b.masks)


def replayed(
    sides: SidePair,
    image: ReplayedImage,
    setup: Setup,
    *,
    minutes: float,
    unlike_given: Collection[OtherNetwork],
    command: str,
    quiet: bool,
) -> Replayed:
    """Have both results made again in a process of its own, and the causes found.

    ``unlike_given`` are networks that sides record, where a different one was given, and
    ``command`` is that of `explain` which does the same.
    """
    others = {each.letter: each.name for each in unlike_given}
    window = image.window
    results = [
        RecordedResult(
            side.condition(image.sources),
            side.masks if window is None else window.cells_of(side.masks),
            _is_network_certain(side, image.sources),
            others.get(letter, ""),
        )
        for letter, side in (("A", sides.a), ("B", sides.b))
    ]
    with (
        progress(3, "replays", quiet=quiet, even=False) as bar,
        end_on_request(_WHAT_FOLLOWS_INTERRUPT, quiet=quiet) as end_request,
    ):
        task = partial(
            replay,
            image=image,
            sides=results,
            search_minutes=minutes,
            end_request=end_request,
            shorter=_what_makes_it_shorter(sides, setup.profile, window, command),
        )
        try:
            return in_child(task, setup, label="replays", on_event=_SearchListener(bar))
        except RunError as error:
            if end_request.is_made:  # it came before the process could take it as a request
                raise KeyboardInterrupt from error
            raise


def _is_network_certain(side: Side, sources: Mapping[str, ModelSource]) -> bool:
    """Whether a network at hand has the digest of the one that made a side."""
    of_run = side.model.digest if side.run is not None and side.model is not None else None
    recorded = {side.record.value(MODEL_DIGEST), of_run} - {None, NOT_RECORDED}
    return bool(recorded & {source.digest for source in sources.values()})


def _what_makes_it_shorter(
    sides: SidePair, profile: Profile, window: Window | None, command: str
) -> str:
    """Say what a user can do about a search that takes too long, whichever command began it."""
    ways = ["Ctrl-C ends it with what it has found"]
    with suppress(BadInput):  # where no window shows the difference
        if window is None:
            needed = tiles_needed(replay_window(AUTO, sides), sides.a.masks.shape)
            if needed.n < needed.of:
                ways.append(
                    f"a window around changed cells takes {needed.n} of the image's {needed.of} "
                    f"tiles: `{command} --crop auto`"
                )
    if profile.kind == "cpu":
        ways += [
            f"`{command} --profile auto` computes on {gpu['name']}" for gpu in hardware.gpus()[:1]
        ]
    return "; ".join(ways)


class _SearchListener:
    """Shows the events of the process that searches in a progress bar."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._said_at = time.monotonic()

    def __call__(self, event: Event) -> None:
        match event.kind:
            case "done":
                self._bar.advance(event.text)
            case "note":
                self._bar.say(event.text)
            case "now":
                self._bar.note(event.text)
                if time.monotonic() - self._said_at > _SAY_SECONDS:
                    self._said_at = time.monotonic()
                    self._bar.say(event.text)
