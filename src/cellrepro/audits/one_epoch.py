"""A short training that the experiments look into: one epoch of a tiny network, nothing learnt."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Literal

from cellrepro.images.folder import ImageFolder, LabelledImage
from cellrepro.model.encoders import TINY
from cellrepro.model.network import seeded_network
from cellrepro.model.prepared_images import with_flows
from cellrepro.model.training_loop import TrainingLoop
from cellrepro.model.watches import StepWatch
from samebits.generator_states import generators_kept

_MOST_IMAGES = 6  # flows take longer than all the rest


def few_images(folder: ImageFolder) -> Sequence[LabelledImage]:
    """Prepare the first images of a folder that can be trained on."""
    import torch

    with contextlib.redirect_stderr(io.StringIO()):  # Cellpose's progress bars
        return with_flows(folder.train, torch.device("cpu"), most=_MOST_IMAGES)


def one_epoch(
    images: Sequence[LabelledImage],
    *,
    data_seed: int | Literal["cellpose"] = "cellpose",
    watch: StepWatch | None = None,
) -> TrainingLoop:
    """Prepare one epoch of `tiny`, one image a step, with a learning rate of 0."""
    network = seeded_network(TINY, seed=0)
    with contextlib.redirect_stderr(io.StringIO()), generators_kept():
        return TrainingLoop(
            network,
            images,
            (),
            n_epochs=1,
            learning_rate=0.0,
            data_seed=data_seed,
            watch=watch,
        )
