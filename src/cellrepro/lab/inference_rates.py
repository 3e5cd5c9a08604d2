"""How fast segmentations were: images, pixels and cells a second, by size and batch size."""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.compare.names import Names, place_of
from cellrepro.compare.verdicts import judge
from cellrepro.images.public_sets import write_benchmark
from cellrepro.lab.run import Outcome, segment
from cellrepro.store.disk import inside
from cellrepro.store.store import Repeat, Run

Span = tuple[float, float, float]
"""The median over repeats, the lowest and the highest."""


@dataclass(frozen=True)
class Rate:
    """Segmentations of one spec on one machine, over the seconds of ``CellposeModel.eval`` alone:
    normalisation, tiles, network and masks. Starting, reading, and loading the network are not in
    it; neither is the first image of a process, for which libraries prepare themselves."""

    setting: str  # what tells it from the others beside data and batch size
    data: str
    edge: float  # of a square image of as many pixels
    size: str
    batch_size: int
    n_images: int  # timed in each repeat
    n_repeats: int
    masks: str  # the verdict over every repeat's masks
    images: Span  # a second, and so the others
    megapixels: Span
    cells: Span


def inference_rates(runs: Iterable[Run]) -> list[Rate]:
    """Of those runs that only segmented, by data set size and batch size."""
    segmented = [run for run in runs if run.spec.task == "segment"]
    names = Names(repeat for run in segmented for repeat in run.repeats)
    each = [[*repeats.values()] for run in segmented for repeats in run.machines.values()]
    found = [_rate(names, repeats) for repeats in each]
    return sorted(found, key=lambda rate: (rate.setting, rate.edge, rate.data, rate.batch_size))


def _rate(names: Names, repeats: Sequence[Repeat]) -> Rate:
    """Of the repeats of one spec on one machine."""
    first = repeats[0]
    shapes = {name: _shape(first, name) for name in first.manifest.masks}
    timed = list(shapes)[1:] or list(shapes)
    pixels = {name: float(np.prod(shape)) for name, shape in shapes.items()}
    seen = {" × ".join(map(str, shape)) for shape in shapes.values()}
    each = np.array([_amounts(repeat, timed, pixels) for repeat in repeats])
    spans = [(statistics.median(column), min(column), max(column)) for column in each.T.tolist()]
    return Rate(
        names.context(place_of(first), ("data", "batch_size")),
        first.spec.data,
        statistics.mean(pixels.values()) ** 0.5,
        seen.pop() if len(seen) == 1 else f"{len(seen)} sizes",
        first.spec.settings.batch_size,
        len(timed),
        len(repeats),
        str(judge([repeat.manifest for repeat in repeats]).overall or "no verdict"),
        *spans,
    )


def _amounts(repeat: Repeat, timed: Sequence[str], pixels: dict[str, float]) -> list[float]:
    """Images, megapixels and cells a second."""
    records = [repeat.manifest.masks[name] for name in timed]
    seconds = sum(record.seconds for record in records)
    n_cells = sum(record.n_objects for record in records)
    return [n / seconds for n in (len(timed), sum(pixels[name] for name in timed) / 1e6, n_cells)]


def _shape(repeat: Repeat, image: str) -> tuple[int, ...]:
    """Of an image's masks, from the file's header."""
    import tifffile

    with tifffile.TiffFile(inside(repeat.folder, repeat.manifest.masks[image].file)) as file:
        return file.series[0].shape


def segment_sizes(
    sizes: Sequence[int], batch_sizes: Sequence[int], *, n_images: int = 3, **parameters: Any
) -> list[Outcome]:
    """Segment made-up images of each size at each batch size; the parameters are `segment`'s.

    ``sizes``: pixels along an edge; ``n_images``: of each size, the first of which is not timed.
    """
    outcomes = []
    with tempfile.TemporaryDirectory() as scratch:  # the store keeps what was segmented
        for size, batch_size in itertools.product(sizes, batch_sizes):
            folder = write_benchmark(Path(scratch), images=n_images, size=size)
            outcomes.append(segment(folder, batch_size=batch_size, **parameters))
    return outcomes
