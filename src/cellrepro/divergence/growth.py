"""How a difference grows, epoch by epoch: weights, and the masks had training ended there."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.asked import defaults
from cellrepro.asked.segmentation_settings import Settings
from cellrepro.errors import BadInput
from cellrepro.process.calling import counting, in_child
from cellrepro.process.child import Child
from cellrepro.process.setup import Setup
from cellrepro.progress import progress
from cellrepro.run.checkpointing import CHECKPOINTS, as_after, kept_checkpoints
from cellrepro.same.metrics import average_precision, compare_masks
from cellrepro.same.over_images import totals_over
from cellrepro.same.weights import compare_weights
from cellrepro.store import checkpoints
from cellrepro.store.checkpoints import Checkpoint
from cellrepro.store.store import Repeat, Store
from cellrepro.words import some

Masks = Sequence[np.ndarray]


@dataclass(frozen=True)
class Moment:
    """Two runs after one epoch; what is of masks is none where no masks were made."""

    epoch: int  # done
    n_differing: int  # parameters (scalars) whose bits differ
    n_parameters: int
    relative_l2: float  # distance of the weights, relative to their length
    ppm: float | None = None  # differing pixels per million of the masks
    lost: int | None = None  # objects of A without a match in B at IoU 0.5
    gained: int | None = None  # and the other way round
    objects: tuple[int, int] | None = None  # in A and in B
    changed: float | None = None  # share of both sides' objects without a match, if there are any
    ap50: tuple[float, float] | None = None  # of A and of B, mean over images with a ground truth


def growth(
    a: str,
    b: str,
    *,
    n_masks: int = defaults.MASKS_ON_THE_WAY,
    store: str | Path = defaults.STORE,
    quiet: bool = False,
) -> list[Moment]:
    """Follow the difference of two runs through their checkpoints; masks as each run makes them.

    Parameters
    ----------
    a, b : str
        ``KEY/REPEAT`` of two runs with kept checkpoints of the same network over the same images;
        the same key twice means its repeats 0 and 1.
    n_masks : int
        At how many epochs, spread over the training, masks are made of both; 0 for none.
    store : str or Path
    quiet : bool
        Show no progress.

    Returns
    -------
    list of Moment
        One for every epoch of which both have a checkpoint; scores as they were stored, if they
        were, and else where masks are made.
    """
    place = Store(store)
    sides = place.find_two(a, b)
    _refuse_other(*sides)
    held = [{one.epoch: one for one in kept_checkpoints(repeat)} for repeat in sides]
    epochs = sorted(held[0].keys() & held[1].keys())
    if not epochs:
        raise BadInput(
            f"{a} and {b} have no checkpoint of the same epoch; train both with "
            "--keep-checkpoints and the same --checkpoint-every"
        )
    for epoch in epochs:
        for side in held:
            checkpoints.refuse_changed(side[epoch])
    spread = np.linspace(0, len(epochs) - 1, min(max(n_masks, 0), len(epochs)))
    looked = [epochs[round(position)] for position in spread]
    masks = _masks(place, sides, held, looked, quiet=quiet) if looked else {}
    scored, moments = [repeat.manifest.ap50_by_epoch for repeat in sides], []
    for epoch in epochs:
        files = [side[epoch].folder / checkpoints.STATE for side in held]
        weights = compare_weights(*files, prefix=checkpoints.NETWORK)
        apart = weights.n_differing, weights.n_parameters, weights.relative_l2
        fields = masks.get(epoch, {})
        if all(epoch in scores for scores in scored):
            fields["ap50"] = tuple(scores[epoch] for scores in scored)
        moments.append(Moment(epoch, *apart, **fields))
    return moments


def has_checkpoints(repeat: Repeat) -> bool:
    """Whether a stored repeat kept its checkpoints."""
    return bool(checkpoints.folders(repeat.folder / CHECKPOINTS))


def _refuse_other(*sides: Repeat) -> None:
    """Raise unless two runs trained one architecture and segmented the same images."""
    names = " and ".join(repeat.name for repeat in sides)
    a, b = ((one.manifest.model.architecture, one.spec.data_digest) for one in sides)
    if a != b:
        raise BadInput(f"{names} are not of one network over the same images; name two that are")
    if not all(map(has_checkpoints, sides)):
        raise BadInput(
            f"{names} kept no checkpoints; train both anew with --keep-checkpoints, and into "
            "another --store, as a stored repeat is not run again"
        )


def _masks(
    store: Store,
    sides: Sequence[Repeat],
    held: Sequence[dict[int, Checkpoint]],
    epochs: Sequence[int],
    *,
    quiet: bool,
) -> dict[int, dict[str, Any]]:
    """What the masks of both would have been after these epochs, as fields of a `Moment`."""
    digest, names = sides[0].spec.images_digest, list(sides[0].manifest.masks)
    truths = [store.truth(digest, name) for name in names]
    images = [store.kept_file(digest, f"{name}.tif") for name in names]
    missing = [name for name, path in zip(names, images, strict=True) if path is None]
    if missing:
        raise BadInput(
            f"the store {store.root} does not keep the images {some(missing)} of {sides[0].name}, "
            "of which masks are made; copy the store again, its data folder too, or ask for no "
            "masks along the way"
        )
    paths = [path.resolve() for path in images if path is not None]
    made = []
    with progress(2 * (1 + len(epochs)), "masks along the way", quiet=quiet) as bar:
        for repeat, found in zip(sides, held, strict=True):
            task = partial(
                segmented,
                images=paths,
                architecture=sides[0].manifest.model.architecture,
                weights=[found[epoch] for epoch in epochs],
                settings=repeat.spec.settings,
            )
            files = in_child(
                task,
                Setup.of(repeat.spec),
                label=f"masks of {repeat.name}",
                on_event=counting(bar),
            )
            made.append(files)
    return {epoch: masks_apart(truths, *(_read(side[epoch]) for side in made)) for epoch in epochs}


def _read(file: bytes) -> Masks:
    with np.load(io.BytesIO(file)) as masks:
        return list(masks.values())  # in the order in which they were saved


def masks_apart(truths: Sequence[np.ndarray | None], a: Masks, b: Masks) -> dict[str, Any]:
    """How far the masks (Y, X) of the same images are apart, as fields of a `Moment`."""
    pairs = zip(a, b, strict=True)
    totals = totals_over(compare_masks(of_a, of_b) for of_a, of_b in pairs)
    scores = [
        [average_precision(truth, side)[0] for side in sides]
        for truth, *sides in zip(truths, a, b, strict=True)
        if truth is not None and truth.any()
    ]
    n_objects = totals.n_objects
    return {
        "ppm": totals.ppm,
        "lost": totals.n_objects_a - totals.n_matched,
        "gained": totals.n_objects_b - totals.n_matched,
        "objects": (totals.n_objects_a, totals.n_objects_b),
        "changed": 1 - 2 * totals.n_matched / n_objects if n_objects else None,
        "ap50": tuple(np.mean(scores, axis=0).tolist()) if scores else None,
    }


def segmented(
    child: Child,
    *,
    images: list[Path],
    architecture: str,
    weights: list[Checkpoint],
    settings: Settings,
) -> dict[int, bytes]:
    """Inside the child: what each checkpoint makes of the images, by epoch, compressed."""
    import tifffile

    from cellrepro.images.folder import LabelledImage
    from cellrepro.model.inference import segment
    from cellrepro.model.network import ENCODERS, seeded_network

    made: dict[int, bytes] = {}
    read = tuple(LabelledImage(p.stem, tifffile.imread(p), None, p) for p in images)
    with child.prepared() as device, child.loosened():
        encoder = architecture if architecture in ENCODERS else "vit-l"
        network = seeded_network(encoder, seed=0, device=device)
        for checkpoint in weights:
            as_after(checkpoint, network, child.setup.profile.dtype)
            file = io.BytesIO()
            results = segment(network, read, **settings.arguments())
            np.savez_compressed(file, *(result.masks for result in results))
            made[checkpoint.epoch] = file.getvalue()
            child.phase(f"epoch {checkpoint.epoch}")
    return made
