"""Runs that a notebook makes where a store holds too few to show anything."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.images.image_sets import write_benchmark
from cellrepro.model.encoders import SMALL
from cellrepro.progress import progress
from cellrepro.run.outcome import Outcome
from cellrepro.run.segment import segment
from cellrepro.run.train import train
from cellrepro.show.which_runs import trained_on
from cellrepro.spec import defaults
from cellrepro.spec.defaults import LedgerKind
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Run
from samebits.mode_names import Mode


@dataclass(frozen=True)
class _Length:
    """How long a handful of trainings takes: some ten seconds each."""

    epochs: int
    images_per_epoch: int
    learning_rate: float | None = None


_FROM_NOISE = _Length(epochs=6, images_per_epoch=32, learning_rate=0.01)
"""So steep that small networks find cells, and a race reaches them."""
_FROM_A_NETWORK = _Length(epochs=3, images_per_epoch=8)


@dataclass(frozen=True)
class _Variation:
    """What tells one training of a handful from the next."""

    repeats: int = 1
    keep_checkpoints: bool = False
    seed: int | None = None
    mode: Mode = defaults.MODE
    profile: str = defaults.PROFILE


_HANDFUL = (
    _Variation(repeats=2),
    _Variation(seed=1),
    _Variation(seed=2),
    _Variation(mode="fast", repeats=2, keep_checkpoints=True),  # to see where they diverge
    _Variation(mode="fast", profile="cpu-bfloat16"),
)
"""The fewest trainings that show repeats in two modes, what seeds do, and a change of how numbers
are computed; they answer four of the five steps."""


def some_runs(store: Store, data: str | Path, *, model: str = defaults.MODEL) -> list[Run]:
    """Get the stored trainings over a folder; where there are fewer than two, add a handful."""
    stored = trained_on(store, data)
    if len(stored) > 1:
        return stored
    length = _FROM_NOISE if model in SMALL else _FROM_A_NETWORK
    with progress(len(_HANDFUL), "short trainings, as the store has too few") as bar:
        for variation in _HANDFUL:
            train(
                data,
                model=model,
                seed=variation.seed,
                epochs=length.epochs,
                images_per_epoch=length.images_per_epoch,
                learning_rate=length.learning_rate,
                mode=variation.mode,
                profile=variation.profile,
                repeats=variation.repeats,
                keep_checkpoints=variation.keep_checkpoints,
                store=store.root,
                quiet=True,
            )
            bar.advance()
    return trained_on(store, data)


def segment_sizes(
    sizes: Sequence[int],
    batch_sizes: Sequence[int],
    *,
    n_images: int = 3,
    model: str = defaults.MODEL,
    seed: int | None = None,
    profile: str = defaults.PROFILE,
    mode: Mode = defaults.MODE,
    repeats: int = defaults.SEGMENTATIONS,
    ledger: LedgerKind = defaults.LEDGER,
    store: str | Path = defaults.STORE,
    quiet: bool = False,
) -> list[Outcome]:
    """Segment synthetic images of each size at each batch size, to measure the speed."""
    outcomes = []
    with tempfile.TemporaryDirectory() as scratch:  # the store keeps what was segmented
        for size, batch_size in itertools.product(sizes, batch_sizes):
            folder = write_benchmark(Path(scratch), images=n_images, size=size)
            outcome = segment(
                folder,
                model=model,
                seed=seed,
                batch_size=batch_size,
                profile=profile,
                mode=mode,
                repeats=repeats,
                ledger=ledger,
                store=store,
                quiet=quiet,
            )
            outcomes.append(outcome)
    return outcomes
