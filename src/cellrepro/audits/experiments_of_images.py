"""What makes two trainings see different images: listings of files, augmentation, loaders."""

from __future__ import annotations

import contextlib
import io
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from operator import ne
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

import numpy as np
from natsort import natsorted

from cellrepro.audits.source_of_difference import Source, changed_names
from cellrepro.determinism.data_order import item_generator, loader_arguments
from cellrepro.determinism.generator_states import generators_kept
from cellrepro.determinism.seeds import seed_everything
from cellrepro.digests.digests import value_digest
from cellrepro.digests.tensor_digests import tensor_digest
from cellrepro.images.folder import ImageFolder, LabelledImage, read_folder
from cellrepro.model import around_cellpose
from cellrepro.model.augmentation import augment
from cellrepro.model.encoders import TINY
from cellrepro.model.network import seeded_network
from cellrepro.model.prepared_images import with_flows
from cellrepro.model.training_loop import TrainingLoop
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.store.ledger import Ledger
from cellrepro.trace.watches import StepWatch
from cellrepro.words import amount, some

_MOST_IMAGES = 6  # flows take longer than all the rest


# --- files ------------------------------------------------------------------------------------


def file_order(folder: ImageFolder) -> Source:
    """Try whether listings of a folder have different images at the same positions.

    Positions matter, as Cellpose draws indices of images.
    """
    digests = {image.image_path.name: tensor_digest(image.image) for image in folder.train}
    names = list(digests)
    facts = [f"cellrepro's reader: {some(names, 3)}"]
    deviating_listings = []
    for label, order in _listings(folder.train[0].image_path.parent, names).items():
        n_differing = sum(digests[a] != digests.get(b) for a, b in zip_longest(names, order))
        facts.append(
            f"{label}: {some(order, 3)}; {n_differing} of {len(names)} places hold another image"
        )
        if n_differing:
            deviating_listings.append(label)
    summary = "every listing agrees"
    if deviating_listings:
        summary = f"other than the reader's: {', '.join(deviating_listings)}"
    return Source(
        name="file-order",
        moves=bool(deviating_listings),
        n_compared=len(names),
        evidence=(summary, *facts),
    )


def _listings(folder: Path, names: list[str]) -> dict[str, list[str]]:
    """The orders in which programs list the images of one folder, by who lists them."""
    with os.scandir(folder) as scan:
        directory = [entry.name for entry in scan if entry.name in names]
    by_cellpose = [path.name for path in around_cellpose.listed_by_cellpose(folder)]
    return {
        "the directory (os.scandir, Path.iterdir)": directory,
        "sorted()": sorted(names),
        "Cellpose's io.get_image_files": [name for name in by_cellpose if name in names],
        "natsorted() of a listing backwards": natsorted(sorted(names, reverse=True)),
    }


def two_readings(folder: ImageFolder) -> Source:
    """Try whether one folder, read here and in a fresh process, gives different numbers."""
    in_this_process = digests_of_reading(folder.path)
    task = partial(read_in_child, data=folder.path.resolve())
    in_fresh_process = in_child(task, None, label="sources, readings")
    changed = changed_names(in_this_process, in_fresh_process)
    n_digests = len(in_this_process)
    count = f"read in a fresh process: {len(changed)} of {amount(n_digests, 'digest')} changed"
    return Source(
        name="two-readings",
        moves=bool(changed),
        n_compared=n_digests,
        evidence=("; ".join([count, *changed[:3]]),),
    )


def read_in_child(child: Child, *, data: Path) -> dict[str, str]:
    """Inside the child: `digests_of_reading`."""
    return digests_of_reading(data)


def digests_of_reading(data: Path) -> dict[str, str]:
    """Read a folder, and prepare a few of its images for training."""
    folder = read_folder(data)
    digests = {"files": folder.digest}
    for split, images in (("train", folder.train), ("test", folder.test)):
        for image in images:
            digests[f"image {split}/{image.name}"] = tensor_digest(image.image)
            if image.masks is not None:
                digests[f"masks {split}/{image.name}"] = tensor_digest(image.masks)
    for name, array in _one_epoch(_few_images(folder)).prepared.items():
        digests[name] = tensor_digest(np.asarray(array))
    return digests


# --- draws ------------------------------------------------------------------------------------


def augmentation(folder: ImageFolder) -> Source:
    """Try whether Cellpose's augmentation varies, and which generators it draws from."""
    images = _few_images(folder)
    prepared = list(_one_epoch(images).prepared.values())  # pixels and flows in turns
    with generators_kept():
        shown = _shown_again(prepared)
        drawn_from = [
            name for name in _RESEEDS if _shown_after(prepared, reseeded=name) != shown.first
        ]
        after_seed_1 = _epoch_batches(images, seed=1, data_seed="cellpose")
        after_seed_2 = _epoch_batches(images, seed=2, data_seed="cellpose")
        with_data_seed = _epoch_batches(images, seed=1, data_seed=1)
    n_by_seed = sum(map(ne, after_seed_1, after_seed_2))
    n_by_data_seed = sum(map(ne, after_seed_1, with_data_seed))
    n_batches = len(after_seed_1)
    evidence = (
        f"from one state {shown.first[:12]} and {shown.again[:12]}, going on from there "
        f"{shown.going_on[:12]}",
        f"drawn from: {', '.join(drawn_from) or 'no global generator'}",
        f"one epoch after your own seeds 1 and 2: {n_by_seed} of {n_batches} batches differ",
        f"with data_seed=1: {n_by_data_seed} of {n_batches} differ",
    )
    return Source(
        name="augmentation",
        moves=not shown.first == shown.going_on == shown.again,
        n_compared=len(images),
        evidence=evidence,
    )


_RESEEDS: dict[str, Callable[[int], object]] = {
    "Python": random.seed,
    "NumPy": np.random.seed,
    "PyTorch": lambda seed: _torch().manual_seed(seed),
}
"""The global generators, and how one seeds each."""


def _torch() -> ModuleType:
    import torch

    return torch


@dataclass(frozen=True)
class _Shown:
    """Digests of the same images, augmented three times."""

    first: str
    going_on: str
    """From the state in which the first augmentation left the generators."""
    again: str
    """From the same state as the first."""


def _shown_again(prepared: Sequence[np.ndarray]) -> _Shown:
    first = _shown_after(prepared)
    going_on = _augmented(prepared)
    return _Shown(first=first, going_on=going_on, again=_shown_after(prepared))


def _shown_after(prepared: Sequence[np.ndarray], *, reseeded: str | None = None) -> str:
    """Digest of the augmented images after seeding all generators alike, except perhaps one."""
    seed_everything(0, quiet=True)
    if reseeded is not None:
        _RESEEDS[reseeded](1)
    return _augmented(prepared)


def _augmented(prepared: Sequence[np.ndarray]) -> str:
    """Digest of the images as Cellpose augments them now."""
    shown = augment(prepared[::2], [planes[1:] for planes in prepared[1::2]])
    return value_digest([tensor_digest(part) for part in shown])


def _epoch_batches(
    images: Sequence[LabelledImage], *, seed: int, data_seed: int | Literal["cellpose"]
) -> list[str]:
    """Digests of the batches of an epoch after a seed of the user's."""
    ledger = Ledger()
    loop = _one_epoch(images, data_seed=data_seed, watch=StepWatch(ledger))
    seed_everything(seed, quiet=True)
    while not loop.finished:
        loop.step()
    return [row.digest for row in ledger.entries if row.stage == "batch" and row.name == "images"]


def loader(folder: ImageFolder, *, workers: Sequence[int] = (0, 2)) -> Source:
    """Try whether one more draw changes the order or the crops of a shuffling DataLoader."""
    images = [image.image for image in folder.train]
    passes: dict[_LoaderKind, list[_Pass]] = {}
    with generators_kept():
        for kind in get_args(_LoaderKind):
            passes[kind] = [
                _loaded(images, kind, n_workers, n_draws)
                for n_workers in workers
                for n_draws in (0, 1)
            ]
    n_orders = {kind: len({once.order for once in of_kind}) for kind, of_kind in passes.items()}
    n_crops = {kind: len({once.crops for once in of_kind}) for kind, of_kind in passes.items()}
    fact = (
        f"distinct orders {n_orders['plain']} plain, {n_orders['loader_arguments']} with "
        f"loader_arguments; distinct crops {n_crops['plain']} plain, "
        f"{n_crops['loader_arguments']} with loader_arguments, {n_crops['item_generator']} with "
        "item_generator"
    )
    n_passes = sum(map(len, passes.values()))
    return Source(
        name="loader",
        moves=n_orders["plain"] > 1 or n_crops["plain"] > 1,
        n_compared=len(images) * n_passes,
        evidence=(fact,),
    )


_LoaderKind = Literal["plain", "loader_arguments", "item_generator"]


@dataclass(frozen=True)
class _Pass:
    """One pass of a loader: digests of the order of the images, and of their crops."""

    order: str
    crops: str


def _loaded(images: list[np.ndarray], kind: _LoaderKind, n_workers: int, n_draws: int) -> _Pass:
    """Load all images once, after some draws from the global generators."""
    import torch

    from cellrepro.trace.check_dataset import through_loader

    seed_everything(0, quiet=True)
    torch.rand(n_draws)
    np.random.random_sample(n_draws)
    options: dict[str, Any] = {}
    if kind != "plain":
        options.update(loader_arguments(0))
    options["collate_fn"] = partial(_cropped, images, kind == "item_generator")
    seen = through_loader(range(len(images)), n_workers, shuffle=True, **options)
    order = [index for index, _ in seen]
    return _Pass(order=value_digest(order), crops=value_digest(sorted(seen)))


def _cropped(images: list[np.ndarray], by_item: bool, index: int) -> tuple[int, list[int]]:
    """Index of an image, and the corner of its crop, drawn by the worker that loads it."""
    draw: Any = item_generator(0, 0, index).random if by_item else np.random.random_sample
    return index, [int(draw() * size / 2) for size in images[index].shape[:2]]


# --- one epoch --------------------------------------------------------------------------------


def _few_images(folder: ImageFolder) -> Sequence[LabelledImage]:
    """Prepare the first images of a folder that can be trained on."""
    import torch

    with contextlib.redirect_stderr(io.StringIO()):  # Cellpose's progress bars
        return with_flows(folder.train, torch.device("cpu"), most=_MOST_IMAGES)


def _one_epoch(
    images: Sequence[LabelledImage],
    *,
    data_seed: int | Literal["cellpose"] = "cellpose",
    watch: StepWatch | None = None,
) -> TrainingLoop:
    """Prepare one epoch of `tiny`, one image a step, with a learning rate of 0."""
    network = seeded_network(TINY, seed=0)
    with contextlib.redirect_stderr(io.StringIO()), generators_kept():
        return TrainingLoop(
            network,
            images,
            (),
            n_epochs=1,
            learning_rate=0.0,
            data_seed=data_seed,
            watch=watch,
        )
