"""A training carried out again in one process: as it is, and a few times with other rounding."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.comparison.weight_comparison import compare_weights
from cellrepro.model.training_loop import Epoch
from cellrepro.process.child import Child
from cellrepro.run.inputs import read_images, training_loop
from cellrepro.run.plan import Request

if TYPE_CHECKING:
    import torch

    from cellrepro.images.folder import ImageFolder
    from cellrepro.model.encoders import CellposeNetwork

USUAL = "usual"
"""The training without other rounding."""


@dataclass(frozen=True)
class ScratchFolder:
    """A folder for temporary files, with what trainings leave in it, by name and epochs done."""

    path: Path

    def weights(self, training: str, epoch: int) -> Path:
        """The file of the weights."""
        return self.path / f"{training}-{epoch}.safetensors"

    def masks(self, training: str, epoch: int) -> Path:
        """The file of the masks, compressed."""
        return self.path / f"{training}-{epoch}.npz"


@dataclass(frozen=True)
class DrawnTrainings:
    """How far the weights of trainings with other rounding are from those of the usual one."""

    distances: tuple[tuple[float, ...], ...]
    """Relative to the length of the usual ones, by draw, at each of the epochs of interest."""
    first_epoch: int | None
    """The first epoch after which the weights of a draw have other bits; None after none."""
    images: tuple[str, ...]
    """Names of the images that were segmented, in the order of their masks."""


def draw_name(draw: int) -> str:
    """What a draw, counted from 0, is called.

    >>> draw_name(0)
    'draw 1'
    """
    return f"draw {draw + 1}"


def trained_in_draws(
    child: Child, *, request: Request, n_draws: int, epochs: Sequence[int], scratch: ScratchFolder
) -> DrawnTrainings:
    """Runs in a child process: train as usual and in every draw, and leave masks of all."""
    with child.prepared() as device, child.loosened():
        trainings = _Trainings(child, request, device, epochs, scratch)
        usual = trainings.train(USUAL, None)
        distances = []
        first_epochs = []
        for draw in range(n_draws):
            name = draw_name(draw)
            drawn = trainings.train(name, draw)
            pairs = zip(usual, drawn, strict=True)
            first_epochs += [epoch for epoch, (a, b) in enumerate(pairs, 1) if a != b][:1]
            distances.append(tuple(trainings.distance(name, epoch) for epoch in epochs))
    return DrawnTrainings(
        tuple(distances), min(first_epochs, default=None), images=trainings.images
    )


class _Trainings:
    """Trainings of one request, one after the other."""

    def __init__(
        self,
        child: Child,
        request: Request,
        device: torch.device,
        epochs: Sequence[int],
        scratch: ScratchFolder,
    ) -> None:
        self._child = child
        self._request = request
        self._device = device
        self._epochs = epochs
        self._scratch = scratch
        self._folder: ImageFolder = read_images(request)
        self._segmenting = self._new_network()

    @property
    def images(self) -> tuple[str, ...]:
        """Names of the images that are segmented."""
        return tuple(image.name for image in self._folder.to_segment)

    def train(self, name: str, draw: int | None) -> list[str]:
        """Train from the beginning; the digest of the weights after every epoch."""
        from cellrepro.model.weights_file import save_weights, weights_digest

        spec = self._request.spec
        network = self._new_network()
        architecture = self._request.model.architecture
        digests = []

        def on_epoch(epoch: Epoch) -> None:
            n_done = epoch.index + 1
            digests.append(weights_digest(network, architecture=architecture))
            if n_done in self._epochs:
                path = self._scratch.weights(name, n_done)
                save_weights(network, path, architecture=architecture)
            how_far = f"{name}, epoch {n_done}/{spec.epochs}"
            self._child.tell("done", how_far, loss=epoch.train_loss)

        self._child.setup.seed_all()
        loop = training_loop(spec, network, self._folder, on_epoch=on_epoch)
        with _rounding_of(draw):
            loop.run()
        for epoch in self._epochs:  # not on the way, where masks would change what is drawn
            with _rounding_of(draw):
                self._segment(name, epoch)
        return digests

    def distance(self, name: str, epoch: int) -> float:
        """How far the weights are from the usual ones; their file is removed."""
        path = self._scratch.weights(name, epoch)
        found = compare_weights(self._scratch.weights(USUAL, epoch), path)
        path.unlink()
        return found.relative_l2

    def _new_network(self) -> CellposeNetwork:
        network, _ = self._request.build(self._device, self._scratch.path)
        return network

    def _segment(self, name: str, epoch: int) -> None:
        """Write the masks had training ended after an epoch."""
        import torch

        from cellrepro.model.inference import segment
        from cellrepro.model.weights_file import load_weights

        network = self._segmenting
        network.dtype = torch.float32  # in which it was trained
        architecture = self._request.model.architecture
        load_weights(network, self._scratch.weights(name, epoch), encoder=architecture)
        network.dtype = getattr(torch, self._child.setup.profile.dtype)
        settings = self._request.spec.settings.arguments()
        results = segment(network, self._folder.to_segment, **settings)
        masks = [result.masks for result in results]
        np.savez_compressed(self._scratch.masks(name, epoch), *masks)


def _rounding_of(draw: int | None) -> AbstractContextManager[None]:
    """The rounding of a draw for one block; the usual one of none."""
    from samebits import perturbed

    return nullcontext() if draw is None else perturbed(draw)
