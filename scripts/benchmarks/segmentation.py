"""Segmenting beside Cellpose's own `eval`."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measuring import Extent, Figure, seconds_of


def segmentation(extent: Extent) -> Iterator[Figure]:
    """What the lab adds to Cellpose's eval, passes shared between settings, and batches."""
    import torch

    import cellrepro
    from cellrepro.images.folder import read_folder
    from cellrepro.images.public_sets import write_benchmark
    from cellrepro.model.inference import evaluator
    from cellrepro.model.network import build
    from cellrepro.model.weight_sources import find_model
    from cellrepro.trace.batch_invariance import batch_invariance

    size, n_variants, epochs = extent.of((256, 3, 2), (512, 30, 12), (1024, 30, 12))
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch, "store")
        folder = write_benchmark(Path(scratch), images=4, size=size)
        trained = cellrepro.train(folder, epochs=epochs, repeats=1, store=store, quiet=True)
        model = f"{trained.key}/0"
        alone = []
        ours = []
        for i in range(extent.of(1, 9, 9)):  # nothing watches the first of each pair

            def segmented(ledger: str, store: Path = Path(scratch, f"of {i}")) -> Any:
                outcome = cellrepro.segment(
                    folder,
                    model=str(trained.repeats[0].weights),
                    repeats=1,
                    ledger=ledger,
                    store=store,
                    quiet=True,
                )
                return outcome.repeats[0]

            off = segmented("off")
            steps = segmented("steps")
            alone.append(sum(record.seconds for record in off.manifest.masks.values()))
            ours.append(steps.manifest.seconds["segment"])
        ratio = statistics.median(ours) / statistics.median(alone)
        how = f"4 images of {size}², ledger steps, masks written; {len(ours)} pairs of processes"
        yield Figure("segmenting / CellposeModel.eval alone", ratio, "<= 1.05", how)
        source = find_model(model, cellrepro.Store(store))
        network = build(source, seed=0, device=torch.device("cpu"), dtype="float32")
        image = read_folder(folder).train[0].image
    variants = [{"cellprob_threshold": 0.05 * i} for i in range(n_variants)]
    plain = evaluator(network)
    sharing = evaluator(network, sharing=True)
    each = [seconds_of(lambda v=v: plain(image, **v)) for v in variants]
    one_pass = statistics.median(seconds_of(lambda: _only_network(plain, image)) for _ in range(5))
    together = sum(seconds_of(lambda v=v: sharing(image, **v)) for v in variants)
    ratio = together / (sum(each) - (n_variants - 1) * one_pass)
    how = f"{n_variants} thresholds, {size}²; one pass of the network takes {one_pass:.2f} s"
    yield Figure(
        "variants that share a pass / one pass and their reconstructions", ratio, "<= 1.1", how
    )
    tiles = torch.rand(8, 1, 256, 256)
    with torch.no_grad():
        network(tiles)
        passes = statistics.median(seconds_of(lambda: network(tiles)) for _ in range(5))
    compared = seconds_of(lambda: batch_invariance(network, tiles, model=network))
    yield Figure(
        "batch invariance of 8 tiles, in passes", compared / passes, "<= 6", "median of 5 passes"
    )


def _only_network(evaluate: Any, image: Any) -> None:
    evaluate.model.eval(image, channel_axis=None, compute_masks=False)
