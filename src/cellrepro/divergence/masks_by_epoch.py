"""Images segmented with the checkpoints of two trainings, each in a process of its own."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from cellrepro.process.calling import counting, in_child
from cellrepro.process.child import Child
from cellrepro.process.setup import Setup
from cellrepro.progress import progress
from cellrepro.run.worker_scoring import give_weights_of
from cellrepro.spec.segmentation_settings import Settings
from cellrepro.store.checkpoints import Checkpoint
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from samebits.errors import BadInput
from samebits.words import some

LabelImages = Sequence[np.ndarray]
"""Masks of several images, each (Y, X); 0 is background."""


def segmented_by_epoch(
    store: Store,
    repeats: Sequence[Repeat],
    kept: Sequence[Mapping[int, Checkpoint]],
    epochs: Sequence[int],
    *,
    quiet: bool,
) -> tuple[list[np.ndarray | None], dict[int, tuple[bytes, bytes]]]:
    """The true masks, and by epoch those of A and of B, had training ended there."""
    digest = repeats[0].spec.images_digest
    names = list(repeats[0].manifest.masks)
    truths = [store.truth(digest, name) for name in names]
    images = _kept_images(store, repeats[0])
    made = []
    with progress(2 * len(epochs), "masks along the way", quiet=quiet) as bar:
        for repeat, checkpoints_of_repeat in zip(repeats, kept, strict=True):
            task = partial(
                segmented,
                images=images,
                architecture=repeats[0].manifest.model.architecture,
                weights=[checkpoints_of_repeat[epoch] for epoch in epochs],
                settings=repeat.spec.settings,
            )
            files = in_child(
                task,
                Setup.of(repeat.spec),
                label=f"masks of {repeat.name}",
                on_event=counting(bar),
            )
            made.append(files)
    files_a, files_b = made
    return truths, {epoch: (files_a[epoch], files_b[epoch]) for epoch in epochs}


def _kept_images(store: Store, repeat: Repeat) -> list[Path]:
    """Files in the store of the images that a repeat segmented."""
    digest = repeat.spec.images_digest
    files = {name: store.kept_file(digest, f"{name}.tif") for name in repeat.manifest.masks}
    missing = [name for name, path in files.items() if path is None]
    if missing:
        raise BadInput(
            f"the store {store.root} does not keep the images {some(missing)} of {repeat.name}, "
            "of which masks are made; copy the store again, its data folder too, or ask for no "
            "masks along the way"
        )
    return [path.resolve() for path in files.values() if path is not None]


def read_masks_file(file: bytes) -> LabelImages:
    """Read masks that a child process compressed, in the order in which it saved them."""
    with np.load(io.BytesIO(file)) as masks:
        return list(masks.values())


def segmented(
    child: Child,
    *,
    images: list[Path],
    architecture: str,
    weights: list[Checkpoint],
    settings: Settings,
) -> dict[int, bytes]:
    """Segment the images with each checkpoint, inside the child; compressed masks by epoch."""
    import tifffile

    from cellrepro.images.folder import LabelledImage
    from cellrepro.model.encoders import PRETRAINED
    from cellrepro.model.inference import segment
    from cellrepro.model.network import seeded_network

    made: dict[int, bytes] = {}
    labelled_images = tuple(
        LabelledImage(path.stem, tifffile.imread(path), None, path) for path in images
    )
    with child.prepared() as device, child.loosened():
        # Cellpose's own network, whatever its weights, has the size of vit-l.
        encoder = "vit-l" if architecture == PRETRAINED else architecture
        network = seeded_network(encoder, seed=0, device=device)
        for checkpoint in weights:
            give_weights_of(checkpoint, network, child.setup.profile.dtype)
            file = io.BytesIO()
            results = segment(network, labelled_images, **settings.arguments())
            np.savez_compressed(file, *(result.masks for result in results))
            made[checkpoint.epoch] = file.getvalue()
            child.tell("done", f"epoch {checkpoint.epoch}")
    return made
