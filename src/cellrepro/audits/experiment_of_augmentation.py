"""Whether augmentation shows other images when its generator is not put back."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from operator import ne
from typing import Literal, get_args

import numpy as np

from cellrepro.audits.one_epoch import few_images, one_epoch
from cellrepro.audits.source_of_difference import Source
from cellrepro.images.folder import ImageFolder, LabelledImage
from cellrepro.model.augmentation import augment
from cellrepro.model.watches import StepWatch
from cellrepro.store.ledger import Ledger
from samebits.digests import value_digest
from samebits.generator_states import generators_kept
from samebits.seeds import seed_everything
from samebits.tensor_digests import tensor_digest
from samebits.words import verb_of

_Generator = Literal["Python", "NumPy", "PyTorch"]
_GENERATORS: tuple[_Generator, ...] = get_args(_Generator)
"""The global ones."""


def augmentation(folder: ImageFolder) -> Source:
    """Try whether Cellpose's augmentation varies, and which generators it draws from."""
    images = few_images(folder)
    prepared = list(one_epoch(images).prepared.values())  # pixels and flows in turns
    with generators_kept():
        shown = _shown_again(prepared)
        drawn_from = [
            name for name in _GENERATORS if _shown_after(prepared, reseeded=name) != shown.first
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
        f"one epoch after your own seeds 1 and 2: {n_by_seed} of {n_batches} batches "
        f"{verb_of(n_by_seed, 'differs', 'differ')}",
        f"with data_seed=1: {n_by_data_seed} of {n_batches} "
        f"{verb_of(n_by_data_seed, 'differs', 'differ')}",
    )
    return Source(
        name="augmentation",
        moves=not shown.first == shown.going_on == shown.again,
        n_compared=len(images),
        evidence=evidence,
    )


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


def _shown_after(prepared: Sequence[np.ndarray], *, reseeded: _Generator | None = None) -> str:
    """Digest of the augmented images after seeding all generators alike, except perhaps one."""
    seed_everything(0, quiet=True)
    if reseeded is not None:
        _reseed(reseeded)
    return _augmented(prepared)


def _reseed(generator: _Generator) -> None:
    """Seed one of the global generators otherwise than the rest."""
    import torch

    match generator:
        case "Python":
            random.seed(1)
        case "NumPy":
            np.random.seed(1)
        case "PyTorch":
            torch.manual_seed(1)


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
