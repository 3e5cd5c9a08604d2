"""The record of a training in a manifest: its course, its goal, and its weights."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from cellrepro.store.record_values import AveragePrecision, Count, Seconds, StoredRecord


class Look(StoredRecord):
    """The scores of a network at one point of its training."""

    epochs: Count
    """Epochs done."""
    seconds: Seconds
    """Since the training began."""
    train: AveragePrecision | None
    """Mean AP at IoU 0.5 of training images; null without one."""
    test: AveragePrecision | None
    """Mean AP at IoU 0.5 of test images; null without one that has a truth."""


class UntilRecord(StoredRecord):
    """A training that ended once it found cells: its goal, and how it ended."""

    score: float
    """AP at IoU 0.5 that training and test images were to reach."""
    seconds: Seconds
    """Time after which it was to end in any case."""
    ended: Literal["score", "time", "epochs"]
    """Why it ended: the score was reached, or the time or the epochs were over."""
    taken: Seconds
    """Seconds that it took, with those of the looks."""
    looks: list[Look]
    """The earliest first."""


class TrainingRecord(StoredRecord):
    """The course of a training, one entry an epoch."""

    learning_rates: list[float]
    """Learning rate of each epoch."""
    train_losses: list[float]
    """Mean loss of each epoch."""
    test_losses: list[float | None]
    """Loss on the test images after each epoch; null where Cellpose's schedule evaluates nothing.
    That of the first epoch is the starting network's, as the learning rate is 0 until then."""
    n_steps: Count
    """Optimizer steps in all epochs."""
    n_removed: Count
    """Training images with fewer masks than Cellpose's minimum."""
    resumed_at: list[Count] = Field(default_factory=list)
    """Epochs that were done each time a process took over."""
    continued_from: str | None = None
    """The finished repeat that it continues."""
    ap50_after: dict[Count, AveragePrecision] = Field(default_factory=dict)
    """Mean AP at IoU 0.5 after an epoch, by its number, of kept checkpoints with a truth."""
    until: UntilRecord | None = None
    """How it ended, where the number of epochs was not given."""

    @model_validator(mode="after")
    def _of_one_length(self) -> TrainingRecord:
        curves = (self.learning_rates, self.train_losses, self.test_losses)
        lengths = [len(curve) for curve in curves]
        if len(set(lengths)) > 1:
            raise ValueError(
                f"{lengths} learning rates, training losses and test losses, expected one of each "
                "for every epoch"
            )
        return self


class WeightsRecord(StoredRecord):
    """The trained weights."""

    digest: str
    """SHA-256 of the file."""
    n_changed: Count
    """Number of scalars whose bits differ from the start."""
