"""The scoring part of the worker: a network's masks beside the ground truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cellrepro.comparison.scores import average_precision
from cellrepro.images.folder import LabelledImage
from cellrepro.model.encoders import CellposeNetwork
from cellrepro.run.repeat_work import RepeatWork
from cellrepro.store.checkpoints import Checkpoint
from cellrepro.store.manifest import mean_score

if TYPE_CHECKING:
    import numpy as np

_MOST_SCORED = 50


def scores_by_image(work: RepeatWork, images: Sequence[LabelledImage]) -> dict[str, float | None]:
    """Average precision at IoU 0.5 by image, of masks that are not kept; see `score` for None."""
    from cellrepro.model.inference import segment

    results = segment(work.network, tuple(images), **work.spec.settings.arguments())
    return {
        image.name: score(image, result.masks)
        for image, result in zip(images, results, strict=True)
    }


def scores_of_training_images(work: RepeatWork) -> dict[str, float | None]:
    """Score training images beside the test images: as many, evenly chosen, at most 50.

    They are the same for every spec, and take no more time than the test images do.
    """
    train = work.folder.train
    n_scored = min(len(train), len(work.folder.test), _MOST_SCORED)
    return scores_by_image(work, [train[i * len(train) // n_scored] for i in range(n_scored)])


def scores_of_checkpoints(work: RepeatWork) -> dict[int, float]:
    """Score the network as it was at each kept checkpoint but the last, whose score is known."""
    images = [image for image in work.folder.to_segment if image.masks is not None]
    if not images:
        return {}
    scores: dict[int, float] = {}
    for checkpoint in work.recorder.checkpoints_to_store:
        if checkpoint.epoch >= work.carried_out.epochs:
            continue
        work.child.phase(f"score after epoch {checkpoint.epoch}")
        give_weights_of(checkpoint, work.network, work.child.setup.profile.dtype)
        mean = mean_score(scores_by_image(work, images).values())
        if mean is not None:
            scores[checkpoint.epoch] = mean
    return scores


def give_weights_of(checkpoint: Checkpoint, network: CellposeNetwork, dtype: str) -> None:
    """Load the weights of a checkpoint, to segment in the precision of the profile."""
    import torch

    network.dtype = torch.float32  # in which it was trained
    network.load_state_dict(checkpoint.network())
    network.dtype = getattr(torch, dtype)


def score(image: LabelledImage, masks: np.ndarray) -> float | None:
    """Average precision at IoU 0.5; None without a truth, or where both are empty."""
    if image.masks is None:
        return None
    precision = float(average_precision(image.masks, masks)[0])
    return None if math.isnan(precision) else precision
