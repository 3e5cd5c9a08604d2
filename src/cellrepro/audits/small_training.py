"""A training of a few steps on synthetic images: short enough to make while a user waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn

    from cellrepro.model.training_loop import TrainingLoop
    from cellrepro.model.weight_sources import ModelSource

N_STEPS = 6
"""Training steps in two epochs, with one image a step."""

_N_EPOCHS = 2
_LEARNING_RATE = 1e-3


def small_training(
    source: ModelSource, device: torch.device, *, seed: int | None
) -> tuple[TrainingLoop, nn.Module]:
    """Prepare two epochs of a network on synthetic images."""
    from cellrepro.images.synthetic_sets import labelled_nuclei
    from cellrepro.model.network import build
    from cellrepro.model.training_loop import TrainingLoop

    network = build(source, seed=seed, device=device, dtype="float32")
    loop = TrainingLoop(
        network,
        labelled_nuclei(2),
        (),
        learning_rate=_LEARNING_RATE,
        n_epochs=_N_EPOCHS,
        images_per_epoch=N_STEPS // _N_EPOCHS,
    )
    return loop, network
