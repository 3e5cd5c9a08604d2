"""Training: the loop, what determinism costs, substitutes, what is learnt."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measuring import ROUNDS, Extent, Figure, in_turns, ratio_of, seconds_of


def import_time(extent: Extent) -> Iterator[Figure]:
    n = extent.of(1, ROUNDS)
    command = [sys.executable, "-c", "import cellrepro"]
    times = [seconds_of(lambda: subprocess.run(command, check=True)) for _ in range(n)]
    median = statistics.median(times)
    yield Figure("import cellrepro, seconds", median, "<= 0.5", f"median of {n} processes")


def loop(extent: Extent) -> Iterator[Figure]:
    """The lab's loop beside Cellpose's own, and strict beside fast, over the same steps."""
    from cellpose.train import train_seg

    from cellrepro.images.synthetic_sets import labelled_nuclei
    from cellrepro.model.network import seeded_network
    from cellrepro.model.training_loop import TrainingLoop
    from samebits.modes import mode_in_force

    draws, n_images, rounds = extent.of((1, 1, 1), (16, 8, ROUNDS))
    images = labelled_nuclei(n_images)
    with tempfile.TemporaryDirectory() as scratch:

        def cellpose() -> None:
            train_seg(
                seeded_network("tiny", seed=0),
                train_data=[image.image for image in images],
                train_labels=[image.masks for image in images],
                n_epochs=2,
                nimg_per_epoch=draws,
                learning_rate=1e-3,
                weight_decay=0.1,
                save_path=scratch,
                model_name="bench",
            )

        def ours(mode: str) -> None:
            network = seeded_network("tiny", seed=0)
            with mode_in_force(mode):
                loop = TrainingLoop(
                    network, images, (), n_epochs=2, images_per_epoch=draws, learning_rate=1e-3
                )
                loop.run()

        variants = {
            "cellpose": cellpose,
            "fast": partial(ours, "fast"),
            "strict": partial(ours, "strict"),
        }
        seconds = in_turns(variants, rounds)
    how = f"{2 * draws} steps of tiny, {rounds} alternating rounds, medians of the pairs"
    name = "lab's loop, fast / cellpose.train.train_seg"
    yield ratio_of(name, seconds, "fast", "cellpose", "<= 1.05", how)
    yield ratio_of("lab's loop, strict / fast", seconds, "strict", "fast", "<= 1.05", how)


def cost(extent: Extent) -> Iterator[Figure]:
    """What determinism costs a step: every mode beside plain ``train_seg``."""
    from cellrepro.audits.cost import measure_cost

    for encoder, steps, rounds in extent.of(
        [("tiny", 1, 1)], [("tiny", 4, 12)], [("tiny", 4, 12), ("vit-b", 2, 3)]
    ):
        measured = measure_cost(encoder=encoder, steps=steps, rounds=rounds, quiet=True)
        over = f"{rounds} alternating rounds of {steps} steps, {measured.threads} threads"
        name = f"{encoder}: seconds a step, plain cellpose.train.train_seg"
        yield Figure(name, measured.table[0].seconds, "", f"median, {over}")
        for row in measured.table[1:]:
            how = f"{row.what}; {row.lowest:.2f} to {row.highest:.2f}, {over}"
            target = "<= 1.00" if row.name == "strict" else ""
            yield Figure(f"{encoder}: {row.name} / plain", row.ratio, target, how)


REL_POS_CALLS = (
    ("CPSAM, 20 of 24 blocks", 27, 32, 64),
    ("CPSAM, 4 of 24 blocks", 127, 32, 64),
    ("tiny, first block", 27, 16, 192),
    ("tiny, last block", 127, 16, 192),
)
"""What is called, rows stored, positions along an axis, width of a head."""


def substitutes(extent: Extent) -> Iterator[Figure]:
    """Each substitute and both together beside what they replace, forward and backward."""
    import torch
    from segment_anything.modeling import image_encoder

    from samebits.substitutes import applied

    rounds, inner = extent.of((1, 1), (15, 20))
    without = {
        "original": ("upsample_linear1d_backward", "index_put"),
        "gather": ("upsample_linear1d_backward",),  # so that the gather's substitute is alone
        "interpolation": ("index_put",),
        "both": (),
    }
    for place_in_network, n_rows, k, width in REL_POS_CALLS:
        generator = torch.Generator().manual_seed(0)
        rel = torch.randn(n_rows, width, generator=generator).requires_grad_()
        upstream = torch.randn(k, k, width, generator=generator)

        def call(left_out: tuple[str, ...], rel: Any, upstream: Any, k: int) -> None:
            with applied(without=left_out):
                for _ in range(inner):
                    rel.grad = None
                    image_encoder.get_rel_pos(k, k, rel).backward(upstream)

        calls = {
            name: partial(call, left_out, rel, upstream, k) for name, left_out in without.items()
        }
        seconds = in_turns(calls, rounds)
        original = 1e3 * statistics.median(seconds["original"]) / inner
        how = f"{original:.3f} ms originally, medians of {rounds} rounds of {inner} calls in turns"
        for name in ("gather", "interpolation", "both"):
            shown = "substitutes" if name == "both" else f"substitute {name}"
            title = f"get_rel_pos, {place_in_network}: {shown} / original"
            yield ratio_of(title, seconds, name, "original", "", how)


def numeric_class_time(extent: Extent) -> Iterator[Figure]:
    from cellrepro.store.numeric_class import measure_numeric_class

    n = extent.of(1, ROUNDS)
    times = [seconds_of(measure_numeric_class) for _ in range(n)]
    # The longest is the first one, which is what a run pays.
    how = f"longest of {n}, PyTorch imported; median {statistics.median(times):.2f}"
    yield Figure("numeric class, seconds", max(times), "<= 2", how)


def learning(extent: Extent) -> Iterator[Figure]:
    """What `tiny` learns, and in how many seconds of training."""
    import cellrepro
    from cellrepro.images.synthetic_sets import write_folder

    # The least after which it finds a cell: an AP of 0 would be no figure.
    least = {"epochs": 4, "images_per_epoch": 16, "learning_rate": 0.01}
    settings = extent.of(least, {"epochs": 24})
    options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in settings.items())
    with tempfile.TemporaryDirectory() as scratch:
        synthetic = Path(scratch, "synthetic")
        write_folder(synthetic, **extent.of({"n_train": 1, "n_test": 1}, {}))
        goals = {synthetic: 0.8} if extent.data is None else {synthetic: 0.8, extent.data: 0.65}
        for folder, goal in goals.items():
            store = Path(scratch, "store")
            outcome = cellrepro.train(folder, repeats=1, quiet=True, store=store, **settings)
            manifest = outcome.repeats[0].manifest
            how = f"cellrepro train DATA {options} --repeats 1"
            yield Figure(
                f"tiny on {folder.name}: mean AP@0.5", manifest.ap50 or 0.0, f">= {goal}", how
            )
            seconds = manifest.seconds["train"]
            yield Figure(f"tiny on {folder.name}: seconds of training", seconds, "<= 90", how)
