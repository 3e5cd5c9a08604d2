"""Whether augmentation or a shuffling loader shows other images after one more draw."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import ne
from types import ModuleType
from typing import Any, Literal, get_args

import numpy as np

from cellrepro.audits.one_epoch import few_images, one_epoch
from cellrepro.audits.source_of_difference import Source
from cellrepro.determinism.data_order import item_generator, loader_arguments
from cellrepro.determinism.generator_states import generators_kept
from cellrepro.determinism.seeds import seed_everything
from cellrepro.digests.digests import value_digest
from cellrepro.digests.tensor_digests import tensor_digest
from cellrepro.images.folder import ImageFolder, LabelledImage
from cellrepro.model.augmentation import augment
from cellrepro.store.ledger import Ledger
from cellrepro.trace.watches import StepWatch


def augmentation(folder: ImageFolder) -> Source:
    """Try whether Cellpose's augmentation varies, and which generators it draws from."""
    images = few_images(folder)
    prepared = list(one_epoch(images).prepared.values())  # pixels and flows in turns
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
    """Digest from the state in which the first augmentation left the generators."""
    again: str
    """Digest from the same state as the first."""


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
    loop = one_epoch(images, data_seed=data_seed, watch=StepWatch(ledger))
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
