"""How a difference grows: from a last bit in one operation to pixels and cells.

Two runs that kept their checkpoints are compared epoch by epoch: the distance of their weights,
and the masks that each would have given had training ended there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
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
from cellrepro.store.checkpoints import Checkpoint
from cellrepro.store.store import Repeat, Store

Masks = list[np.ndarray]


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
    a: str, b: str, *, n_masks: int = 6, store: str | Path = "outputs", quiet: bool = False
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
    """
    place = Store(store)
    sides = place.find(a), place.find(b)
    _refuse_other(*sides)
    held = [_by_epoch(repeat) for repeat in sides]
    epochs = sorted(held[0].keys() & held[1].keys())
    if not epochs:
        raise BadInput(
            f"{a} and {b} have no checkpoint of the same epoch; train both with "
            "--keep-checkpoints and the same --checkpoint-every"
        )
    for epoch in epochs:
        for side in held:
            checkpoints.refuse_changed(side[epoch])
    spread = np.linspace(0, len(epochs) - 1, min(max(n_masks, 0), len(epochs))).round()
    looked = [epochs[int(position)] for position in np.unique(spread)]
    found = _masks(place, sides, held, looked, quiet=quiet) if looked else {}
    moments = []
    for epoch in epochs:
        files = [side[epoch].folder / checkpoints.STATE for side in held]
        weights = compare_weights(*files, prefix=checkpoints.NETWORK)
        moments.append(
            Moment(
                epoch=epoch,
                step=held[0][epoch].step,
                n_differing=weights.n_differing,
                n_parameters=weights.n_parameters,
                relative_l2=weights.relative_l2,
                max_ulp=weights.max_ulp,
                **found.get(epoch, {}),
            )
        )
    return moments


def has_checkpoints(repeat: Repeat) -> bool:
    """Whether a stored repeat kept its checkpoints."""
    return bool(checkpoints.folders(repeat.folder / CHECKPOINTS))


def _refuse_other(a: Repeat, b: Repeat) -> None:
    """Raise unless two runs trained one architecture and segmented the same images."""
    one, other = a.manifest, b.manifest
    for what, x, y in (
        ("architecture", one.model.architecture, other.model.architecture),
        ("number of parameters", one.model.n_parameters, other.model.n_parameters),
        ("data set", a.spec.data_digest[:12], b.spec.data_digest[:12]),
        ("segmented images", ", ".join(one.masks), ", ".join(other.masks)),
    ):
        if x != y:
            raise BadInput(
                f"{a.name} and {b.name} are not of one {what} ({x} and {y}); give "
                "two runs of one network over the same images"
            )


def _by_epoch(repeat: Repeat) -> dict[int, Checkpoint]:
    folders = checkpoints.folders(repeat.folder / CHECKPOINTS)
    if not folders:
        raise BadInput(
            f"{repeat.name} kept no checkpoints; train it with --keep-checkpoints into another "
            "--store, or remove its folder first"
        )
    return {found.epoch: found for found in map(checkpoints.read_plain, folders)}


# -- masks ---------------------------------------------------------------------------------


def _masks(
    store: Store,
    sides: Sequence[Repeat],
    held: Sequence[dict[int, Checkpoint]],
    epochs: Sequence[int],
    *,
    quiet: bool,
) -> dict[int, dict[str, Any]]:
    """What the masks of both would have been after these epochs, as fields of a `Moment`."""
    digest, names = sides[0].spec.data_digest, list(sides[0].manifest.masks)
    images = [store.kept(digest, f"{name}.tif").resolve() for name in names]
    truths = [store.truth(digest, name) for name in names]
    with tempfile.TemporaryDirectory() as scratch:  # they may not all fit into memory
        with progress(2 * len(epochs), "masks along the way", quiet=quiet) as bar:
            for letter, repeat, found in zip("ab", sides, held, strict=True):
                Path(scratch, letter).mkdir()
                call(
                    "cellrepro.lab.growth:segmented",
                    Setup.of(repeat.spec),
                    label=f"masks of the checkpoints of {repeat.name}",
                    on_event=lambda event: bar.advance(event["name"]),
                    images=images,
                    architecture=repeat.manifest.model.architecture,
                    weights=[found[epoch] for epoch in epochs],
                    scratch=Path(scratch, letter),
                )
        return {epoch: masks_apart(truths, *_read(Path(scratch), epoch)) for epoch in epochs}


def _read(scratch: Path, epoch: int) -> Iterator[Masks]:
    for letter in "ab":
        yield [np.load(file) for file in sorted(Path(scratch, letter).glob(f"{epoch}-*.npy"))]


def masks_apart(truths: Sequence[np.ndarray | None], a: Masks, b: Masks) -> dict[str, Any]:
    """How far the masks of the same images are apart, as fields of a `Moment`.

    Parameters
    ----------
    truths : sequence of ndarray of int or None, shape (Y, X)
        0 is background; None where an image has no ground truth.
    a, b : list of ndarray of int, shape (Y, X)
    """
    found = [compare_masks(x, y) for x, y in zip(a, b, strict=True)]
    scores = [
        [average_precision(truth, side)[0] for side in (x, y)]
        for truth, x, y in zip(truths, a, b, strict=True)
        if truth is not None and truth.any()
    ]
    return {
        "ppm": 1e6 * sum(one.n_differing for one in found) / sum(one.n_pixels for one in found),
        "lost": sum(one.n_objects_a - one.n_matched for one in found),
        "gained": sum(one.n_objects_b - one.n_matched for one in found),
        "objects": (sum(one.n_objects_a for one in found), sum(one.n_objects_b for one in found)),
        "ap50": tuple(np.mean(scores, axis=0).tolist()) if scores else None,
    }


def segmented(
    child: Child,
    *,
    images: list[Path],
    architecture: str,
    weights: list[Checkpoint],
    scratch: Path,
) -> None:
    """Inside the child: write the masks of the images, made with the network of each checkpoint."""
    import tifffile
    import torch

    from cellrepro.images.folder import LabelledImage
    from cellrepro.model.inference import segment
    from cellrepro.model.network import TINY, seeded_network

    read = tuple(LabelledImage(p.stem, tifffile.imread(p), None, p, None) for p in images)
    with child.setup.prepared() as device, child.setup.loosened():
        encoder = TINY if architecture == TINY else "vit-l"
        network = seeded_network(encoder, seed=0, device=device)
        for checkpoint in weights:
            network.dtype = torch.float32  # in which it was trained
            network.load_state_dict(checkpoint.tensors()[0])
            network.dtype = getattr(torch, child.setup.profile.dtype)
            for index, result in enumerate(segment(network, read)):
                np.save(scratch / f"{checkpoint.epoch}-{index:06}.npy", result.masks)
            child.phase(f"epoch {checkpoint.epoch}")
