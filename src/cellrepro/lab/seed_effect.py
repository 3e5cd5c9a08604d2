"""Which seed changes a Cellpose training, and what one epoch changes: tried, not told.

A few real training steps are made several times from the same weights, each time with another seed
set; what the network was shown and what became of its weights is recorded. That explains why
results may be equal for two seeds, and why one epoch is no test.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.determinism.seeding import capture, check_seed
from cellrepro.errors import BadInput, whole
from cellrepro.lab.process import Child, call
from cellrepro.lab.run import plan_training
from cellrepro.lab.worker import Request
from cellrepro.progress import progress
from cellrepro.store.digests import array_digest, value_digest

USUAL, TORCH, DATA = "NumPy and Python", "PyTorch", "data seed"
SEEDS = {
    USUAL: "random.seed({0}); np.random.seed({0})",
    TORCH: "torch.manual_seed({0})",
    DATA: "data_seed={0}",
}
"""What is tried, and how it is written."""

_EPOCHS = 2  # the first trains with a learning rate of 0
_MOST_IMAGES = 6  # flows take longer than the steps
_THUMBNAIL = 64  # pixels
_UNTRAINED = "diam_labels"  # set from the data's diameters, not by training


@dataclass(frozen=True, eq=False)
class Trial:
    """The same training steps, with one seed set.

    Attributes
    ----------
    what : str
        Which seed, a key of `SEEDS`.
    seed : int
    generators : str
        Digest of the state of every generator once the seed was set.
    drawn : tuple of str
        Name of the first image of every step.
    batches : tuple of str
        Digest of what the network was shown at every step, augmentation included.
    thumbnails : ndarray of uint8, shape (N, 64, 64)
        The first image of every step as the network was shown it.
    n_changed : tuple of int
        Weights that differ from the initial ones, after every step.
    weights : str
        Digest of all weights at the end.
    """

    what: str
    seed: int
    generators: str
    drawn: tuple[str, ...]
    batches: tuple[str, ...]
    thumbnails: np.ndarray
    n_changed: tuple[int, ...]
    weights: str

    @property
    def call(self) -> str:
        """The seed as one writes it."""
        return SEEDS[self.what].format(self.seed)


@dataclass(frozen=True)
class SeedProbe:
    """What two values of every seed made of the same training.

    Attributes
    ----------
    trials : tuple of Trial
        Two for each of `SEEDS`, from the same initial weights, in mode ``strict``.
    n_images : int
        To draw from.
    n_weights : int
        Weights of the network that training can change.
    steps_per_epoch : int
    start_seed : int
        PyTorch's own seed of the process, before anybody set one; it differs from process to
        process (torch 2.15, CPU).
    """

    trials: tuple[Trial, ...]
    n_images: int
    n_weights: int
    steps_per_epoch: int
    start_seed: int

    def pair(self, what: str) -> tuple[Trial, Trial]:
        """The two trials of one of `SEEDS`."""
        if what not in SEEDS:
            raise BadInput(f"{what!r} is no seed that was tried; expected one of {list(SEEDS)}")
        a, b = (trial for trial in self.trials if trial.what == what)
        return a, b

    def same_images(self, what: str) -> bool:
        """Whether both values of a seed showed the same images, augmented alike, in one order."""
        a, b = self.pair(what)
        return a.batches == b.batches

    def same_weights(self, what: str) -> bool:
        """Whether both ended in the same weights, bit for bit."""
        a, b = self.pair(what)
        return a.weights == b.weights

    def sentence(self, what: str) -> str:
        """What one seed changes."""
        a, b = self.pair(what)
        images = "the same images" if self.same_images(what) else "other images"
        weights = "the same weights" if self.same_weights(what) else "other weights"
        return f"{what}: seeds {a.seed} and {b.seed} give {images} and {weights}"

    def changed_after_epochs(self) -> tuple[int, ...]:
        """Weights that had changed at the end of each epoch, the most of any trial."""
        ends = range(self.steps_per_epoch - 1, _EPOCHS * self.steps_per_epoch, self.steps_per_epoch)
        return tuple(max(trial.n_changed[end] for trial in self.trials) for end in ends)


def which_seed_changes(
    data: str | Path,
    *,
    model: str = "tiny",
    seeds: tuple[int, int] = (1, 2),
    draws: int = 3,
    learning_rate: float | None = None,
    profile: str = "cpu",
    store: str | Path = "outputs",
    quiet: bool = False,
) -> SeedProbe:
    """Train two short epochs with two values of every seed, and compare.

    Each trial starts from the same weights, with every generator seeded alike; then the one seed
    is set. The mode is ``strict``, so that nothing but the seed can make two trials diverge.
    Nothing is stored.

    Parameters
    ----------
    data : str or Path
        Folder of images with masks; the first six that can be trained on are drawn from.
    model, learning_rate, profile, store
        As for `cellrepro.train`.
    seeds : tuple of two int
    draws : int
        Steps an epoch, of one image each.
    quiet : bool
        Show no progress.

    Returns
    -------
    SeedProbe
    """
    if not isinstance(seeds, tuple | list) or len(seeds) != 2 or seeds[0] == seeds[1]:
        raise BadInput(f"seeds is {seeds!r}; expected two different whole numbers to compare")
    for seed in seeds:
        check_seed(seed)
    plan = plan_training(
        data,
        model=model,
        epochs=_EPOCHS,
        images_per_epoch=whole("draws", draws, 1),
        learning_rate=learning_rate,
        profile=profile,
        mode="strict",
        store=store,
    )
    with progress(2 + len(SEEDS) * len(seeds), "seeds", quiet=quiet) as bar:
        return call(
            "cellrepro.lab.seed_effect:tried",
            plan.request.setup,
            label="seeds",
            on_event=lambda event: bar.advance(event["name"]),
            request=plan.request,
            seeds=list(seeds),
        )


# -- inside the child ----------------------------------------------------------------------


def tried(child: Child, *, request: Request, seeds: list[int]) -> SeedProbe:
    """Prepare a training as a worker does, and train once for every seed."""
    import torch

    start_seed = torch.initial_seed()  # before anything sets one
    from cellrepro.images.folder import read_folder
    from cellrepro.model.network import build
    from cellrepro.model.training import trainable, with_flows

    with child.prepared() as device:
        network = build(request.model, seed=request.spec.seed, device=device, dtype="float32")
        child.phase("images and flows")
        usable = [image for image in read_folder(request.data).train if trainable(image)]
        images = with_flows(usable[:_MOST_IMAGES], device)
        start = {name: value.detach().clone() for name, value in network.state_dict().items()}
        trials = []
        for what in SEEDS:
            for seed in seeds:
                network.load_state_dict(start)
                trials.append(_trial(network, images, request.spec, what, seed))
                child.phase(f"{what} {seed}")
    return SeedProbe(
        trials=tuple(trials),
        n_images=len(images),
        n_weights=sum(p.numel() for p in _trained(network).values()),
        steps_per_epoch=len(trials[0].drawn) // _EPOCHS,
        start_seed=start_seed,
    )


def _trial(network: Any, images: list[Any], spec: Any, what: str, seed: int) -> Trial:
    """Two short epochs with one seed set; what was shown, and what became of the weights."""
    import torch

    from cellrepro.model.training import Loop
    from cellrepro.trace.training_steps import Watch

    drawn: list[str] = []
    shown: list[np.ndarray] = []
    n_changed = []

    class Shown(Watch):
        def batch(self, names: Any, crops: Any, images: Any, targets: Any) -> None:
            drawn.append(names[0])
            shown.append(images.detach().cpu().numpy().copy())

    usual = seed if what == USUAL else 0
    random.seed(usual)
    np.random.seed(usual)
    torch.manual_seed(seed if what == TORCH else 0)
    generators = value_digest(capture())
    start = {name: value.detach().clone() for name, value in _trained(network).items()}
    loop = Loop(
        network,
        images,
        (),
        n_epochs=_EPOCHS,
        learning_rate=spec.learning_rate,
        batch_size=spec.batch_size,
        images_per_epoch=spec.images_per_epoch,
        data_seed=seed if what == DATA else "cellpose",
        watch=Shown(),
    )
    while not loop.finished:
        loop.step()
        now = _trained(network)
        n_changed.append(sum(int((now[name].detach() != start[name]).sum()) for name in start))
    weights = {name: array_digest(p.detach().cpu().numpy()) for name, p in now.items()}
    return Trial(
        what=what,
        seed=seed,
        generators=generators,
        drawn=tuple(drawn),
        batches=tuple(map(array_digest, shown)),
        thumbnails=np.stack([thumbnail(batch[0]) for batch in shown]),
        n_changed=tuple(n_changed),
        weights=value_digest(weights),
    )


def _trained(network: Any) -> dict[str, Any]:
    return {name: p for name, p in network.named_parameters() if name != _UNTRAINED}


def thumbnail(image: np.ndarray) -> np.ndarray:
    """What the network is shown, small, in 8 bit.

    Parameters
    ----------
    image : ndarray of float, shape (C, Y, X)
        Channels are averaged.

    Returns
    -------
    ndarray of uint8, shape (64, 64)
    """
    plane = image.mean(axis=0)
    rows, columns = (
        ((np.arange(_THUMBNAIL) + 0.5) * size / _THUMBNAIL).astype(int) for size in plane.shape
    )
    plane = plane[np.ix_(rows, columns)]
    low, high = np.percentile(plane, (1, 99))
    scaled = np.clip((plane - low) / (high - low or 1), 0, 1)
    return np.rint(255 * scaled).astype(np.uint8)
