"""The manifest of one repeat: what was computed, where, and what came of it (``manifest.json``)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

from pydantic import BaseModel, Field

from cellrepro.spec.spec import Digest
from cellrepro.store.environment_record import EnvironmentRecord
from cellrepro.store.record_values import (
    AveragePrecision,
    Count,
    Inside,
    Seconds,
    SecondsByPhase,
    StoredRecord,
    Timestamp,
    moment_of,
)
from cellrepro.store.training_record import TrainingRecord, WeightsRecord
from samebits.digests import value_digest
from samebits.heard_warning import HeardWarning


class DataRecord(StoredRecord):
    """The images a repeat used."""

    path: str
    """Path of the folder; `digest` says what was in it."""
    digest: Digest
    """SHA-256 over all images and masks of the folder."""
    files: dict[Inside, str]
    """SHA-256 of each file, by name."""
    n_train: Count
    """Number of training images."""
    n_test: Count
    """Number of test images."""
    segmented: str
    """``test``, or ``train`` when the folder holds no test images."""
    warnings: list[str]
    """Sentences on what deserves a look in the images."""
    kept_as: Digest | None = None
    """`images_digest` of the spec, where its axes were named."""

    @property
    def images_digest(self) -> str:
        """The digest under which the store keeps the images."""
        return self.kept_as or self.digest


class ModelRecord(StoredRecord):
    """The network a repeat started from."""

    architecture: str
    """``tiny``, ``vit-l`` …"""
    n_parameters: Count
    """Number of scalars in all its tensors."""
    dtype: str
    """Dtype of the weights: ``float32``, ``bfloat16``."""
    initial_weights: str
    """SHA-256 of the starting weights, written as the store writes weights."""
    path: str | None = None
    """Path of the weights file; the spec's digest says what was in it."""


def mean_score(scores: Iterable[float | None]) -> float | None:
    """The mean of the scores that are known; None without any."""
    known = [score for score in scores if score is not None]
    return sum(known) / len(known) if known else None


class MaskRecord(StoredRecord):
    """The masks of one image."""

    file: Inside
    """Path in the repeat's folder."""
    digest: str
    """SHA-256 of the labels as numbered by Cellpose."""
    canonical_digest: str
    """SHA-256 of the labels numbered in raster order: equal for equal outlines."""
    n_objects: Count
    """Number of cells."""
    seconds: Seconds
    """Seconds that Cellpose's `eval` took."""
    ap50: AveragePrecision | None = None
    """Average precision against the ground truth, at IoU 0.5; null without a truth."""
    n_true: Count | None = None
    """Number of objects of the ground truth; null without one."""


class ResultSummary(BaseModel):
    """The part of a manifest that says what came of a repeat, enough to compare it with others."""

    format: int = 3
    """Version of this format; from 3 on ``SHA256SUMS`` lies beside it."""
    key: str
    """Key of the spec."""
    repeat: Count
    """Number of the repeat, from 0."""
    vacuous: list[str]
    """Reasons why equality with another repeat would prove nothing."""
    switches: dict[str, Any]
    """PyTorch's switches by name, as the mode set them at the start."""
    moved: dict[str, Any] = Field(default_factory=dict)
    """Switches that had a different value at the end, with that value."""
    weights: WeightsRecord | None = None
    """The trained weights; null where nothing was trained."""
    masks: dict[Inside, MaskRecord]
    """The masks, by image."""
    files: dict[Inside, str] = Field(default_factory=dict)
    """SHA-256 of each other file of the repeat, by name."""

    @property
    def n_objects(self) -> int:
        """Objects in all masks together."""
        return sum(mask.n_objects for mask in self.masks.values())

    @property
    def switches_that_moved(self) -> list[str]:
        """Sentences on the switches that did not hold to the end."""
        return [
            f"the switch {name} moved from {self.switches.get(name, 'its start')} to {value} "
            f"during repeat {self.repeat}, so what was asked for did not hold to its end"
            for name, value in self.moved.items()
        ]


class Manifest(EnvironmentRecord, ResultSummary):
    """The record of one repeat: what happened in it."""

    started: Timestamp
    """Date and time, ISO 8601, UTC."""
    seconds: SecondsByPhase
    """Seconds of each phase: ``import``, ``data``, ``model``, ``train``, ``segment``."""
    peak_memory: dict[str, Count | None]
    """Peak bytes of the process, and of PyTorch on the GPU."""
    seeds: dict[str, int | str | None]
    """Seeds by generator; null where nothing was seeded."""
    data: DataRecord
    """The images that were used."""
    model: ModelRecord
    """The network that it started from."""
    training: TrainingRecord | None = None
    """The course of the training; null where nothing was trained."""
    train_scores: dict[Inside, AveragePrecision | None] = Field(default_factory=dict)
    """AP at IoU 0.5 of some or all training images; null where no object is.

    Their masks were not kept. Empty where these are what was segmented, and in old stores.
    """
    warnings: list[HeardWarning]
    """Python's warnings during the repeat."""

    @property
    def began(self) -> datetime:
        """Time of the beginning, in UTC."""
        return moment_of(self.started).astimezone(timezone.utc)

    @property
    def ended(self) -> datetime:
        """Time of the end, to the second: the beginning and the seconds of all phases."""
        return self.began + timedelta(seconds=round(sum(self.seconds.values())))

    @property
    def masks_digest(self) -> str:
        """One digest for all masks, by name and as numbered."""
        return value_digest({name: mask.digest for name, mask in self.masks.items()})

    @property
    def ap50(self) -> float | None:
        """Mean average precision at IoU 0.5 over the images with ground truth."""
        return mean_score(mask.ap50 for mask in self.masks.values())

    @property
    def ap50_train(self) -> float | None:
        """Mean average precision over training images; `ap50` where these were segmented."""
        if self.training is not None and self.data.segmented == "train":
            return self.ap50
        return mean_score(self.train_scores.values())

    @property
    def ap50_by_epoch(self) -> dict[int, float]:
        """Mean average precision after each epoch with a checkpoint, and at the end; else empty."""
        if self.training is None or self.ap50 is None or not self.training.ap50_after:
            return {}
        return {**self.training.ap50_after, len(self.training.train_losses): self.ap50}
