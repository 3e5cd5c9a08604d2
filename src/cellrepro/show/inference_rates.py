"""How fast segmentations were: images, pixels and cells a second, by size and batch size."""

from __future__ import annotations

import itertools
import operator
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from cellrepro.images.public_sets import write_benchmark
from cellrepro.run.train import Outcome, segment
from cellrepro.same.names import Names, place_of
from cellrepro.same.verdicts import judge
from cellrepro.store.store import Repeat, Run

RATES = ("images/s", "megapixels/s", "cells/s")


def inference_rates(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Of those runs that only segmented: a row for each spec on a machine, by setting and size.

    Each of `RATES` is the median over the repeats, the lowest and the highest. Its seconds are
    those of ``CellposeModel.eval`` alone: normalisation, tiles, network and masks. Starting,
    reading and loading the network are not in it; neither is the first image of a process, for
    which libraries prepare themselves. ``edge`` is that of a square of as many pixels.
    """
    segmented = [run.machines.values() for run in runs if run.spec.task == "segment"]
    each = [list(repeats.values()) for repeats in itertools.chain(*segmented)]
    names, rows = Names(itertools.chain(*each)), []
    for repeats in each:
        first, spec = repeats[0], repeats[0].spec
        shapes = {name: _shape(first, name) for name in first.manifest.masks}
        sizes = {" × ".join(map(str, shape)) for shape in shapes.values()}
        pixels = {name: prod(shape) for name, shape in shapes.items()}
        head, *others = pixels
        timed = {name: pixels[name] for name in others or [head]}
        rates = zip(*(_rates(repeat, timed) for repeat in repeats), strict=True)
        spans = [(statistics.median(found), min(found), max(found)) for found in rates]
        row = {
            "images": spec.data,
            "edge": statistics.mean(pixels.values()) ** 0.5,
            "size": sizes.pop() if len(sizes) == 1 else f"{len(sizes)} sizes",
            "batch size": spec.settings.batch_size,
            "setting": names.context(place_of(first), ("data", "batch_size")),
            "repeats": len(repeats),
            "timed": len(timed),
            **dict(zip(RATES, spans, strict=True)),
            "first image, s": round(statistics.median(_seconds(one, head) for one in repeats), 3),
            "masks of all repeats": judge([one.manifest for one in repeats]).overall,
        }
        rows.append(row)
    return sorted(rows, key=operator.itemgetter("setting", "edge", "images", "batch size"))


def _rates(repeat: Repeat, pixels: Mapping[str, int]) -> list[float]:
    seconds = sum(_seconds(repeat, name) for name in pixels)
    n_cells = sum(repeat.manifest.masks[name].n_objects for name in pixels)
    return [n / seconds for n in (len(pixels), sum(pixels.values()) / 1e6, n_cells)]


def _seconds(repeat: Repeat, image: str) -> float:
    return repeat.manifest.masks[image].seconds


def _shape(repeat: Repeat, image: str) -> tuple[int, ...]:
    """Of an image's masks, from the file's header."""
    import tifffile

    with tifffile.TiffFile(repeat.file(repeat.manifest.masks[image].file)) as file:
        return file.series[0].shape


def segment_sizes(
    sizes: Sequence[int], batch_sizes: Sequence[int], *, n_images: int = 3, **parameters: Any
) -> list[Outcome]:
    """Segment ``n_images`` made-up images of each size, pixels along an edge, at each batch size;
    the parameters are those of `cellrepro.segment`."""
    outcomes = []
    with tempfile.TemporaryDirectory() as scratch:  # the store keeps what was segmented
        for size, batch_size in itertools.product(sizes, batch_sizes):
            folder = write_benchmark(Path(scratch), images=n_images, size=size)
            outcomes.append(segment(folder, batch_size=batch_size, **parameters))
    return outcomes
