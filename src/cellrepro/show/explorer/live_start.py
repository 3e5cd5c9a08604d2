"""An image and a network, ready for settings that move: read, checked, and segmented once."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.explanation.commands import Commands
from cellrepro.explanation.condition_commands import LabSetup, commands_for
from cellrepro.explanation.conditions import MODEL, PRECISION
from cellrepro.explanation.live_segmentation import LiveAnswer, LiveRequest, LiveSegmentation
from cellrepro.images.image_file import read_image
from cellrepro.model.weight_sources import ModelSource, find_model
from cellrepro.process.setup import Setup
from cellrepro.profiles import profiles
from cellrepro.progress import print_note
from cellrepro.show.explorer.live_view import NOW, REFERENCE, settings_at
from cellrepro.show.explorer.no_cell import why_none
from cellrepro.show.explorer.read_view import read_pixels_of_masks
from cellrepro.show.explorer.view import View
from cellrepro.spec.segmentation_settings import Settings
from cellrepro.store.store import Store
from samebits.errors import BadInput
from samebits.mode_names import Mode
from samebits.seeds import seed_of

NAMES = (REFERENCE, NOW)
"""The two sides."""


@dataclass(frozen=True)
class LiveImage:
    """An image that is segmented in a process of its own, and its first masks."""

    view: View
    """With the masks of both answers."""
    first: LiveAnswer
    """With the settings that were given: the reference."""
    now: LiveAnswer
    """With the sliders that were moved; ``first`` where none was."""
    segmentation: LiveSegmentation
    answers: Answers
    commands: Callable[[Settings], Commands]
    why_none: Callable[[LiveAnswer], str]
    """What says of an answer without a cell why there is none, and what to do."""


class Answers:
    """Keeps answers until somebody follows, and hands on those that come later."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[LiveAnswer] = queue.SimpleQueue()
        self.follow: Callable[[LiveAnswer], None] | None = None

    def __call__(self, answer: LiveAnswer) -> None:
        """Take an answer."""
        if self.follow is None:
            self._waiting.put(answer)
        else:
            self.follow(answer)

    def next(self) -> LiveAnswer:
        """Wait for one while nobody follows, and refuse one without masks."""
        answer = self._waiting.get()
        if answer.masks is None:
            raise BadInput(answer.problem)
        return answer


def start_live(
    image: np.ndarray | str | Path,
    model: str,
    *,
    settings: Mapping[str, Any] | None,
    moved: Mapping[str, float] | None,
    truth: np.ndarray | str | Path | None,
    profile: str,
    mode: Mode,
    seed: int | None,
    store: str | Path,
) -> LiveImage:
    """Segment an image, in a process that stays; once more where a slider was moved already."""
    if isinstance(image, str | Path):
        pixels = read_image(image)
        name = Path(image).stem
        written = str(image)
    else:
        pixels = np.asarray(image)
        name = "image"
        written = "IMAGE"
    source = find_model(model, Store(store))
    if source.remark:
        print_note(source.remark)
    profile_settings = profiles.load(profile)
    first_settings = Settings().replaced(**(settings or {}))
    settings_now = settings_at(moved or {}, first_settings)
    labels_of_truth = None if truth is None else read_pixels_of_masks("truth", truth)
    answers = Answers()
    segmentation = LiveSegmentation(
        pixels, source, Setup(profile_settings, mode, seed_of(mode, seed)), on_answer=answers
    )
    try:
        segmentation.ask(LiveRequest(0, "exact", first_settings))
        first = answers.next()
        now = first
        if settings_now != first_settings:
            segmentation.ask(LiveRequest(1, "exact", settings_now))
            now = answers.next()
    except BaseException:
        segmentation.close()
        raise
    lab_setup = LabSetup(profile, profile_settings.dtype, mode, seed)
    return LiveImage(
        View(name, [first.masks, now.masks], pixels, labels_of_truth),
        first,
        now,
        segmentation,
        answers,
        _commands_of(written, source, lab_setup),
        why_none(source),
    )


def _commands_of(
    image: str, source: ModelSource, setup: LabSetup
) -> Callable[[Settings], Commands]:
    """What writes the commands that make the masks of some settings."""
    usual = {MODEL: source.label, PRECISION: setup.dtype}
    here = Path.cwd()
    if source.path is not None and source.path.is_relative_to(here):
        source = replace(source, path=source.path.relative_to(here))

    def commands(settings: Settings) -> Commands:
        condition = {**usual, **settings.not_default()}
        return commands_for(image, condition, {source.label: source}, setup)

    return commands
