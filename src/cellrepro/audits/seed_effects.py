"""Which seed changes a Cellpose training, and what one epoch changes, found by trainings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cellrepro.images.folder import ImageFolder, read_folder
from cellrepro.process.child import Child
from cellrepro.run.inputs import training_loop
from cellrepro.run.options import TrainingOptions
from cellrepro.run.plan import Request
from cellrepro.run.planned_child import in_planned_child
from cellrepro.run.planning import plan_training
from cellrepro.spec import defaults
from cellrepro.spec.spec import Spec
from samebits.digests import array_digest
from samebits.results import Result, Row
from samebits.tensor_digests import tensors_digest

if TYPE_CHECKING:
    from cellrepro.model.encoders import CellposeNetwork
    from cellrepro.model.watches import Watch

SeedName = Literal["NumPy and Python", "PyTorch", "data seed"]

SEEDS: dict[SeedName, str] = {
    "NumPy and Python": "random.seed({0}); np.random.seed({0})",
    "PyTorch": "torch.manual_seed({0})",
    "data seed": "data_seed={0}",
}
"""Each seed, with the code that sets it."""

_VALUES = (1, 2)
_OTHERS = 0
"""Seed of the generators that are not tried."""
_EPOCHS = 2  # the first epoch trains with a learning rate of 0
_STEPS = 3
_MOST_IMAGES = 6  # flows take longer than the steps


@dataclass(frozen=True, eq=False)
class Trial:
    """The same training steps, with one seed set."""

    seed_name: SeedName
    """A key of `SEEDS`."""
    seed: int
    """Its value."""
    batches: tuple[str, ...]
    """Digest of the augmented images of each step."""
    thumbnails: np.ndarray
    """The first image of every step as it was shown."""
    n_changed: tuple[int, ...]
    """Weights that differ from the initial ones, after every epoch."""
    weights: str
    """Digest of all weights at the end."""

    @property
    def call(self) -> str:
        """The code that sets the seed."""
        return SEEDS[self.seed_name].format(self.seed)


@dataclass(frozen=True, repr=False)
class SeedProbe(Result):
    """The effects of two values of every seed on the same training, in mode ``strict``."""

    trials: tuple[Trial, ...]
    """Two for each of `SEEDS`, from the same initial weights."""
    n_images: int
    """Images to draw from."""
    steps_per_epoch: int
    """Steps in an epoch of each trial."""
    start_seed: int
    """PyTorch's seed before anybody sets one, another in every process (torch 2.15)."""

    def sentence(self) -> str:
        """Say what each seed changes."""
        seed_names = dict.fromkeys(trial.seed_name for trial in self.trials)
        return "; ".join(map(self.sentence_of, seed_names))

    def sentence_of(self, seed_name: SeedName) -> str:
        """Say what one of `SEEDS` changes."""
        a, b = (trial for trial in self.trials if trial.seed_name == seed_name)
        images = "the same images" if a.batches == b.batches else "different images"
        weights = "the same weights" if a.weights == b.weights else "different weights"
        return f"{seed_name}: seeds {a.seed} and {b.seed} give {images} and {weights}"

    def rows(self) -> Sequence[Row]:
        """Give one row for each trial."""
        return [
            {
                "seed": trial.seed_name,
                "as one writes it": trial.call,
                "first batch": trial.batches[0][:12],
                "weights at the end": trial.weights[:12],
                "weights changed, by epoch": ", ".join(map(str, trial.n_changed)),
            }
            for trial in self.trials
        ]

    def changed_after_epochs(self) -> tuple[int, ...]:
        """Count the weights that had changed at the end of each epoch, the most of any trial."""
        by_epoch = zip(*(trial.n_changed for trial in self.trials), strict=True)
        return tuple(max(counts) for counts in by_epoch)


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
    model : str
        The network, as for `cellrepro.train`.
    profile : str
        The numeric environment: a name, or a ``.yaml`` file.
    store : str or Path
        Where runs are stored, for a model that is named by its key; nothing is written.
    quiet : bool
        Show no progress.

    Returns
    -------
    SeedProbe
        Its ``str`` says of each seed what it changes; in a notebook it shows a table of the
        trials.

    Raises
    ------
    BadInput
        If the folder cannot be trained on.
    NotPossibleHere
        If this machine lacks what the profile asks for.
    RunError
        If the process ends without finishing.
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
    plan = plan_training(options)
    return in_planned_child(
        plan,
        partial(try_seeds, request=plan.request),
        label="seeds",
        steps=len(SEEDS) * len(_VALUES),
        quiet=quiet,
    )


def try_seeds(child: Child, *, request: Request) -> SeedProbe:
    """Prepare a training as a worker does, in the child, and train once for every seed."""
    import torch

    start_seed = torch.initial_seed()  # before anything sets one
    from cellrepro.model.network import build
    from cellrepro.model.prepared_images import with_flows

    spec = request.spec
    with child.prepared() as device:
        network = build(request.model, seed=spec.seed, device=device, dtype="float32")
        child.phase("images and flows")
        whole_folder = read_folder(request.data)
        few_images = with_flows(whole_folder.train, device, most=_MOST_IMAGES)
        folder = replace(whole_folder, train=few_images, test=())
        initial_weights = {
            name: value.detach().clone() for name, value in network.state_dict().items()
        }
        trials = []
        for seed_name in SEEDS:
            for seed in _VALUES:
                network.load_state_dict(initial_weights)
                trials.append(_trial(network, folder, spec, seed_name, seed))
                child.tell("done", f"{seed_name} {seed}")
    return SeedProbe(
        trials=tuple(trials),
        n_images=len(folder.train),
        steps_per_epoch=_STEPS,
        start_seed=start_seed,
    )


def _trial(
    network: CellposeNetwork, folder: ImageFolder, spec: Spec, seed_name: SeedName, seed: int
) -> Trial:
    """Train two short epochs with one seed set."""
    data_seed = seed if seed_name == "data seed" else defaults.DATA_SEED
    _seed_generators(seed_name, seed)
    watch, batches = _watch_of_images()
    spec_of_trial = spec.model_copy(update={"data_seed": data_seed})
    loop = training_loop(spec_of_trial, network, folder, watch=watch)
    weights = {name: tensor.detach() for name, tensor in network.named_parameters()}
    weights_before = {name: tensor.clone() for name, tensor in weights.items()}
    n_changed = []
    for _ in range(_EPOCHS):
        for _ in range(_STEPS):
            loop.step()
        differing = [weights[name] != before for name, before in weights_before.items()]
        n_changed.append(sum(int(elements.sum()) for elements in differing))
    return Trial(
        seed_name=seed_name,
        seed=seed,
        batches=tuple(array_digest(batch) for batch in batches),
        thumbnails=np.stack([_thumbnail(batch[0]) for batch in batches]),
        n_changed=tuple(n_changed),
        weights=tensors_digest(weights),
    )


def _watch_of_images() -> tuple[Watch, list[np.ndarray]]:
    """A watch, and the list to which it adds the images of every batch."""
    from cellrepro.model.watches import Watch

    batches: list[np.ndarray] = []

    class ShownImages(Watch):
        def batch(self, names: Any, crops: Any, images: Any, targets: Any) -> None:
            batches.append(images.detach().cpu().numpy().copy())

    return ShownImages(), batches


def _seed_generators(seed_name: SeedName, seed: int) -> None:
    """Seed all generators alike, except the one that is tried."""
    import torch

    usual_seed = seed if seed_name == "NumPy and Python" else _OTHERS
    random.seed(usual_seed)
    np.random.seed(usual_seed)
    torch.manual_seed(seed if seed_name == "PyTorch" else _OTHERS)


def _thumbnail(crop: np.ndarray) -> np.ndarray:
    """Every fourth pixel of a crop, float (C, 256, 256), in 8 bit."""
    plane = crop.mean(axis=0)[2::4, 2::4]
    low, high = np.percentile(plane, (1, 99))
    return np.rint(255 * np.clip((plane - low) / (high - low or 1), 0, 1)).astype(np.uint8)
