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
from cellrepro.show.which_runs import best_network, trained_on
from cellrepro.spec import defaults
from cellrepro.spec.defaults import LedgerKind
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Run
from samebits.mode_names import Mode

_STEEP = 0.01
"""A learning rate at which small networks find cells within a few epochs, and not the same cells
with every seed."""


@dataclass(frozen=True)
class _Variation:
    """Arguments of one training that are not the defaults."""

    repeats: int = 1
    seed: int | None = None
    mode: Mode = defaults.MODE
    profile: str = defaults.PROFILE


_HANDFUL = (
    _Variation(repeats=2),
    _Variation(seed=1),
    _Variation(seed=2),
    _Variation(mode="fast", repeats=2),
    _Variation(mode="fast", profile="cpu-bfloat16"),
)
"""The fewest trainings that show repeats in two modes, what seeds do, and a change of how numbers
are computed that reaches cells; they answer four of the five steps."""


def some_runs(store: Store, data: str | Path, *, model: str = defaults.MODEL) -> list[Run]:
    """Get the stored trainings over a folder; where there are fewer than two, add a handful.

    Repeats in mode strict are only trained where the store has none.
    """
    stored = trained_on(store, data)
    if len(stored) > 1:
        return stored
    learning_rate = None
    is_repeated = any(
        len(repeats) > 1
        for run in stored
        if run.spec.mode == "strict"
        for repeats in run.machines.values()
    )
    with progress(1 + len(_HANDFUL), "short trainings, as the store has too few") as bar:
        if model in SMALL:
            if not stored:
                _train_start(store, data, model)
            model = best_network(store, data).name
            learning_rate = _STEEP
        bar.advance()
        for variation in _HANDFUL:  # seconds each
            train(
                data,
                model=model,
                seed=variation.seed,
                epochs=3,
                images_per_epoch=8,
                learning_rate=learning_rate,
                mode=variation.mode,
                profile=variation.profile,
                repeats=1 if is_repeated and variation.mode == "strict" else variation.repeats,
                store=store.root,
                quiet=True,
            )
            bar.advance()
    return trained_on(store, data)


def _train_start(store: Store, data: str | Path, model: str) -> None:
    """Train a small network for some ten seconds, after which it finds most synthetic cells."""
    train(
        data,
        model=model,
        epochs=6,
        images_per_epoch=32,
        learning_rate=_STEEP,
        repeats=1,
        store=store.root,
        quiet=True,
    )


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
