"""Which seed moves a Cellpose training, and what one epoch changes: tried, not told.

Answers two questions that equal results raise: why are they the same for two seeds, and is one
epoch a test. A few real training steps are walked several times from the same weights, each time
with another seed set, and what the network was shown and what became of its weights is recorded.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.determinism.known_operations import base_name
from cellrepro.determinism.seeding import check_seed
from cellrepro.errors import BadInput
from cellrepro.lab.effects import Effect, effect
from cellrepro.lab.process import Child, call
from cellrepro.lab.run import Plan, plan_training
from cellrepro.lab.worker import Request
from cellrepro.progress import progress
from cellrepro.text import amount

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
    threads : int
    start_seed : int
        PyTorch's own seed of the process, before anybody set one; it differs from process to
        process (torch 2.15, CPU).
    """

    trials: tuple[Trial, ...]
    n_images: int
    n_weights: int
    steps_per_epoch: int
    threads: int
    start_seed: int

    def pair(self, what: str) -> tuple[Trial, Trial]:
        """The two trials of one of `SEEDS`.

        Raises
        ------
        BadInput
            If there is no such seed.
        """
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
        """What one seed moves."""
        a, b = self.pair(what)
        images = "the same images" if self.same_images(what) else "other images"
        weights = "the same weights" if self.same_weights(what) else "other weights"
        return f"{what}: seeds {a.seed} and {b.seed} give {images} and {weights}"

    def changed_after_epochs(self) -> tuple[int, ...]:
        """Weights that had changed at the end of each epoch, the most of any trial."""
        ends = range(self.steps_per_epoch - 1, _EPOCHS * self.steps_per_epoch, self.steps_per_epoch)
        return tuple(max(trial.n_changed[end] for trial in self.trials) for end in ends)


def which_seed_moves(
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
    """Walk two short epochs with two values of every seed, and compare.

    Each trial starts from the same weights, with every generator seeded alike; then the one seed
    is set. The mode is ``strict``, so that nothing but the seed can make two trials part. Nothing
    is stored.

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

    Raises
    ------
    BadInput
        If anything given cannot be used.
    NotPossibleHere
        If this machine lacks the device or the memory.
    """
    if not isinstance(seeds, tuple | list) or len(seeds) != 2 or seeds[0] == seeds[1]:
        raise BadInput(f"seeds is {seeds!r}; expected two different whole numbers to compare")
    for seed in seeds:
        check_seed(seed)
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 1:
        raise BadInput(f"draws is {draws!r}; expected a whole number, 1 or more")
    plan = plan_training(
        data,
        model=model,
        epochs=_EPOCHS,
        images_per_epoch=draws,
        learning_rate=learning_rate,
        profile=profile,
        mode="strict",
        store=store,
    )
    answer = _in_child(plan, list(seeds), quiet=quiet)
    return SeedProbe(**{**answer, "trials": tuple(map(_trial, answer["trials"]))})


def _in_child(plan: Plan, seeds: list[int], *, quiet: bool) -> dict[str, Any]:
    with progress(2 + len(SEEDS) * len(seeds), "seeds", quiet=quiet) as bar:
        return call(
            "cellrepro.lab.seed_effect:walked",
            plan.request.setup,
            label="seeds",
            on_event=lambda event: bar.advance(event["name"]),
            request=plan.request,
            seeds=seeds,
        )


def _trial(plain: dict[str, Any]) -> Trial:
    pixels = np.frombuffer(base64.b64decode(plain["thumbnails"]), np.uint8)
    lists = {name: tuple(plain[name]) for name in ("drawn", "batches", "n_changed")}
    return Trial(
        **{**plain, **lists, "thumbnails": pixels.reshape(-1, _THUMBNAIL, _THUMBNAIL)},
    )


# -- effects of what an audit found --------------------------------------------------------


def effects_of(
    audit: Any, data: str | Path, *, most: int = 2, **parameters: Any
) -> dict[str, Effect | str]:
    """What each suspicious operation does to weights and cells when it alone is loose.

    Suspicious are operations that flipped, then those that PyTorch warned of; if there are none,
    those that the lab has substitutes for, because an audit may miss a rare flip.

    Parameters
    ----------
    audit : TrainingAudit
        From `cellrepro.audit_training`.
    data : str or Path
    most : int
        Operations to try; each is two times ``repeats`` trainings.
    parameters
        As for `cellrepro.effect`.

    Returns
    -------
    dict of str to Effect or str
        By operation as the audit names it; a text where there is none, which says why.
    """
    tried: dict[str, Effect | str] = {}
    known: dict[str, Effect | str] = {}
    for op in suspects(audit):
        name = base_name(op)
        if name not in known:
            if len(known) == most:
                known[name] = f"not measured: {amount(most, 'operation')} at most"
            else:
                known[name] = _effect_or_why(data, op, parameters)
        tried[op] = known[name]
    return tried


def suspects(audit: Any) -> tuple[str, ...]:
    """The operations of an audit whose effect is worth measuring, see `effects_of`."""
    from cellrepro.determinism.substitutes import SUBSTITUTES

    found = [row.op for row in (*audit.ops, *audit.warnings)]
    missed = [op for item in SUBSTITUTES for op in item.replaces][:1]
    return tuple(dict.fromkeys(found or missed))


def _effect_or_why(data: str | Path, op: str, parameters: dict[str, Any]) -> Effect | str:
    try:
        return effect(data, op, **parameters)
    except BadInput as error:
        if "loose is" not in str(error):  # something else that was given is wrong
            raise
        return "not measured: mode strict does not hold this operation"


# -- inside the child ----------------------------------------------------------------------


def walked(child: Child, *, request: Request, seeds: list[int]) -> dict[str, Any]:
    """Prepare a training as a worker does, and walk it once for every seed."""
    spec = request.spec
    import torch

    start_seed = torch.initial_seed()  # before anything sets one
    from cellrepro.images.folder import read_folder
    from cellrepro.model.network import build
    from cellrepro.model.step_timing import trainable, with_flows

    with child.prepared() as device:
        network = build(request.model, seed=spec.seed, device=device, dtype="float32")
        child.phase("images and flows")
        usable = [image for image in read_folder(request.data).train if trainable(image)]
        images = with_flows(usable[:_MOST_IMAGES], device)
        start = {name: value.detach().clone() for name, value in network.state_dict().items()}
        trials = []
        for what in SEEDS:
            for seed in seeds:
                network.load_state_dict(start)
                trials.append(_walk(network, images, spec, what, seed, start))
                child.phase(f"{what} {seed}")
    return {
        "trials": trials,
        "n_images": len(images),
        "n_weights": sum(p.numel() for _, p in _trained(network)),
        "steps_per_epoch": len(trials[0]["drawn"]) // _EPOCHS,
        "threads": torch.get_num_threads(),
        "start_seed": start_seed,
    }


def _walk(
    network: Any, images: list[Any], spec: Any, what: str, seed: int, start: dict[str, Any]
) -> dict[str, Any]:
    """Two short epochs with one seed set; what was shown, and what became of the weights."""
    from cellrepro.determinism.seeding import capture
    from cellrepro.model.training import Loop
    from cellrepro.store.digests import array_digest, value_digest

    drawn: list[str] = []

    class Watched(Loop):
        def _loss(
            self, indices: np.ndarray, data: list, targets: list, **options: Any
        ) -> tuple[Any, int]:
            drawn.append(images[indices[0]].name)
            return super()._loss(indices, data, targets, **options)

    _set(what, seed)
    generators = value_digest(capture())
    loop = Watched(
        network,
        images,
        (),
        n_epochs=_EPOCHS,
        learning_rate=spec.learning_rate,
        batch_size=spec.batch_size,
        images_per_epoch=spec.images_per_epoch,
        data_seed=seed if what == DATA else "cellpose",
    )
    shown: list[np.ndarray] = []
    hook = network.register_forward_pre_hook(
        lambda module, args: shown.append(args[0].detach().cpu().numpy().copy())
    )
    n_changed = []
    try:
        while not loop.finished:
            loop.step()
            n_changed.append(
                sum(int((now.detach() != start[name]).sum()) for name, now in _trained(network))
            )
    finally:
        hook.remove()
    thumbnails = np.stack([_thumbnail(batch[0]) for batch in shown])
    return {
        "what": what,
        "seed": seed,
        "generators": generators,
        "drawn": drawn,
        "batches": [array_digest(batch) for batch in shown],
        "thumbnails": base64.b64encode(thumbnails.tobytes()).decode("ascii"),
        "n_changed": n_changed,
        "weights": value_digest(
            {name: array_digest(p.detach().cpu().numpy()) for name, p in _trained(network)}
        ),
    }


def _set(what: str, seed: int) -> None:
    """Every generator seeded with 0, but the one in question."""
    import random

    import torch

    usual = seed if what == USUAL else 0
    random.seed(usual)
    np.random.seed(usual)
    torch.manual_seed(seed if what == TORCH else 0)


def _trained(network: Any) -> Iterable[tuple[str, Any]]:
    return ((name, p) for name, p in network.named_parameters() if name != _UNTRAINED)


def _thumbnail(image: np.ndarray) -> np.ndarray:
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
