"""Which seed changes a Cellpose training, and what one epoch changes: tried, not told."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.asked import defaults
from cellrepro.asked.spec import Spec
from cellrepro.bits.digests import array_digest, tensors_digest
from cellrepro.images.folder import ImageFolder, read_folder
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.run.inputs import training_loop
from cellrepro.run.options import TrainingOptions
from cellrepro.run.plan import Request
from cellrepro.run.planning import plan_training

SEEDS = {
    "NumPy and Python": "random.seed({0}); np.random.seed({0})",
    "PyTorch": "torch.manual_seed({0})",
    "data seed": "data_seed={0}",
}
"""What is tried, and how it is written."""

_VALUES = (1, 2)  # of each seed
_EPOCHS, _STEPS = 2, 3  # the first epoch trains with a learning rate of 0
_MOST_IMAGES = 6  # flows take longer than the steps


@dataclass(frozen=True, eq=False)
class Trial:
    """The same training steps, with one seed set."""

    what: str  # a key of `SEEDS`
    seed: int
    batches: tuple[str, ...]  # digests of what the network was shown, augmentation included
    thumbnails: np.ndarray  # uint8 (N, 64, 64): the first image of every step as it was shown
    n_changed: tuple[int, ...]  # weights that differ from the initial ones, after every epoch
    weights: str  # digest of all weights at the end

    @property
    def call(self) -> str:
        """The seed as one writes it."""
        return SEEDS[self.what].format(self.seed)


@dataclass(frozen=True)
class SeedProbe:
    """What two values of every seed made of the same training, in mode ``strict``."""

    trials: tuple[Trial, ...]  # two for each of `SEEDS`, from the same initial weights
    n_images: int  # to draw from
    steps_per_epoch: int
    start_seed: int  # PyTorch's own, before anybody set one: another in every process (torch 2.15)

    def sentence(self, what: str) -> str:
        """What one of `SEEDS` changes."""
        a, b = (trial for trial in self.trials if trial.what == what)
        images = "the same images" if a.batches == b.batches else "other images"
        weights = "the same weights" if a.weights == b.weights else "other weights"
        return f"{what}: seeds {a.seed} and {b.seed} give {images} and {weights}"

    def changed_after_epochs(self) -> tuple[int, ...]:
        """Weights that had changed at the end of each epoch, the most of any trial."""
        return tuple(map(max, zip(*(trial.n_changed for trial in self.trials), strict=True)))


def which_seed_changes(
    data: str | Path,
    *,
    model: str = defaults.MODEL,
    profile: str = defaults.PROFILE,
    store: str | Path = defaults.STORE,
    quiet: bool = False,
) -> SeedProbe:
    """Train two short epochs with two values of every seed, and compare.

    Each trial starts from the same weights, with every generator seeded alike, in mode ``strict``;
    then the one seed is set. Nothing is stored.

    Parameters
    ----------
    data : str or Path
        Folder of images with masks; the first six that can be trained on are drawn from.
    model, profile, store, quiet
        As for `cellrepro.train`.
    """
    options = TrainingOptions(
        data=data,
        model=model,
        epochs=_EPOCHS,
        images_per_epoch=_STEPS,
        mode="strict",
        profile=profile,
        store=store,
    )
    request = plan_training(options).request
    return in_child(
        partial(tried, request=request),
        request.setup,
        label="seeds",
        steps=2 + len(SEEDS) * len(_VALUES),
        quiet=quiet,
    )


def tried(child: Child, *, request: Request) -> SeedProbe:
    """Inside the child: prepare a training as a worker does, and train once for every seed."""
    import torch

    start_seed = torch.initial_seed()  # before anything sets one
    from cellrepro.model.network import build
    from cellrepro.model.prepared_images import with_flows

    spec = request.spec
    with child.prepared() as device:
        network = build(request.model, seed=spec.seed, device=device, dtype="float32")
        child.phase("images and flows")
        folder = read_folder(request.data)
        few = with_flows(folder.train, device, most=_MOST_IMAGES)
        folder = replace(folder, train=few, test=())
        start = {name: value.detach().clone() for name, value in network.state_dict().items()}
        trials = []
        for what in SEEDS:
            for seed in _VALUES:
                network.load_state_dict(start)
                trials.append(_trial(network, folder, spec, what, seed))
                child.phase(f"{what} {seed}")
    return SeedProbe(tuple(trials), len(folder.train), _STEPS, start_seed)


def _trial(network: Any, folder: ImageFolder, spec: Spec, what: str, seed: int) -> Trial:
    """Two short epochs with one seed set; what was shown, and what became of the weights."""
    import torch

    from cellrepro.trace.watches import Watch

    shown: list[np.ndarray] = []

    class Shown(Watch):
        def batch(self, names: Any, crops: Any, images: Any, targets: Any) -> None:
            shown.append(images.detach().cpu().numpy().copy())

    usual_seed, torch_seed, data_seed = (dict.fromkeys(SEEDS, 0) | {what: seed}).values()
    random.seed(usual_seed)
    np.random.seed(usual_seed)
    torch.manual_seed(torch_seed)
    spec = spec.model_copy(update={"data_seed": data_seed or "cellpose"})
    loop, n_changed = training_loop(spec, network, folder, watch=Shown()), []
    trained = {name: weights.detach() for name, weights in network.named_parameters()}
    start = {name: weights.clone() for name, weights in trained.items()}
    for _ in range(_EPOCHS):
        for _ in range(_STEPS):
            loop.step()
        n_changed.append(sum(int((trained[name] != start[name]).sum()) for name in start))
    return Trial(
        what=what,
        seed=seed,
        batches=tuple(map(array_digest, shown)),
        thumbnails=np.stack([_thumbnail(batch[0]) for batch in shown]),
        n_changed=tuple(n_changed),
        weights=tensors_digest(trained),
    )


def _thumbnail(crop: np.ndarray) -> np.ndarray:
    """Of what the network is shown, float (C, 256, 256), every fourth pixel, in 8 bit."""
    plane = crop.mean(axis=0)[2::4, 2::4]
    low, high = np.percentile(plane, (1, 99))
    return np.rint(255 * np.clip((plane - low) / (high - low or 1), 0, 1)).astype(np.uint8)
