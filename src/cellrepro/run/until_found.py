"""Training until a network finds cells: the goal, the looks at it on the way, and when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from cellrepro.images.folder import ImageFolder, LabelledImage
from cellrepro.spec.spec import Spec
from cellrepro.store.training_record import Look, TrainingRecord, UntilRecord
from cellrepro.words import minutes
from samebits.words import amount

MOST_EPOCHS = 150
"""Most epochs of a training, of which the last 50 have a falling learning rate, so they belong
together: it ends after 99 epochs at the latest, or after all."""

LEAST_EPOCHS = 2
"""The first epoch has a learning rate of 0, so that one alone would train nothing."""

LAST_FREE_EPOCH = 99
"""Up to this epoch the learning rates do not depend on how many epochs are asked for."""

DRAWS_PER_EPOCH = 48
"""Images drawn in an epoch, however many there are."""

LOOKS = (6, 8, 10, 12, 15, 18, 22, 27, 33, 40, 48, 58, 70, 84, 99, 150)
"""Epochs after which the network is scored. They do not depend on the time it takes, so that a slow
and a fast machine get the same network."""

_MOST_IMAGES = 12
_MOST_PIXELS = 4_000_000
"""Limits on the images of a look, so that looks take no more time than the training."""

Ending = Literal["score", "time", "epochs"]


@dataclass(frozen=True)
class Goal:
    """The score or the time at which a training ends."""

    score: float = 0.5
    """Mean average precision at IoU 0.5 that training images reach, and test images, too, where
    there are some with masks."""
    seconds: float = 600.0
    """Seconds after which the training ends in any case."""


FOUND = Goal()
"""The usual goal: a score of 0.5, with which masks can be compared, or ten minutes."""


class Seeker:
    """Scores a network after some epochs of its training, and decides when the training ends."""

    def __init__(
        self,
        goal: Goal,
        folder: ImageFolder,
        *,
        score: Callable[[Sequence[LabelledImage]], float | None],
        say: Callable[[str], None],
    ) -> None:
        self._goal = goal
        self._score = score
        self._say = say
        self._train_images = some_of(folder.train)
        self._test_images = some_of(image for image in folder.test if image.masks is not None)
        self._started = time.monotonic()
        self._looks: list[Look] = []
        self._ended: Ending = "epochs"

    def is_enough(self, n_epochs: int) -> bool:
        """Whether the training ends after so many epochs: at its score, or out of time."""
        if n_epochs in LOOKS and self._look(n_epochs):
            self._ended = "score"
            return True
        may_end = LEAST_EPOCHS <= n_epochs <= LAST_FREE_EPOCH
        if may_end and self._time_is_over(n_epochs):
            self._ended = "time"
            return True
        return False

    @property
    def record(self) -> UntilRecord:
        """The goal, the scores, and how the training ended."""
        return UntilRecord(
            score=self._goal.score,
            seconds=self._goal.seconds,
            ended=self._ended,
            taken=round(self._taken, 1),
            looks=self._looks,
        )

    @property
    def _taken(self) -> float:
        return time.monotonic() - self._started

    def _time_is_over(self, n_epochs: int) -> bool:
        """Whether the time is over, or would be before the epochs that belong together are done."""
        needed = 0.0
        if n_epochs == LAST_FREE_EPOCH:
            needed = self._taken / n_epochs * (MOST_EPOCHS - n_epochs)
        return self._taken + needed >= self._goal.seconds

    def _look(self, n_epochs: int) -> bool:
        """Score the network; whether training and test images both reach the goal."""
        look = Look(
            epochs=n_epochs,
            seconds=round(self._taken, 1),
            train=self._score(self._train_images),
            test=self._score(self._test_images) if self._test_images else None,
        )
        self._looks.append(look)
        parts = [_in_words(look.train, "training images")]
        reached = look.train is not None and look.train >= self._goal.score
        if self._test_images:
            parts.append(_in_words(look.test, "test images"))
            reached = reached and look.test is not None and look.test >= self._goal.score
        self._say(
            f"after {amount(n_epochs, 'epoch')} and {minutes(look.seconds)}: score (AP@0.5) "
            f"{' and '.join(parts)}; {self._goal.score:.2f} is enough, and "
            f"{minutes(self._goal.seconds)} are the limit"
        )
        return reached


def as_trained(spec: Spec, training: TrainingRecord | None) -> Spec:
    """The spec that was carried out: with fewer epochs where a goal ended the training."""
    if training is None or training.until is None:
        return spec
    return spec.model_copy(update={"epochs": len(training.train_losses)})


def some_of(images: Iterable[LabelledImage]) -> tuple[LabelledImage, ...]:
    """Choose at most twelve images, evenly, and fewer where they are large; at least one."""
    candidates = tuple(images)
    if not candidates:
        return ()
    largest = max(image.image.shape[0] * image.image.shape[1] for image in candidates)
    n_chosen = min(len(candidates), _MOST_IMAGES, max(1, _MOST_PIXELS // largest))
    return tuple(candidates[i * len(candidates) // n_chosen] for i in range(n_chosen))


def _in_words(score: float | None, images: str) -> str:
    return f"none on {images}" if score is None else f"{score:.2f} on {images}"
