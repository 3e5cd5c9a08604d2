"""Whether a shuffling loader gives another order or other crops after one more draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from cellrepro.audits.source_of_difference import Source
from cellrepro.images.folder import ImageFolder
from samebits.data_order import item_generator, loader_arguments
from samebits.digests import value_digest
from samebits.generator_states import generators_kept
from samebits.seeds import seed_everything

_LoaderKind = Literal["plain", "loader_arguments", "item_generator"]


@dataclass(frozen=True)
class _Pass:
    """One pass of a loader: digests of the order of the images, and of their crops."""

    order: str
    crops: str


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


def _loaded(images: list[np.ndarray], kind: _LoaderKind, n_workers: int, n_draws: int) -> _Pass:
    """Load all images once, after some draws from the global generators."""
    import torch

    from samebits import through_loader

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
