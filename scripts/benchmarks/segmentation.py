"""Segmenting beside Cellpose's own `eval`."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measuring import Extent, Figure, seconds_of

if TYPE_CHECKING:
    import numpy as np
    import torch

    from cellrepro.model.evaluator import Evaluator
    from cellrepro.store.stored_run import Repeat

N_IMAGES = 4


def segmentation(extent: Extent) -> Iterator[Figure]:
    """What the lab adds to Cellpose's eval, passes shared between settings, and batches."""
    size, n_variants, epochs = extent.of((256, 3, 2), (512, 30, 12), (1024, 30, 12))
    with tempfile.TemporaryDirectory() as scratch:
        trained = _train(Path(scratch), size=size, epochs=epochs)
        yield _beside_eval(trained, n_pairs=extent.of(1, 9, 9), size=size)
    yield _shared_passes(trained.network, trained.image, n_variants)
    yield _batch_invariance(trained.network)


@dataclass(frozen=True)
class _Trained:
    """A small network and the images on which it was trained."""

    scratch: Path
    images: Path
    repeat: Repeat
    network: torch.nn.Module
    image: np.ndarray
    """One of the images."""


def _train(scratch: Path, *, size: int, epochs: int) -> _Trained:
    import torch

    import cellrepro
    from cellrepro.images.folder import read_folder
    from cellrepro.images.image_sets import write_benchmark
    from cellrepro.model.network import build
    from cellrepro.model.weight_sources import find_model

    store = scratch / "store"
    images = write_benchmark(scratch, images=N_IMAGES, size=size)
    run = cellrepro.train(images, epochs=epochs, repeats=1, store=store, quiet=True)
    source = find_model(f"{run.key}/0", cellrepro.Store(store))
    return _Trained(
        scratch=scratch,
        images=images,
        repeat=run.repeats[0],
        network=build(source, seed=0, device=torch.device("cpu"), dtype="float32"),
        image=read_folder(images).train[0].image,
    )


def _beside_eval(trained: _Trained, *, n_pairs: int, size: int) -> Figure:
    """Pairs of processes; nothing watches the first of each."""
    eval_seconds = []
    lab_seconds = []
    for number in range(n_pairs):
        store = trained.scratch / f"pair {number}"
        unwatched = _segment(trained, ledger="off", store=store).manifest
        watched = _segment(trained, ledger="steps", store=store).manifest
        eval_seconds.append(sum(record.seconds for record in unwatched.masks.values()))
        lab_seconds.append(watched.seconds["segment"])
    ratio = statistics.median(lab_seconds) / statistics.median(eval_seconds)
    how = f"{N_IMAGES} images of {size}², ledger steps, masks written; {n_pairs} pairs of processes"
    return Figure("segmenting / CellposeModel.eval alone", ratio, "<= 1.05", how)


def _segment(trained: _Trained, *, ledger: str, store: Path) -> Repeat:
    import cellrepro

    run = cellrepro.segment(
        trained.images,
        model=str(trained.repeat.weights),
        repeats=1,
        ledger=ledger,
        store=store,
        quiet=True,
    )
    return run.repeats[0]


def _shared_passes(network: torch.nn.Module, image: np.ndarray, n_variants: int) -> Figure:
    """Variants of a setting that the network does not see need one pass of it together."""
    from cellrepro.model.evaluator import evaluator

    thresholds = [0.05 * number for number in range(n_variants)]

    def seconds_at(evaluate: Evaluator, threshold: float) -> float:
        return seconds_of(lambda: evaluate(image, cellprob_threshold=threshold))

    plain = evaluator(network)
    sharing = evaluator(network, sharing=True)
    separate_seconds = sum(seconds_at(plain, threshold) for threshold in thresholds)
    one_pass = statistics.median(seconds_of(lambda: _only_network(plain, image)) for _ in range(5))
    shared_seconds = sum(seconds_at(sharing, threshold) for threshold in thresholds)
    ratio = shared_seconds / (separate_seconds - (n_variants - 1) * one_pass)
    size = image.shape[0]
    how = f"{n_variants} thresholds, {size}²; one pass of the network takes {one_pass:.2f} s"
    name = "variants that share a pass / one pass and their reconstructions"
    return Figure(name, ratio, "<= 1.1", how)


def _only_network(evaluate: Evaluator, image: np.ndarray) -> None:
    evaluate.model.eval(image, channel_axis=None, compute_masks=False)


def _batch_invariance(network: torch.nn.Module) -> Figure:
    """What it takes to see which operations depend on the batch."""
    import torch

    from samebits.trace.batch_invariance import batch_invariance

    tiles = torch.rand(8, 1, 256, 256)
    with torch.no_grad():
        network(tiles)
        one_pass = statistics.median(seconds_of(lambda: network(tiles)) for _ in range(5))
    seconds = seconds_of(lambda: batch_invariance(network, tiles, model=network))
    name = "batch invariance of 8 tiles, in passes"
    return Figure(name, seconds / one_pass, "<= 6", "median of 5 passes")
