"""How fast segmentations were: images, pixels and cells a second, by size and batch size."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from cellrepro.comparison.judgement import judge
from cellrepro.comparison.place_fields import place_of
from cellrepro.comparison.run_names import Names
from cellrepro.comparison.verdicts import Verdict
from cellrepro.median_range import MedianRange

if TYPE_CHECKING:
    from cellrepro.store.stored_run import Repeat, Run


@dataclass(frozen=True)
class SegmentationSpeed:
    """How fast the repeats of one spec segmented on one machine.

    Seconds are those of ``CellposeModel.eval`` alone: normalisation, tiles, network and masks.
    Starting, reading and loading the network are not counted. The first image of a process, for
    which libraries warm up, makes no rate unless it is the only one.
    """

    images: str
    """The name of their folder."""
    size: str
    """Rows and columns of the images, or how many sizes they have."""
    edge: float
    """The square root of the mean number of pixels."""
    n_tiles_at_once: int
    setting: str
    """What else tells this spec and machine apart from the others."""
    n_repeats: int
    n_timed: int
    """How many images the rates are of."""
    is_first_image: bool
    """Whether they are of the first image, as there is no other."""
    images_per_second: MedianRange
    """Over the repeats, as what follows."""
    megapixels_per_second: MedianRange
    cells_per_second: MedianRange
    first_image_seconds: float
    """The median over the repeats."""
    verdict: Verdict | None
    """Over the masks of all repeats; None of a single repeat."""


def inference_rates(runs: Iterable[Run]) -> list[SegmentationSpeed]:
    """Get the speed of runs that only segmented, a record for each spec on each machine."""
    groups = [
        list(repeats.values())
        for run in runs
        if run.spec.task == "segment"
        for repeats in run.machines.values()
    ]
    names = Names(repeat for repeats in groups for repeat in repeats)
    speeds = [_speed(repeats, names) for repeats in groups if _is_timed(repeats)]
    return sorted(
        speeds, key=lambda speed: (speed.setting, speed.edge, speed.images, speed.n_tiles_at_once)
    )


def has_several_sizes(speeds: Sequence[SegmentationSpeed]) -> bool:
    """Whether images have more than one size, so that a curve over sizes is more than a point."""
    return len({speed.edge for speed in speeds}) > 1


def _is_timed(repeats: Sequence[Repeat]) -> bool:
    """Whether every image has masks and a time in every repeat; those of others may lack some."""
    images = repeats[0].manifest.masks.keys()
    return bool(images) and all(
        repeat.manifest.masks.keys() == images
        and all(repeat.has(mask.file) and mask.seconds > 0 for mask in masks)
        for repeat in repeats
        for masks in [repeat.manifest.masks.values()]
    )


def _speed(repeats: Sequence[Repeat], names: Names) -> SegmentationSpeed:
    """Sum up the repeats of one spec on one machine."""
    first = repeats[0]
    spec = first.spec
    shapes = {name: first.masks_shape(name) for name in first.manifest.masks}
    pixels = {name: prod(shape) for name, shape in shapes.items()}
    sizes = {" × ".join(map(str, shape)) for shape in shapes.values()}
    first_image, *others = pixels
    timed = {name: pixels[name] for name in others or [first_image]}
    n_pixels = sum(timed.values())
    seconds = [_seconds(repeat, timed) for repeat in repeats]
    cells = [_n_cells(repeat, timed) for repeat in repeats]
    first_seconds = [_seconds(repeat, [first_image]) for repeat in repeats]
    return SegmentationSpeed(
        images=spec.data,
        size=sizes.pop() if len(sizes) == 1 else f"{len(sizes)} sizes",
        edge=statistics.mean(pixels.values()) ** 0.5,
        n_tiles_at_once=1 if spec.is_tile_by_tile else spec.settings.batch_size,
        setting=names.without(place_of(first), ("data", "batch_size")),
        n_repeats=len(repeats),
        n_timed=len(timed),
        is_first_image=not others,
        images_per_second=MedianRange.over([len(timed) / each for each in seconds]),
        megapixels_per_second=MedianRange.over([n_pixels / 1e6 / each for each in seconds]),
        cells_per_second=MedianRange.over(
            [n / each for n, each in zip(cells, seconds, strict=True)]
        ),
        first_image_seconds=round(statistics.median(first_seconds), 3),
        verdict=judge([repeat.manifest for repeat in repeats]).overall,
    )


def _seconds(repeat: Repeat, images: Iterable[str]) -> float:
    return sum(repeat.manifest.masks[image].seconds for image in images)


def _n_cells(repeat: Repeat, images: Iterable[str]) -> int:
    return sum(repeat.manifest.masks[image].n_objects for image in images)
