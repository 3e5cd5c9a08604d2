"""How a difference grows: from a last bit in one operation to pixels and cells.

Two runs that kept their checkpoints are compared epoch by epoch: the distance of their weights,
and the masks that each would have given had training ended there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.compare.metrics import average_precision, compare_masks
from cellrepro.compare.weights import compare_weights
from cellrepro.errors import BadInput
from cellrepro.lab.checkpointing import CHECKPOINTS
from cellrepro.lab.process import Child, Setup, call
from cellrepro.progress import progress
from cellrepro.store import checkpoints
from cellrepro.store.store import Repeat, Run, Store


@dataclass(frozen=True)
class Moment:
    """Two runs after one epoch.

    Attributes
    ----------
    epoch, step : int
        Epochs and steps done.
    n_differing : int
        Parameters (scalars) whose bits differ.
    n_parameters : int
    relative_l2 : float
        Distance of the weights, relative to their length.
    max_ulp : int or None
        Largest distance of two parameters in units in the last place; None beside a NaN.
    ppm : float or None
        Differing pixels per million of the masks; None where no masks were made.
    lost, gained : int or None
        Objects of A without a match in B at IoU 0.5, and the other way round.
    objects : tuple of int or None
        In A and in B.
    ap50 : tuple of float or None
        Of A and of B, against the ground truth: mean over the images of average precision at IoU
        0.5; None where no masks were made, or none of the images has a ground truth.
    """

    epoch: int
    step: int
    n_differing: int
    n_parameters: int
    relative_l2: float
    max_ulp: int | None
    ppm: float | None = None
    lost: int | None = None
    gained: int | None = None
    objects: tuple[int, int] | None = None
    ap50: tuple[float, float] | None = None


def growth(
    a: str,
    b: str,
    *,
    n_masks: int = 6,
    store: str | Path = "outputs",
    quiet: bool = False,
) -> list[Moment]:
    """Follow the difference of two runs through their checkpoints.

    Masks are made of each as the run itself makes them, in its own profile and mode.

    Parameters
    ----------
    a, b : str
        ``KEY/REPEAT`` of two runs with kept checkpoints of the same network over the same images.
    n_masks : int
        At how many epochs, spread over the training, masks are made of both; 0 for none.
    store : str or Path
    quiet : bool
        Show no progress.

    Returns
    -------
    list of Moment
        One for every epoch of which both have a checkpoint.

    Raises
    ------
    BadInput
        If one of them kept no checkpoints, they share no epoch, or they are not of one
        architecture and over the same images.
    """
    place = Store(store)
    sides = _named(a, place), _named(b, place)
    _refuse_other(*sides)
    held = [_by_epoch(repeat) for _, repeat in sides]
    epochs = sorted(held[0].keys() & held[1].keys())
    if not epochs:
        raise BadInput(
            f"{a} and {b} have no checkpoint of the same epoch; train both with "
            "--keep-checkpoints and the same --checkpoint-every"
        )
    for epoch in epochs:
        for side in held:
            checkpoints.refuse_changed(side[epoch])
    looked = _spread(epochs, n_masks)
    with tempfile.TemporaryDirectory() as scratch:
        masks = _masks(place, sides, held, looked, Path(scratch), quiet=quiet) if looked else {}
        return [_moment(held[0][epoch], held[1][epoch], masks.get(epoch)) for epoch in epochs]


def has_checkpoints(repeat: Repeat) -> bool:
    """Whether a stored repeat kept its checkpoints."""
    return bool(checkpoints.folders(repeat.folder / CHECKPOINTS))


def _named(reference: str, store: Store) -> tuple[Run, Repeat]:
    return store.find(reference)


def _refuse_other(a: tuple[Run, Repeat], b: tuple[Run, Repeat]) -> None:
    """Raise unless two runs trained one architecture and segmented the same images."""
    (run_a, repeat_a), (run_b, repeat_b) = a, b
    one, other = repeat_a.manifest, repeat_b.manifest
    for what, x, y in (
        ("architecture", one.model.architecture, other.model.architecture),
        ("number of parameters", one.model.n_parameters, other.model.n_parameters),
        ("data set", run_a.spec.data_digest[:12], run_b.spec.data_digest[:12]),
        ("segmented images", ", ".join(one.masks), ", ".join(other.masks)),
    ):
        if x != y:
            raise BadInput(
                f"{repeat_a.name} and {repeat_b.name} are not of one {what} ({x} and {y}); give "
                "two runs of one network over the same images"
            )


def _by_epoch(repeat: Repeat) -> dict[int, checkpoints.Checkpoint]:
    folders = checkpoints.folders(repeat.folder / CHECKPOINTS)
    if not folders:
        raise BadInput(
            f"{repeat.name} kept no checkpoints; train it with --keep-checkpoints into another "
            "--store, or remove its folder first"
        )
    return {found.epoch: found for found in map(checkpoints.read_plain, folders)}


def _spread(epochs: Sequence[int], n: int) -> list[int]:
    """At most n of the epochs, the first and the last among them."""
    if n <= 0:
        return []
    positions = np.unique(np.linspace(0, len(epochs) - 1, min(n, len(epochs))).round().astype(int))
    return [epochs[position] for position in positions]


def _moment(a: checkpoints.Checkpoint, b: checkpoints.Checkpoint, masks: Any) -> Moment:
    paths = [side.folder / checkpoints.STATE for side in (a, b)]
    found = compare_weights(*paths, prefix=checkpoints.NETWORK)
    return Moment(
        epoch=a.epoch,
        step=a.step,
        n_differing=found.n_differing,
        n_parameters=found.n_parameters,
        relative_l2=found.relative_l2,
        max_ulp=found.max_ulp,
        **(masks or {}),
    )


def _network_names(file: Any) -> list[str]:
    """The tensors of a checkpoint's file that are the network's, not the optimizer's."""
    names = file.keys()
    return [name for name in names if name.startswith(checkpoints.NETWORK)]


def _masks(
    store: Store,
    sides: tuple[tuple[Run, Repeat], tuple[Run, Repeat]],
    held: Sequence[dict[int, checkpoints.Checkpoint]],
    epochs: Sequence[int],
    scratch: Path,
    *,
    quiet: bool,
) -> dict[int, dict[str, Any]]:
    """What the masks of both would have been after these epochs, made in a child for each side."""
    digest, names = sides[0][0].spec.data_digest, list(sides[0][1].manifest.masks)
    images = [str(store.kept(digest, f"{name}.tif").resolve()) for name in names]
    with progress(2 * len(epochs), "masks along the way", quiet=quiet) as bar:
        for letter, (run, repeat), found in zip("ab", sides, held, strict=True):
            call(
                "cellrepro.lab.growth:segmented",
                Setup.of(run.spec),
                label=f"masks of the checkpoints of {repeat.name}",
                on_event=lambda event: bar.advance(event["name"]),
                images=images,
                architecture=repeat.manifest.model.architecture,
                weights={
                    f"{letter}-{epoch}": (found[epoch].folder / checkpoints.STATE).resolve()
                    for epoch in epochs
                },
                scratch=scratch.resolve(),
            )
    truths = [store.truth(digest, name) for name in names]
    return {epoch: _compared(scratch, epoch, truths) for epoch in epochs}


def _compared(scratch: Path, epoch: int, truths: Sequence[np.ndarray | None]) -> dict[str, Any]:
    masks = [
        [np.load(scratch / f"{side}-{epoch}-{index}.npy") for index in range(len(truths))]
        for side in "ab"
    ]
    found = [compare_masks(a, b) for a, b in zip(*masks, strict=True)]
    n_pixels = sum(result.n_pixels for result in found)
    return {
        "ppm": 1e6 * sum(result.n_differing for result in found) / n_pixels,
        "lost": sum(result.n_objects_a - result.n_matched for result in found),
        "gained": sum(result.n_objects_b - result.n_matched for result in found),
        "objects": (
            sum(result.n_objects_a for result in found),
            sum(result.n_objects_b for result in found),
        ),
        "ap50": _scores(truths, masks),
    }


def _scores(
    truths: Sequence[np.ndarray | None], masks: Sequence[Sequence[np.ndarray]]
) -> tuple[float, float] | None:
    scores = [
        [average_precision(truth, a)[0], average_precision(truth, b)[0]]
        for truth, a, b in zip(truths, *masks, strict=True)
        if truth is not None and truth.any()
    ]
    if not scores:
        return None
    a, b = np.mean(scores, axis=0).tolist()
    return a, b


# -- inside the child ----------------------------------------------------------------------


def segmented(
    child: Child,
    *,
    images: list[str],
    architecture: str,
    weights: dict[str, Path],
    scratch: Path,
) -> None:
    """Segment the images with each of some weights, and leave the masks in ``scratch``."""
    import tifffile
    import torch
    from safetensors import safe_open

    from cellrepro.images.folder import LabelledImage
    from cellrepro.model.inference import segment
    from cellrepro.model.network import TINY, seeded_network

    read = tuple(
        LabelledImage(Path(path).stem, tifffile.imread(path), None, Path(path), None)
        for path in images
    )
    with child.setup.prepared() as device, child.setup.loosened():
        encoder = TINY if architecture == TINY else "vit-l"
        network = seeded_network(encoder, seed=0, device=device)
        for name, path in weights.items():
            network.dtype = torch.float32  # in which it was trained
            with safe_open(path, "pt") as file:
                network.load_state_dict(
                    {
                        key.removeprefix(checkpoints.NETWORK): file.get_tensor(key)
                        for key in _network_names(file)
                    }
                )
            network.dtype = getattr(torch, child.setup.profile.dtype)
            for index, result in enumerate(segment(network, read)):
                np.save(scratch / f"{name}-{index}.npy", result.masks)
            child.phase(name)
